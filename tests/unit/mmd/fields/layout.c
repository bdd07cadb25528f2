/* SPDX-License-Identifier: Apache-2.0 */
/* Structs in the memory of another build: copied by their names, or refused by the field's name. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "mmd/fields/format.h"
#include "mmd/fields/layout.h"

#ifdef __SANITIZE_ADDRESS__
#define DAMAGES 2000
#else
#define DAMAGES 20000
#endif

/* ---- the build that wrote ---- */

struct leaf {
	uint16_t a;
	bool b;
};
MM_FIELDS_DEFINE(leaf_fields, struct leaf, MM_ONE(struct leaf, a), MM_ONE(struct leaf, b));

struct tree {
	uint32_t first, second;
	int16_t sign;
	uint8_t state;
	char name[8];
	struct leaf leaf[4];
	uint64_t word[20000];
	void *pointer;
};
MM_FIELDS_DEFINE(tree_fields, struct tree, MM_ONE(struct tree, first), MM_ONE(struct tree, second),
		 MM_ONE(struct tree, sign), MM_ENUM(struct tree, state, 5),
		 MM_BYTES(struct tree, name), MM_STRUCTS(struct tree, leaf, leaf_fields),
		 MM_ARRAY(struct tree, word), MM_NOT_SAVED(struct tree, pointer));

static const struct mm_fields *const old_roots[] = { &tree_fields };
static unsigned char schema[MM_LAYOUT_BYTES];
static size_t schema_bytes;
static struct tree old;

/* ---- builds that read ---- */

/* Tables by the names of the structs above. */
#define TABLE(symbol, struct_name, type, ...)                                       \
	static const struct mm_field symbol##_list[] = { __VA_ARGS__ };             \
	static const struct mm_fields symbol = { .name = struct_name,               \
						 .bytes = sizeof(type),             \
						 .n = MM_ARRAY_SIZE(symbol##_list), \
						 .field = symbol##_list }

struct wide_leaf {
	bool b;
	uint64_t a;
	uint16_t added;
};
TABLE(wide_leaf_fields, "struct leaf", struct wide_leaf, MM_ONE(struct wide_leaf, b),
      MM_ONE(struct wide_leaf, a), MM_ADDED(struct wide_leaf, added, 77));

struct wide_tree {
	struct wide_leaf leaf[6]; /* more */
	uint32_t second, first;   /* their places are exchanged */
	int64_t sign;
	uint64_t added;
	uint32_t state;
	char name[16];
	uint64_t word[20000];
};
TABLE(wide_tree_fields, "struct tree", struct wide_tree,
      MM_STRUCTS(struct wide_tree, leaf, wide_leaf_fields), MM_ONE(struct wide_tree, second),
      MM_ONE(struct wide_tree, first), MM_ONE(struct wide_tree, sign),
      MM_OPTIONAL(struct wide_tree, added), MM_ENUM(struct wide_tree, state, 6),
      MM_BYTES(struct wide_tree, name), MM_ARRAY(struct wide_tree, word));
static const struct mm_fields *const wide_roots[] = { &wide_tree_fields };

static void old_fill(void)
{
	memset(&old, 0, sizeof(old));
	old.first = 1;
	old.second = 2;
	old.sign = -3;
	old.state = 4;
	memcpy(old.name, "oak", 4);
	for (uint32_t i = 0; i < 4; i++)
		old.leaf[i] = (struct leaf){ (uint16_t)(65535 - i), i % 2 };
	old.word[0] = 5;
	old.word[19999] = 6;
}

static int setup(void **state)
{
	(void)state;
	old_fill();
	schema_bytes = mm_layout_write(old_roots, 1, schema, sizeof(schema));
	return schema_bytes ? 0 : -1;
}

/* Says that all is 0 between the first and the last word. */
static uint64_t next_of_old(void *context, uint64_t at)
{
	const uint64_t first = offsetof(struct tree, word) + 8, last = first + 8 * 19998;

	++*(unsigned int *)context;
	return at >= first && at < last ? last : at;
}

static void test_fields_are_found_by_their_names(void **state)
{
	unsigned int asked = 0;
	const struct mm_layout_memory memory = { (uint8_t *)&old, sizeof(old), next_of_old,
						 &asked };
	static struct mm_layout layout;
	static struct wide_tree wide;

	(void)state;
	assert_int_equal(mm_layout_open(&layout, schema, schema_bytes, wide_roots, 1), 0);
	assert_int_equal(mm_layout_bytes(&layout, &wide_tree_fields), sizeof(old));
	assert_int_equal(mm_layout_copy(&layout, &wide_tree_fields, &memory, 0, &wide), 0);
	assert_int_equal(wide.first, 1);
	assert_int_equal(wide.second, 2);
	assert_int_equal(wide.sign, -3);
	assert_int_equal(wide.state, 4);
	assert_string_equal(wide.name, "oak");
	assert_int_equal(wide.added, 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(wide.leaf[i].a, 65535 - i);
		assert_int_equal(wide.leaf[i].b, i % 2);
		assert_int_equal(wide.leaf[i].added, 77);
	}
	assert_int_equal(wide.leaf[4].a, 0);
	assert_int_equal(wide.word[0], 5);
	assert_int_equal(wide.word[19999], 6);
	assert_in_range(asked, 1, 10); /* the rest was passed over */
	assert_int_equal(mm_layout_copy(&layout, &wide_tree_fields, &memory, 8, &wide), -EBADMSG);
}

/* A place that is exchanged with another one of the same size is another layout. */
static void test_the_number_tells_layouts_apart(void **state)
{
	struct exchanged {
		uint32_t b, a;
	};
	TABLE(there, "struct pair", struct exchanged, MM_ONE(struct exchanged, a),
	      MM_ONE(struct exchanged, b));
	struct pair {
		uint32_t a, b;
	};
	TABLE(here, "struct pair", struct pair, MM_ONE(struct pair, a), MM_ONE(struct pair, b));
	const struct mm_fields *const two[] = { &here, &there };
	unsigned char bytes[2][512];
	size_t n[2];

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		n[i] = mm_layout_write(&two[i], 1, bytes[i], sizeof(bytes[i]));
	assert_int_equal(n[0], n[1]);
	assert_true(mm_layout_number(bytes[0], n[0]) != mm_layout_number(bytes[1], n[1]));
}

static void layout_refusal_check(const struct mm_fields *fields, const char *why)
{
	static struct mm_layout layout;

	assert_int_equal(mm_layout_open(&layout, schema, schema_bytes, &fields, 1), -EPROTO);
	assert_string_equal(layout.why, why);
}

#define REST                                                         \
	MM_ENUM(struct tree, state, 5), MM_BYTES(struct tree, name), \
		MM_STRUCTS(struct tree, leaf, leaf_fields), MM_ARRAY(struct tree, word)

static void test_what_has_no_place_here_is_refused(void **state)
{
	struct narrow {
		uint16_t first;
		uint32_t second, sign;
		char name[7];
		int64_t needed;
	};
	TABLE(removed, "struct tree", struct tree, MM_ONE(struct tree, first),
	      MM_ONE(struct tree, sign), REST);
	TABLE(narrower, "struct tree", struct narrow, MM_ONE(struct narrow, first));
	TABLE(unsigned_now, "struct tree", struct narrow, MM_OPTIONAL(struct tree, first),
	      MM_OPTIONAL(struct tree, second), MM_ONE(struct narrow, sign));
	TABLE(shorter, "struct tree", struct narrow, MM_OPTIONAL(struct tree, first),
	      MM_OPTIONAL(struct tree, second), MM_OPTIONAL(struct tree, sign),
	      MM_OPTIONAL(struct tree, state), MM_BYTES(struct narrow, name));
	TABLE(needs, "struct tree", struct tree, MM_ONE(struct tree, first),
	      MM_ONE(struct tree, second), MM_ONE(struct tree, sign), REST,
	      MM_ONE(struct narrow, needed));

	(void)state;
	layout_refusal_check(&removed, "field second of struct tree is not known here");
	layout_refusal_check(&narrower, "field first of struct tree is narrower here");
	layout_refusal_check(&unsigned_now, "field sign of struct tree is of another kind here");
	layout_refusal_check(&shorter, "field name of struct tree has fewer elements here");
	layout_refusal_check(&needs, "field needed of struct tree is not there");
}

static void test_impossible_numbers_are_refused(void **state)
{
	const struct mm_layout_memory memory = { (uint8_t *)&old, sizeof(old), NULL, NULL };
	static struct mm_layout layout;
	static struct wide_tree wide;
	uint8_t *b = (uint8_t *)&old.leaf[2].b;

	(void)state;
	assert_int_equal(mm_layout_open(&layout, schema, schema_bytes, wide_roots, 1), 0);
	old.state = 6;
	assert_int_equal(mm_layout_copy(&layout, &wide_tree_fields, &memory, 0, &wide), -EBADMSG);
	assert_string_equal(layout.why, "damaged: no such value of state");
	old.state = 5;
	*b = 2;
	assert_int_equal(mm_layout_copy(&layout, &wide_tree_fields, &memory, 0, &wide), -EBADMSG);
	assert_string_equal(layout.why, "damaged: no such value of b");
	old_fill();
}

/* Tables that were changed, with a checksum that fits, are refused or read within bounds. */
static void test_damaged_tables(void **state)
{
	const struct mm_layout_memory memory = { (uint8_t *)&old, sizeof(old), NULL, NULL };
	static unsigned char bytes[MM_LAYOUT_BYTES];
	static struct mm_layout layout;
	static struct wide_tree wide;
	uint64_t random = 1;
	uint64_t sum;
	int opened = 0;

	(void)state;
	for (uint32_t i = 0; i < DAMAGES; i++) {
		size_t n = schema_bytes;

		memcpy(bytes, schema, n);
		bytes[mm_random_below(&random, n)] = (unsigned char)mm_random_below(&random, 256);
		if (i % 8 == 0)
			n = mm_random_below(&random, n + 1);
		assert_true(mm_layout_open(&layout, bytes, n, wide_roots, 1) <= 0);
		if (n < 32)
			continue;
		sum = mm_rows_checksum(bytes + 32, n - 32);
		memcpy(bytes + 16, &sum, sizeof(sum));
		if (mm_layout_open(&layout, bytes, n, wide_roots, 1) < 0)
			continue;
		opened++;
		(void)mm_layout_copy(&layout, &wide_tree_fields, &memory, 0, &wide);
	}
	assert_true(opened > 0 && opened < DAMAGES / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields_are_found_by_their_names),
		cmocka_unit_test(test_the_number_tells_layouts_apart),
		cmocka_unit_test(test_what_has_no_place_here_is_refused),
		cmocka_unit_test(test_impossible_numbers_are_refused),
		cmocka_unit_test(test_damaged_tables),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
