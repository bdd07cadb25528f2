/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - what was measured of a tenant and of the link
 *
 * Concept:    Steps differ: one that computes a prompt takes ten times as long as one that only
 *             decodes. So besides means, the computing times of recent steps are kept by size.
 * Ownership:  a part of the tenant.
 * Threading:  core thread only.
 * Trust:      Statistics are claims of the tenant: they are bounded here, and only affect what is
 *             taken from the tenant.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"
#include "mmd/core/book/slope.h"

struct mm_core;
struct mm_c_tenant;

#define MM_STEP_SIZES 32 /* classes of step times: two per octave, from 128 us on */
struct mm_c_steps {
	/* weight of the steps of a class; recent steps weigh most */
	uint32_t weight[MM_STEP_SIZES];
	uint64_t ns[MM_STEP_SIZES]; /* mean time of the steps of a class */
};

struct mm_c_load {
	bool known; /* statistics have arrived */
	/*
	 * As they came, but for the demand of its queue, which is at most its arena, and requests
	 * late, which are at most those done. These totals may also fall: they are claims.
	 */
	struct mm_tenant_stats last;
	/* its claims about its layers have changed, and sets.c has not used them yet */
	bool claimed;
	uint64_t claimed_ns; /* when sets.c used its claims last; 0: never */
	uint64_t active_ns;  /* when it was last active */
	uint64_t stepped_ns; /* when it last ran steps, or joined */
	uint64_t t_c_ns;     /* computing time of the mean layer, smoothed; 0: not measured */
	uint64_t t_t_ns;     /* transfer time of the largest layer, smoothed */
	uint64_t alone_ns;   /* transfer time of the largest layer when no other tenant streams */
	/* time waited at gates, relative to computing time; smoothed */
	uint64_t stall_permille;
	struct mm_c_steps steps;
	uint64_t steps_seen;
	struct mm_slope slope; /* of its steps' computing time over KV in use */
	uint64_t longest_ns;   /* longest computing time of recent steps: that of a prefill */
};

/* Speed of the link, measured by copies that follow each other without a gap. */
struct mm_c_copies {
	uint64_t ns_per_mib; /* from COPY jobs, smoothed */
	uint64_t done_ns;
};

/* Forgets what was measured of the tenant's model, which goes; another may follow. */
void mm_c_load_forget(struct mm_c_tenant *t);
/* Takes up the statistics that the tenant has sent. */
void mm_c_load_report(struct mm_core *c, struct mm_c_tenant *t,
		      const struct mm_tenant_stats *stats);
/*
 * Returns true if the claims of the tenant about its layers have changed; then not again for a
 * while.
 */
bool mm_c_load_claim(struct mm_core *c, struct mm_c_tenant *t);
/* Notes that a transfer of its largest layer took @layer_ns. */
void mm_c_load_streamed(struct mm_c_tenant *t, uint64_t layer_ns);
/* Notes that a copy of @bytes, issued at @issued_ns, is done. */
void mm_c_load_copied(struct mm_core *c, uint64_t issued_ns, uint64_t bytes);
/*
 * Returns T_T, the transfer time of its largest layer: as measured, or from COPY jobs; 0: not
 * known.
 */
uint64_t mm_c_transfer_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns the transfer time of its largest layer by COPY jobs alone; 0: there were none. */
uint64_t mm_c_copies_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns the mean computing time of a step; 0: no step was measured. */
uint64_t mm_c_steps_mean_ns(const struct mm_c_steps *steps);
