/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes core's check of a store's directory: an accepted one can be copied to pages by group.
 */
#include <stdlib.h>
#include <string.h>

#include "mmd/shell/dir.h"
#include "mmd/shell/store.h"
#include "tests/fuzz/input.h"

#define STORE_BYTES_MAX (UINT64_C(1) << 20) /* enough for any layout of a few pages */

/* Input: the head of a store whose length is the one in the head; the rest is zeros. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	struct mm_core_group *groups = NULL;
	struct mm_store store = { .bytes = size_bytes };
	struct mm_dir dir;
	const char *wrong;
	uint64_t tensor_bytes = 0;
	uint32_t n = 0;
	int fd;

	if (size_bytes >= sizeof(dir)) {
		memcpy(&dir, data, sizeof(dir));
		memcpy(store.identity, dir.identity, sizeof(store.identity));
		if (dir.store_bytes >= size_bytes && dir.store_bytes <= STORE_BYTES_MAX)
			store.bytes = dir.store_bytes;
	}
	fd = input_file(data, size_bytes, store.bytes);
	wrong = mm_dir_check(fd, &store, &groups, &n, &tensor_bytes);
	if (wrong) {
		mm_assert(*wrong && !groups && !n);
		return 0;
	}
	mm_assert(n >= 2 && n == dir.n_groups);
	for (uint32_t i = 0; i < n; i++) {
		mm_assert(groups[i].store_offset % MM_ABI_PAGE_BYTES == 0);
		mm_assert(groups[i].bytes || i == 0);
		mm_assert(groups[i].store_offset <= store.bytes);
		mm_assert(groups[i].bytes <= store.bytes - groups[i].store_offset);
	}
	free(groups);
	return 0;
}
