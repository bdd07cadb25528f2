/* SPDX-License-Identifier: Apache-2.0 */
/*
 * naive - mirage's Algorithm 1 as it is written, with and without its §5.3
 *
 * Concept:   The functions of the policies NAIVE and NAIVE_BOUNDED, for comparison; naive.c has the
 *            algorithm. policy.h has what each function does.
 * Ownership: the decisions are pure functions.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/market/decide.h"

void mm_naive_decide(const struct mm_view *view, struct mm_market_memory *memory,
		     struct mm_targets *targets);
void mm_naive_decide_bounded(const struct mm_view *view, struct mm_market_memory *memory,
			     struct mm_targets *targets);
uint32_t mm_naive_slots(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha);
