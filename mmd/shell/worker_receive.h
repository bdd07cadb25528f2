/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker_receive - what comes from an xfer: messages with fds, completions of jobs
 *
 * Concept:    xfer sends the fds of pages before it pushes the completion of the job that created
 *             them, so whoever handles a completion finds them in the socket.
 * Trust:      xfer loads foreign code: each message and completion is checked. One that is wrong
 *             is its fault, and it is killed.
 * Threading:  core's thread.
 */
#pragma once

#include "mmd/shell/worker.h"

/*
 * Reads at most @max messages from the socket. Return: 0; negative errno: the connection is broken.
 */
int mm_worker_receive(struct mm_pool *pool, unsigned int max);

/* Handles a bounded number of completions; worker.busy is set if some are left. */
void mm_worker_completions(struct mm_pool *pool);
