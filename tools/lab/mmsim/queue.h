/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue - a heap of events by time, and first-in-first-out lists of values
 *
 * Concept:    Events of the same time come out in the order in which they were put in, so that a
 *             run is the same each time. An event has the index of a device or tenant; the data of
 *             the event are in a list of that device or tenant.
 * Ownership:  the caller owns both structs; they grow as needed, and _done() frees them.
 * Threading:  one thread.
 * Errors:     none; the program ends if there is no memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ms_event {
	uint64_t at_ns;
	uint64_t order; /* grows with each event that is put in */
	uint16_t kind;  /* enum ms_event_kind */
	uint16_t who;   /* device or tenant */
	uint32_t arg;
};

struct ms_heap {
	struct ms_event *event;
	size_t n, room;
	uint64_t order;
};

void ms_heap_push(struct ms_heap *heap, uint64_t at_ns, uint16_t kind, uint16_t who, uint32_t arg);
/* Takes out the earliest event; the heap must not be empty. */
struct ms_event ms_heap_pop(struct ms_heap *heap);
void ms_heap_done(struct ms_heap *heap);

static inline uint64_t ms_heap_next(const struct ms_heap *heap)
{
	return heap->n ? heap->event[0].at_ns : UINT64_MAX;
}

struct ms_fifo {
	char *items;
	size_t item_bytes, room; /* room: 0 or a power of two */
	size_t head, tail;       /* free-running */
};

static inline size_t ms_fifo_length(const struct ms_fifo *fifo)
{
	return fifo->tail - fifo->head;
}

void ms_fifo_push(struct ms_fifo *fifo, const void *item);
/* Returns the i-th value from the head; NULL: the list is shorter. */
void *ms_fifo_at(const struct ms_fifo *fifo, size_t i);
static inline void ms_fifo_drop(struct ms_fifo *fifo)
{
	fifo->head++;
}
void ms_fifo_done(struct ms_fifo *fifo);
