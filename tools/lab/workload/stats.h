/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats - whether one policy is better than another, over several windows
 *
 * Concept:    Both policies served the same windows, so their ratio in each window is one
 *             observation in which the differences between windows cancel out. Ratios are compared
 *             by their logarithms: 2 and 1/2 are equally far from 1. The interval is Student's, for
 *             the mean of n logarithms. Beside it, Jain's index of how equal tenants are.
 * Threading:  any; there is no shared state.
 */
#pragma once

#include <stddef.h>

struct mm_ratio {
	double ratio;     /* geometric mean */
	double low, high; /* interval; for one window the ratio itself; low is 0 if lost > 0 */
	size_t n;         /* windows in which both values are above 0 */
	size_t lost;      /* windows with a = 0 < b, which have no logarithm but must be reported */
};

/**
 * mm_t_quantile() - compute a quantile of Student's distribution
 * @p:       in (0, 1)
 * @degrees: degrees of freedom, at least 1
 */
double mm_t_quantile(double p, double degrees);

/**
 * mm_ratio_of() - compute a / b, pair by pair
 * @a, @b:      n values each
 * @confidence: of the two-sided interval, e.g. 0.95
 */
struct mm_ratio mm_ratio_of(const double *a, const double *b, size_t n, double confidence);

/*
 * Computes Jain's index of @n values from 0 up: 1 if all are equal, also if all are 0; 1 / n if one
 * has everything.
 */
double mm_jain_index(const double *values, size_t n);
