/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/case.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/workload/arrivals.h"

/* Gaps between synthetic arrivals have a gamma distribution with this coefficient of variation. */
#define SYNTHETIC_CV 4.0

static uint64_t rows_wanted(const struct mm_wl_opts *opts, uint32_t tenant)
{
	const long long rows = llround(opts->tenant[tenant].rate * opts->seconds);

	return rows < 1 ? 1 : (uint64_t)rows;
}

/* Makes a trace with as many rows as all windows need, so that they never overlap. */
static int trace_synthesize(const struct mm_wl_opts *opts, struct mm_trace *ret_trace)
{
	uint64_t random = mm_random_seed(opts->seed, UINT64_MAX, 0), most = 0, n;
	struct mm_trace trace = { 0 };
	double now = 0;

	for (uint32_t t = 0; t < opts->tenants; t++)
		most = MM_MAX(most, rows_wanted(opts, t));
	/* A window begins with a burst, so up to some tens of rows after its even distance. */
	n = MM_MIN((most + most / 8 + 64) * opts->tenants * opts->windows,
		   (uint64_t)MM_TRACE_ROWS_MAX);
	trace.rows = calloc(n, sizeof(*trace.rows));
	if (!trace.rows)
		return -ENOMEM;
	for (trace.n = 0; trace.n < n; trace.n++) {
		const double shape = 1 / (SYNTHETIC_CV * SYNTHETIC_CV);

		trace.rows[trace.n].arrival_s = now;
		now += mm_random_gamma(&random, shape) / shape;
	}
	trace.room = trace.n;
	*ret_trace = trace;
	return 0;
}

static int open_trace(const struct mm_wl_opts *opts, struct mm_trace *ret_trace, char *err,
		      size_t err_bytes)
{
	int e;

	if (opts->arrivals != MM_WL_GAPS)
		return 0; /* each window makes its own */
	if (!opts->trace_path) {
		e = trace_synthesize(opts, ret_trace);
		if (e)
			snprintf(err, err_bytes, "out of memory");
		return e;
	}
	e = mm_trace_read_rows(opts->trace_path, false, ret_trace, err, err_bytes);
	if (e || ret_trace->rows[ret_trace->n - 1].arrival_s > 0)
		return e;
	snprintf(err, err_bytes, "%s: all requests arrive at second 0: nothing can be scaled",
		 opts->trace_path);
	mm_trace_done(ret_trace);
	return -ERANGE;
}

int mm_wl_source_open(const struct mm_wl_opts *opts, struct mm_wl_source *ret_source, char *err,
		      size_t err_bytes)
{
	mm_cleanup(mm_wl_source_done) struct mm_wl_source source = { 0 };
	int e = open_trace(opts, &source.trace, err, err_bytes);

	for (uint32_t t = 0; !e && t < opts->tenants; t++) {
		e = mm_wl_lengths_open(opts->tenant[t].lengths, opts->tenant[t].tokens_max,
				       &source.lengths[t], err, err_bytes);
		if (!e)
			source.tenants++;
		if (!e && !opts->trace_path && source.lengths[t].mix == MM_WL_OF_TRACE) {
			snprintf(err, err_bytes, "lengths 'trace' need a --trace");
			e = -EINVAL;
		}
	}
	if (e)
		return e;
	*ret_source = source;
	source = (struct mm_wl_source){ 0 };
	return 0;
}

void mm_wl_source_done(struct mm_wl_source *source)
{
	mm_trace_done(&source->trace);
	for (uint32_t t = 0; t < source->tenants; t++)
		mm_wl_lengths_done(&source->lengths[t]);
	*source = (struct mm_wl_source){ 0 };
}

static void request_add(struct mm_wl_stream *stream, double at_s, struct mm_wl_length length)
{
	stream->request[stream->n++] =
		(struct mm_wl_request){ .arrival_ns = (uint64_t)(MM_MAX(at_s, 0.0) * 1e9),
					.prompt_tokens = length.prompt_tokens,
					.output_tokens = length.output_tokens };
	stream->prompt_mean += length.prompt_tokens;
	stream->output_mean += length.output_tokens;
}

/* ---- where a window lies ---- */

/* Returns the mean gap, which is also the gap from the last row around the circle to the first. */
static double mean_gap(const struct mm_trace *trace)
{
	return trace->n > 1 ? trace->rows[trace->n - 1].arrival_s / (double)(trace->n - 1) : 1;
}

/* Returns the time of row @i, where @i may go around the circle several times. */
static double row_time(const struct mm_trace *trace, uint64_t i)
{
	const double round = trace->rows[trace->n - 1].arrival_s + mean_gap(trace);

	return (double)(i / trace->n) * round + trace->rows[i % trace->n].arrival_s;
}

/* Returns the gap before row @i. */
static double gap_before(const struct mm_trace *trace, uint64_t i)
{
	return row_time(trace, i + trace->n) - row_time(trace, i + trace->n - 1);
}

/* Returns the first row of a burst, from @i on: the gap before it is longer than the mean. */
static uint64_t burst_from(const struct mm_trace *trace, uint64_t i)
{
	const double pause = mean_gap(trace);

	for (uint64_t k = 0; k < trace->n; k++) {
		if (gap_before(trace, i + k) >= pause)
			return (i + k) % trace->n;
	}
	return i % trace->n;
}

static bool streams_overlap(const struct mm_wl_stream *a, const struct mm_wl_stream *b, uint64_t n)
{
	const uint64_t ahead = (b->first_row + n - a->first_row) % n;

	return ahead < a->rows || n - ahead < b->rows;
}

/* Makes the arrivals of a stream that is not of a trace. */
static int stream_synthesize(const struct mm_wl_opts *opts, uint32_t window, uint32_t tenant,
			     const struct mm_wl_lengths *lengths, struct mm_wl_stream *stream)
{
	uint64_t random = mm_random_seed(opts->seed, window, tenant);
	mm_cleanup(mm_free_ptr) double *at_s = NULL;

	stream->rows = rows_wanted(opts, tenant);
	stream->trace_s = opts->seconds;
	stream->request = calloc(stream->rows, sizeof(*stream->request));
	at_s = calloc(stream->rows, sizeof(*at_s));
	if (!stream->request || !at_s)
		return -ENOMEM;
	mm_wl_arrivals_make(opts->arrivals,
			    mm_random_seed(opts->seed, window, UINT64_C(1) << 33 | tenant),
			    opts->seconds, (uint32_t)stream->rows, at_s);
	for (uint64_t i = 0; i < stream->rows; i++)
		request_add(stream, at_s[i],
			    mm_wl_lengths_draw(lengths, &random, &stream->filtered));
	return 0;
}

static int window_place(const struct mm_wl_opts *opts, const struct mm_trace *trace,
			uint32_t window, uint32_t tenant, struct mm_wl_stream *stream,
			double *ret_begin_s)
{
	const uint64_t windows = (uint64_t)opts->tenants * opts->windows;
	const uint64_t at = (uint64_t)tenant * opts->windows + window;
	uint64_t random = mm_random_seed(opts->seed, window, UINT64_C(1) << 32 | tenant);
	double begin_s;

	stream->first_row = burst_from(trace, at * trace->n / windows);
	stream->rows = rows_wanted(opts, tenant);
	begin_s = row_time(trace, stream->first_row) -
		  gap_before(trace, stream->first_row) * mm_random_unit(&random);
	stream->trace_s = row_time(trace, stream->first_row + stream->rows) - begin_s;
	stream->wraps = (stream->first_row + stream->rows - 1) / trace->n;
	*ret_begin_s = begin_s;
	return stream->trace_s > 0 ? 0 : -ERANGE;
}

/* ---- its requests ---- */

static struct mm_wl_length length_of(const struct mm_wl_source *source, uint32_t tenant,
				     const struct mm_trace_row *row, uint64_t *random,
				     uint64_t *drawn_in_vain)
{
	if (source->lengths[tenant].mix == MM_WL_OF_TRACE)
		return (struct mm_wl_length){ row->prompt_tokens, row->output_tokens };
	return mm_wl_lengths_draw(&source->lengths[tenant], random, drawn_in_vain);
}

static int stream_fill(const struct mm_wl_opts *opts, const struct mm_wl_source *source,
		       uint32_t window, uint32_t tenant, double begin_s,
		       struct mm_wl_stream *stream)
{
	const struct mm_trace *trace = &source->trace;
	const double scale = opts->seconds / stream->trace_s;
	uint64_t random = mm_random_seed(opts->seed, window, tenant);

	stream->request = calloc(stream->rows, sizeof(*stream->request));
	if (!stream->request)
		return -ENOMEM;
	for (uint64_t i = 0; i < stream->rows; i++) {
		const uint64_t row = stream->first_row + i;
		const struct mm_wl_length length = length_of(
			source, tenant, &trace->rows[row % trace->n], &random, &stream->filtered);
		const double s = (row_time(trace, row) - begin_s) * scale;

		if (length.prompt_tokens + length.output_tokens > opts->tenant[tenant].tokens_max) {
			stream->filtered++;
			continue;
		}
		request_add(stream, s, length);
	}
	return 0;
}

/* Counts what was left out, and computes means. */
static int stream_conclude(const struct mm_wl_source *source, uint32_t tenant,
			   struct mm_wl_stream *stream)
{
	stream->filtered += source->lengths[tenant].filtered;
	if (!stream->n)
		return -ERANGE;
	stream->prompt_mean /= stream->n;
	stream->output_mean /= stream->n;
	return 0;
}

static int make_stream(const struct mm_wl_opts *opts, const struct mm_wl_source *source,
		       uint32_t window, uint32_t tenant, struct mm_wl_stream *stream, char *err,
		       size_t err_bytes)
{
	double begin_s;
	int e;

	if (opts->arrivals != MM_WL_GAPS) {
		e = stream_synthesize(opts, window, tenant, &source->lengths[tenant], stream);
	} else {
		e = window_place(opts, &source->trace, window, tenant, stream, &begin_s);
		if (!e)
			e = stream_fill(opts, source, window, tenant, begin_s, stream);
	}
	if (!e)
		e = stream_conclude(source, tenant, stream);
	if (e == -ENOMEM)
		snprintf(err, err_bytes, "out of memory");
	else if (e)
		snprintf(err, err_bytes,
			 "window %u of tenant %u (%" PRIu64 " rows from row %" PRIu64
			 "): no request that the model can hold, or no time between them",
			 window, tenant, stream->rows, stream->first_row);
	return e;
}

int mm_wl_case_make(const struct mm_wl_opts *opts, const struct mm_wl_source *source,
		    uint32_t window, struct mm_wl_case *ret_case, char *err, size_t err_bytes)
{
	mm_cleanup(mm_wl_case_done) struct mm_wl_case c = { .window = window,
							    .tenants = opts->tenants,
							    .disjoint = true };

	for (uint32_t t = 0; t < opts->tenants; t++) {
		int e = make_stream(opts, source, window, t, &c.stream[t], err, err_bytes);

		if (e)
			return e;
		for (uint32_t other = 0; other < t; other++)
			c.disjoint = c.disjoint && (!source->trace.n ||
						    !streams_overlap(&c.stream[other], &c.stream[t],
								     source->trace.n));
	}
	*ret_case = c;
	c = (struct mm_wl_case){ 0 };
	return 0;
}

void mm_wl_case_done(struct mm_wl_case *c)
{
	for (uint32_t t = 0; t < c->tenants; t++)
		free(c->stream[t].request);
	*c = (struct mm_wl_case){ 0 };
}
