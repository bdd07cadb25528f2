/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xscrub - scrubs of pages, in batches
 *
 * Concept:   The scrubs of one round of the loop are a batch: neighbouring pages are filled by one
 *            call, and one event on the stream ends the batch (struct mm_xscrubs in role.h).
 * Ownership: the events are struct mm_xfer's.
 * Threading: one thread.
 * Limits:    MM_XSCRUB_MAX batches are on the device at once, MM_XSCRUB_BYTES in each.
 */
#pragma once

#include "mmd/xfer/role.h"

/* Creates the events of all batches. */
int mm_xscrub_init(struct mm_xfer *x);
/* Destroys the events; nothing may be on the device. */
void mm_xscrub_done(struct mm_xfer *x);
/*
 * Puts @job, which scrubs @page, into the batch of this round. -EAGAIN: too many batches are on the
 * device.
 */
int mm_xscrub_add(struct mm_xfer *x, struct mm_xjob *job, uint32_t page);
/* Issues the batch of this round. */
void mm_xscrub_flush(struct mm_xfer *x);
/* Queries the events of the batches on the device. */
void mm_xscrub_poll(struct mm_xfer *x);
/* True when @job has ended, as of the last poll; @job has left its batch then. */
bool mm_xscrub_ended(struct mm_xfer *x, struct mm_xjob *job, int *ret_result);
