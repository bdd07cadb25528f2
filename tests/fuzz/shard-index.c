/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes load's check of an index of shards: an accepted one names each tensor's right file. */
#include <string.h>

#include "libclient/model/index.h"
#include "tests/fuzz/input.h"

#define ACCEPTED "\"weight_map\""

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static struct mm_st_tensor a[] = { { .name = "a" }, { .name = "b" } },
				   c[] = { { .name = "c" } };
	static const struct mm_safetensors st[] = { { a, 2, 0 }, { c, 1, 0 } };
	static const char *const names[] = { "1.safetensors", "2.safetensors" };
	const struct mm_shards shards = { st, names, 2 };
	struct mm_why why = { "" };

	if (mm_index_check((const char *)data, size_bytes, "index.json", &shards, &why) < 0) {
		mm_assert(memchr(why.text, 0, sizeof(why.text)) && why.text[0]);
		return 0;
	}
	/* Three tensors in two files cannot be named in fewer bytes. */
	mm_assert(size_bytes >=
		  strlen("{" ACCEPTED ":{}}") + 3 * strlen("\"a\":\"1.safetensors\""));
	return 0;
}
