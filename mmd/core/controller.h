/* SPDX-License-Identifier: Apache-2.0 */
/*
 * controller - when to take memory from whom, how much, and when to give it back
 *
 * Concept:    Part of settling. Pages that are free go to whom they are due: a waiting model or the
 *             operator's plan first, then KV wishes, a chunk each in turn. What is short is taken: empty
 *             chunks of idle tenants, idle tenants' layers (most recently active first), active
 *             tenants' layers while their streaming stays hidden behind computing. What cannot come
 *             is denied. What is left over goes back (Dynamic Reversion). A policy says which of these
 *             it wants. Documentation/controller.md has the reasons.
 * Ownership:  works on struct mm_core; keeps nothing of its own.
 * Threading:  core thread only.
 * Invariants: never touches a page; asks the modules that do.
 */
#pragma once

#include "mmd/core/policy.h"

#define MM_LEND_MAX_PERMILLE  700
#define MM_LINK_PERMILLE      900
#define MM_SLOW_PERMILLE      50
#define MM_WAKE_PERMILLE      1000
#define MM_TURN_COST_PERMILLE 100
#define MM_IDLE_NS            (100 * MM_NS_PER_MS)
#define MM_SILENT_IDLES       20 /* times idle_ns without a step: then claims of work do not count */
#define MM_DWELL_NS           (200 * MM_NS_PER_MS)
#define MM_CHANGE_NS          (50 * MM_NS_PER_MS)
#define MM_AHEAD_NS           (300 * MM_NS_PER_MS)
#define MM_RECLAIM_NS         (200 * MM_NS_PER_MS)
#define MM_REVOKE_NS          (2 * MM_NS_PER_S)
#define MM_ASK_NS             (10 * MM_NS_PER_S)
#define MM_STOP_NS            (60 * MM_NS_PER_S)
#define MM_KILL_WINDOW_NS     (60 * MM_NS_PER_S)
#define MM_KILL_MAX           8

/* No open step and no work for idle_ns, or not its turn. */
bool mm_c_idle(const struct mm_core *c, const struct mm_c_tenant *t);
/* When the controller wants to look again without an event; UINT64_MAX: never. */
uint64_t mm_c_controller_deadline(const struct mm_core *c);
