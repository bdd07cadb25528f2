/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend - what the policies are made of: where pages come from, and how they go back
 *
 * Concept:    Whose plan may be changed, in whose order chunks and layers are taken, how the taking
 *             begins, and how the way back begins. worth.c says how many layers may be away, home.c
 *             when they come home. A policy (policy.c, naive.c) is a choice among these.
 * Ownership:  works on struct mm_core; keeps nothing of its own but when it last took (lends.h).
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* May its plan be changed now, by anybody? */
bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t);
/* May it be changed now, by the controller? */
bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t);
bool mm_c_of_account(const struct mm_c_tenant *t, uint32_t account);
/*
 * Units of @pages that it may give: for others what its account has beyond its min, for its own
 * wishes any.
 */
uint64_t mm_c_may_give(struct mm_core *c, const struct mm_c_tenant *from, uint64_t pages,
		       uint32_t account);

/*
 * Taking: arranges for @short_pages more out of @account's tenants (MM_DOMAIN_NONE: anybody's) and
 * returns how many will come; @dry: only says.
 */
uint64_t mm_c_take_chunks(struct mm_core *c, uint64_t short_pages, uint32_t account, bool idle_only,
			  bool dry);
/* Layers more that @short_pages ask for, up to @cap away. */
uint32_t mm_c_layers_short(struct mm_core *c, const struct mm_c_tenant *t, uint32_t cap,
			   uint64_t short_pages, uint32_t account);
/* So many layers more. */
uint64_t mm_c_layers_take(struct mm_core *c, struct mm_c_tenant *t, uint32_t more, bool dry);
/* As many layers as @short_pages ask for, up to @cap away. */
uint64_t mm_c_take_up_to(struct mm_core *c, struct mm_c_tenant *t, uint32_t cap,
			 uint64_t short_pages, uint32_t account, bool dry);
/* Everybody, in the order in which they lend. Returns how many. */
uint32_t mm_c_lenders(const struct mm_core *c, struct mm_c_tenant **ret);

/* Who lends and has not been taken from for @dwell_ns; the active first. NULL: nobody. */
struct mm_c_tenant *mm_c_next_to_return(const struct mm_core *c, uint64_t dwell_ns);
/* Layers return, as many in one change as @pages allow, down to @floor away. */
bool mm_c_return_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages, uint32_t floor);
/* Somebody waits for his first chunk: that comes before anybody's comfort. */
bool mm_c_penniless(const struct mm_core *c);
