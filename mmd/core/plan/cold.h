/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold - a tenant's cold blocks: their declaration, their window, and how many may be live
 *
 * Concept:    A tenant declares once per model what a block is. It names chunks that it holds as
 *             the window, and a plan with that window streams through it: all layers cycle then.
 *             Such a change is an ordinary change of the plan, which moves no layer. The limit is a
 *             number of live entries: by hand, or what the market offers, at least the tenant's
 *             floor. A limit that rises counts at once. One that falls by hand is told with a
 *             deadline. When that has passed, xfer gets it as soon as the tenant is parked, in a
 *             change of the plan that may change nothing else: a step that was planned before, and
 *             is open or stopped, would miss what lies beyond. One that the market lowers has none:
 *             no more become live, and those that are go on.
 * Reclaims:   Chunks of a window are not released, and xfer may fill those of the plan before until
 *             its change is done. Who must give so many chunks that some are of its window is told
 *             that no entry may be live: it ends the window, then it releases them. xfer never
 *             gets that limit while there is a window: who does not obey is late for the ladder.
 * Ownership:  struct mm_c_cold is a part of the tenant; the window in force is in its plan.
 * Threading:  core thread only.
 * Invariants: The tenant holds all chunks that mm_c_kv_in_window() names, and no list being swapped
 *             does; xfer streams no fewer entries than the tenant was told, and fewer than before
 *             only from a change on.
 * Trust:      which entries are live is between the tenant and xfer; the core never reads it.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Handles COLD_OPEN. Refused: -EOPNOTSUPP, fewer than 4 layers, a rank, or it was not offered;
 * -EEXIST; -EINVAL; -E2BIG. Returns 0.
 */
int mm_c_cold_open(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/*
 * Handles COLD_WINDOW, which is answered when a plan with the window is committed. Refused at once:
 * -EPERM, nothing is declared, or the model goes; -EBUSY; -EINVAL; -E2BIG; -ENOENT. Returns 0.
 */
int mm_c_cold_window(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/*
 * True if a change of the plan is due that moves no layer: another window was requested, or a limit
 * that fell is to count, and the tenant has to park for it.
 */
bool mm_c_cold_is_due(const struct mm_core *c, const struct mm_c_tenant *t);
/* The tenant is parked: no step runs, and the next one is behind the limit that it was told. */
void mm_c_cold_parked(struct mm_core *c, struct mm_c_tenant *t);
/* Returns what a change of the plan that begins now leads to. */
struct mm_core_cold mm_c_cold_next(const struct mm_core *c, const struct mm_c_tenant *t);
/* Puts @next in force, with the plan. */
void mm_c_cold_enter(struct mm_c_tenant *t, const struct mm_core_cold *next);
/* The model goes, and the declaration with it. */
void mm_c_cold_end(struct mm_c_tenant *t);
/* Returns the limit that should be in force: the operator's, or what the market offers. */
uint32_t mm_c_cold_wanted(const struct mm_c_tenant *t);
/*
 * Part of settling: answers a window, and tells the limit. @give_ns: until then the tenant must
 * give chunks of its window; 0: it need not.
 */
void mm_c_cold_settle(struct mm_core *c, struct mm_c_tenant *t, uint64_t give_ns);
/* Returns when the first limit that fell is to count; UINT64_MAX: none did. */
uint64_t mm_c_cold_deadline(const struct mm_core *c);
/* The deadlines of limits that fell begin anew. */
void mm_c_cold_restart(struct mm_core *c);
