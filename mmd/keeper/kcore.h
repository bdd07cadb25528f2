/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kcore - the process core, as keeper sees it: its start, its messages, its end
 *
 * Concept:   Each core gets a channel of its own and, first of all, the inventory of what keeper
 *            holds (hold.h), which ends with MM_K_END. Messages that a core sent count also if it
 *            is dead before they are read.
 * Threading: keeper's thread.
 */
#pragma once

#include "mmd/keeper/state.h"

/* Makes what outlives each core. Return: 0; negative errno. */
int mm_kcore_init(struct mm_keeper *keeper);

/* Starts core; its source must be added to the loop. Return: 0; negative errno. */
int mm_kcore_start(struct mm_keeper *keeper);

/* Adds the channel of the core that was started to the loop. Return: 0; negative errno. */
int mm_kcore_listen(struct mm_keeper *keeper);

/* Does what is due in each iteration: sends the next part of the inventory. */
void mm_kcore_service(struct mm_keeper *keeper);

/* core was reaped. */
void mm_kcore_gone(struct mm_keeper *keeper, int status);
