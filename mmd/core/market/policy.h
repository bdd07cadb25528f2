/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy - the ways of taking and returning memory that are used
 *
 * Concept:    A policy is a table of choices among what lend.h offers.
 * Ownership:  constant tables.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/market/market.h"

struct mm_policy_ops {
	bool forecast;  /* layers are taken ahead of need */
	bool kv_static; /* a tenant has its share of KV, never more, and nothing is reclaimed */
	bool kv_swaps;  /* tenants do well to suspend KV to the host */
	/* Takes @short_pages from @account's tenants (MM_DOMAIN_NONE: any); returns how many will
	 * come. @dry_run: changes nothing. NULL: takes nothing. */
	uint64_t (*take)(struct mm_core *c, uint64_t short_pages, uint32_t account, bool dry_run);
	/* Returns layers of tenants that cannot hide their streaming, from free pages beyond
	 * @kept_pages. Returns how many more pages are kept for it. NULL: such layers stay away. */
	uint64_t (*overdrawn)(struct mm_core *c, uint64_t kept_pages);
	/*
	 * Returns memory when no tenant waits and @surplus_pages are left. Never NULL, since layers
	 * that the operator took by hand return under each policy.
	 */
	void (*give_back)(struct mm_core *c, uint64_t surplus_pages);
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
