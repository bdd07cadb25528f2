/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steer - methods by which the operator steers one tenant: revoke, drain, activate, pin, plan cold
 *
 * Concept:   Each becomes an event of the core (MM_EVENT_STEER, MM_EVENT_COLD_SET), of which the
 *            core is the memory: a successor goes on with it, and it ends with the tenant's
 *            connection. Of a rank it concerns all ranks of its group, which have no cold blocks.
 * Ownership: JSON belongs to the caller.
 * Threading: core's thread.
 */
#pragma once

#include <jansson.h>

#include "mmd/core/core.h"
#include "mmd/shell/rpc.h"

json_t *mm_steer_revoke(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_steer_drain(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_steer_activate(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_steer_pin(void *context, const json_t *params, struct mm_rpc_error *error);
json_t *mm_steer_unpin(void *context, const json_t *params, struct mm_rpc_error *error);
/* Sets the most cold entries that may be live. */
json_t *mm_steer_cold(void *context, const json_t *params, struct mm_rpc_error *error);

/* Adds what the operator has the tenant do now. */
void mm_steer_fill(const struct mm_core_tenant *t, json_t *to);
