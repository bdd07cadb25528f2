/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control - the one job by which xfer takes up, changes and gives up a tenant's plan
 *
 * Concept:    One per tenant at a time, so that xfer never sees two of them in doubtful order.
 *             Which one follows from the tenant's life and from the change of its plan.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Issues it if one is needed and none is under way. */
void mm_c_control(struct mm_core *c, struct mm_c_tenant *t);
/* It ended. @job: as it was issued. */
void mm_c_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
		       int result);
