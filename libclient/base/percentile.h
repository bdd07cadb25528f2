/* SPDX-License-Identifier: Apache-2.0 */
/*
 * percentile - a percentile by nearest rank
 *
 * Concept:   One definition for every program that reports latencies.
 * Threading: any.
 */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

static inline int mm_double_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

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
	size_t rank;

	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), mm_double_compare);
	rank = (size_t)ceil(percent / 100 * (double)n);
	return values[rank ? rank - 1 : 0];
}
