/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life - a tenant's index, from its join until all its pages are proven free
 *
 * Concept:    A tenant that ends keeps its index while it may still map pages. Its pages are
 *             REVOKING until there is proof that it does not: its BYE or the death of its process,
 *             and xfer's DETACH.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Gives a new tenant an index. NULL: too many tenants or accounts. */
struct mm_c_tenant *mm_c_life_begin(struct mm_core *c, const struct mm_core_join *join);
/* Ends a live tenant: revokes each page that it may still map. */
void mm_c_life_end(struct mm_core *c, struct mm_c_tenant *t);
/*
 * Part of settling: drops the pages of a tenant that is proven to map none, then frees its index.
 */
void mm_c_life(struct mm_core *c, struct mm_c_tenant *t);
