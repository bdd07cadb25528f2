/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages - changes of a page that concern both the ledger and an account
 *
 * Concept:    A page is charged before it is reserved, and until it is FREE again.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Charges a page to the account of the tenant and reserves it; the caller has checked that it can.
 */
uint32_t mm_c_page_reserve(struct mm_core *c, struct mm_c_tenant *t);
/* Takes a page from its tenant. The charge stays until the page is scrubbed. */
void mm_c_page_drop(struct mm_core *c, uint32_t page);
/* Handles the end of a scrub or of a RECREATE that succeeded. */
void mm_c_page_scrubbed(struct mm_core *c, uint32_t page);
/* Quarantines a page. @poisoned: it is never retried. */
void mm_c_page_quarantine(struct mm_core *c, uint32_t page, bool poisoned);
/* Issues a job on a page that has no owner. Returns false if there is no room for it. */
bool mm_c_job_on_page(struct mm_core *c, enum mm_xop op, uint32_t page, uint32_t *ret_job);
