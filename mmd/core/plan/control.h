/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control - the one job that makes xfer serve, replace or drop a tenant's plan
 *
 * Concept:    A tenant has at most one control job at a time, so the order in which xfer gets them
 *             is never in doubt. The state of the tenant and of the change of its plan determine
 *             which job it is.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Issues a control job if the tenant needs one and none is under way. */
void mm_c_control_settle(struct mm_core *c, struct mm_c_tenant *t);
/* Handles the end of a control job. @job: as it was issued. */
void mm_c_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
		       int result);
