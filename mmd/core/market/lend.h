/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend - the parts of policies: where pages come from, and how layers return
 *
 * Concept:    Decides which plans may be changed and in which order tenants lend, takes chunks and
 *             layers, and returns layers. worth.c bounds how many layers may be away, home.c has
 *             when they return. A policy (policy.c, naive.c) is a choice among these.
 * Ownership:  works on struct mm_core; keeps only when layers were last taken (lends.h).
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Returns whether @t's plan may be changed now, by the operator or the controller. */
bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns whether the controller may change @t's plan now. */
bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns whether @t is of @account; MM_DOMAIN_NONE: any. */
bool mm_c_of_account(const struct mm_c_tenant *t, uint32_t account);
/*
 * Returns how many units of @pages @from may give: any number to its own @account; to others
 * (MM_DOMAIN_NONE) what its account has beyond its min, and as many as tenants of its account
 * demand.
 */
uint64_t mm_c_may_give(struct mm_core *c, const struct mm_c_tenant *from, uint64_t pages,
		       uint32_t account);

/*
 * Reclaims empty chunks, @short_pages at most, from tenants of @account (MM_DOMAIN_NONE: any), with
 * @idle_only from idle ones. Returns how many pages will come. @dry_run: changes nothing.
 */
uint64_t mm_c_take_chunks(struct mm_core *c, uint64_t short_pages, uint32_t account, bool idle_only,
			  bool dry_run);
/* Returns how many more layers of @t make up for @short_pages, with up to @cap away. */
uint32_t mm_c_layers_short(struct mm_core *c, const struct mm_c_tenant *t, uint32_t cap,
			   uint64_t short_pages, uint32_t account);
/*
 * Begins a change with @more layers away. Returns how many pages will come. @dry_run: changes
 * nothing.
 */
uint64_t mm_c_layers_take(struct mm_core *c, struct mm_c_tenant *t, uint32_t more, bool dry_run);
/* mm_c_layers_take() of mm_c_layers_short(). */
uint64_t mm_c_take_up_to(struct mm_core *c, struct mm_c_tenant *t, uint32_t cap,
			 uint64_t short_pages, uint32_t account, bool dry_run);
/* Lists all tenants in the order in which they lend. Returns how many. */
uint32_t mm_c_lenders(const struct mm_core *c, struct mm_c_tenant **ret);

/*
 * Returns the tenant whose layers return first, of those from which none were taken for @dwell_ns:
 * active ones before idle ones. NULL: there is none.
 */
struct mm_c_tenant *mm_c_next_to_return(const struct mm_core *c, uint64_t dwell_ns);
/*
 * Begins a change by which layers of @t return, as many as @pages allow, down to @floor away.
 * False: none can.
 */
bool mm_c_return_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages, uint32_t floor);
/* Returns whether some tenant waits for its first chunk; that precedes the return of layers. */
bool mm_c_any_without_kv(const struct mm_core *c);
