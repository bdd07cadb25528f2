/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of lists of shapes: mkmodel must be able to write each accepted model. */
#include "tests/fuzz/input.h"
#include "tools/lab/mkmodel/config.h"
#include "tools/lab/mkmodel/shapes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static char err[MK_ERROR_BYTES];
	struct mk_shapes shapes;
	char path[INPUT_PATH_BYTES];

	input_path(data, size_bytes, path);
	err[0] = 0;
	if (mk_shapes_read(path, &shapes, err) < 0) {
		mm_assert(err[0]);
		return 0;
	}
	for (size_t i = 0; i < shapes.n; i++) {
		mm_assert(shapes.all[i].name[0]);
		mm_assert(mk_arch_check(&shapes.all[i].arch, err) == 0);
	}
	mk_shapes_done(&shapes);
	return 0;
}
