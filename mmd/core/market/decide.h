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
	uint64_t mode_changed_ns;  /* when it was changed last; 0: never */
	bool rotates;              /* side by side memory goes to one after the other */
	uint64_t rotates_since_ns; /* since when the demand speaks against that; 0: it does not */
	uint32_t memory_of;        /* then: whose memory it is; MM_NO_TENANT: nobody's yet */
	uint64_t memory_of_ns;     /* since when it is */
	uint32_t memory_account;   /* its account, and the weight of that */
	uint32_t memory_weight;
	/* Time that memory was for an account's tenants, by weight; the least when it was given
	 * last. */
	uint64_t charged_ns[MM_CORE_ACCOUNTS_MAX], charged_now_ns;
	/* By a tenant's index: when it had all memory last, at first when it joined. */
	uint64_t memory_was_ns[MM_CORE_TENANTS_MAX];
	/*
	 * By a tenant's index: the most cold blocks after steps waited too long (0: there is no
	 * such bound), when that was lowered last, when the limit was raised or used last; or 0.
	 */
	uint32_t cold_cap[MM_CORE_TENANTS_MAX];
	uint64_t cold_cut_ns[MM_CORE_TENANTS_MAX];
	uint64_t cold_used_ns[MM_CORE_TENANTS_MAX];
	uint64_t cold_bid_ns[MM_CORE_TENANTS_MAX]; /* when it bid for more of them last */
	uint64_t cold_mean[MM_CORE_TENANTS_MAX];   /* as in struct mm_draft_row */
	/* When a tenant's target was raised last; 0: never. By its index, so a new one has 0. */
	uint64_t taken_ns[MM_CORE_TENANTS_MAX];
};

/**
 * mm_market_decide() - the targets of the policy remap
 * @view:    complete
 * @memory:  zeroed at first, then as the last decision left it
 * @targets: written: the fields of the device, and tenant[] for each tenant of the view
 */
void mm_market_decide(const struct mm_view *view, struct mm_market_memory *memory,
		      struct mm_targets *targets);
