/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home - how many layers the remap policy takes, and when they come home
 *
 * Concept:   Layers are taken while streaming them is hidden, and come home when it is not any
 *            more, or when nobody needs their memory (Dynamic Reversion).
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* As many of its layers as may be away, for @short_pages: as mm_c_take_up_to(). */
uint64_t mm_c_take_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages,
			  uint32_t account, bool dry);
/*
 * Who streams more than it can hide gets layers back; returns how many pages are kept back for it.
 */
uint64_t mm_c_return_overdrawn(struct mm_core *c, uint64_t kept_pages);
/* Dynamic Reversion. */
void mm_c_give_back(struct mm_core *c, uint64_t surplus_pages);
