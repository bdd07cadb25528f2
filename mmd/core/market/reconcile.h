/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reconcile - memory follows the targets of the last decision
 *
 * Concept:   A target says how many layers of a tenant are to be away and how many chunks it is to
 *            keep. In each settling layers return in the order of `first`, then chunks are granted
 *            (grant.h), then chunks are reclaimed and layers taken. Nothing is taken that no
 *            target says, and nothing that an account needs within its min.
 * Earmarks:  Pages for layers that are to return are kept, in the order of `first`, whoever holds
 *            the turn meanwhile, until the change begins, the target changes, or MM_EARMARK_NS have
 *            passed in which less than a part of them came: then as many return as there are pages
 *            for, and no more are kept for that target. The time of one begins when those before
 *            it have theirs. What could not be done the next view says.
 * Ownership: struct mm_c_lends has the earmarks.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

#define MM_EARMARK_NS MM_NS_PER_S

/*
 * Returns layers of tenants that have more away than their target, from free pages beyond @kept.
 * Returns how many pages, free or on their way, are kept for those that wait.
 */
uint64_t mm_c_layers_return(struct mm_core *c, uint64_t kept);
/* Returns layers of MM_FIRST_IDLE, from free pages beyond @kept. */
void mm_c_layers_return_surplus(struct mm_core *c, uint64_t kept);
/*
 * Reclaims chunks and takes layers that targets do not leave to tenants; where targets are to be
 * reached as needed, only as many layers as pages are awaited that are neither free nor coming.
 */
void mm_c_memory_take(struct mm_core *c);
/* Returns what an earmark or a target contradicts; NULL: nothing. */
const char *mm_c_targets_check(const struct mm_core *c);
/* Notes when the memory of tenants that hold a turn is as their targets say. */
void mm_c_homes_note(struct mm_core *c);
