/* SPDX-License-Identifier: Apache-2.0 */
/*
 * points - what streaming costs a tenant, for some numbers of layers
 *
 * Concept:   A point is a number of layers, with the set that it would get and that set's cost
 *            (cost.h): none, the present number and its neighbours, and others evenly spaced.
 *            Computing one takes microseconds where layers are alike, and up to milliseconds where
 *            they are not, so they are kept while what they depend on hardly changes, and a look
 *            computes a few.
 * Ownership: a tenant's.
 * Threading: core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/market/view.h"

struct mm_core;
struct mm_c_tenant;

/* Computations of sets that one look may do. */
#define MM_POINTS_WORK 16

struct mm_c_points {
	/* The points below were computed for these. */
	uint64_t epoch, claims, transfer_ns, step_ns;
	uint32_t alpha;
	uint32_t n; /* 0: there are none yet */
	struct mm_view_point point[MM_VIEW_POINTS];
	/* The next ones, while they are being computed. */
	uint32_t next_n, next_at; /* 0: none are */
	struct mm_view_point next[MM_VIEW_POINTS];
};

/*
 * Brings the points of tenants up to date, beginning with those that the last call left, within
 * MM_POINTS_WORK.
 */
void mm_c_points_update(struct mm_core *c);
