/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of safetensors headers: accepted tensors are in bounds, tiled and sorted. */
#include "libclient/model/safetensors.h"

#include <string.h>

#include "tests/fuzz/input.h"

/* Input: 2 bytes with the number of bytes behind the header, then the header. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	struct mm_safetensors st = { 0 };
	uint64_t data_offset, sum = 0;
	uint16_t tail;
	char err[120];

	if (size_bytes < sizeof(tail))
		return 0;
	memcpy(&tail, data, sizeof(tail));
	data_offset = 8 + size_bytes - sizeof(tail);
	if (mm_safetensors_parse((const char *)data + sizeof(tail), size_bytes - sizeof(tail),
				 data_offset, data_offset + tail, &st, err, sizeof(err)) < 0) {
		mm_assert(memchr(err, 0, sizeof(err)) && err[0]);
		return 0;
	}
	for (size_t i = 0; i < st.n_tensors; i++) {
		const struct mm_st_tensor *t = &st.tensors[i];

		mm_assert(t->file_offset >= data_offset && t->rank <= 4 && t->name[0]);
		mm_assert(t->bytes <= data_offset + tail - t->file_offset);
		mm_assert(i == 0 || strcmp(st.tensors[i - 1].name, t->name) < 0);
		sum += t->bytes;
	}
	mm_assert(sum == tail);
	mm_safetensors_done(&st);
	return 0;
}
