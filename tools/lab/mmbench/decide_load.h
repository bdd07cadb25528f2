/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide_load - the busy load under which mmbench decide times the core
 *
 * Concept:    Virtual time advances from event to event (decide.h); real time is measured around
 *             the core's calls only.
 * Ownership:  the caller owns struct mm_decide_result; a run frees everything else.
 * Threading:  one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/histogram.h"
#include "mmd/core/core.h"

enum mm_decide_kind {
	MM_DECIDE_STATS,   /* statistics of a step */
	MM_DECIDE_DEMAND,  /* KV wanted */
	MM_DECIDE_RELEASE, /* a chunk given back */
	MM_DECIDE_ANSWER,  /* PARKED, COMMITTED */
	MM_DECIDE_JOB,     /* xfer completed a job */
	MM_DECIDE_LINK,    /* a layer was streamed */
	MM_DECIDE_TICK,    /* the core's own deadline */
	MM_DECIDE_KINDS
};

struct mm_decide_opts {
	uint32_t tenants, layers, layer_pages;
	uint32_t chunks;  /* KV chunks, of one page each, in a tenant's share */
	uint64_t step_ns; /* duration of a tenant's step */
	uint64_t page_ns; /* time of a page on the link */
	uint64_t events;  /* events to time, after a tenth as many to warm up */
	uint64_t seed;
	/* repetitions of the same load; the least time of each event counts, to leave out noise */
	uint32_t runs;
	enum mm_policy policy;
	bool journal; /* run it again with a journal and images (decide_kept.h) */
};

/* Evaluations of a logarithm in one sample of the reference. */
#define MM_DECIDE_REFERENCE 1000

struct mm_decide_result {
	struct mm_histogram all, kind[MM_DECIDE_KINDS]; /* ns per event */
	double total_ns;                                /* sum over all timed events */
	uint64_t steps;                                 /* steps of all tenants in that time */
	double quiet_ns;                                /* settling when there is nothing to do */
	uint64_t grants, denials, plan_changes;         /* how many there were */
	uint64_t decisions;                             /* of one run, in that time */
	/* ns of decisions that were repeated on the same views, and of the reference beside them */
	struct mm_histogram decide, reference;
	/*
	 * With a journal: over without, of the time of all events, of the median event, and of all
	 * events with the images; nanoseconds and bytes of an image, and events between two.
	 */
	double journal_ratio, journal_p50_ratio, kept_ratio;
	double image_ns, image_bytes, image_events;
	double decide_share; /* part of total_ns that decisions of the median length take */
};

/* Runs the load and measures it. Return: 0; negative errno. */
int mm_decide_run(const struct mm_decide_opts *opts, struct mm_decide_result *ret);
