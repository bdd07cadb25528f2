/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that one version writes and another one reads; rows that are damaged. */
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
#include "mmd/fields/rows.h"

/* ---- the first version ---- */

struct leaf {
	uint16_t a;
	bool b;
};
MM_FIELDS_DEFINE(leaf_fields, struct leaf, MM_ONE(struct leaf, a), MM_ONE(struct leaf, b));

struct tree {
	uint32_t n;
	int16_t sign;
	uint64_t wide;
	uint8_t state;
	struct leaf leaf[8];
	uint64_t word[4];
	void *pointer;
};

static uint32_t leaves_used(const void *whole)
{
	return ((const struct tree *)whole)->n;
}

MM_FIELDS_DEFINE(tree_fields, struct tree, MM_ONE(struct tree, n), MM_ONE(struct tree, sign),
		 MM_ONE(struct tree, wide), MM_ENUM(struct tree, state, 5),
		 MM_STRUCTS_USED(struct tree, leaf, leaf_fields, leaves_used),
		 MM_ARRAY_TRIMMED(struct tree, word), MM_NOT_SAVED(struct tree, pointer));

/* ---- later versions of the same structs, by their names ---- */

struct leaf_later {
	bool b;
	uint32_t a, height;
};
static const struct mm_field leaf_later_list[] = {
	MM_ONE(struct leaf_later, b),
	MM_ONE(struct leaf_later, a),
	MM_OPTIONAL(struct leaf_later, height),
};
static const struct mm_fields leaf_later_fields = { "struct leaf", sizeof(struct leaf_later), 3,
						    leaf_later_list };

struct tree_later {
	uint32_t wide; /* narrower */
	int64_t sign;
	uint32_t n, state, added;
	struct leaf_later leaf[6]; /* fewer */
	uint64_t word[9];
};
#define TREE_LATER(added_field)                                                     \
	MM_ONE(struct tree_later, wide), MM_ONE(struct tree_later, sign),           \
		MM_ONE(struct tree_later, n), MM_ENUM(struct tree_later, state, 7), \
		MM_STRUCTS(struct tree_later, leaf, leaf_later_fields),             \
		MM_ARRAY(struct tree_later, word), added_field
static const struct mm_field tree_later_list[] = { TREE_LATER(
	MM_OPTIONAL(struct tree_later, added)) };
static const struct mm_field tree_needs_list[] = { TREE_LATER(MM_ONE(struct tree_later, added)) };
static const struct mm_fields tree_later_fields = { "struct tree", sizeof(struct tree_later), 7,
						    tree_later_list };
static const struct mm_fields tree_needs_fields = { "struct tree", sizeof(struct tree_later), 7,
						    tree_needs_list };

static const struct mm_fields *const now[] = { &tree_fields };
static const struct mm_fields *const later[] = { &tree_later_fields };
static const struct mm_fields *const needs[] = { &tree_needs_fields };
static const struct mm_fields *const leaves[] = { &leaf_fields };

static uint8_t memory[4096];
static struct mm_rows_reader reader;

static const struct tree example = {
	.n = 3,
	.sign = -7,
	.wide = 4000000000,
	.state = 4,
	.leaf = { { 1, true }, { 2, false }, { 3, true }, { 4, true } },
	.word = { 1, 2 },
	.pointer = memory,
};

static size_t example_write(const struct tree *tree, uint32_t n)
{
	static struct mm_rows_writer w;
	size_t bytes;

	memset(memory, 0xee, sizeof(memory));
	mm_rows_begin(&w, memory, sizeof(memory), now, 1);
	mm_rows_put(&w, &tree_fields, 9, tree, n);
	assert_int_equal(mm_rows_end(&w, &bytes), 0);
	return bytes;
}

static size_t example_later_write(const struct mm_fields *const *roots, struct tree_later *tree)
{
	static struct mm_rows_writer w;
	size_t bytes;

	mm_rows_begin(&w, memory, sizeof(memory), roots, 1);
	mm_rows_put(&w, roots[0], 9, tree, 1);
	assert_int_equal(mm_rows_end(&w, &bytes), 0);
	return bytes;
}

/* Reads the one row there is. */
static int example_read(size_t bytes, const struct mm_fields *const *roots, void *to, uint32_t most)
{
	struct mm_row row, none;
	int r = mm_rows_open(&reader, memory, bytes, roots, 1);

	if (r)
		return r;
	r = mm_rows_next(&reader, &row);
	if (r)
		return r;
	if (row.fields)
		r = mm_rows_get(&reader, &row, to, most);
	if (r)
		return r;
	return mm_rows_next(&reader, &none) == MM_E_EMPTY ? 0 : -EBADMSG;
}

static void test_same_version(void **state)
{
	struct tree tree[2], two[2] = { example, example };
	size_t bytes = example_write(two, 2);

	(void)state;
	memset(tree, 0, sizeof(tree));
	assert_int_equal(example_read(bytes, now, tree, 2), 0);
	assert_int_equal(tree[1].n, 3);
	assert_int_equal(tree[1].sign, -7);
	assert_int_equal(tree[1].wide, 4000000000);
	assert_int_equal(tree[1].leaf[2].a, 3);
	assert_true(tree[1].leaf[2].b);
	assert_int_equal(tree[1].leaf[3].a, 0); /* not in use */
	assert_int_equal(tree[1].word[1], 2);
	assert_null(tree[1].pointer);
	assert_int_equal(example_read(bytes, now, tree, 1), -EPROTO);
}

static void test_later_version(void **state)
{
	struct tree_later tree = { .added = 77 };
	struct tree more = example;
	size_t bytes = example_write(&example, 1);

	(void)state;
	tree.leaf[1].height = 5;
	assert_int_equal(example_read(bytes, later, &tree, 1), 0);
	assert_int_equal(tree.sign, -7);
	assert_int_equal(tree.wide, 4000000000);
	assert_int_equal(tree.state, 4);
	assert_int_equal(tree.leaf[2].a, 3);
	assert_int_equal(tree.added, 77); /* as it was before */
	assert_int_equal(tree.leaf[1].height, 5);
	assert_int_equal(example_read(bytes, needs, &tree, 1), -EPROTO);
	assert_non_null(strstr(reader.why, "added"));
	more.wide = UINT64_C(1) << 32;
	assert_int_equal(example_read(example_write(&more, 1), later, &tree, 1), -EBADMSG);
	assert_non_null(strstr(reader.why, "wide"));
	more = example;
	more.n = 7;
	assert_int_equal(example_read(example_write(&more, 1), later, &tree, 1), -EPROTO);
	assert_non_null(strstr(reader.why, "leaf"));
}

static void test_earlier_version(void **state)
{
	struct tree_later tree = { .wide = 1, .n = 2, .added = 3 };
	struct tree got = { 0 };

	(void)state;
	assert_int_equal(example_read(example_later_write(later, &tree), now, &got, 1), -EPROTO);
	assert_non_null(strstr(reader.why, "word")); /* nine words */
	tree.state = 6;
	assert_int_equal(example_read(example_later_write(needs, &tree), now, &got, 1), -EPROTO);
	assert_non_null(strstr(reader.why, "added")); /* it must not be ignored */
	/* A struct that is not known at all, with fields that must not be ignored. */
	assert_int_equal(example_read(example_write(&example, 1), leaves, &got, 1), -EPROTO);
	assert_non_null(strstr(reader.why, "struct tree"));
}

/* Whatever the bytes are, the reader stays within them and within the structs. */
static void test_damaged(void **state)
{
	uint8_t copy[sizeof(memory)];
	const size_t head = MM_ROWS_HEAD_WORDS * 8, bytes = example_write(&example, 1);
	uint64_t seed = 3, sum;
	struct tree tree;

	(void)state;
	memcpy(copy, memory, bytes);
	for (size_t cut = 0; cut < bytes; cut++)
		assert_true(example_read(cut, now, &tree, 1) < 0);
	for (uint32_t i = 0; i < 100000; i++) {
		for (uint64_t n = 1 + mm_random_next(&seed) % 3; n; n--)
			memory[head + mm_random_next(&seed) % (bytes - head)] =
				(uint8_t)mm_random_next(&seed);
		assert_true(!memcmp(memory, copy, bytes) ||
			    example_read(bytes, now, &tree, 1) == -EBADMSG);
		sum = mm_rows_checksum(memory + head, bytes - head);
		memcpy(memory + 16, &sum, sizeof(sum));
		memset(&tree, 0, sizeof(tree));
		if (example_read(bytes, now, &tree, 1) == 0)
			assert_true(tree.state < 5 && !tree.pointer);
		memcpy(memory, copy, bytes);
	}
}

static void test_no_room(void **state)
{
	static struct mm_rows_writer w;
	size_t bytes = example_write(&example, 1), got;

	(void)state;
	for (size_t room = 0; room < bytes; room++) {
		mm_rows_begin(&w, memory, room, now, 1);
		mm_rows_put(&w, &tree_fields, 9, &example, 1);
		assert_int_equal(mm_rows_end(&w, &got), -ENOSPC);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_version),    cmocka_unit_test(test_later_version),
		cmocka_unit_test(test_earlier_version), cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
