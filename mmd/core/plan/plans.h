/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plans - what the plans keep of the core and of tenants
 *
 * Ownership:  the core owns one; a tenant's parts belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/plan/swap.h"

struct mm_plans {
	struct mm_change *change; /* one per tenant index, as the next two */
	struct mm_c_sets *sets;
	struct mm_c_swap *swap;
	struct mm_swap_piece *swap_pieces; /* [tenants][MM_SWAP_LOTS][MM_SWAP_PIECES] */
	uint32_t *spill; /* of one change: pages that found no place yet, room for all */
	uint32_t n_spill;
	uint32_t *storage; /* entries and pages that are being filled */
};

/* @entries: of one tenant's model, at most. NULL: no memory. */
struct mm_plans *mm_plans_create(uint32_t tenants, uint32_t pages, uint32_t entries);
/* NULL is allowed. */
void mm_plans_destroy(struct mm_plans *plans);
/* A tenant joins at @index: it has no plan. */
void mm_plans_join(struct mm_plans *plans, struct mm_c_tenant *t, uint32_t index);
