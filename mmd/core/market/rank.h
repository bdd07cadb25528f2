/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank - which tenant is served first, and which lends first
 *
 * Concept:   The order depends on the priorities and weights that the operator gave accounts, and
 *            on how long tenants have waited.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Order of KV demands: the higher priority first, then starved ones, then those that need no turn
 * to begin, then the account that was granted least by weight, then the one that has waited
 * longest.
 */
bool mm_c_served_before(const struct mm_core *c, const struct mm_c_tenant *a,
			const struct mm_c_tenant *b);
/* Compares by the accounts' priorities. < 0: @a lends before @b; 0: neither. */
int mm_c_lends_by_rank(const struct mm_core *c, const struct mm_c_tenant *a,
		       const struct mm_c_tenant *b);
/* Returns how many layers @t has away, times its account's weight. */
uint64_t mm_c_lent_weighted(const struct mm_core *c, const struct mm_c_tenant *t);
