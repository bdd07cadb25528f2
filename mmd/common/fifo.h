/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fifo - a bounded queue of equal items that grows as needed
 *
 * Concept:   A queue for things that wait in order: messages to a slow peer, actions behind a batch
 *            of fds.
 * Ownership: items are copied in; the user of the queue releases what they own.
 * Threading: none of its own.
 * Limits:    items_max; beyond it the peer that the items wait for is at fault, not this queue.
 */
#pragma once

#include <stddef.h>

struct mm_fifo {
	unsigned char *items;
	size_t item_bytes;
	size_t items_max;
	size_t capacity; /* power of two, or 0 */
	size_t head;
	size_t count;
};

void mm_fifo_init(struct mm_fifo *fifo, size_t item_bytes, size_t items_max);
void mm_fifo_done(struct mm_fifo *fifo);

/* Appends a copy of @item. Return: 0; -ENOBUFS items_max reached; -ENOMEM. */
int mm_fifo_push(struct mm_fifo *fifo, const void *item);

/* The @index-th oldest item, valid until the next push; NULL when there are fewer. */
void *mm_fifo_at(struct mm_fifo *fifo, size_t index);

/* Drops the @n oldest items; the queue must have as many. */
void mm_fifo_drop(struct mm_fifo *fifo, size_t n);
