/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supply - what memory is there and on its way, and what tenants wait for
 *
 * Concept:   Each wish and each lender asks, so all accounts are worked out at once, and anew when
 *            what they were worked out from has changed since: the core counts those changes.
 * Ownership: the market keeps what was worked out.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Pages that are on their way, as of one revision. */
struct mm_c_expected {
	uint64_t coming; /* the core's, when this was worked out */
	uint64_t all;
	uint64_t of[MM_ACCOUNTS_LIMIT]; /* by account */
};

/* What all tenants add up to, as of one revision. */
struct mm_c_sums {
	uint64_t coming, waiting; /* the core's, when this was worked out */
	uint64_t link;            /* of the link's time, what active tenants' streaming takes */
	uint64_t own[MM_ACCOUNTS_LIMIT]; /* pages that an account's tenants wait for */
};

static inline uint64_t mm_c_free_pages(const struct mm_core *c)
{
	return c->ledger.count[MM_PAGE_FREE];
}

/*
 * Pages that are on their way out of @account's tenants (MM_DOMAIN_NONE: anybody's) and counted on.
 */
uint64_t mm_c_expected(struct mm_core *c, uint32_t account);
/* What is free, comes back, and is on its way. */
uint64_t mm_c_supply(struct mm_core *c);
/* The same, for what @account wishes: others' mins are not to be had. */
uint64_t mm_c_supply_for(struct mm_core *c, uint32_t account);
/*
 * Pages that may be charged to an account: now, once what it gave is scrubbed, once it gave more.
 */
uint64_t mm_c_account_soon(struct mm_core *c, uint32_t account);
/* An account that may have the whole pool is never what stands in the way. */
bool mm_c_quota_binds(const struct mm_core *c, const struct mm_c_tenant *t);

/* Each lender asks for them: all are worked out at once. */
const struct mm_c_sums *mm_c_sums(struct mm_core *c);
