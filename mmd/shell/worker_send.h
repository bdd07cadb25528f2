/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker_send - what goes to an xfer: the queue, messages with fds, jobs
 *
 * Concept:    Whatever is queued (worker.h) leaves in that order. An item has ids, no fds: they are
 *             looked up when it is sent. What finds no room waits, and all behind it.
 * Ownership:  the queue and the table of jobs are struct mm_worker's.
 * Threading:  core's thread.
 */
#pragma once

#include "mmd/shell/worker.h"

/* Marks ids of jobs that the shell made and the core does not know. */
#define MM_WORKER_OWN_JOB  (UINT64_C(1) << 63)
#define MM_WORKER_RETRY_NS (10 * MM_NS_PER_MS)

void mm_worker_send_init(struct mm_worker *worker);

/* Queues what a new xfer must have before any job: pages, stores, tenants, swap spaces. */
void mm_worker_attach(struct mm_pool *pool);

/* Sends as much of the queue as there is room for. */
void mm_worker_flush(struct mm_pool *pool);
