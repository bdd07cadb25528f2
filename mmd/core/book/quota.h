/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota - what accounts may have, what is kept for them, and what they must give
 *
 * Ownership:  struct mm_c_mins is worked out anew when pages or quotas have changed.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* What is unused of the mins, and of which pages and quotas that was worked out. */
struct mm_c_mins {
	uint64_t changes, revision;
	uint64_t all;
	uint64_t shortfall;                 /* of pages of no domain that they need */
	uint64_t unused[MM_ACCOUNTS_LIMIT]; /* by domain */
};

/* Pages that an account must give. */
uint64_t mm_c_over(struct mm_core *c, uint32_t account);
/* The same, for who looks in: nothing is kept of it. */
uint64_t mm_c_over_seen(const struct mm_core *c, uint32_t account);
/* A new entry of that key; NULL: full. */
struct mm_account *mm_c_account_named(struct mm_core *c, uint64_t account);
/* The operator's word, which was checked. */
void mm_c_quota_put(struct mm_core *c, struct mm_account *a, const struct mm_core_quota *quota);
/* It is not in force yet. */
bool mm_c_quota_is_pending(const struct mm_core *c, const struct mm_account *a);
/* The entry that a newcomer's account has from now on; NULL: full. */
struct mm_account *mm_c_account_of(struct mm_core *c, const struct mm_core_join *join);
/* Free pages that @account may be granted as they are, others' mins being kept. */
uint64_t mm_c_grantable(struct mm_core *c, uint32_t account);
/* Of the pages that its domain may have as they are, what is kept for others. */
uint64_t mm_c_kept_from(struct mm_core *c, uint32_t account);
/* Makes free pages of other domains grantable for @account, so that @pages will be. */
void mm_c_convert(struct mm_core *c, uint32_t account, uint64_t pages);
/* What is unused of all mins. */
uint64_t mm_c_unused_mins(struct mm_core *c);
/* Pages that may be taken from @account for others: what it has beyond its min. */
uint64_t mm_c_excess(const struct mm_core *c, uint32_t account);
/* Creates pages anew that the mins need. */
void mm_c_guard(struct mm_core *c);
/* Pages that come back are to be created anew, not only scrubbed: a min needs them. */
bool mm_c_scrub_recreates(struct mm_core *c);
void mm_c_recycle(struct mm_core *c);
/* Pages of no domain that the mins lack and that are not on their way. */
uint64_t mm_c_mins_missing(struct mm_core *c);
/* Can @pages be reserved for it now? */
bool mm_c_reservable(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages);
