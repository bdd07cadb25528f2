/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy - which ways of taking and giving back memory are used
 *
 * Concept:    A policy is a table of choices among what lend.h offers.
 * Ownership:  constant tables.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/market/market.h"

struct mm_policy_ops {
	bool forecast;  /* layers are taken ahead of need */
	bool kv_static; /* exactly the share, never more; nothing is asked back */
	/* Arranges for @short_pages more from @account's tenants (MM_DOMAIN_NONE: anybody's); returns
	 * how many will come. @dry: only says. NULL: none. */
	uint64_t (*take)(struct mm_core *c, uint64_t short_pages, uint32_t account, bool dry);
	/* Layers of tenants that cannot hide their streaming go back; @kept_pages are spoken for. Returns how
	 * many more are kept back for it. NULL: nothing lent. */
	uint64_t (*overdrawn)(struct mm_core *c, uint64_t kept_pages);
	/* No demand waits, and @surplus_pages are left over. Each policy has it: what the operator took
	 * by hand returns under any. */
	void (*give_back)(struct mm_core *c, uint64_t surplus_pages);
	/* Slots for @alpha layers away, 1 or 2. NULL: whichever makes the shorter step. */
	uint32_t (*slots)(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha);
};

const struct mm_policy_ops *mm_policy_get(enum mm_policy policy);

/* As many slots as the policy has for @alpha layers away; 0: it does not say. */
static inline uint32_t mm_c_policy_slots(const struct mm_core *c, const struct mm_c_tenant *t,
					 uint32_t alpha)
{
	return c->market->policy->slots ? c->market->policy->slots(c, t, alpha) : 0;
}
