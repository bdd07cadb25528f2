/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_ranges - address ranges that never overlap, each with a value
 *
 * Concept:   a sorted array: a look-up is a binary search, an insertion moves the tail.
 * Ownership: the values are the caller's.
 * Threading: none; the caller locks.
 * Limits:    thousands of ranges; at 10,000 an insertion moves some 100 KiB.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sg_range {
	uint64_t start;
	uint64_t end; /* one past the last byte */
	void *value;
};

struct sg_ranges {
	struct sg_range *items;
	size_t n, capacity;
};

/* Return: the range that contains @va, or NULL; valid until the next insertion or removal. */
struct sg_range *sg_ranges_find(const struct sg_ranges *r, uint64_t va);

/* Return: the index of the first range that ends after @va; r->n if there is none. */
size_t sg_ranges_lower(const struct sg_ranges *r, uint64_t va);

bool sg_ranges_overlaps(const struct sg_ranges *r, uint64_t start, uint64_t end);

/* Return: 0; -EEXIST it overlaps another; -ENOMEM. */
int sg_ranges_add(struct sg_ranges *r, uint64_t start, uint64_t end, void *value);

/* Removes items[@first] up to, not including, items[@last]. */
void sg_ranges_remove(struct sg_ranges *r, size_t first, size_t last);
