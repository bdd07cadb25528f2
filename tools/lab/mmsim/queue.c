/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/queue.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/heap.h"

static bool event_is_before(const void *one, const void *other)
{
	const struct ms_event *a = one, *b = other;

	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void ms_heap_push(struct ms_heap *heap, uint64_t at_ns, uint16_t kind, uint16_t who, uint32_t arg)
{
	const struct ms_event e = { at_ns, heap->order++, kind, who, arg };

	if (heap->n == heap->room) {
		heap->room = heap->room ? 2 * heap->room : 256;
		heap->event = reallocarray(heap->event, heap->room, sizeof(*heap->event));
		mm_assert(heap->event != NULL);
	}
	mm_heap_push(heap->event, heap->n++, sizeof(e), event_is_before, &e);
}

struct ms_event ms_heap_pop(struct ms_heap *heap)
{
	struct ms_event first;

	mm_heap_pop(heap->event, heap->n--, sizeof(first), event_is_before, &first);
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
