/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods - what the operator may request over the admin socket
 *
 * Concept:   A table of JSON-RPC methods: status, pool.show, plan.show, plan.set; quota.show and
 *            quota.set are in quota.c, doctor is in doctor.c. Keys of the answers carry their units
 *            and are never renamed; mmctl(1) lists them.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/shell/rpc.h"

/* Ends with a NULL name; the context of a method is struct mm_shell. */
extern const struct mm_rpc_method mm_admin_methods[];
