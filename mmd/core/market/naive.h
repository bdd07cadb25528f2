/* SPDX-License-Identifier: Apache-2.0 */
/*
 * naive - mirage's Algorithm 1 as it is written, with and without its §5.3
 *
 * Concept:   The functions of the policies NAIVE and NAIVE_BOUNDED, for comparison; naive.c has the
 *            algorithm. policy.h has what each function does.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

uint64_t mm_naive_take(struct mm_core *c, uint64_t short_pages, uint32_t account, bool dry_run);
uint64_t mm_naive_take_bounded(struct mm_core *c, uint64_t short_pages, uint32_t account,
			       bool dry_run);
void mm_naive_give_back(struct mm_core *c, uint64_t surplus_pages);
uint32_t mm_naive_slots(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha);
