/* SPDX-License-Identifier: Apache-2.0 */
/*
 * big - demands for many pages at once: a model that waits, a plan that the operator set
 *
 * Concept:   They are served before KV, the oldest first. Pages are kept back for one only while it
 *            can be met, and for MM_MODEL_WAIT_NS at most.
 * Ownership: works on struct mm_core; keeps nothing of its own.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Returns whether @t has such a demand. */
bool mm_c_demand_is_big(const struct mm_core *c, const struct mm_c_tenant *t);
/* Serves them. Returns how many pages are kept back for those that wait. */
uint64_t mm_c_big_demands_serve(struct mm_core *c);
/*
 * Returns whether all layers of @t, which the operator has at home, can return now: 0; MM_E_QUOTA:
 * its account has no room; MM_E_FULL: the pool has too few pages, with those that come and those
 * that others could give. *ret_pages: that they need.
 */
int mm_c_big_return_check(struct mm_core *c, struct mm_c_tenant *t, uint64_t *ret_pages);
/*
 * Returns the free pages that @t may be granted: all but @kept, and at least those that are free of
 * its account's unused min.
 */
uint64_t mm_c_tenant_budget(struct mm_core *c, const struct mm_c_tenant *t, uint64_t kept);
