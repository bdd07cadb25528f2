/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actions - tells the core what has happened, and performs what it wants done
 *
 * Concept:   Each event of a pool's core may leave actions in the core's queue: gates and plans to
 *            write, fds, map entries and events to send, jobs for xfer, processes to kill. They are
 *            performed in order and at once, and none of them blocks. Nothing that is done for an
 *            action is an event for the core; where it leads to one, it sets a flag for later.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/core/event.h"

struct mm_pool;

/* The request in a session's ring that is the event. */
struct mm_event_source {
	uint32_t place;    /* of the session + 1; 0: the event is no request */
	uint32_t position; /* in its ring */
};

/**
 * mm_pool_event() - all changes of a pool's core go through here
 * @pool:       has a core
 * @event:      of it
 * @source:     NULL: the event is no request
 * @ret_result: may be NULL
 *
 * All actions have been performed on return.
 */
void mm_pool_event(struct mm_pool *pool, const struct mm_event *event,
		   const struct mm_event_source *source, struct mm_event_result *ret_result);

/*
 * Performs what a core that died has left in the queue of its core; the first of it may have been
 * performed.
 */
void mm_pool_actions_finish(struct mm_pool *pool);

/* An event of @kind at this moment. @tenant: 0 for kinds without. */
void mm_pool_event_now(struct mm_pool *pool, enum mm_event_kind kind, uint32_t tenant);
