/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend - what tenants can give, and what others may take of it
 *
 * Concept:    Facts that bound each decision, whatever the policy: plans that may be changed now,
 *             chunks that are empty, and the mins of accounts, which are not taken.
 * Ownership:  works on struct mm_core; keeps nothing of its own.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Pages that tenants could give. */
struct mm_c_gives {
	uint64_t all;
	uint64_t of[MM_CORE_ACCOUNTS_MAX]; /* by account */
};

/* Returns whether @t's plan may be changed now, by the operator or the controller. */
bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns whether the controller may change @t's plan now. */
bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns the layers of @t that are away, or will be after the change under way. */
uint32_t mm_c_alpha_next(const struct mm_c_tenant *t);
/*
 * Returns how many units of @pages @from may give to tenants of other accounts: what its account
 * has beyond its min, and as many as tenants of its account demand.
 */
uint64_t mm_c_may_give(struct mm_core *c, const struct mm_c_tenant *from, uint64_t pages);
/*
 * Computes the most pages that tenants could give by the policy: their layers, and empty chunks of
 * those that are idle.
 */
void mm_c_could_give(const struct mm_core *c, struct mm_c_gives *ret_gives);
/* Returns whether some tenant waits for its first chunk; that precedes the return of layers. */
bool mm_c_any_without_kv(const struct mm_core *c);
