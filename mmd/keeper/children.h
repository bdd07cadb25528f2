/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children - the processes that keeper starts for core: xfers, loads and spools
 *
 * Concept:   core asks for a process by role and id and is told when it was started and when it was
 *            reaped. An xfer is started again at core's request, after a pause that grows while it
 *            fails; one that failed several times in a row is reported as down.
 * Ownership: the processes are in struct mm_keeper, which reaps them.
 * Threading: keeper's thread.
 */
#pragma once

#include "mmd/keeper/state.h"

/* The xfer that a message of core names. */
struct mm_keeper_xfer *mm_children_xfer(struct mm_keeper *keeper, const struct mm_kmsg *msg);

/* Messages of core: START and KILL. */
void mm_children_on_start(struct mm_keeper *keeper, const struct mm_kmsg *msg);
void mm_children_on_kill(struct mm_keeper *keeper, const struct mm_kmsg *msg);

/*
 * Marks the device of an xfer that failed repeatedly as down; keeper goes on starting that xfer.
 * While mmd starts, or when no device is left, mmd ends; @why is for its sentence.
 */
void mm_children_xfer_down(struct mm_keeper *keeper, struct mm_keeper_xfer *xfer, const char *why);

/* Starts xfers whose pause is over, and when the next one is over; UINT64_MAX: none. */
void mm_children_start_due(struct mm_keeper *keeper);
uint64_t mm_children_start_at_ns(const struct mm_keeper *keeper);

/* Notes the end of @pid, if it is one of these, and reports it to core. */
void mm_children_reaped(struct mm_keeper *keeper, pid_t pid, int status);

/* Kills all, and none is started any more; they end within the time for that. */
void mm_children_kill(struct mm_keeper *keeper);

/* Whether none of them lives. */
bool mm_children_all_reaped(const struct mm_keeper *keeper);

/*
 * Before a successor of core starts: loads are killed, because what they do cannot be taken over,
 * and whether all have ended.
 */
void mm_children_kill_loads(struct mm_keeper *keeper);
bool mm_children_loads_ended(const struct mm_keeper *keeper);

/*
 * The part of the inventory (MM_K_CHILD) that is about processes. Those that ended are remembered
 * until mm_children_forget_ended(), because the core that is told may end as well.
 */
void mm_children_report(struct mm_keeper *keeper);
void mm_children_forget_ended(struct mm_keeper *keeper);
