/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kcore - the process core, as keeper sees it: its start, its messages, its end, its successor
 *
 * Concept:   Each core gets a channel of its own and, first of all, the inventory of what keeper
 *            holds (hold.h) and of the processes that there are, which ends with MM_K_END. Messages
 *            that a core sent count also if it is dead before they are read. When a core dies that
 *            has said that a successor can go on (MM_K_F_RESUMABLE), keeper reads what it sent,
 *            kills its loads, and starts the next one; connections wait in the kernel until that
 *            says RESUMED.
 * Faults:    SIGKILL from outside is survived for ever; while cores end before they serve, with a
 *            growing pause. Any other end is core's own fault, and more than MM_KEEPER_FAULTS_MAX
 *            within MM_KEEPER_FAULTS_NS end mmd. A core that does not go round its loop for
 *            --core-timeout, or is stopped by a signal for so long, is killed, as its fault.
 * Threading: keeper's thread.
 */
#pragma once

#include "mmd/keeper/state.h"

/* Makes what outlives each core. Return: 0; negative errno. */
int mm_kcore_init(struct mm_keeper *keeper);

/* Maps it again, in a keeper that was another build (reexec.h). Return: 0; negative errno. */
int mm_kcore_resume(struct mm_keeper *keeper);

/* Starts core; its channel must be added to the loop. Return: 0; negative errno. */
int mm_kcore_start(struct mm_keeper *keeper);

/* Adds the channel of the core that was started to the loop. Return: 0; negative errno. */
int mm_kcore_listen(struct mm_keeper *keeper);

/* Starts a successor, sends the inventory and checks the beat, as far as they are due. */
void mm_kcore_service(struct mm_keeper *keeper);

/* When mm_kcore_service() has to be called next at the latest; UINT64_MAX: never. */
uint64_t mm_kcore_due_ns(const struct mm_keeper *keeper);

/* core was reaped: another one follows, or mmd ends. */
void mm_kcore_gone(struct mm_keeper *keeper, int status);

/* Ends mmd in order: core ends the tenants' connections first. */
void mm_kcore_stop(struct mm_keeper *keeper);

/* Ends mmd while there is no core: connections are hung up, and all processes killed. */
void mm_kcore_end(struct mm_keeper *keeper);
