/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_queue - the actions that the shell must perform, in order
 *
 * Concept:    Settling adds actions, mm_core_next() removes them.
 * Limits:     A unit of settling adds at most MM_BURST_MAX actions, and begins only if there is
 *             that much room; the rest is settled when the queue has been emptied. Events add a few
 *             actions directly. The shell empties the queue between events.
 * Ownership:  The core owns one.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/core.h"

/*
 * The most that one unit of settling adds: a SWITCH that changes every model entry, hands out every
 * page, and writes all gates.
 */
#define MM_BURST_MAX (2 * MM_MAP_KV_BASE + MM_LAYERS_MAX + 64)
#define MM_QUEUE_MAX (2 * MM_BURST_MAX)

struct mm_queue {
	struct mm_action *action; /* MM_QUEUE_MAX entries */
	uint32_t head, tail;
	bool again; /* a unit of settling found no room, and must be repeated */
};

/* Returns how many actions may still be added. */
uint32_t mm_queue_room(const struct mm_queue *queue);
/*
 * True if there is room for a unit of settling; else settling is repeated when the queue is empty.
 */
bool mm_queue_burst(struct mm_queue *queue);
/* True if it has no action and no unit of settling must be repeated. */
bool mm_queue_is_empty(const struct mm_queue *queue);
/* Adds an action and returns it, to be filled in. @tenant: its id, or MM_NO_TENANT. */
struct mm_action *mm_queue_add(struct mm_queue *queue, enum mm_action_kind kind, uint32_t tenant);
/* Removes the first action. Returns false if the queue is empty. */
bool mm_queue_take(struct mm_queue *queue, struct mm_action *ret_action);
