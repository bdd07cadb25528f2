/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/client/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/dtype.h"
#include "libclient/support/fault.h"

/* It subtracts because offset + bytes can wrap. */
static bool range_is_within(uint64_t offset, uint64_t bytes, uint64_t end)
{
	return offset <= end && bytes <= end - offset;
}

static const char *directory_check_head(const struct mm_dir *head, uint64_t head_bytes,
					uint64_t store_bytes)
{
	if (head->magic != MM_DIR_MAGIC)
		return "it does not begin with a directory";
	if (head->version != 1)
		return "its directory is of an unknown version";
	if (head->store_bytes != store_bytes)
		return "its directory disagrees about the length";
	if (head->n_groups < 1 || head->n_groups > 1 + MM_LAYERS_MAX)
		return "the number of groups is out of range";
	if (head->n_tensors > MM_TENSORS_MAX)
		return "it has too many tensors";
	if (!range_is_within(head->groups_offset, head->n_groups * sizeof(struct mm_dir_group),
			     head_bytes))
		return "its groups lie outside";
	if (!range_is_within(head->tensors_offset, head->n_tensors * sizeof(struct mm_dir_tensor),
			     head_bytes))
		return "its tensors lie outside";
	return NULL;
}

static const char *directory_check_group(const struct mm_dir_group *group, uint64_t store_bytes)
{
	if (group->store_offset % MM_ABI_PAGE_BYTES)
		return "a group is misaligned";
	if (!range_is_within(group->store_offset, group->bytes, store_bytes))
		return "a group lies outside";
	return NULL;
}

/* If the type is not known to this version only the place counts, which is checked for all. */
static bool tensor_shape_is_valid(const struct mm_dir_tensor *tensor)
{
	uint64_t bits = mm_dtype_bits(tensor->dtype);

	if (!bits)
		return true;
	for (uint16_t i = 0; i < tensor->rank; i++)
		if (__builtin_mul_overflow(bits, tensor->shape[i], &bits))
			return false;
	return bits % 8 == 0 && bits / 8 == tensor->bytes;
}

static uint64_t tensor_alignment(const struct mm_dir_tensor *tensor)
{
	return tensor->flags & MM_TENSOR_MEMBER ? mm_dtype_alignment(tensor->dtype)
						: MM_TENSOR_ALIGN;
}

static const char *directory_check_tensor(const struct mm_directory *dir,
					  const struct mm_dir_tensor *tensor)
{
	if (!memchr(tensor->name, 0, sizeof(tensor->name)) || !tensor->name[0])
		return "a tensor's name is not a string";
	if (tensor != dir->tensors && strcmp(tensor[-1].name, tensor->name) >= 0)
		return "its tensors are not sorted by name";
	if (tensor->group >= dir->n_groups)
		return "a tensor is of a group that does not exist";
	if (tensor->flags & ~MM_TENSOR_KNOWN)
		return "a tensor has a flag that this version does not know";
	if (!tensor->dtype)
		return "a tensor has no dtype";
	if (tensor->rank > 4 || !tensor_shape_is_valid(tensor))
		return "a tensor's shape and size disagree";
	if (tensor->offset % tensor_alignment(tensor))
		return "a tensor is misaligned";
	if (!range_is_within(tensor->offset, tensor->bytes, dir->groups[tensor->group].bytes))
		return "a tensor lies outside its group";
	return NULL;
}

static const char *directory_check(const struct mm_directory *dir)
{
	const char *why = NULL;

	for (uint32_t i = 0; i < dir->n_groups && !why; i++)
		why = directory_check_group(&dir->groups[i], dir->store_bytes);
	for (uint32_t i = 0; i < dir->n_tensors && !why; i++)
		why = directory_check_tensor(dir, &dir->tensors[i]);
	return why;
}

static void *table_copy(const void *from, size_t bytes)
{
	void *to = malloc(bytes ? bytes : 1);

	if (to)
		memcpy(to, from, bytes);
	return to;
}

int mm_directory_read(const void *store, uint64_t head_bytes, uint64_t store_bytes,
		      struct mm_directory *ret_dir, const char **ret_why)
{
	mm_cleanup(mm_directory_done) struct mm_directory dir = { 0 };
	struct mm_dir head;

	*ret_why = "it is too short";
	if (head_bytes < sizeof(head) || head_bytes > store_bytes)
		return -EBADMSG;
	memcpy(&head, store, sizeof(head));
	*ret_why = directory_check_head(&head, head_bytes, store_bytes);
	if (*ret_why)
		return -EBADMSG;
	dir.n_groups = head.n_groups;
	dir.n_tensors = head.n_tensors;
	dir.store_bytes = store_bytes;
	memcpy(dir.identity, head.identity, sizeof(dir.identity));
	dir.groups = table_copy((const char *)store + head.groups_offset,
				head.n_groups * sizeof(*dir.groups));
	dir.tensors = table_copy((const char *)store + head.tensors_offset,
				 head.n_tensors * sizeof(*dir.tensors));
	if (!dir.groups || !dir.tensors || mm_fault("dir.read"))
		return -ENOMEM;
	*ret_why = directory_check(&dir);
	if (*ret_why)
		return -EBADMSG;
	*ret_dir = dir;
	dir = (struct mm_directory){ 0 };
	return 0;
}

void mm_directory_done(struct mm_directory *dir)
{
	free(dir->groups);
	free(dir->tensors);
	*dir = (struct mm_directory){ 0 };
}

static int dir_tensor_compare(const void *key, const void *element)
{
	return strcmp(key, ((const struct mm_dir_tensor *)element)->name);
}

const struct mm_dir_tensor *mm_directory_find(const struct mm_directory *dir, const char *name)
{
	return bsearch(name, dir->tensors, dir->n_tensors, sizeof(*dir->tensors),
		       dir_tensor_compare);
}
