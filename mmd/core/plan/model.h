/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - how a tenant's model is laid out, and admitted or refused
 *
 * Concept:    A model is offered when it is complete in the host store. It is refused if its pages
 *             can never be granted; else it waits until they are free, and then its first plan
 *             begins: mm_c_change_begin_first() in change.h.
 * Ownership:  The model belongs to the tenant, the tables of its pages to the core.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Returns MM_REFUSED_NO if a model of @pages can ever be granted to the tenant; else the reason,
 * and *ret_max_pages is the most that can be granted.
 */
enum mm_refusal mm_c_model_fits(const struct mm_core *c, const struct mm_c_tenant *t,
				uint64_t pages, uint64_t *ret_max_pages);
/* Handles a model that is complete in the host store: it waits for pages, or is refused. */
void mm_c_model_offer(struct mm_core *c, struct mm_c_tenant *t, uint64_t store,
		      const struct mm_core_group *groups, uint32_t n_groups);
/* Drops the model, and sends the tenant @error and the reason. */
void mm_c_model_refuse(struct mm_core *c, struct mm_c_tenant *t, int error, enum mm_refusal why);
