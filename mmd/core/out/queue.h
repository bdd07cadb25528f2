/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_queue - what the shell is to do, in order
 *
 * Concept:    Settling adds actions, mm_core_next() takes them out.
 * Bound:      Every unit of settling adds at most MM_BURST_MAX actions and begins only with that
 *             much room; what found no room is done when the queue has been emptied. Events add a
 *             handful directly. The shell empties the queue between events.
 * Ownership:  the core owns one.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/core.h"

/* One unit's worst: a SWITCH that changes each model entry and hands out each page, all gates. */
#define MM_BURST_MAX (2 * MM_MAP_KV_BASE + MM_LAYERS_MAX + 64)
#define MM_QUEUE_MAX (2 * MM_BURST_MAX)

struct mm_queue {
	struct mm_action *action; /* MM_QUEUE_MAX */
	uint32_t head, tail;
	bool again; /* a unit of settling found no room */
};

uint32_t mm_queue_room(const struct mm_queue *queue);
/* Room for a unit of settling? If not, settling is repeated when the queue is empty. */
bool mm_queue_burst(struct mm_queue *queue);
bool mm_queue_is_empty(const struct mm_queue *queue);
/* @tenant: its id; MM_NO_TENANT. */
struct mm_action *mm_queue_add(struct mm_queue *queue, enum mm_action_kind kind, uint32_t tenant);
/* False: it is empty. */
bool mm_queue_take(struct mm_queue *queue, struct mm_action *ret_action);
