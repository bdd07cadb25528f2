/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series - repeated measurements of one figure, and how they compare with those of a reference
 *
 * Concept:   Figure and reference are measured alternately, n times each. Medians are compared.
 *            The spread is given by p10 and p90 (nearest rank): of the figure, of the reference,
 *            and of the ratio of each pair, in which a drift that affects both cancels out.
 * Ownership: mm_series_done() frees the values; a zeroed series is empty.
 * Threading: one thread per series.
 * Errors:    a value for which there is no memory is left out, and counted in `lost`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mm_series {
	double *at;
	uint32_t n, room, lost;
};

void mm_series_add(struct mm_series *series, double value);
void mm_series_done(struct mm_series *series);

struct mm_summary {
	double median, p10, p90;
	uint32_t n; /* if 0, all else is 0 */
};

/* Returns the value that @percent of all do not exceed, by nearest rank; 0 if there is none. */
double mm_series_percentile(const struct mm_series *series, double percent);

/* Summarizes the values; the order of the series does not change. */
struct mm_summary mm_series_summary(const struct mm_series *series);

/*
 * Summarizes figure / reference, pair by pair, over the length of the shorter series. Pairs whose
 * reference is not above 0 are left out.
 */
struct mm_summary mm_series_pairs(const struct mm_series *figure,
				  const struct mm_series *reference);

enum mm_goal_kind { MM_GOAL_NONE, MM_GOAL_AT_LEAST, MM_GOAL_AT_MOST };

struct mm_goal { /* a bound that the ratio of figure to reference should keep */
	enum mm_goal_kind kind;
	double bound;
};

/*
 * Return: false if there is no goal, or @ratio is not finite and positive; @ret_reached is then not
 * written.
 */
bool mm_goal_check(const struct mm_goal *goal, double ratio, bool *ret_reached);
