/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a store: one wrong field per case, the rest valid. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/client/dir.h"
#include "libclient/base/base.h"

#define GROUPS  3
#define TENSORS 4
#define BYTES   (4096 * 5)

struct store {
	struct mm_dir dir;
	struct mm_dir_group group[GROUPS];
	struct mm_dir_tensor tensor[TENSORS];
	unsigned char rest[BYTES - sizeof(struct mm_dir) - GROUPS * sizeof(struct mm_dir_group) -
			   TENSORS * sizeof(struct mm_dir_tensor)];
};
_Static_assert(sizeof(struct store) == BYTES, "");

static void store_fill(struct store *s)
{
	static const struct {
		const char *name;
		uint32_t group;
		uint64_t offset;
	} tensors[TENSORS] = { { "a", 0, 0 }, { "b", 1, 0 }, { "c", 1, 256 }, { "d", 2, 512 } };

	memset(s, 0, sizeof(*s));
	s->dir = (struct mm_dir){ .magic = MM_DIR_MAGIC,
				  .version = 1,
				  .n_groups = GROUPS,
				  .n_tensors = TENSORS,
				  .groups_offset = offsetof(struct store, group),
				  .tensors_offset = offsetof(struct store, tensor),
				  .store_bytes = BYTES };
	for (uint64_t i = 0; i < GROUPS; i++)
		s->group[i] = (struct mm_dir_group){ 4096 * (1 + i), 1024 };
	for (size_t i = 0; i < TENSORS; i++) {
		s->tensor[i] = (struct mm_dir_tensor){ .group = tensors[i].group,
						       .dtype = MM_DTYPE_BF16,
						       .rank = 2,
						       .shape = { 8, 16 },
						       .offset = tensors[i].offset,
						       .bytes = 256 };
		strcpy(s->tensor[i].name, tensors[i].name);
	}
}

static void test_good(void **state)
{
	mm_cleanup(mm_directory_done) struct mm_directory dir = { 0 };
	struct store s;
	const char *why = NULL;

	(void)state;
	store_fill(&s);
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), 0);
	assert_int_equal(dir.n_groups, GROUPS);
	/* The copy counts, also after the file has changed. */
	memset(&s, 0xff, sizeof(s));
	for (const char *name = "abcd"; *name; name++) {
		const char key[] = { *name, 0 };

		assert_string_equal(mm_directory_find(&dir, key)->name, key);
	}
	assert_null(mm_directory_find(&dir, "aa"));
	assert_null(mm_directory_find(&dir, ""));
}

/*
 * One store serves tenants of all versions: what a later one adds is passed over. Of a type of
 * elements that is not known yet nobody here can say how many bytes they need.
 */
static void test_later(void **state)
{
	mm_cleanup(mm_directory_done) struct mm_directory dir = { 0 };
	struct store s;
	const char *why = NULL;

	(void)state;
	store_fill(&s);
	s.dir.reserved[0] = s.dir.reserved[6] = UINT64_MAX;
	s.tensor[1].reserved[2] = 1;
	s.tensor[2].dtype = MM_DTYPE_C64 + 1;
	s.tensor[2].bytes = 8 * 16;
	s.tensor[2].flags = MM_TENSOR_MEMBER;
	s.tensor[2].offset = 257;
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), 0);
	assert_int_equal(mm_directory_find(&dir, "c")->dtype, MM_DTYPE_C64 + 1);
	mm_directory_done(&dir);
	dir = (struct mm_directory){ 0 };
	s.tensor[2].bytes = 1024;
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), -EBADMSG);
	assert_non_null(strstr(why, "outside its group"));
}

#define AT(field) offsetof(struct store, field), sizeof(((struct store *)0)->field)

static void test_bad(void **state)
{
	static const struct {
		const char *name;
		size_t offset, bytes;
		uint64_t value;
		const char *why;
	} cases[] = {
		{ "magic", AT(dir.magic), 1, "begin" },
		{ "version", AT(dir.version), 2, "version" },
		{ "no groups", AT(dir.n_groups), 0, "groups" },
		{ "many groups", AT(dir.n_groups), MM_LAYERS_MAX + 2, "groups" },
		{ "many tensors", AT(dir.n_tensors), MM_TENSORS_MAX + 1, "many" },
		{ "groups outside", AT(dir.groups_offset), BYTES - 8, "groups lie" },
		{ "groups wrap", AT(dir.groups_offset), UINT64_MAX - 8, "groups lie" },
		{ "tensors outside", AT(dir.tensors_offset), BYTES - 100, "tensors lie" },
		{ "tensors wrap", AT(dir.tensors_offset), UINT64_MAX, "tensors lie" },
		{ "length", AT(dir.store_bytes), BYTES + 1, "length" },
		{ "group misaligned", AT(group[1].store_offset), 4097, "misaligned" },
		{ "group outside", AT(group[2].store_offset), BYTES, "outside" },
		{ "group too long", AT(group[2].bytes), 8193, "outside" },
		{ "group wraps", AT(group[1].bytes), UINT64_MAX, "outside" },
		{ "name unsorted", AT(tensor[1].name[0]), 'd', "sorted" },
		{ "name twice", AT(tensor[1].name[0]), 'c', "sorted" },
		{ "name empty", AT(tensor[0].name[0]), 0, "string" },
		{ "no such group", AT(tensor[0].group), GROUPS, "does not exist" },
		{ "flags", AT(tensor[1].flags), MM_TENSOR_KNOWN + 1, "does not know" },
		{ "dtype 0", AT(tensor[0].dtype), 0, "dtype" },
		{ "rank", AT(tensor[0].rank), 5, "shape" },
		{ "shape", AT(tensor[0].shape[1]), 17, "shape" },
		{ "shape wraps", AT(tensor[0].shape[0]), UINT64_C(1) << 63, "shape" },
		{ "dtype of other size", AT(tensor[0].dtype), MM_DTYPE_F32, "shape" },
		{ "tensor misaligned", AT(tensor[0].offset), 128, "misaligned" },
		{ "tensor outside", AT(tensor[0].offset), 1024, "outside its group" },
		{ "tensor wraps", AT(tensor[0].offset), UINT64_MAX - 255, "outside its group" },
	};
	struct mm_directory dir = { 0 };
	struct store s;
	const char *why;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		print_message("%s\n", cases[i].name);
		store_fill(&s);
		memcpy((char *)&s + cases[i].offset, &cases[i].value, cases[i].bytes);
		assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), -EBADMSG);
		if (!strstr(why, cases[i].why))
			fail_msg("'%s' does not say '%s'", why, cases[i].why);
		assert_null(dir.groups);
	}
	store_fill(&s);
	memset(s.tensor[3].name, 'x', sizeof(s.tensor[3].name));
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), -EBADMSG);
	assert_non_null(strstr(why, "string"));
	for (uint64_t len = 0; len < sizeof(struct mm_dir); len += 13)
		assert_int_equal(mm_directory_read(&s, len, len, &dir, &why), -EBADMSG);
}

/* In a pack, tensors follow each other without padding. */
static void test_member(void **state)
{
	mm_cleanup(mm_directory_done) struct mm_directory dir = { 0 };
	struct store s;
	const char *why;

	(void)state;
	store_fill(&s);
	s.tensor[1].offset = 130;
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), -EBADMSG);
	s.tensor[1].flags = MM_TENSOR_MEMBER | MM_TENSOR_TRANSPOSED;
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), 0);
	mm_directory_done(&dir);
	s.tensor[1].offset = 131;
	assert_int_equal(mm_directory_read(&s, BYTES, BYTES, &dir, &why), -EBADMSG);
	assert_non_null(strstr(why, "misaligned"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_later),
		cmocka_unit_test(test_member),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
