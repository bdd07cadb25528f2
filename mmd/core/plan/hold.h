/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold - a tenant holds its model: all layers come home, and stay until it lets go
 *
 * Concept:    An engine that reads or copies weights outside a step (checksums, adapters, sleep)
 *             needs them where they are. Its hold is a plan of no layers away that comes before the
 *             operator's and the controller's. MM_OP_HOLD is answered when the layers are at home;
 *             a tenant that does not wait so long withdraws it.
 * Ownership:  a part of the tenant.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Handles MM_OP_HOLD. Refused: -ENOENT there is no model that runs; -EALREADY it is held; -EDQUOT
 * its account has no room for the layers that are away. Return: 0; MM_E_PROTOCOL.
 */
int mm_c_hold_request(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/* Sends the answer that is due, if it can be given now. */
void mm_c_hold_settle(struct mm_core *c, struct mm_c_tenant *t);
