/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of llama2.c checkpoints: rows of accepted ones must lie inside the file. */
#include <stdlib.h>

#include "tests/fuzz/input.h"
#include "tools/lab/mkmodel/sources.h"

static void read_rows(struct mk_llama2c *c, enum mm_weight weight, uint32_t layer)
{
	uint32_t rows, columns;
	float *row;

	mm_arch_size(&c->arch, weight, &rows, &columns);
	row = calloc(columns, sizeof(*row));
	mm_assert(row != NULL);
	for (uint32_t i = 0; i < MM_MAX(rows, 1); i++)
		mk_llama2c_row(c, weight, layer, i, row);
	free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static char err[MK_ERROR_BYTES];
	char path[INPUT_PATH_BYTES];
	struct mk_llama2c c;

	input_path(data, size_bytes, path);
	err[0] = 0;
	if (mk_llama2c_open(path, &c, err) < 0) {
		mm_assert(err[0]);
		return 0;
	}
	for (enum mm_weight w = 0; w < MM_W_COUNT; w++)
		for (uint32_t layer = 0; layer < (mm_weight_per_layer(w) ? c.arch.layers : 1);
		     layer++)
			if (mm_arch_has(&c.arch, w))
				read_rows(&c, w, layer);
	mk_llama2c_close(&c);
	return 0;
}
