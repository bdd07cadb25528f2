/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram - counts of durations, within 0.4 %
 *
 * Concept:    There is a bucket for each value below 128 ns, then 128 up to each power of two. A
 *             bucket is at most 1/128 of its values wide and stands for its middle, so a quantile
 *             is wrong by at most 1/256. The smallest and the largest value are exact.
 * Ownership:  a plain value without pointers.
 * Threading:  none shared.
 */
#pragma once

#include <stdint.h>

#define MM_HISTOGRAM_BITS    7
#define MM_HISTOGRAM_BUCKETS ((64 - MM_HISTOGRAM_BITS + 1) << MM_HISTOGRAM_BITS)

struct mm_histogram {
	uint64_t count[MM_HISTOGRAM_BUCKETS];
	uint64_t n, least, most;
	double sum;
};

static inline uint32_t mm_histogram_bucket(uint64_t value)
{
	const uint32_t top = 63 - (uint32_t)__builtin_clzll(value | 1);

	if (top < MM_HISTOGRAM_BITS)
		return (uint32_t)value;
	return ((top - MM_HISTOGRAM_BITS) << MM_HISTOGRAM_BITS) +
	       (uint32_t)(value >> (top - MM_HISTOGRAM_BITS));
}

static inline void mm_histogram_add(struct mm_histogram *h, uint64_t value, uint64_t times)
{
	h->count[mm_histogram_bucket(value)] += times;
	h->least = h->n && h->least < value ? h->least : value;
	h->most = h->most > value ? h->most : value;
	h->n += times;
	h->sum += (double)value * (double)times;
}

void mm_histogram_merge(struct mm_histogram *into, const struct mm_histogram *h);

/* The value of nearest rank; 0 if there are no values. @percent: 0 to 100. */
uint64_t mm_histogram_percentile(const struct mm_histogram *h, double percent);
