/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotate - memory goes to one tenant after the other where all compute side by side
 *
 * Concept:   Tenants that have not joined turns compute when they like. Where what they want is far
 *            more than there is, each alone with all memory computes more in its part of the time
 *            than all do together with a part of the memory each: a step reads the weights for few
 *            requests or for many. So memory goes to one after the other, if that is worth it. The
 *            others lend their layers, and their KV waits on the host; each has its time in turn.
 * Threading: any.
 */
#pragma once

#include "mmd/core/market/decide.h"
#include "mmd/core/market/draft.h"

/* Demand in permille of the supply: above this memory rotates, below that it is divided again. */
#define MM_ROTATE_FROM  2000
#define MM_ROTATE_BELOW 1000

/*
 * While memory rotates, who has requests waiting has work: without memory it runs no steps, and
 * would be idle.
 */
void mm_rotate_works(struct mm_draft *d, const struct mm_market_memory *memory);
/*
 * Returns the index of the tenant whose memory it is by the demand and supply of @targets;
 * MM_NO_TENANT: memory is divided among those who compute.
 */
uint32_t mm_rotate_choose(struct mm_draft *d, struct mm_market_memory *memory,
			  const struct mm_targets *targets);
