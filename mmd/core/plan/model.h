/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - how a tenant's model is laid out, admitted and loaded for its first plan
 *
 * Concept:    A model that is complete in the host store is offered. It is refused if it can never
 *             be granted its pages; else it waits until they are free, and its first plan begins
 *             (change.h).
 * Ownership:  a tenant's; its table of own pages is the core's storage.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * MM_REFUSED_NO: one of so many pages can be granted to it. Else *ret_max_pages is the most that
 * can.
 */
enum mm_refusal mm_c_model_fits(const struct mm_core *c, const struct mm_c_tenant *t,
				uint64_t pages, uint64_t *ret_max_pages);
/* Its model stands in the host store: it waits for pages, or is refused. */
void mm_c_model_offer(struct mm_core *c, struct mm_c_tenant *t, uint64_t store,
		      const struct mm_core_group *groups, uint32_t n_groups);
/* Preloads the waiting model's pages if they are free. */
bool mm_c_model_begin(struct mm_core *c, struct mm_c_tenant *t);
void mm_c_model_refuse(struct mm_core *c, struct mm_c_tenant *t, int error, enum mm_refusal why);
