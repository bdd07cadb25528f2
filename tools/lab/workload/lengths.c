/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/lengths.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tools/lab/workload/trace.h"

#define CAP_TOKENS      2048u
#define CAP_OUTPUT      1024u
#define SHAREGPT_PROMPT 1660.0
#define SHAREGPT_OUTPUT 373.0
#define SHAREGPT_SIGMA  0.8
#define LONG_LEAST      1420u
#define SHORT_LEAST     320u
#define UNIFORM_WIDTH   629u /* the mean, and 314 on each side of it */
#define OUTPUT_PART     (SHAREGPT_OUTPUT / (SHAREGPT_PROMPT + SHAREGPT_OUTPUT))
#define DRAWS_MAX       1000

static const struct {
	const char *name;
	enum mm_wl_mix mix;
	uint32_t least; /* shortest request of the mix */
} mixes[] = {
	{ "alpaca", MM_WL_ALPACA, 2 },      { "sharegpt", MM_WL_SHAREGPT, 2 },
	{ "long", MM_WL_LONG, LONG_LEAST }, { "short", MM_WL_SHORT, SHORT_LEAST },
	{ "trace", MM_WL_OF_TRACE, 2 },
};

static int open_rows(const char *path, struct mm_wl_lengths *lengths, char *err, size_t err_bytes)
{
	mm_cleanup(mm_trace_done) struct mm_trace rows = { 0 };
	int e = mm_trace_read_rows(path, true, &rows, err, err_bytes);

	if (e)
		return e;
	lengths->row = calloc(rows.n, sizeof(*lengths->row));
	if (!lengths->row) {
		snprintf(err, err_bytes, "%s: out of memory", path);
		return -ENOMEM;
	}
	for (size_t i = 0; i < rows.n; i++) {
		const struct mm_trace_row *row = &rows.rows[i];

		if (row->prompt_tokens + row->output_tokens > lengths->tokens_max)
			lengths->filtered++;
		else
			lengths->row[lengths->n++] =
				(struct mm_wl_length){ row->prompt_tokens, row->output_tokens };
	}
	if (lengths->n)
		return 0;
	snprintf(err, err_bytes, "%s: no row has at most %u tokens in all", path,
		 lengths->tokens_max);
	return -ERANGE;
}

int mm_wl_lengths_open(const char *name, uint32_t tokens_max, struct mm_wl_lengths *ret, char *err,
		       size_t err_bytes)
{
	mm_cleanup(mm_wl_lengths_done) struct mm_wl_lengths lengths = { .mix = MM_WL_ROWS,
									.tokens_max = tokens_max };
	int e = 0;

	for (size_t i = 0; i < MM_ARRAY_SIZE(mixes); i++) {
		if (strcmp(name, mixes[i].name))
			continue;
		lengths.mix = mixes[i].mix;
		if (tokens_max < mixes[i].least) {
			snprintf(err, err_bytes, "lengths '%s': no request has at most %u tokens",
				 name, tokens_max);
			return -ERANGE;
		}
	}
	if (lengths.mix == MM_WL_ROWS)
		e = open_rows(name, &lengths, err, err_bytes);
	if (e)
		return e;
	*ret = lengths;
	lengths = (struct mm_wl_lengths){ 0 };
	return 0;
}

void mm_wl_lengths_done(struct mm_wl_lengths *lengths)
{
	free(lengths->row);
	*lengths = (struct mm_wl_lengths){ 0 };
}

static uint32_t log_normal(uint64_t *random, double median, double sigma)
{
	const double value = round(median * exp(sigma * mm_random_normal(random)));

	return (uint32_t)MM_MIN(MM_MAX(value, 1.0), 1e6);
}

/* Draws from two log-normals; the mean of one is its median times exp(sigma^2 / 2). */
static struct mm_wl_length draw_alpaca(uint64_t *random)
{
	const uint32_t prompt = log_normal(random, 17, sqrt(2 * log(21.0 / 17)));
	const uint32_t output = log_normal(random, 48, sqrt(2 * log(65.5 / 48)));

	return (struct mm_wl_length){ MM_MIN(prompt, 606u), MM_MIN(output, 1228u) };
}

static struct mm_wl_length draw_sharegpt(uint64_t *random)
{
	const double shrink = exp(-SHAREGPT_SIGMA * SHAREGPT_SIGMA / 2);
	const uint32_t prompt = log_normal(random, SHAREGPT_PROMPT * shrink, SHAREGPT_SIGMA);
	const uint32_t drawn = log_normal(random, SHAREGPT_OUTPUT * shrink, SHAREGPT_SIGMA);
	const uint32_t output = MM_MIN(drawn, CAP_OUTPUT);

	return (struct mm_wl_length){ MM_MIN(prompt, CAP_TOKENS - output), output };
}

static struct mm_wl_length draw_uniform(uint64_t *random, uint32_t least)
{
	const uint32_t all = least + (uint32_t)mm_random_below(random, UNIFORM_WIDTH);
	const uint32_t output = (uint32_t)lround(all * OUTPUT_PART);

	return (struct mm_wl_length){ all - output, output };
}

static struct mm_wl_length draw_once(const struct mm_wl_lengths *lengths, uint64_t *random)
{
	switch (lengths->mix) {
	case MM_WL_ALPACA:
		return draw_alpaca(random);
	case MM_WL_SHAREGPT:
		return draw_sharegpt(random);
	case MM_WL_LONG:
		return draw_uniform(random, LONG_LEAST);
	case MM_WL_SHORT:
		return draw_uniform(random, SHORT_LEAST);
	case MM_WL_ROWS:
	case MM_WL_OF_TRACE:
		break;
	}
	return lengths->row[mm_random_below(random, lengths->n)];
}

struct mm_wl_length mm_wl_lengths_draw(const struct mm_wl_lengths *lengths, uint64_t *random,
				       uint64_t *filtered)
{
	struct mm_wl_length length = { 0 };

	mm_assert(lengths->mix != MM_WL_OF_TRACE);
	for (int i = 0; i < DRAWS_MAX; i++, (*filtered)++) {
		length = draw_once(lengths, random);
		if (length.prompt_tokens + length.output_tokens <= lengths->tokens_max)
			return length;
	}
	/* The limit is so short that no draw met it: cut the request. */
	return (struct mm_wl_length){ lengths->tokens_max - 1, 1 };
}
