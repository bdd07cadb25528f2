/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - what was measured of a tenant, and of the link
 *
 * Concept:   Steps differ: one that computes a prompt takes ten times as long as one that only
 *            decodes. So besides means the computing times of the steps of late are kept by size.
 * Ownership: a tenant's, as a part of it.
 * Threading: core thread only.
 * Trust:     statistics are the tenant's claims: bounded here, and they steer only what is taken
 *            from it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"

struct mm_core;
struct mm_c_tenant;

#define MM_STEP_SIZES 32 /* of steps: two to the octave, from 128 us on */
struct mm_c_steps {
	uint32_t weight[MM_STEP_SIZES]; /* of the steps of that size, the last ones most */
	uint64_t ns[MM_STEP_SIZES];     /* their mean */
};

struct mm_c_load {
	bool known; /* statistics have arrived */
	struct mm_tenant_stats last;
	bool claimed;            /* what it says about its layers is not what sets.c goes by */
	uint64_t claimed_ns;     /* when that was taken up; 0: never */
	uint64_t active_ns;      /* when it was last seen active */
	uint64_t stepped_ns;     /* when it was last seen to run steps, or joined */
	uint64_t t_c_ns;         /* the mean layer's computation, smoothed; 0: not measured */
	uint64_t t_t_ns;         /* the largest layer's transfer */
	uint64_t alone_ns;       /* the same, when nobody else streams */
	uint64_t stall_permille; /* waited at gates, of the computing; smoothed */
	struct mm_c_steps steps;
	uint64_t steps_seen;
	uint64_t longest_ns; /* the longest computing of a step of late: a prefill's */
};

/* Back-to-back copies tell the link's speed. */
struct mm_c_copies {
	uint64_t ns_per_mib; /* smoothed, from loads */
	uint64_t done_ns;
};

/* Its statistics arrived. */
void mm_c_load_report(struct mm_core *c, struct mm_c_tenant *t,
		      const struct mm_tenant_stats *stats);
/* True, and then not again for a while: what it says about its layers has changed. */
bool mm_c_load_claim(struct mm_core *c, struct mm_c_tenant *t);
/* A transfer of its largest layer took so long. */
void mm_c_load_streamed(struct mm_c_tenant *t, uint64_t layer_ns);
/* A copy of so many bytes, issued then, is done. */
void mm_c_load_copied(struct mm_core *c, uint64_t issued_ns, uint64_t bytes);
/* T_T of the planner, of its largest layer: measured, or from the copies of loads; 0: not known. */
uint64_t mm_c_transfer_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/* The mean computing time of a step; 0: none was seen. */
uint64_t mm_c_steps_mean_ns(const struct mm_c_steps *steps);
