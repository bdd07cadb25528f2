/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/dir.h"
#include "mmd/shell/store.h"

#define GROUPS      3
#define TENSORS     2
#define STORE_BYTES (8 * MM_ABI_PAGE_BYTES)

struct image {
	struct mm_dir dir;
	struct mm_dir_group group[GROUPS];
	struct mm_dir_tensor tensor[TENSORS];
};

static struct image good(void)
{
	struct image i = {
		.dir = { .magic = MM_DIR_MAGIC,
			 .version = 1,
			 .n_groups = GROUPS,
			 .n_tensors = TENSORS,
			 .groups_offset = offsetof(struct image, group),
			 .tensors_offset = offsetof(struct image, tensor),
			 .store_bytes = STORE_BYTES,
			 .identity = { 1, 2, 3 } },
		.group = { { MM_ABI_PAGE_BYTES, 4096 }, { 8192, 8192 }, { 16384, 16384 } },
		.tensor = { { .name = "a",
			      .group = 0,
			      .dtype = MM_DTYPE_F32,
			      .rank = 1,
			      .bytes = 4096 },
			    { .name = "b",
			      .group = 2,
			      .dtype = MM_DTYPE_BF16,
			      .rank = 4,
			      .offset = 256,
			      .bytes = 16384 - 256 } },
	};

	return i;
}

static const char *image_check(const struct image *image)
{
	struct mm_store store = { .bytes = STORE_BYTES, .identity = { 1, 2, 3 } };
	struct mm_core_group *groups = NULL;
	mm_cleanup(mm_close_fd) int fd = memfd_create("dir", MFD_CLOEXEC);
	uint64_t tensor_bytes = 0, sum = 0;
	const char *wrong;
	uint32_t n = 0;

	assert_int_equal(ftruncate(fd, STORE_BYTES), 0);
	assert_int_equal(pwrite(fd, image, sizeof(*image), 0), sizeof(*image));
	wrong = mm_dir_check(fd, &store, &groups, &n, &tensor_bytes);
	if (!wrong) {
		assert_int_equal(n, GROUPS);
		assert_int_equal(groups[2].store_offset, 16384);
		assert_int_equal(groups[2].bytes, 16384);
		for (size_t i = 0; i < TENSORS; i++)
			sum += image->tensor[i].flags & MM_TENSOR_PACK ? 0 : image->tensor[i].bytes;
		assert_int_equal(tensor_bytes, sum);
	}
	free(groups);
	return wrong;
}

/* One malformed field at a time: @bytes at @offset become @value. */
#define MALFORMED(field, v)                                                             \
	{                                                                               \
		offsetof(struct image, field), sizeof(((struct image *)NULL)->field), v \
	}

static const struct {
	size_t offset, bytes;
	uint64_t value;
} malformed[] = {
	MALFORMED(dir.magic, 0),
	MALFORMED(dir.version, 2),
	MALFORMED(dir.n_groups, 1),
	MALFORMED(dir.n_groups, MM_LAYERS_MAX + 2),
	MALFORMED(dir.n_groups, UINT32_MAX),
	MALFORMED(dir.n_tensors, MM_TENSORS_MAX + 1),
	MALFORMED(dir.n_tensors, 200),
	MALFORMED(dir.groups_offset, 0),
	MALFORMED(dir.groups_offset, 132),
	MALFORMED(dir.groups_offset, STORE_BYTES),
	MALFORMED(dir.groups_offset, UINT64_MAX - 7),
	MALFORMED(dir.tensors_offset, STORE_BYTES - 8),
	MALFORMED(dir.tensors_offset, UINT64_MAX - 7),
	MALFORMED(dir.store_bytes, STORE_BYTES + 1),
	MALFORMED(dir.identity[0], 9),
	MALFORMED(dir.reserved[6], 1),
	MALFORMED(group[1].store_offset, 1),
	MALFORMED(group[1].store_offset, STORE_BYTES + MM_ABI_PAGE_BYTES),
	MALFORMED(group[1].bytes, 0),
	MALFORMED(group[1].bytes, UINT64_MAX),
	MALFORMED(group[2].bytes, 16385),
	MALFORMED(tensor[0].name[0], 0),
	MALFORMED(tensor[0].name[MM_TENSOR_NAME_BYTES - 1], 'x'),
	MALFORMED(tensor[0].group, GROUPS),
	MALFORMED(tensor[0].dtype, 0),
	MALFORMED(tensor[0].dtype, MM_DTYPE_C64 + 1),
	MALFORMED(tensor[0].rank, 5),
	MALFORMED(tensor[1].offset, 1),
	MALFORMED(tensor[1].offset, UINT64_MAX - 255),
	MALFORMED(tensor[1].bytes, 16384),
	MALFORMED(tensor[1].bytes, UINT64_MAX),
	MALFORMED(tensor[0].flags, MM_TENSOR_KNOWN + 1),
	MALFORMED(tensor[0].reserved[0], 1),
	MALFORMED(tensor[1].reserved[2], 1),
};

static void test_malformed(void **state)
{
	struct image image = good();

	(void)state;
	assert_null(image_check(&image));
	for (size_t i = 0; i < MM_ARRAY_SIZE(malformed); i++) {
		image = good();
		memcpy((char *)&image + malformed[i].offset, &malformed[i].value,
		       malformed[i].bytes);
		assert_non_null(image_check(&image));
	}
}

/* When all tensors of a model may cycle its resident group exists, but is empty. */
static void test_no_resident_tensors(void **state)
{
	struct image image = good();

	(void)state;
	image.group[0].bytes = image.tensor[0].bytes = 0;
	assert_null(image_check(&image));
	image.group[0].store_offset = image.group[1].store_offset;
	assert_null(image_check(&image));
	image.group[1].bytes = 0;
	assert_non_null(image_check(&image));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_no_resident_tensors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
