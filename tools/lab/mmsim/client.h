/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client - libclient's part: what its service thread and its calls do
 *
 * Concept:   The service thread handles the items of mmd in order, each after the time of its
 *            driver calls. Plans, steps and turns are decided by mm_steps.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_client_send(struct ms_tenant *t, const struct mm_msg *msg);
void ms_client_deliver(struct ms_tenant *t);
void ms_client_service(struct ms_tenant *t);
void ms_gate_set(struct ms_tenant *t, uint32_t layer, enum ms_gate gate);
bool ms_kv_has(const struct ms_tenant *t, uint32_t chunk);
/* Requests @chunks_hot chunks for kvman, and beside them those of the window. */
int ms_kv_want(struct ms_tenant *t, uint32_t chunks_hot);
void ms_kv_release(struct ms_tenant *t, uint32_t chunk);
uint32_t ms_kv_owed(const struct ms_tenant *t);
void ms_client_hint(struct ms_tenant *t, const struct mm_kvman_load *load);
bool ms_turn_want(struct ms_tenant *t); /* false: another tenant has the turn */
void ms_turn_join(struct ms_tenant *t, enum mm_turn_mode mode, uint64_t quantum_ns);
void ms_turn_yield(struct ms_tenant *t);
/* Performs the actions of the machine of steps, and sends its messages. */
void ms_client_out(struct ms_tenant *t, const struct mm_steps_out *out);
