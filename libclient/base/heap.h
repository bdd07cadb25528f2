/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap - a binary heap over an array: the first item can be taken out, in any number of items
 *
 * Concept:   What "first" means is the caller's function. Its order must be total where the order
 *            of equal items matters: a number that grows with each push, compared last, lets them
 *            come out as they went in. Without it they come out in an order that depends on
 *            nothing but the pushes and pops so far.
 * Ownership: the caller's array, which has room for the item that is pushed; the caller counts.
 * Threading: none shared.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether @a comes out before @b. */
typedef bool mm_heap_is_before(const void *a, const void *b);

/*
 * Both are inlined, so that the function and the size, which are constants of the caller's, cost
 * no call and no loop.
 */
#define MM_HEAP_INLINE static inline __attribute__((always_inline))

MM_HEAP_INLINE void *mm_heap_at(void *items, size_t item_bytes, size_t i)
{
	return (char *)items + i * item_bytes;
}

/**
 * mm_heap_push() - put an item in
 * @items:      an array of more than @n items
 * @n:          items before the call; one more after it
 * @item_bytes: of each
 * @item:       copied; not in @items
 */
MM_HEAP_INLINE void mm_heap_push(void *items, size_t n, size_t item_bytes,
				 mm_heap_is_before *is_before, const void *item)
{
	size_t i = n;

	while (i > 0 && is_before(item, mm_heap_at(items, item_bytes, (i - 1) / 2))) {
		memcpy(mm_heap_at(items, item_bytes, i), mm_heap_at(items, item_bytes, (i - 1) / 2),
		       item_bytes);
		i = (i - 1) / 2;
	}
	memcpy(mm_heap_at(items, item_bytes, i), item, item_bytes);
}

/**
 * mm_heap_pop() - take the first item out
 * @n:        items before the call, at least 1; one less after it
 * @ret_item: gets the item; not in @items
 */
MM_HEAP_INLINE void mm_heap_pop(void *items, size_t n, size_t item_bytes,
				mm_heap_is_before *is_before, void *ret_item)
{
	const void *last = mm_heap_at(items, item_bytes, --n);
	size_t i = 0, child;

	memcpy(ret_item, items, item_bytes);
	while ((child = 2 * i + 1) < n) {
		if (child + 1 < n && is_before(mm_heap_at(items, item_bytes, child + 1),
					       mm_heap_at(items, item_bytes, child)))
			child++;
		if (!is_before(mm_heap_at(items, item_bytes, child), last))
			break;
		memcpy(mm_heap_at(items, item_bytes, i), mm_heap_at(items, item_bytes, child),
		       item_bytes);
		i = child;
	}
	if (i < n)
		memcpy(mm_heap_at(items, item_bytes, i), last, item_bytes);
}
