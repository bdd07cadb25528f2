/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the bodies of mmserve's HTTP requests: what is accepted is within all limits. */
#include <math.h>
#include <string.h>

#include "tests/fuzz/input.h"
#include "tools/mmserve/http/ask.h"
#include "tools/mmserve/http/reply.h"

#define VOCAB  1000
#define TOKENS 64

static void ask_check(const struct mm_ask *ask)
{
	const struct mm_sampling *s = &ask->sampling;

	mm_assert(ask->n_ids <= TOKENS && (ask->text || ask->ids));
	for (size_t i = 0; i < ask->n_ids; i++)
		mm_assert(ask->ids[i] < VOCAB);
	mm_assert(s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1);
	mm_assert(ask->n_stops <= MM_ASK_STOPS_MAX && ask->n_stop_ids <= MM_JOB_ENDS_MAX / 2);
	for (size_t i = 0; i < ask->n_stops; i++)
		mm_assert(*ask->stops[i]);
	for (size_t i = 0; i < ask->n_stop_ids; i++)
		mm_assert(ask->stop_ids[i] < VOCAB);
	mm_assert(ask->max_tokens <= 1u << 24 && (!ask->include_usage || ask->stream));
}

/* A refusal is an answer in JSON that names a status. */
static void refusal_check(const struct mm_refusal *refusal)
{
	struct mm_buffer b = { 0 };
	json_t *answer;

	mm_assert(refusal->status == 400 || refusal->status == 404);
	mm_assert(refusal->message[0]);
	mm_reply_refusal(&b, refusal);
	answer = json_loadb(b.text, b.n, 0, NULL);
	mm_assert(answer);
	json_decref(answer);
	mm_buffer_done(&b);
}

/* Input: a digit, 0 to 3, for the address that the body is sent to; then the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	const struct mm_ask_limits limits = { "m", VOCAB, TOKENS };
	struct mm_refusal refusal = { 0 };
	struct mm_ask ask;
	int r;

	if (size_bytes == 0)
		return 0;
	r = mm_ask_read((enum mm_ask_kind)(data[0] % 4), (const char *)data + 1, size_bytes - 1,
			&limits, &ask, &refusal);
	if (!r)
		ask_check(&ask);
	else if (r > 0)
		refusal_check(&refusal);
	mm_ask_done(&ask);
	return 0;
}
