/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demand - KV chunks that a tenant demands, and chunks that are reclaimed from it
 *
 * Concept:    A tenant's demand is how many chunks it wants in all. The part that it does not hold
 *             waits until the controller grants or denies it. Reclaimed chunks are expected until a
 *             deadline, unless the tenant released none of those of its last reclaim.
 * Ownership:  a tenant's demand; the chunks that it holds are kv.c's.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

struct mm_demand {
	uint32_t wanted;       /* chunks in all */
	uint32_t wanted_max;   /* the most that it may have by policy */
	uint64_t since_ns;     /* since when the demand waits, or waits for its next chunk */
	uint64_t order;        /* position among KV demands; the lower is served first */
	uint64_t kept_ns;      /* since when pages are kept back for it; 0: none are */
	bool answered;         /* no denial is due: there was one, or the policy grants no more */
	uint64_t denied_ns;    /* last denial; 0: never */
	int error;             /* of the denial of this demand; 0: none was sent */
	uint32_t requests;     /* number of demands that it has sent so far */
	uint32_t reclaims;     /* number of reclaims so far */
	uint32_t reclaim_left; /* chunks of the last reclaim that were not released yet */
	uint32_t reclaim_last; /* chunks of the last reclaim */
	bool unresponsive;     /* released none of the reclaim before: it is not counted on */
	uint64_t reclaim_until_ns;
};

/* Begins with no demand; a policy with static KV demands the share. */
void mm_c_demand_declare(const struct mm_core *c, struct mm_c_tenant *t);
/* Sets the demand to @chunks in all, which must not exceed what @t declared. */
void mm_c_demand_set(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks);
/* Changes the number of chunks of a demand that goes on: it keeps its place, and its answer. */
void mm_c_demand_change(const struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks);
/* @t has released a chunk: the demand and the reclaim are one chunk less. */
void mm_c_demand_released(struct mm_c_tenant *t);
/* Returns how many chunks @t demands, may have by policy, and does not hold. */
uint32_t mm_c_kv_unmet(const struct mm_c_tenant *t);
/* Returns how many of them may be granted by the target of the last decision. */
uint32_t mm_c_kv_due(const struct mm_core *c, const struct mm_c_tenant *t);
/* Makes @t the last in the order of KV demands. */
void mm_c_kv_requeue(struct mm_core *c, struct mm_c_tenant *t);
/* Grants a chunk; the caller has checked that its pages can be reserved. */
void mm_c_kv_grant(struct mm_core *c, struct mm_c_tenant *t);
/* Sends a denial with @error, once for each demand and at least MM_DENY_NS apart. */
void mm_c_kv_deny(struct mm_core *c, struct mm_c_tenant *t, int error);
/* Sends a denial with @error, whether or not there was one. */
void mm_c_kv_deny_now(struct mm_core *c, struct mm_c_tenant *t, int error);
/*
 * Reclaims @chunks until @until_ns. A tenant that released nothing of its last reclaim is sent the
 * reclaim, too, but its chunks are not counted as expected supply.
 */
void mm_c_kv_reclaim_until(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks,
			   uint64_t until_ns);
/* Reclaims @chunks within the knob reclaim-ms. */
void mm_c_kv_reclaim(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks);
/*
 * Returns whether a new reclaim from @t would be counted on: it has released a part of the last
 * one, if there was one.
 */
bool mm_c_kv_is_responsive(const struct mm_c_tenant *t);
