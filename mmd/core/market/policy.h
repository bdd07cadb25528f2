/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy - the ways in which memory is lent
 *
 * Concept:    A policy decides: from a view (view.h) to targets (targets.h). It changes nothing by
 *             itself; reconcile.h and grant.h do what targets say.
 * Ownership:  constant tables.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/market/market.h"

struct mm_policy_ops {
	/*
	 * It decides when the situation has changed and every MM_LOOK_NS, before anything is
	 * granted, and layers return in the order of its targets. Else it decides at each settling,
	 * from what lacks pages after all was granted that can be.
	 */
	bool market;
	bool lends;     /* it takes layers */
	bool kv_static; /* a tenant has its share of KV, never more, and nothing is reclaimed */
	bool kv_swaps;  /* tenants do well to suspend KV to the host */
	void (*decide)(const struct mm_view *view, struct mm_market_memory *memory,
		       struct mm_targets *targets);
	/*
	 * Returns the slots for @alpha layers away, 1 or 2. NULL: the number with the shorter step.
	 */
	uint32_t (*slots)(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha);
};

/* Returns the table of a policy. */
const struct mm_policy_ops *mm_policy_get(enum mm_policy policy);

/* Returns the policy's number of slots for @alpha layers away; 0: that with the shorter step. */
static inline uint32_t mm_c_policy_slots(const struct mm_core *c, const struct mm_c_tenant *t,
					 uint32_t alpha)
{
	return c->market->policy->slots ? c->market->policy->slots(c, t, alpha) : 0;
}
