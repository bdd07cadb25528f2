/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curves - points as charts
 *
 * Concept:   Points of a chart that have the same variant and policy are a curve. Plots are made by
 *            gnuplot, where it is installed.
 * Ownership: strings point into the points.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/evaluate/evaluate.h"

/*
 * Draws one chart with gnuplot: an SVG file in the folder `figures`, from a file in `data`. Return:
 * 0 or negative errno.
 */
int mm_eval_plot(const struct mm_eval *eval, enum mm_eval_section section, const char *chart);

/* The curves of a chart: variants, or policies. */
struct mm_eval_curve {
	const char *label;   /* in the legend */
	const char *variant; /* variant of its points */
	const char *policy;
};
#define MM_EVAL_CURVES_MAX 16
uint32_t mm_eval_curves(const struct mm_eval *eval, enum mm_eval_section section, const char *chart,
			struct mm_eval_curve ret[MM_EVAL_CURVES_MAX]);
/* The rates of the chart's points, ascending. Return: how many. */
#define MM_EVAL_RATES_MAX 32
uint32_t mm_eval_rates(const struct mm_eval *eval, enum mm_eval_section section, const char *chart,
		       double ret[MM_EVAL_RATES_MAX]);
/* Finds a point; NULL: there is none. */
const struct mm_eval_point *mm_eval_find(const struct mm_eval *eval, enum mm_eval_section section,
					 const char *chart, const char *variant, double rate);
