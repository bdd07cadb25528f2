/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/dtype.h"
#include "mmd/shell/store.h"

#define TENSORS_AT_ONCE 256

static bool read_at(int fd, uint64_t offset, void *buf, size_t bytes)
{
	return pread(fd, buf, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Whether [@offset, @offset + @count * @each) starts behind the head and ends within the store. */
static bool table_fits(uint64_t offset, uint64_t count, uint64_t each, uint64_t store_bytes)
{
	return offset >= sizeof(struct mm_dir) && offset % sizeof(uint64_t) == 0 &&
	       offset <= store_bytes && count <= (store_bytes - offset) / each;
}

static const char *head_check(const struct mm_dir *dir, const struct mm_store *store)
{
	if (dir->magic != MM_DIR_MAGIC || dir->version != 1)
		return "directory: magic or version";
	if (dir->store_bytes != store->bytes)
		return "directory: store_bytes is not what was announced";
	if (memcmp(dir->identity, store->identity, sizeof(dir->identity)) != 0)
		return "directory: identity is not what was announced";
	for (size_t i = 0; i < MM_ARRAY_SIZE(dir->reserved); i++) {
		if (dir->reserved[i])
			return "directory: reserved fields not 0";
	}
	if (dir->n_groups < 2 || dir->n_groups > MM_LAYERS_MAX + 1)
		return "directory: number of groups";
	if (dir->n_tensors > MM_TENSORS_MAX)
		return "directory: number of tensors";
	if (!table_fits(dir->groups_offset, dir->n_groups, sizeof(struct mm_dir_group),
			store->bytes))
		return "directory: group table lies outside the store";
	if (!table_fits(dir->tensors_offset, dir->n_tensors, sizeof(struct mm_dir_tensor),
			store->bytes))
		return "directory: tensor table lies outside the store";
	return NULL;
}

static const char *groups_check(const struct mm_dir_group *groups, uint32_t n, uint64_t store_bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		if (groups[i].store_offset % MM_ABI_PAGE_BYTES)
			return "group: offset is not aligned";
		if (groups[i].store_offset > store_bytes ||
		    groups[i].bytes > store_bytes - groups[i].store_offset)
			return "group: lies outside the store";
		/*
		 * Group 0 may be empty (no resident tensor); a layer without bytes would never be
		 * laid out.
		 */
		if (i && !groups[i].bytes)
			return "group: a layer is empty";
	}
	return NULL;
}

static const char *tensor_check(const struct mm_dir_tensor *t, const struct mm_dir_group *groups,
				uint32_t n_groups)
{
	uint64_t align =
		t->flags & MM_TENSOR_MEMBER ? mm_dtype_alignment(t->dtype) : MM_TENSOR_ALIGN;

	if (t->name[0] == 0 || t->name[MM_TENSOR_NAME_BYTES - 1] != 0)
		return "tensor: name";
	if (t->group >= n_groups)
		return "tensor: no such group";
	if ((t->flags & ~MM_TENSOR_KNOWN) || t->reserved[0] | t->reserved[1] | t->reserved[2])
		return "tensor: unknown flags, or reserved fields not 0";
	if (!mm_dtype_bits(t->dtype) || t->rank > 4)
		return "tensor: dtype or rank";
	if (t->offset % align || t->offset > groups[t->group].bytes ||
	    t->bytes > groups[t->group].bytes - t->offset)
		return "tensor: lies outside its group";
	return NULL;
}

static const char *tensors_check(int fd, const struct mm_dir *dir,
				 const struct mm_dir_group *groups, uint64_t *ret_bytes)
{
	struct mm_dir_tensor tensors[TENSORS_AT_ONCE];
	const char *wrong = NULL;

	for (uint32_t first = 0; first < dir->n_tensors && !wrong; first += TENSORS_AT_ONCE) {
		uint32_t n = MM_MIN((uint32_t)TENSORS_AT_ONCE, dir->n_tensors - first);

		if (!read_at(fd, dir->tensors_offset + first * sizeof(tensors[0]), tensors,
			     n * sizeof(tensors[0])))
			return "tensor table cannot be read";
		for (uint32_t i = 0; i < n && !wrong; i++) {
			bool pack = tensors[i].flags & MM_TENSOR_PACK;

			wrong = tensor_check(&tensors[i], groups, dir->n_groups);
			/*
			 * Tensors of a hostile directory may overlap, so their sizes can add up
			 * beyond 64 bits.
			 */
			if (__builtin_add_overflow(*ret_bytes, pack ? 0 : tensors[i].bytes,
						   ret_bytes))
				wrong = "tensor: sizes add up to too much";
		}
	}
	return wrong;
}

static struct mm_core_group *groups_copy(const struct mm_dir_group *groups, uint32_t n)
{
	struct mm_core_group *copy = calloc(n, sizeof(*copy));

	for (uint32_t i = 0; copy && i < n; i++) {
		copy[i].store_offset = groups[i].store_offset;
		copy[i].bytes = groups[i].bytes;
	}
	return copy;
}

const char *mm_dir_check(int fd, const struct mm_store *store, struct mm_core_group **ret_groups,
			 uint32_t *ret_n, uint64_t *ret_tensor_bytes)
{
	uint64_t tensor_bytes = 0;
	struct mm_dir_group groups[MM_LAYERS_MAX + 1];
	struct mm_core_group *copy;
	struct mm_dir dir;
	const char *wrong;

	errno = 0;
	if (store->bytes < sizeof(dir) || !read_at(fd, 0, &dir, sizeof(dir)))
		return "directory cannot be read";
	wrong = head_check(&dir, store);
	if (wrong)
		return wrong;
	if (!read_at(fd, dir.groups_offset, groups, dir.n_groups * sizeof(groups[0])))
		return "group table cannot be read";
	wrong = groups_check(groups, dir.n_groups, store->bytes);
	if (!wrong)
		wrong = tensors_check(fd, &dir, groups, &tensor_bytes);
	if (wrong)
		return wrong;
	copy = groups_copy(groups, dir.n_groups);
	if (!copy)
		return "out of memory";
	*ret_groups = copy;
	*ret_n = dir.n_groups;
	*ret_tensor_bytes = tensor_bytes;
	return NULL;
}
