/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case - the requests of one window, which are replayed under each policy
 *
 * Concept:    Each tenant has a contiguous window of the trace for itself, and another one in each
 *             repetition: rate * seconds rows from the beginning of a burst (from a random point of
 *             the gap before it), scaled in time so that they fill exactly `seconds`. So the mean
 *             rate is the given one, and bursts stay bursts. Windows begin at equal distances in
 *             rows. The trace is a circle, so a window may go over its end; where the trace is too
 *             short for all, windows of one repetition overlap. Both are counted and reported.
 *             With --arrivals other than gaps there is no trace: each window of each tenant has
 *             arrivals of its own (arrivals.h), as many, unscaled.
 *             Lengths come from the tenant's source (lengths.h) and depend only on seed, window,
 *             tenant and index, so every policy gets the same requests.
 * Ownership:  mm_wl_source_done() and mm_wl_case_done() free their argument.
 * Threading:  one thread; a case may be read by several.
 */
#pragma once

#include <stdbool.h>

#include "tools/lab/workload/lengths.h"
#include "tools/lab/workload/options.h"
#include "tools/lab/workload/trace.h"

struct mm_wl_request {
	uint64_t arrival_ns; /* from the window's beginning */
	uint32_t prompt_tokens, output_tokens;
	/* its times when it is alone on the whole device (alone.h); 0: not computed */
	uint64_t alone_ttft_ns, alone_tpot_ns;
};

struct mm_wl_stream { /* one tenant's requests, by arrival */
	struct mm_wl_request *request;
	uint32_t n;
	/* the window of the trace */
	uint64_t first_row, rows;
	uint64_t wraps;    /* how often the window went over the trace's end */
	uint64_t filtered; /* requests left out, because they are longer than tokens_max */
	double trace_s;    /* time in the trace that was scaled to `seconds` */
	double prompt_mean, output_mean;
};

struct mm_wl_case {
	uint32_t window;
	struct mm_wl_stream stream[MM_WL_TENANTS_MAX];
	uint32_t tenants;
	bool disjoint; /* no row is in the windows of two tenants */
};

struct mm_wl_source { /* the trace and lengths from which cases are made */
	struct mm_trace trace;
	struct mm_wl_lengths lengths[MM_WL_TENANTS_MAX];
	uint32_t tenants;
};

/**
 * mm_wl_source_open() - read or generate the trace and the lengths
 * @opts:       checked
 * @ret_source: written only on success
 * @err:        gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG malformed; -ERANGE no length fits; -ENOMEM; negative errno of opening.
 */
int mm_wl_source_open(const struct mm_wl_opts *opts, struct mm_wl_source *ret_source, char *err,
		      size_t err_bytes);
void mm_wl_source_done(struct mm_wl_source *source);

/**
 * mm_wl_case_make() - make the requests of one window
 * @opts:     as for mm_wl_source_open()
 * @source:   open
 * @window:   below opts->windows
 * @ret_case: written only on success
 *
 * Return: 0; -ERANGE a tenant has no request, or the trace no time; -ENOMEM.
 */
int mm_wl_case_make(const struct mm_wl_opts *opts, const struct mm_wl_source *source,
		    uint32_t window, struct mm_wl_case *ret_case, char *err, size_t err_bytes);
void mm_wl_case_done(struct mm_wl_case *c);
