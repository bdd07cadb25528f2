/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota - what accounts may have, what is kept for them, and what they must give
 *
 * Concept:    A min is kept: enough free pages for all unused mins stay out of other accounts'
 *             reach (quota.c). Functions answer how many pages an account may be granted, and
 *             create pages anew so that they suit another domain.
 * Ownership:  The core owns struct mm_c_mins, which is computed anew when pages or quotas changed.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Unused pages of the mins, and the changes of pages and quotas for which they were computed. */
struct mm_c_mins {
	uint64_t changes, revision;
	uint64_t all;
	uint64_t shortfall;                    /* pages in no domain that the mins need */
	uint64_t unused[MM_CORE_ACCOUNTS_MAX]; /* by domain */
};

/* Returns the pages that an account must give. */
uint64_t mm_c_over(struct mm_core *c, uint32_t account);
/* Like mm_c_over(), but computes the mins without storing them. */
uint64_t mm_c_over_computed(const struct mm_core *c, uint32_t account);
/*
 * Opens an entry for the key @account, with the default quota. Returns NULL if the table is full.
 */
struct mm_account *mm_c_account_named(struct mm_core *c, uint64_t account);
/* Sets a quota of the operator, which was checked. */
void mm_c_quota_put(struct mm_core *c, struct mm_account *a, const struct mm_core_quota *quota);
/* True while the account's use exceeds its max, or its min is not covered yet. */
bool mm_c_quota_is_pending(const struct mm_core *c, const struct mm_account *a);
/*
 * Returns the entry of the account of a tenant that joins; opens it if necessary. NULL: the table
 * is full.
 */
struct mm_account *mm_c_account_of(struct mm_core *c, const struct mm_core_join *join);
/*
 * Returns the free pages that @account may be granted as they are, while the mins of others are
 * kept.
 */
uint64_t mm_c_grantable(struct mm_core *c, uint32_t account);
/*
 * Returns how many of the pages that its domain may have as they are, are kept for other accounts.
 */
uint64_t mm_c_kept_from(struct mm_core *c, uint32_t account);
/* Creates free pages of other domains anew, so that @pages become grantable for @account. */
void mm_c_pages_convert(struct mm_core *c, uint32_t account, uint64_t pages);
/* Returns the unused pages of all mins. */
uint64_t mm_c_unused_mins(struct mm_core *c);
/* Returns the pages that may be taken from @account for others: those beyond its min. */
uint64_t mm_c_excess(const struct mm_core *c, uint32_t account);
/* Creates pages anew that the mins need. */
void mm_c_mins_guard(struct mm_core *c);
/* True if a min needs pages that come free to be created anew, not only scrubbed. */
bool mm_c_scrub_recreates(struct mm_core *c);
/*
 * Creates pages of departed accounts anew if entries run short, so that their entries become free.
 */
void mm_c_accounts_recycle(struct mm_core *c);
/* Returns the pages in no domain that the mins lack and that are not on their way. */
uint64_t mm_c_mins_missing(struct mm_core *c);
/* True if @pages can be reserved for the tenant now. */
bool mm_c_reservable(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages);
/* Returns what the tenant's account may be charged once the pages that it gave are scrubbed. */
uint64_t mm_c_room_soon(const struct mm_core *c, const struct mm_c_tenant *t);
