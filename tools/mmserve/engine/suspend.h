/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend - the engine's swap space: where blocks of preempted sequences wait
 *
 * Concept:    a slot of the space holds a block; in the space as in the arena each range has a part
 *             of its own, so that neighbours are copied as one. A plan's swaps are done, and waited
 *             for, before its step: as engines do that swap on their own stream. What cannot be
 *             swapped is computed again.
 * Ownership:  the space is the memory's; the scheduler hands out its slots.
 * Threading:  the engine's thread.
 */
#pragma once

#include "tools/mmserve/engine/engine.h"

/*
 * Opens the space that the options ask for, or that the memory's policy is made for. Refused, or
 * without memory for it, the engine serves without: said once on stderr. Return: 0; -ECONNRESET.
 */
int mm_suspend_open(struct mm_engine *e);

/**
 * mm_suspend_run() - do a plan's swaps
 * @e:    of the plan
 * @plan: its items may be void afterwards (n_items is 0 then): a sequence has lost its KV
 *
 * Return: 0; -ECONNRESET mmd is gone; -EINTR stopped; other negative errno.
 */
int mm_suspend_run(struct mm_engine *e, const struct mm_sched_plan *plan);
