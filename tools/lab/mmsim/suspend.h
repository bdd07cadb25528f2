/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend - blocks of preempted requests on their way to the swap space and back
 *
 * Concept:   Between two steps the blocks of a plan are copied, in lists; then the step goes on.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

int ms_suspend_open(struct ms_tenant *t);
void ms_suspend_begin(struct ms_tenant *t, const struct mm_sched_plan *plan);
void ms_suspend_landed(struct ms_tenant *t, uint32_t lot);
