/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally - what has happened to a tenant, to an account and in the pool, counted
 *
 * Concept:    Three tallies count the same: the tenant's, which begins with it; its account's,
 *             which begins when the account gets its entry; and the pool's, which begins with the
 *             core. All only rise. Nothing is decided by them. The waits of a tenant say since when
 *             each chunk that it demands has been demanded.
 * Ownership:  a part of the tenant, of the account, of the core.
 * Threading:  core thread only.
 * Trust:      Steps and stalls are claims of the tenant. What is counted of them is at most what
 *             can have happened in the time that has passed: a tenant cannot make its account's
 *             tally run faster than the clock.
 * Limits:     MM_WAITS_MAX demands of different times; when there are more, the last ones count as
 *             of the time of the first of them.
 */
#pragma once

#include <stdint.h>

#include "mm/abi.h"
#include "mmd/core/core.h"

struct mm_c_tenant;

#define MM_WAITS_MAX 8

/* Chunks that were demanded at the same time. */
struct mm_wait {
	uint32_t chunks;
	uint64_t since_ns;
};

struct mm_c_tally {
	struct mm_core_tally happened;
	uint32_t waits; /* that are in use, the oldest first */
	struct mm_wait wait[MM_WAITS_MAX];
	uint64_t reported_ns; /* when its statistics came last; 0: never */
	uint64_t sampled_ns;  /* when they had a step that was measured */
};

/* Bounds of the classes of times, each within. */
extern const uint64_t mm_c_tally_bounds_ns[MM_TALLY_BOUNDS];

/* Adds @n to a number of the tallies of @t, of its account and of the pool. */
#define mm_c_tally_add(c, t, number, n)                         \
	do {                                                    \
		(t)->tally.happened.number += (n);              \
		(c)->account[(t)->account].tally.number += (n); \
		(c)->tally.number += (n);                       \
	} while (0)

/* Notes that @t now demands @chunks more than it holds. */
void mm_c_tally_waits(const struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks);
/* Notes that @t was granted a chunk: the one that it has demanded for longest. */
void mm_c_tally_granted(struct mm_core *c, struct mm_c_tenant *t);
/* Notes statistics that @t has sent, before they replace the last ones. */
void mm_c_tally_report(struct mm_core *c, struct mm_c_tenant *t,
		       const struct mm_tenant_stats *stats);
