/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes mmserve's reader of requests: they must be in order, with ids of the vocabulary. */
#include <math.h>
#include <string.h>

#include "tests/fuzz/input.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/requests.h"

#define VOCAB 1000
/*
 * Only few lines are read, as one line may require room for millions of tokens.
 */
#define LINES 8

static void requests_check(const struct mm_requests *requests)
{
	double last_s = 0;

	for (size_t i = 0; i < requests->n; i++) {
		const struct mm_request *q = &requests->all[i];

		mm_assert(isfinite(q->arrival_s) && q->arrival_s >= last_s);
		mm_assert(q->id[0] && memchr(q->id, 0, sizeof(q->id)));
		mm_assert(!q->id_is_number || strspn(q->id, "-0123456789") == strlen(q->id));
		mm_assert(q->n_prompt && q->max_tokens);
		for (uint32_t t = 0; t < q->n_prompt; t++)
			mm_assert(q->ids[t] < VOCAB);
		last_s = q->arrival_s;
	}
}

/* Input: 'c' for a CSV trace, anything else for JSONL; then the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	const struct mm_requests_opts opts = { .seed = 1,
					       .vocab = VOCAB,
					       .limit = LINES,
					       .max_prompt = 64,
					       .max_output = 64,
					       .at_once = false };
	static char err[MM_SERVE_ERROR_BYTES];
	struct mm_requests requests = { 0 };
	char path[INPUT_PATH_BYTES];

	if (size_bytes == 0)
		return 0;
	input_path(data + 1, size_bytes - 1, path);
	err[0] = 0;
	if (mm_requests_read(path, data[0] == 'c', &opts, &requests, err) == 0)
		requests_check(&requests);
	else
		mm_assert(err[0] && requests.n == 0);
	mm_requests_done(&requests);
	return 0;
}
