/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named - what a request of the operator names: a device, a tenant
 *
 * Concept:   "device" is an ordinal, "name" a tenant's name or id. A name that nobody has is
 *            refused, with the nearest one that somebody has.
 * Ownership: what is returned is the shell's.
 * Threading: core's thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "mmd/shell/rpc.h"

struct mm_pool;
struct mm_session;
struct mm_shell;

/* Finds the pool of "device". Without that key *ret_pool is NULL, which is no error. */
bool mm_named_device(struct mm_shell *shell, const json_t *params, struct mm_pool **ret_pool,
		     struct mm_rpc_error *error);
/* Finds the session of "name", on "device" if that is given. NULL: there is none, or several. */
struct mm_session *mm_named_tenant(struct mm_shell *shell, const json_t *params,
				   struct mm_rpc_error *error);
