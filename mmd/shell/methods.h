/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods - what may be requested over the admin socket, and what over the view socket
 *
 * Concept:   One table of JSON-RPC methods: status, pool.show, plan.show, plan.set; quota.show and
 *            quota.set are in quota.c, doctor is in doctor.c, metrics in metrics.c. Those that are
 *            marked so are for observers, too; all others are for the administrator alone. Keys of
 *            the answers carry their units and are never renamed; mmctl(1) lists them.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/shell/rpc.h"

/* Ends with a NULL name; the context of a method is struct mm_shell. */
extern const struct mm_rpc_method mm_admin_methods[];
