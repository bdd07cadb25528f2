/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supply - pages that are free or on their way, and pages that tenants wait for
 *
 * Concept:   The sums are needed for each demand and each lender, so they are computed for all
 *            accounts at once, and again only after a change; the core counts the changes.
 * Ownership: the market keeps the sums.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Pages that are on their way and counted on, at one revision. */
struct mm_c_expected {
	uint64_t coming; /* the core's counter when the pages were counted */
	uint64_t all;
	uint64_t of[MM_CORE_ACCOUNTS_MAX]; /* by account */
};

/* Sums over all tenants, at one revision. */
struct mm_c_sums {
	uint64_t coming, waiting;           /* the core's counters when the sums were computed */
	uint64_t own[MM_CORE_ACCOUNTS_MAX]; /* pages that an account's tenants wait for */
};

static inline uint64_t mm_c_free_pages(const struct mm_core *c)
{
	return c->ledger.count[MM_PAGE_FREE];
}

/*
 * Returns how many pages are on their way from @account's tenants (MM_DOMAIN_NONE: from any) and
 * counted on: chunks being reclaimed, and layers being taken.
 */
uint64_t mm_c_expected(struct mm_core *c, uint32_t account);
/* Returns the supply: pages that are free, being scrubbed, or on their way from tenants. */
uint64_t mm_c_supply(struct mm_core *c);
/* Returns the supply for demands of @account: without the unused mins of other accounts. */
uint64_t mm_c_supply_for(struct mm_core *c, uint32_t account);
/*
 * Returns how many more pages may be charged to @account, assuming that those it gave are scrubbed
 * and those being reclaimed from it have come.
 */
uint64_t mm_c_account_soon(struct mm_core *c, uint32_t account);
/*
 * Returns how many pages demands for KV need beyond unused mins, each account's at most what may be
 * charged to it soon, and models and plans that pages are kept for.
 */
uint64_t mm_c_needed(struct mm_core *c);
/*
 * Returns how many pages tenants may be granted by their targets and wait for, as KV, for layers
 * that return, for models and for plans.
 */
uint64_t mm_c_awaited(const struct mm_core *c);
/* Returns whether @t's account may have less than the whole pool. */
bool mm_c_quota_binds(const struct mm_core *c, const struct mm_c_tenant *t);

/* Returns the sums over all tenants; valid until the core's next change. */
const struct mm_c_sums *mm_c_sums(struct mm_core *c);
