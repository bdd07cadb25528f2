/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plans - the state that plans keep per core and per tenant
 *
 * Concept:    One allocation for each table; a tenant that joins gets the entries of its index.
 * Ownership:  The core owns one; the parts of a tenant belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/plan/swap.h"

struct mm_plans {
	struct mm_change *change; /* by tenant index; sets and swap likewise */
	struct mm_c_sets *sets;
	struct mm_c_swap *swap;
	struct mm_swap_piece *swap_pieces; /* [tenants][MM_SWAP_LOTS][MM_SWAP_PIECES] */
	uint32_t *spill; /* pages that a change has not placed yet; room for all pages */
	uint32_t n_spill;
	uint32_t *storage; /* arrays of the preloads, of all tenants */
};

/* @entries: the most that the model of one tenant may have. Returns NULL if there is no memory. */
struct mm_plans *mm_plans_create(uint32_t tenants, uint32_t pages, uint32_t entries);
/* @plans may be NULL. */
void mm_plans_destroy(struct mm_plans *plans);
/* Points a tenant to the entries of its @index. */
void mm_plans_attach(struct mm_plans *plans, struct mm_c_tenant *t, uint32_t index);
/* Resets the entries of @index, and gives them to a tenant that joins: it has no plan. */
void mm_plans_join(struct mm_plans *plans, struct mm_c_tenant *t, uint32_t index);
