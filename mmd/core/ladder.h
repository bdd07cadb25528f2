/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ladder - deadlines of tenants that must give pages back
 *
 * Concept:    A reclaim with a deadline; then the shell checks whether the process is stopped; then
 *             a kill, or its pages are counted as overdue. ladder.c has the conditions.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Reclaims what accounts have beyond their limits, and acts on deadlines that passed. */
void mm_c_ladder(struct mm_core *c);
/*
 * Returns until when @t must give chunks of its window of cold blocks, which are more than it has
 * besides, and those that it still owes when the window has ended; 0: it need not.
 */
uint64_t mm_c_ladder_window_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/* Whether a window of @chunks, of those that @t holds, leaves what it must give. */
bool mm_c_ladder_has_window(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t chunks);
/* Returns when the next deadline passes; UINT64_MAX: there is none. */
uint64_t mm_c_ladder_deadline(const struct mm_core *c);
/* Begins all deadlines again, since the core or xfer was away. */
void mm_c_ladder_restart(struct mm_core *c);
