/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank - which tenant is served first
 *
 * Concept:   The order depends on the priorities and weights that the operator gave accounts, and
 *            on how long tenants have waited.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Order of KV demands: the higher priority first, then starved ones, then the order of their
 * targets, then those that need no turn to begin, then the account that was granted least by
 * weight, then the one that has waited longest.
 */
bool mm_c_served_before(const struct mm_core *c, const struct mm_c_tenant *a,
			const struct mm_c_tenant *b);
