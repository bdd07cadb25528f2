/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/softgpu/range.h"

size_t sg_ranges_lower(const struct sg_ranges *r, uint64_t va)
{
	size_t low = 0, high = r->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (r->items[mid].end > va)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

struct sg_range *sg_ranges_find(const struct sg_ranges *r, uint64_t va)
{
	size_t i = sg_ranges_lower(r, va);

	return i < r->n && r->items[i].start <= va ? &r->items[i] : NULL;
}

bool sg_ranges_overlaps(const struct sg_ranges *r, uint64_t start, uint64_t end)
{
	size_t i = sg_ranges_lower(r, start);

	return i < r->n && r->items[i].start < end;
}

static int ranges_grow(struct sg_ranges *r)
{
	size_t capacity = r->capacity ? r->capacity * 2 : 64;
	struct sg_range *items = realloc(r->items, capacity * sizeof(*items));

	if (!items)
		return -ENOMEM;
	r->items = items;
	r->capacity = capacity;
	return 0;
}

int sg_ranges_add(struct sg_ranges *r, uint64_t start, uint64_t end, void *value)
{
	size_t i = sg_ranges_lower(r, start);

	if (i < r->n && r->items[i].start < end)
		return -EEXIST;
	if (r->n == r->capacity && ranges_grow(r) < 0)
		return -ENOMEM;
	memmove(&r->items[i + 1], &r->items[i], (r->n - i) * sizeof(*r->items));
	r->items[i] = (struct sg_range){ start, end, value };
	r->n++;
	return 0;
}

void sg_ranges_remove(struct sg_ranges *r, size_t first, size_t last)
{
	memmove(&r->items[first], &r->items[last], (r->n - last) * sizeof(*r->items));
	r->n -= last - first;
}
