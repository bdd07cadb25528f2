/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide_load - the busy load under which mmbench decide times the core
 *
 * Concept:    see decide.h. Virtual time goes from event to event; real time is taken around the
 *             core's calls only.
 * Ownership:  the caller owns struct mm_decide_result; a run leaves nothing behind.
 * Threading:  one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"
#include "libclient/base/histogram.h"

enum mm_decide_kind {
	MM_DECIDE_STATS,   /* statistics of a step */
	MM_DECIDE_DEMAND,  /* KV wanted */
	MM_DECIDE_RELEASE, /* a chunk given back */
	MM_DECIDE_ANSWER,  /* PARKED, COMMITTED */
	MM_DECIDE_JOB,     /* xfer did one */
	MM_DECIDE_LINK,    /* a layer was streamed */
	MM_DECIDE_TICK,    /* the core's own deadline */
	MM_DECIDE_KINDS
};

struct mm_decide_opts {
	uint32_t tenants, layers, layer_pages, chunks; /* KV chunks of a page; a tenant's share */
	uint64_t step_ns, page_ns;                     /* of each tenant; a page over the link */
	uint64_t events;                               /* to time, behind a tenth to warm up */
	uint64_t seed;
	/* of the same: of each event the least time counts, the rest was the machine's */
	uint32_t runs;
	enum mm_policy policy;
};

struct mm_decide_result {
	struct mm_histogram all, kind[MM_DECIDE_KINDS]; /* ns of an event */
	double total_ns;                                /* of all timed events */
	uint64_t steps;                                 /* of all tenants meanwhile */
	double quiet_ns;                                /* a settling that finds nothing to do */
	uint64_t grants, denials, plan_changes;         /* so much happened */
};

/* 0; negative errno. */
int mm_decide_run(const struct mm_decide_opts *opts, struct mm_decide_result *ret);
