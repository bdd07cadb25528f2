/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes mmbench's reader of traces: it must yield sorted rows of tenants that exist. */
#include <math.h>

#include "tests/fuzz/input.h"
#include "tools/lab/workload/trace.h"

#define TENANTS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	const struct mm_trace_shape shape = {
		.tenants = TENANTS, .duration_s = 60, .speed = 2, .token_scale = 0.5
	};
	struct mm_trace trace = { 0 };
	char path[INPUT_PATH_BYTES];
	char err[200] = "";

	input_path(data, size_bytes, path);
	if (mm_trace_read(path, &shape, &trace, err, sizeof(err)) < 0)
		mm_assert(err[0] && !trace.rows);
	for (size_t i = 0; i < trace.n; i++) {
		const struct mm_trace_row *row = &trace.rows[i];

		mm_assert(isfinite(row->arrival_s) && row->arrival_s >= 0);
		mm_assert(i == 0 || trace.rows[i - 1].arrival_s <= row->arrival_s);
		mm_assert(row->tenant < TENANTS);
		mm_assert(row->prompt_tokens && row->prompt_tokens <= MM_TRACE_TOKENS_MAX);
		mm_assert(row->output_tokens && row->output_tokens <= MM_TRACE_TOKENS_MAX);
	}
	mm_trace_done(&trace);
	/* Read as a list of lengths: arrivals may be missing, and no row is dropped. */
	if (mm_trace_read_rows(path, true, &trace, err, sizeof(err)) < 0)
		mm_assert(err[0] && !trace.rows);
	for (size_t i = 0; i < trace.n; i++)
		mm_assert(trace.rows[i].prompt_tokens && trace.rows[i].output_tokens);
	mm_trace_done(&trace);
	return 0;
}
