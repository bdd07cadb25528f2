/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case - the requests of one window: what is replayed under each policy in turn
 *
 * Concept:    Each tenant has a contiguous window of the trace of its own, in each repetition
 *             another: rate * seconds rows from a burst's beginning on (at a random point of the
 *             gap before it), scaled in time so that they fill exactly `seconds`: the mean rate is
 *             as asked, and bursts stay bursts. Windows begin at equal distances in rows; the trace
 *             is a circle, so a window may go over its end, and where the trace is too short for
 *             all, windows of one repetition overlap; both are counted and reported. Lengths come
 *             from the tenant's source (lengths.h), by seed, window, tenant and index only: every
 *             policy sees the same requests.
 * Ownership:  mm_wl_source_done() and mm_wl_case_done() free what they were given.
 */
#pragma once

#include <stdbool.h>

#include "tools/lab/workload/lengths.h"
#include "tools/lab/workload/options.h"
#include "tools/lab/workload/trace.h"

struct mm_wl_request {
	uint64_t arrival_ns; /* from the window's beginning */
	uint32_t prompt_tokens, output_tokens;
};

struct mm_wl_stream { /* of one tenant, by arrival */
	struct mm_wl_request *request;
	uint32_t n;
	/* where it came from */
	uint64_t first_row, rows;
	uint64_t wraps;    /* how often the window went over the trace's end */
	uint64_t filtered; /* longer than tokens_max: left out */
	double trace_s;    /* time in the trace that became `seconds` */
	double prompt_mean, output_mean;
};

struct mm_wl_case {
	uint32_t window;
	struct mm_wl_stream stream[MM_WL_TENANTS_MAX];
	uint32_t tenants;
	bool disjoint; /* no row is in the windows of two tenants */
};

struct mm_wl_source { /* what cases are cut from */
	struct mm_trace trace;
	struct mm_wl_lengths lengths[MM_WL_TENANTS_MAX];
	uint32_t tenants;
};

/**
 * mm_wl_source_open() - read, or make, the trace and the lengths
 * @opts:       checked
 * @ret_source: written only on success
 * @err:        gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG; -ERANGE; -ENOMEM; errno of opening.
 */
int mm_wl_source_open(const struct mm_wl_opts *opts, struct mm_wl_source *ret_source, char *err,
		      size_t err_bytes);
void mm_wl_source_done(struct mm_wl_source *source);

/**
 * mm_wl_case_make() - the requests of one window
 * @opts:     of the source
 * @source:   open
 * @window:   below opts->windows
 * @ret_case: written only on success
 *
 * Return: 0; -ERANGE a tenant has no request, or the trace no time; -ENOMEM.
 */
int mm_wl_case_make(const struct mm_wl_opts *opts, const struct mm_wl_source *source,
		    uint32_t window, struct mm_wl_case *ret_case, char *err, size_t err_bytes);
void mm_wl_case_done(struct mm_wl_case *c);
