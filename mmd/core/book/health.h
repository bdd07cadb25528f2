/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health - pages and tenants that a memory error of the device may have affected
 *
 * Concept:    Everything that was in use at the error is suspect. A suspect page is quarantined and
 *             created anew when it comes free; a tenant that goes on computing is cleared
 *             (health.c).
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Marks everything that is in use now as suspect, because the device reported a memory error. */
void mm_c_suspect(struct mm_core *c);
/*
 * Clears the tenant if it has computed since the error. @steps: the number of steps that it has
 * done.
 */
void mm_c_suspect_clear(struct mm_core *c, struct mm_c_tenant *t, uint64_t steps);
/*
 * Marks a page whose descriptor mmd has lost. One that is free is quarantined at once: it covers no
 * min any more.
 */
void mm_c_unheld(struct mm_core *c, uint32_t page);
/* Whether a page that comes free must not be used again as it is: suspect, or unheld. */
bool mm_c_page_is_unfit(const struct mm_core *c, uint32_t page);
/* Quarantines such a page; it is created anew, a suspect one later. */
void mm_c_quarantine_unfit(struct mm_core *c, uint32_t page);
