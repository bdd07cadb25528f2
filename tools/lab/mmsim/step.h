/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step - a step on the device
 *
 * Concept:   A step consists of parts, each of which ends behind a cycling layer, before a gate, or
 *            at the end of the model.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_step_begin(struct ms_tenant *t);     /* begins a step, or waits for a plan or the turn */
void ms_step_part_done(struct ms_tenant *t); /* the device has completed a part */
void ms_step_gate(struct ms_tenant *t);      /* a gate opened */
void ms_step_end(struct ms_tenant *t);
void ms_step_abandon(struct ms_tenant *t); /* ends a step that waits until it can be abandoned */
