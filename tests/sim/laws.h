/* SPDX-License-Identifier: Apache-2.0 */
/*
 * laws - what must be true of every decision of the market
 *
 * Concept:    The invariants of Documentation/market.md that one decision has by itself, without
 *             knowing how it came about. Tests of drawn views and histories of the core check the
 *             same ones.
 * Ownership:  reads what it is given.
 * Threading:  any.
 */
#pragma once

#include "mmd/core/market/decide.h"

/*
 * Returns a sentence about the first law that @targets, as mm_market_decide() wrote them for @view,
 * break; NULL: none.
 */
const char *laws_broken(const struct mm_view *view, const struct mm_targets *targets);
/* Returns whether @t computes by this decision. */
bool laws_computes(const struct mm_view *view, const struct mm_targets *targets,
		   const struct mm_view_tenant *t);
