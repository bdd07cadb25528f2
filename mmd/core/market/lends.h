/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lends - state of a tenant's lending
 *
 * Concept:   What look.h observes over time, and what reconcile.h has begun for the present target.
 * Ownership: the market has one per tenant index.
 * Threading: core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/market/points.h"

/* Pages that are kept for layers which are to return. */
struct mm_c_earmark {
	uint32_t alpha;    /* the target that they are kept for */
	uint64_t pages;    /* 0: none are kept */
	uint64_t most;     /* that were there at the last progress */
	uint64_t until_ns; /* then, without progress, as many return as there are pages for */
	bool expired;      /* nothing more is kept until the target changes */
};

struct mm_c_lends {
	uint64_t taken_ns;   /* when layers were last taken */
	uint64_t by_hand_ns; /* since when the operator's plan waits for pages */
	struct mm_c_earmark earmark;
	uint64_t stuck_until_ns; /* a target could not be reached: until then none is expected */
	uint32_t stuck_times;    /* how often in a row: without a return in between */
	uint64_t big_pages;      /* that are kept for its model or the operator's plan */

	uint32_t hungry_permille, late_permille;
	uint64_t requests_done, requests_late; /* at the last sample */
	struct mm_c_points points;
};
