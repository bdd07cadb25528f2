/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank - who is served first, and who lends first
 *
 * Concept:   By the priorities and weights that the operator gave accounts, and by who has waited
 *            how long.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * KV wishes: the higher priority, then who starves, who was granted least by weight, waits longest.
 */
bool mm_c_served_before(const struct mm_core *c, const struct mm_c_tenant *a,
			const struct mm_c_tenant *b);
/* < 0: @a lends before @b by its account's priority; 0: as good. */
int mm_c_lends_by_rank(const struct mm_core *c, const struct mm_c_tenant *a,
		       const struct mm_c_tenant *b);
/* What it lends already, by weight. */
uint64_t mm_c_lent_weighted(const struct mm_core *c, const struct mm_c_tenant *t);
