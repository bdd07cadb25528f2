/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - the market's decision: from a view to targets
 *
 * Concept:   A pure function of the view and of a small memory: the same bytes give the same
 *            targets. Who lacks KV bids, layers and chunks that can be lent are offers with a
 *            price, and whether all compute side by side or in turns is an output.
 *            Documentation/market.md has the rules, their reasons, and what each was measured to
 *            gain.
 * Ownership: the caller owns all three; the memory holds no pointers, so it can be copied.
 * Threading: any; integers only, no allocation.
 */
#pragma once

#include "mmd/core/market/targets.h"
#include "mmd/core/market/view.h"

/* Facts of earlier decisions that the next ones depend on. */
struct mm_market_memory {
	bool chosen;         /* there was a decision */
	uint64_t surplus_ns; /* since when there is a surplus; 0: there is none */
	bool beside;         /* the mode that was chosen last */
	uint64_t
		mode_since_ns; /* since when the demand speaks for the other mode; 0: it does not */
	uint32_t turn_of;      /* in turns: whose turn memory is for; MM_NO_TENANT: nobody's */
	uint64_t turn_of_ns;   /* since when it is */
	bool turn_held;        /* it has the turn, or had it since then */
	bool turn_used;        /* it computes, or has since then */
	uint64_t taken_ns[MM_CORE_TENANTS_MAX]; /* when a tenant's target was raised last */
};

/**
 * mm_market_decide() - the targets of the policy remap
 * @view:    complete
 * @memory:  zeroed at first, then as the last decision left it
 * @targets: written: the fields of the device, and tenant[] for each tenant of the view
 */
void mm_market_decide(const struct mm_view *view, struct mm_market_memory *memory,
		      struct mm_targets *targets);
