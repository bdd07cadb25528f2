/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unload - a tenant gives its model back, and goes on without one or with another
 *
 * Concept:    The model ends by a change of its plan, which waits for its turn as all changes do:
 *             PREPARE and PARKED end the steps, xfer becomes quiescent, a SWITCH has the tenant
 *             unmap everything, and its COMMITTED is the proof that the pages may serve others.
 *             Then the store is dropped and the request is answered. The arena stays as it is.
 * Ownership:  the request that waits is a part of the tenant.
 * Threading:  core thread only.
 * Trust:      a tenant that does not answer keeps its pages, and is charged for them; the ladder
 *             is for those whose account must give some.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Handles UNLOAD. Refused: -ENOENT, there is no model that is ready; -EBUSY, the tenant holds it;
 * -EALREADY, to the first of two requests: the second one takes its place. Returns 0.
 */
int mm_c_unload_request(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/*
 * Part of settling: begins the change when it may begin, and answers when it has ended. Returns
 * true if it has answered: what the market keeps of the model has no meaning any more.
 */
bool mm_c_unload_settle(struct mm_core *c, struct mm_c_tenant *t);
