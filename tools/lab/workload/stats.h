/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats - is one policy better than another, over windows?
 *
 * Concept:    both served the same windows, so their ratio in each window is one observation, free
 *             of what makes windows differ. Ratios are compared by their logarithms: twice and half
 *             are as far from 1. The interval is Student's, for the mean of n logarithms.
 */
#pragma once

#include <stddef.h>

struct mm_ratio {
	double ratio;     /* geometric mean */
	double low, high; /* interval; of one window: the ratio itself; low is 0 if one was lost */
	size_t n;         /* windows that count: both values above 0 */
	size_t lost; /* windows with a = 0 < b: no logarithm has them, but they must not vanish */
};

/**
 * mm_t_quantile() - of Student's distribution
 * @p:       in (0, 1)
 * @degrees: of freedom, from 1
 */
double mm_t_quantile(double p, double degrees);

/**
 * mm_ratio_of() - a over b, paired
 * @a, @b:       n values each
 * @confidence:  of the two-sided interval, e.g. 0.95
 */
struct mm_ratio mm_ratio_of(const double *a, const double *b, size_t n, double confidence);
