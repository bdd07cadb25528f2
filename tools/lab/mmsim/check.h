/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - the simulator's invariants
 *
 * Concept:   A check that fails ends the run with a sentence, by ms_fail().
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_check_event(struct ms_device *dev);
void ms_check_blocks(struct ms_tenant *t); /* slow: looks at each block */
