/* SPDX-License-Identifier: Apache-2.0 */
/*
 * controller - part of settling: what is decided, and in which order memory follows
 *
 * Concept:    Look, decide, reconcile. A decision is due when the situation has changed (look.h)
 *             and every MM_LOOK_NS while somebody has work; in between, memory follows the last
 *             one. Models and plans of the operator are served first (big.h), then layers return
 *             (reconcile.h), then demands for KV are granted (grant.h), then memory is taken, and
 *             what cannot come is denied. Documentation/market.md has the decision.
 * Ownership:  works on struct mm_core; keeps nothing of its own.
 * Threading:  core thread only.
 * Invariants: never touches a page; calls the modules that do.
 */
#pragma once

#include "mmd/core/book/book.h"

void mm_c_controller(struct mm_core *c);
/* Returns when settling is due for the controller without an event; UINT64_MAX: never. */
uint64_t mm_c_controller_deadline(const struct mm_core *c);
