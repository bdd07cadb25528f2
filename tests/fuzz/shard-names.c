/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes libclient's reader of an index of shards: no name may lead out of the folder. */
#include <string.h>

#include "libclient/model/shard_names.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static struct mm_shard_names names;
	char err[120] = "";

	if (mm_shard_names_parse((const char *)data, size_bytes, &names, err, sizeof(err)) < 0) {
		mm_assert(memchr(err, 0, sizeof(err)) && err[0]);
		return 0;
	}
	mm_assert(names.n > 0 && names.n <= MM_LOAD_FILES_MAX);
	for (size_t i = 0; i < names.n; i++) {
		size_t len = strnlen(names.name[i], MM_FILE_NAME_BYTES);

		mm_assert(len > strlen(".safetensors") && len < MM_FILE_NAME_BYTES);
		mm_assert(!strchr(names.name[i], '/'));
		mm_assert(i == 0 || strcmp(names.name[i - 1], names.name[i]) < 0);
	}
	return 0;
}
