/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xjobs - the jobs that core has issued
 *
 * Concept:   A job is added as it leaves the ring, begins when its objects allow it, and is
 *            reported when it is done, as soon as the completion ring has room. Jobs run side by
 *            side and complete in any order.
 * Ownership: the jobs are struct mm_xfer's.
 * Threading: one thread.
 * Limits:    MM_XJOBS_MAX jobs at a time.
 */
#pragma once

#include "mmd/xfer/role.h"

/* Prepares the lists of jobs and the events of scrubs. */
int mm_xjobs_init(struct mm_xfer *x);
/* Nothing may be on the device. */
void mm_xjobs_done(struct mm_xfer *x);
/* True when another job can be added. */
bool mm_xjobs_room(const struct mm_xfer *x);
void mm_xjobs_add(struct mm_xfer *x, const struct mm_msg *msg);
/*
 * Begins the jobs that can begin, finishes those that are done, reports them. Return: whether
 * anything moved.
 */
bool mm_xjobs_run(struct mm_xfer *x);
