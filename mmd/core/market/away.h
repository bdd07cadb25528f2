/* SPDX-License-Identifier: Apache-2.0 */
/*
 * away - how many layers of each tenant are to be away
 *
 * Concept:   Offers are taken in the order of their prices: layers of idle models, layers of those
 *            that wait for their turn (the last in line first), layers of who computes, as many as
 *            are worth it. What nobody needs returns, to the next in line first.
 * Threading: any.
 */
#pragma once

#include "mmd/core/market/decide.h"
#include "mmd/core/market/draft.h"

/* Sets alpha of each row; roles are given. */
void mm_away_decide(struct mm_draft *d, const struct mm_market_memory *memory);
