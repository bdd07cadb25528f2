/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preload - pages that are filled before a tenant's next plan is in force
 *
 * Concept:    Pages are reserved, then filled by COPY jobs from the host store, a few at a time.
 *             Pages of a new slot are reserved too, but streaming fills them later.
 * Ownership:  A part of the tenant's struct mm_change; the arrays belong to struct mm_plans.
 * Threading:  core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/book/book.h"

/* Pages that are filled for a tenant before its next SWITCH. */
struct mm_c_preload {
	uint32_t n, issued, done;
	/* model entry that each page is filled for; MM_NO_PAGE: a page for a slot */
	uint32_t *entry;
	uint32_t *page;
	int error; /* the first error of a copy */
	bool sent; /* the tenant has their fds: they return only by proof */
};

/* Empties the list. */
void mm_c_preload_begin(struct mm_c_tenant *t);
/* Reserves the pages of the group, to be filled with its bytes. */
void mm_c_preload_add(struct mm_core *c, struct mm_c_tenant *t, const struct mm_c_group *g);
/* Reserves @pages for slots. Call it only after everything that is to be filled was added. */
void mm_c_preload_add_slots(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages);
/* Issues COPY jobs, as far as there is room for them. */
void mm_c_preload_issue(struct mm_core *c, struct mm_c_tenant *t);
/* Handles the end of a COPY job into @page, which still belongs to the tenant. */
void mm_c_preload_copied(struct mm_core *c, struct mm_c_tenant *t, uint32_t page, int result);

/* Sends the pages' fds ahead of the change, so that the tenant need not wait for them during it. */
void mm_c_preload_send(struct mm_core *c, struct mm_c_tenant *t);
/* Gives the reserved pages back; those that a job still writes are scrubbed when it has ended. */
void mm_c_preload_drop(struct mm_core *c, struct mm_c_tenant *t);
