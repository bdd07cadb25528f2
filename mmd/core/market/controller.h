/* SPDX-License-Identifier: Apache-2.0 */
/*
 * controller - which tenant gets memory, from which it is taken, and when it is given back
 *
 * Concept:    Part of settling. Free pages go first to big demands (a model that waits, a plan that
 *             the operator set), then to KV demands, a chunk at a time by rank. If pages are short,
 *             they are taken: empty chunks of idle tenants, idle tenants' layers (most recently
 *             active first), active tenants' layers while their streaming stays hidden behind
 *             computing. Demands that cannot be met are denied. Memory that is left over goes back
 *             (Dynamic Reversion). A policy chooses among these. Documentation/controller.md has
 *             the reasons.
 * Ownership:  works on struct mm_core; keeps nothing of its own.
 * Threading:  core thread only.
 * Invariants: never touches a page; calls the modules that do.
 */
#pragma once

#include "mmd/core/book/book.h"

void mm_c_controller(struct mm_core *c);
/*
 * Takes from @account's own tenants by the policy, so that @pages come. Returns how many will come,
 * those included that are on their way already.
 */
uint64_t mm_c_take_from(struct mm_core *c, uint64_t pages, uint32_t account);
/* Returns when settling is due for the controller without an event; UINT64_MAX: never. */
uint64_t mm_c_controller_deadline(const struct mm_core *c);
