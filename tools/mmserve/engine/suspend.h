/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend - the engine's swap space, which keeps blocks of preempted sequences
 *
 * Concept:    a slot of the space holds a block. As in the arena, each range has a part of the
 *             space of its own, so that adjacent blocks are copied as one piece. A plan's swaps are
 *             done, and waited for, before its step, like in engines that swap on their compute
 *             stream. Blocks that cannot be swapped are computed again.
 * Ownership:  the space is the memory's; the scheduler hands out its slots.
 * Threading:  the engine's thread.
 */
#pragma once

#include "tools/mmserve/engine/engine.h"

/*
 * Opens the space that the options name, or else one that suits the memory's policy. If that is
 * refused or there is no memory, the engine serves without a space and prints so once on stderr.
 * Return: 0; -ECONNRESET.
 */
int mm_suspend_open(struct mm_engine *e);

/**
 * mm_suspend_run() - do a plan's swaps, and wait for them
 * @e:    the engine that made the plan
 * @plan: if a swap in fails, its items are void afterwards, and n_items is 0
 *
 * Return: 0; -ECONNRESET mmd is gone; -EINTR stopped; other negative errno.
 */
int mm_suspend_run(struct mm_engine *e, const struct mm_sched_plan *plan);
