/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life - a tenant's index, from its join until all its pages are proven free
 *
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* NULL: too many tenants or accounts. */
struct mm_c_tenant *mm_c_life_begin(struct mm_core *c, const struct mm_core_join *join);
/* Whatever it may still map waits for the proof that it does not. */
void mm_c_life_end(struct mm_core *c, struct mm_c_tenant *t);
/* Part of settling: how far is its end? */
void mm_c_life(struct mm_core *c, struct mm_c_tenant *t);
