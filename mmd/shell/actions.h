/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actions - performs what the core wants done
 *
 * Concept:   Every call of mm_core_on_*() may leave actions in the core's queue: gates and plans to
 *            write, fds, map entries and events to send, jobs for xfer, processes to kill. They are
 *            performed in order and at once, and none of them blocks.
 * Threading: core's thread.
 */
#pragma once

struct mm_pool;

/* Performs all actions of the pool's core. Call after every mm_core_on_*(). */
void mm_pool_settle(struct mm_pool *pool);
