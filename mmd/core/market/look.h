/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look - writes the view that a decision is made from
 *
 * Concept:   Facts of the book and the plans are copied as they are. What a tenant claims is
 *            bounded here, and what changes from moment to moment (whether it lacks KV, whether it
 *            is idle) is smoothed: it is sampled every MM_LOOK_NS, however often a view is written.
 * Ownership: the market owns the view and what is smoothed.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

#define MM_LOOK_NS (50 * MM_NS_PER_MS)

/* Writes the view. */
void mm_market_look(struct mm_core *c);
/*
 * Returns a number that changes when a decision is due at once: who is active, joins, holds a turn,
 * waits or lacks KV, which model or plan of the operator waits, which account owes pages.
 */
uint64_t mm_market_situation(struct mm_core *c);
/* Returns whether some tenant has work, so that a decision is due every MM_LOOK_NS. */
bool mm_market_is_busy(const struct mm_core *c);
