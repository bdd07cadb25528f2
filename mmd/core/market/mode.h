/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mode - all who have work compute side by side, or one after the other, and for how long
 *
 * Concept:   Side by side while what all want fits what there is, with the layers that would pay
 *            to be away; else in turns. Goals of accounts may forbid either. A turn is as long as
 *            bringing its memory home is a small part of it.
 * Threading: any.
 */
#pragma once

#include "mmd/core/market/decide.h"
#include "mmd/core/market/draft.h"

/* Demand in permille of the supply: above this in turns, below that side by side again. */
#define MM_MODE_TURNS_FROM   1500
#define MM_MODE_BESIDE_BELOW 500

/*
 * Chooses the mode, and gives the roles for it: memory->beside is as chosen. Writes demand and
 * supply of @targets.
 */
void mm_mode_choose(struct mm_draft *d, struct mm_market_memory *memory,
		    struct mm_targets *targets);
/* Returns how long the holder's turn is while others wait; 0: nobody holds one. */
uint64_t mm_mode_turn_ns(const struct mm_draft *d);
