/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simple - the parts of the policies that look at nothing but what lacks pages now
 *
 * Concept:   Empty chunks are reclaimed while pages are short; layers return when pages are left
 *            over (Dynamic Reversion).
 * Ownership: pure functions over the caller's view and targets.
 * Threading: any.
 */
#pragma once

#include "mmd/core/market/decide.h"

#define MM_SIMPLE_ALL UINT32_MAX /* tenants of all accounts */

/* Sets all targets to what is now. */
void mm_simple_begin(const struct mm_view *view, struct mm_targets *targets);
/*
 * Reclaims empty chunks, @short_pages at most, from tenants of @account, with @idle_only from idle
 * ones. Returns how many pages will come.
 */
uint64_t mm_simple_take_chunks(const struct mm_view *view, struct mm_targets *targets,
			       uint64_t short_pages, uint32_t account, bool idle_only);
/*
 * Reclaims empty chunks of idle tenants of each account, as many as it owes or only they can give.
 * Returns how many pages will come.
 */
uint64_t mm_simple_take_owed(const struct mm_view *view, struct mm_targets *targets);
/* Returns how many units of @pages @t may give to tenants of @account. */
uint64_t mm_simple_may_give(const struct mm_view *view, const struct mm_view_tenant *t,
			    uint64_t pages, uint32_t account);
/* Returns whether a change of @t's plan may begin now. */
bool mm_simple_lends(const struct mm_view_tenant *t);
/*
 * Returns the tenant whose layers return first, of those from which none were taken for @dwell_ns:
 * active ones before idle ones. NULL: there is none.
 */
const struct mm_view_tenant *mm_simple_next_to_return(const struct mm_view *view,
						      uint64_t dwell_ns);
/* Lets all layers of @t return into pages that are left over, all but @keep_free. */
void mm_simple_return(const struct mm_view_tenant *t, uint64_t keep_free,
		      struct mm_targets *targets);
/* Returns layers of one tenant if a surplus has been there for dwell_ns. */
void mm_simple_give_back(const struct mm_view *view, struct mm_market_memory *memory,
			 struct mm_targets *targets);
