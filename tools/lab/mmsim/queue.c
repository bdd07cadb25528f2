/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/queue.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"

static bool event_is_before(const struct ms_event *a, const struct ms_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void ms_heap_push(struct ms_heap *heap, uint64_t at_ns, uint16_t kind, uint16_t who, uint32_t arg)
{
	struct ms_event e = { at_ns, heap->order++, kind, who, arg };
	size_t i = heap->n++;

	if (i == heap->room) {
		heap->room = heap->room ? 2 * heap->room : 256;
		heap->event = reallocarray(heap->event, heap->room, sizeof(*heap->event));
		mm_assert(heap->event != NULL);
	}
	for (; i && event_is_before(&e, &heap->event[(i - 1) / 2]); i = (i - 1) / 2)
		heap->event[i] = heap->event[(i - 1) / 2];
	heap->event[i] = e;
}

struct ms_event ms_heap_pop(struct ms_heap *heap)
{
	struct ms_event first = heap->event[0], last = heap->event[--heap->n];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < heap->n) {
		if (child + 1 < heap->n &&
		    event_is_before(&heap->event[child + 1], &heap->event[child]))
			child++;
		if (!event_is_before(&heap->event[child], &last))
			break;
		heap->event[i] = heap->event[child];
		i = child;
	}
	heap->event[i] = last;
	return first;
}

void ms_heap_done(struct ms_heap *heap)
{
	free(heap->event);
	*heap = (struct ms_heap){ 0 };
}

static void queue_grow(struct ms_fifo *fifo)
{
	const size_t room = fifo->room ? 2 * fifo->room : 16;
	char *items = reallocarray(NULL, room, fifo->item_bytes);

	mm_assert(items != NULL);
	for (size_t i = fifo->head; i != fifo->tail; i++)
		memcpy(items + (i - fifo->head) * fifo->item_bytes,
		       fifo->items + (i & (fifo->room - 1)) * fifo->item_bytes, fifo->item_bytes);
	free(fifo->items);
	fifo->tail -= fifo->head;
	fifo->head = 0;
	fifo->items = items;
	fifo->room = room;
}

void ms_fifo_push(struct ms_fifo *fifo, const void *item)
{
	if (ms_fifo_length(fifo) == fifo->room)
		queue_grow(fifo);
	memcpy(fifo->items + (fifo->tail & (fifo->room - 1)) * fifo->item_bytes, item,
	       fifo->item_bytes);
	fifo->tail++;
}

void *ms_fifo_at(const struct ms_fifo *fifo, size_t i)
{
	if (i >= ms_fifo_length(fifo))
		return NULL;
	return fifo->items + ((fifo->head + i) & (fifo->room - 1)) * fifo->item_bytes;
}

void ms_fifo_done(struct ms_fifo *fifo)
{
	free(fifo->items);
	fifo->items = NULL;
	fifo->room = fifo->head = fifo->tail = 0;
}
