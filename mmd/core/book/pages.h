/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages - the ledger and the accounts together
 *
 * Concept:    A page is charged before it is reserved, until it is FREE again.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

uint32_t mm_c_reserve(struct mm_core *c, struct mm_c_tenant *t);
void mm_c_drop(struct mm_core *c, uint32_t page);
void mm_c_scrubbed(struct mm_core *c, uint32_t page);
void mm_c_quarantine(struct mm_core *c, uint32_t page, bool poisoned);
bool mm_c_job_on_page(struct mm_core *c, enum mm_xop op, uint32_t page, uint32_t *ret_job);
