/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the tenant's check of a store's directory: tensors lie in their groups and are found. */
#include <stdlib.h>
#include <string.h>

#include "libclient/client/dir.h"
#include "tests/fuzz/input.h"

#define STORE_BYTES_MAX (UINT64_C(1) << 20)

static void check_tensor(const struct mm_directory *dir, const struct mm_dir_tensor *t)
{
	const struct mm_dir_group *group;
	uint64_t bytes = t->dtype == MM_DTYPE_F32 ? 4 : 2;

	mm_assert(t->group < dir->n_groups && t->rank <= 4);
	group = &dir->groups[t->group];
	mm_assert(group->store_offset <= dir->store_bytes);
	mm_assert(group->bytes <= dir->store_bytes - group->store_offset);
	mm_assert(t->offset <= group->bytes && t->bytes <= group->bytes - t->offset);
	for (uint32_t i = 0; i < t->rank; i++)
		bytes *= t->shape[i];
	/* Nobody can say the length of a type that is not known yet. */
	mm_assert(bytes == t->bytes || t->dtype > MM_DTYPE_BF16);
	mm_assert(t->dtype);
	mm_assert(mm_directory_find(dir, t->name) == t);
}

/* Input: the head of a store whose length is the one in the head; the rest is zeros. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	struct mm_directory dir = { 0 };
	uint64_t store_bytes = size_bytes;
	const char *why = NULL;
	struct mm_dir head;
	uint8_t *store;

	if (size_bytes >= sizeof(head)) {
		memcpy(&head, data, sizeof(head));
		if (head.store_bytes >= size_bytes && head.store_bytes <= STORE_BYTES_MAX)
			store_bytes = head.store_bytes;
	}
	/* The copy has exactly that length, so that ASan finds a read past it. */
	store = calloc(1, store_bytes ? store_bytes : 1);
	mm_assert(store != NULL);
	if (size_bytes)
		memcpy(store, data, size_bytes);
	if (mm_directory_read(store, store_bytes, store_bytes, &dir, &why) < 0)
		mm_assert(why && *why && !dir.groups);
	for (uint32_t i = 0; i < dir.n_tensors; i++)
		check_tensor(&dir, &dir.tensors[i]);
	mm_directory_done(&dir);
	free(store);
	return 0;
}
