/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/out/queue.h"

#include "libclient/base/base.h"

/* A unit of settling begins only if there is more room; a test has it settle more often. */
#ifndef MM_QUEUE_ROOM
#define MM_QUEUE_ROOM MM_BURST_MAX
#endif

uint32_t mm_queue_room(const struct mm_queue *q)
{
	return MM_QUEUE_MAX - q->tail;
}

bool mm_queue_is_empty(const struct mm_queue *q)
{
	return q->head == q->tail && !q->again;
}

bool mm_queue_burst(struct mm_queue *q)
{
	if (mm_queue_room(q) > MM_QUEUE_ROOM)
		return true;
	q->again = true;
	return false;
}

struct mm_action *mm_queue_add(struct mm_queue *q, enum mm_action_kind kind, uint32_t tenant)
{
	struct mm_action *a;

	mm_assert(q->tail < MM_QUEUE_MAX);
	a = &q->action[q->tail++];
	*a = (struct mm_action){ .kind = kind, .tenant = tenant, .page = MM_NO_PAGE };
	return a;
}

bool mm_queue_take(struct mm_queue *q, struct mm_action *ret_action)
{
	if (q->head == q->tail) {
		q->head = q->tail = 0;
		return false;
	}
	*ret_action = q->action[q->head++];
	return true;
}
