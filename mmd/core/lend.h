/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend - what the policies are made of: where pages come from, and how they go back
 *
 * Concept:    supply.c counts what is there and on its way; lend.c says how many layers of a model may be
 *             away, in whose order they are taken, begins the taking, and begins the way back. A policy
 *             (policy.c, naive.c) is a choice among these.
 * Ownership:  works on struct mm_core; keeps nothing of its own.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/state.h"

/* ---- supply.c ---- */

static inline uint64_t mm_c_free_pages(const struct mm_core *c)
{
	return c->ledger.count[MM_PAGE_FREE];
}

/* Pages that are on their way out of @account's tenants (MM_DOMAIN_NONE: anybody's) and counted on. */
uint64_t mm_c_expected(const struct mm_core *c, uint32_t account);
/* What is free, comes back, and is on its way. */
uint64_t mm_c_supply(const struct mm_core *c);
/* The same, for what @account wishes: others' mins are not to be had. */
uint64_t mm_c_supply_for(const struct mm_core *c, uint32_t account);
/* Pages that may be charged to an account: now, once what it gave is scrubbed, once it gave more. */
uint64_t mm_c_account_soon(const struct mm_core *c, uint32_t account);
/* An account that may have the whole pool is never what stands in the way. */
bool mm_c_quota_binds(const struct mm_core *c, const struct mm_c_tenant *t);

/* Each lender asks for them: all are worked out at once. */
const struct mm_c_sums *mm_c_sums(const struct mm_core *c);

/* ---- worth.c ---- */

/* Of the link's time, what @t's streaming takes; 0: it does not stream, or is idle. */
uint64_t mm_c_link_permille(const struct mm_core *c, const struct mm_c_tenant *t);

/* A step computed for so long. */
void mm_c_step_seen(struct mm_c_steps *steps, uint64_t ns);
/*
 * The most layers that may be away: of an idle model by the cap, and as many as it could live with if it
 * woke now; of an active one while streaming hides. @more: times what is tolerated otherwise.
 */
uint32_t mm_c_alpha_cap(const struct mm_core *c, struct mm_c_tenant *t, uint32_t more);
/* If @alpha layers were away, fewer than its cap, would it be as little noticed as at the cap? Not so of every number. */
bool mm_c_alpha_hides(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha);
/*
 * Of the layers that are away, how many pay: as many more sequences fit the KV memory, of @kv_pages now, as the
 * steps are longer for it. Alone on the link.
 */
uint32_t mm_c_alpha_pays(const struct mm_core *c, struct mm_c_tenant *t, uint64_t kv_pages);

/* ---- lend.c ---- */

/* May its plan be changed now, by anybody? */
bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t);
/* May it be changed now, by the controller? */
bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t);
/* Pages of a layer, on average. */
uint64_t mm_c_layer_pages(const struct mm_c_tenant *t);

/*
 * Taking: arranges for @short_pages more out of @account's tenants (MM_DOMAIN_NONE: anybody's) and
 * returns how many will come; @dry: only says.
 */
uint64_t mm_c_take_chunks(struct mm_core *c, uint64_t short_pages, uint32_t account, bool idle_only,
			  bool dry);
uint64_t mm_c_take_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages,
			  uint32_t account, bool dry);
/* As many layers as @short_pages ask for, up to @cap away. */
uint64_t mm_c_take_up_to(struct mm_core *c, struct mm_c_tenant *t, uint32_t cap,
			 uint64_t short_pages, uint32_t account, bool dry);
/* Everybody, in the order in which they lend. Returns how many. */
uint32_t mm_c_lenders(const struct mm_core *c, struct mm_c_tenant **ret);
bool mm_c_of_account(const struct mm_c_tenant *t, uint32_t account);

/* Who lends and has not been taken from for @dwell_ns; the active first. NULL: nobody. */
struct mm_c_tenant *mm_c_next_to_return(const struct mm_core *c, uint64_t dwell_ns);
/* Layers return, as many in one change as @pages allow, down to @floor away. */
bool mm_c_return_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages, uint32_t floor);
/* Who streams more than it can hide gets layers back; returns how many pages are kept back for it. */
uint64_t mm_c_return_overdrawn(struct mm_core *c, uint64_t kept_pages);
/* Somebody waits for his first chunk: that comes before anybody's comfort. */
bool mm_c_penniless(const struct mm_core *c);
/* Dynamic Reversion. */
void mm_c_give_back(struct mm_core *c, uint64_t surplus_pages);

/* ---- rotate.c ---- */

/* Pages more that @lender may lend to whoever computes now. */
uint64_t mm_c_turns_may_lend(const struct mm_core *c, const struct mm_c_tenant *lender);
/* It lends and borrows with the others in turns. */
bool mm_c_rotates(const struct mm_core *c, const struct mm_c_tenant *t);
/*
 * Its layers return: at once if what is free beyond @kept_pages is enough for all, or nothing more is to be had;
 * else that is arranged for. Returns pages to be kept for it.
 */
uint64_t mm_c_bring_home(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept_pages);
/* Remembers when the holder's layers were there. */
void mm_c_note_home(struct mm_core *c);
/* Of what is free and comes, for layers that others lend instead. */
uint64_t mm_c_turns_kept(const struct mm_core *c);
/* Whose turn is next gets layers home that others lend instead. */
void mm_c_prefetch(struct mm_core *c, uint64_t kept_pages);
/* For whose turn it is: chunks that others have beyond their part. Returns how many pages come. */
uint64_t mm_c_take_parts(struct mm_core *c, uint64_t short_pages, bool dry);
