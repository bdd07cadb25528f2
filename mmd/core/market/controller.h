/* SPDX-License-Identifier: Apache-2.0 */
/*
 * controller - when to take memory from whom, how much, and when to give it back
 *
 * Concept:    Part of settling. Pages that are free go to whom they are due: a waiting model or the
 *             operator's plan first, then KV wishes, a chunk each in turn. What is short is taken:
 *             empty chunks of idle tenants, idle tenants' layers (most recently active first),
 *             active tenants' layers while their streaming stays hidden behind computing. What
 *             cannot come is denied. What is left over goes back (Dynamic Reversion). A policy says
 *             which of these it wants. Documentation/controller.md has the reasons.
 * Ownership:  works on struct mm_core; keeps nothing of its own.
 * Threading:  core thread only.
 * Invariants: never touches a page; asks the modules that do.
 */
#pragma once

#include "mmd/core/book/book.h"

void mm_c_controller(struct mm_core *c);
/* What the policy takes from @account's own tenants; returns how many pages will come. */
uint64_t mm_c_take_from(struct mm_core *c, uint64_t pages, uint32_t account);
/* When the controller wants to look again without an event; UINT64_MAX: never. */
uint64_t mm_c_controller_deadline(const struct mm_core *c);
