/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor - what mmd finds when it looks at itself
 *
 * Concept:   The method "doctor" of the admin socket. Each check is one object: what was looked at,
 *            the result, a sentence, and what to do. mmctl doctor adds what it sees from outside:
 *            the kernel, limits, the roles' processes. Nothing here changes anything, and a broken
 *            invariant is reported, not asserted.
 * Threading: core's thread. It takes about as long as a settling, and is for people.
 */
#pragma once

#include "mmd/shell/rpc.h"

json_t *mm_doctor_show(void *context, const json_t *params, struct mm_rpc_error *error);
