/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home - how many layers the remap policy takes, and when they return
 *
 * Concept:   Layers are taken while streaming them is hidden, and return when it is not hidden any
 *            more, or when no tenant needs their memory (Dynamic Reversion).
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Like mm_c_take_up_to(), with the cap up to which @t's streaming stays hidden. */
uint64_t mm_c_take_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages,
			  uint32_t account, bool dry_run);
/*
 * Returns layers to tenants that stream more than they can hide, from free pages beyond
 * @kept_pages. Returns how many pages are kept back for them.
 */
uint64_t mm_c_return_overdrawn(struct mm_core *c, uint64_t kept_pages);
/*
 * Dynamic Reversion: returns layers of one tenant if @surplus_pages have been there for dwell_ns.
 */
void mm_c_give_back(struct mm_core *c, uint64_t surplus_pages);
