/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/fifo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"

#define FIRST_CAPACITY 16

void mm_fifo_init(struct mm_fifo *fifo, size_t item_bytes, size_t items_max)
{
	*fifo = (struct mm_fifo){ .item_bytes = item_bytes, .items_max = items_max };
}

void mm_fifo_done(struct mm_fifo *fifo)
{
	free(fifo->items);
	mm_fifo_init(fifo, fifo->item_bytes, fifo->items_max);
}

static unsigned char *fifo_slot(struct mm_fifo *fifo, size_t index)
{
	return fifo->items + ((fifo->head + index) & (fifo->capacity - 1)) * fifo->item_bytes;
}

static int fifo_grow(struct mm_fifo *fifo)
{
	size_t capacity = fifo->capacity ? 2 * fifo->capacity : FIRST_CAPACITY;
	unsigned char *items;

	if (mm_fault("fifo.grow"))
		return -ENOMEM;
	items = calloc(capacity, fifo->item_bytes);
	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < fifo->count; i++)
		memcpy(items + i * fifo->item_bytes, fifo_slot(fifo, i), fifo->item_bytes);
	free(fifo->items);
	fifo->items = items;
	fifo->capacity = capacity;
	fifo->head = 0;
	return 0;
}

int mm_fifo_push(struct mm_fifo *fifo, const void *item)
{
	int r;

	if (fifo->count >= fifo->items_max)
		return -ENOBUFS;
	if (fifo->count == fifo->capacity) {
		r = fifo_grow(fifo);
		if (r < 0)
			return r;
	}
	memcpy(fifo_slot(fifo, fifo->count), item, fifo->item_bytes);
	fifo->count++;
	return 0;
}

void *mm_fifo_at(struct mm_fifo *fifo, size_t index)
{
	return index < fifo->count ? fifo_slot(fifo, index) : NULL;
}

void mm_fifo_drop(struct mm_fifo *fifo, size_t n)
{
	mm_assert(n <= fifo->count);
	if (!n)
		return;
	fifo->head = (fifo->head + n) & (fifo->capacity - 1);
	fifo->count -= n;
}
