/* SPDX-License-Identifier: Apache-2.0 */
/*
 * percentile - a percentile by nearest rank
 *
 * Concept:   One definition for every program that reports latencies: the least value that so many
 *            percent of the values do not exceed. It is one of the values, never a mean of two; the
 *            median of an even number of values is the lower of the two in the middle.
 * Threading: any.
 */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The rank of the percentile, from 1, among @n values, of which there is one at least. */
static inline uint64_t mm_percentile_rank(uint64_t n, double percent)
{
	/* In this order: 7 / 100 * 100 is more than 7. */
	const uint64_t rank = (uint64_t)ceil(percent * (double)n / 100);

	return rank ? rank : 1;
}

static inline int mm_double_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline int mm_u64_compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/**
 * mm_percentile() - the value that @percent of @values do not exceed
 * @values:  sorted by this call
 * @n:       number of values
 * @percent: 0 to 100
 *
 * Return: the value of nearest rank; 0 if there is none.
 */
static inline double mm_percentile(double *values, size_t n, double percent)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), mm_double_compare);
	return values[mm_percentile_rank(n, percent) - 1];
}

/* Like mm_percentile(), of whole numbers. */
static inline uint64_t mm_percentile_u64(uint64_t *values, size_t n, double percent)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), mm_u64_compare);
	return values[mm_percentile_rank(n, percent) - 1];
}
