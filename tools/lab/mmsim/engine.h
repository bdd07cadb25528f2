/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - the engine's loop
 *
 * Concept:   The loop of mmserve: the scheduler plans a step, KV follows the demand, and the step
 *            runs on the device.
 * Ownership: ms_engine_init() allocates, ms_engine_done() frees.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

bool ms_is_fixed(const struct ms_tenant *t); /* its KV memory never changes */
int ms_engine_init(struct ms_tenant *t);
void ms_engine_done(struct ms_tenant *t);
void ms_engine_wake(struct ms_tenant *t, uint64_t at_ns); /* wakes it at @at_ns at the latest */
void ms_engine_run(struct ms_tenant *t);
void ms_engine_event(struct ms_tenant *t, const struct mm_event *event);
void ms_engine_stepped(struct ms_tenant *t);
void ms_engine_again(struct ms_tenant *t); /* its step broke off */
void ms_engine_suspended(struct ms_tenant *t);
bool ms_engine_all_done(const struct ms_tenant *t);
