/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series - what was measured again and again, and how it compares with its reference
 *
 * Concept:   figure and reference are measured in turn, n times each. Medians are compared; the
 *            spread is told by p10 and p90 (nearest rank), of each, and of the ratio of each pair,
 *            from which what drifts on both sides has gone.
 * Ownership: mm_series_done() frees; a zeroed one is empty.
 * Errors:    adding to a series when memory is short leaves the value out, and `lost` counts it.
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
	uint32_t n; /* 0: all else is 0 */
};

/* Leaves the series in its order. */
struct mm_summary mm_series_summary(const struct mm_series *series);

/*
 * Figure by reference, pair by pair: as many as the shorter has; pairs of a reference <= 0 are left
 * out.
 */
struct mm_summary mm_series_pairs(const struct mm_series *figure,
				  const struct mm_series *reference);

enum mm_goal_kind { MM_GOAL_NONE, MM_GOAL_AT_LEAST, MM_GOAL_AT_MOST };

struct mm_goal { /* of a ratio */
	enum mm_goal_kind kind;
	double bound;
};

/* false where there is nothing to judge: no goal, no number. */
bool mm_goal_check(const struct mm_goal *goal, double ratio, bool *ret_reached);
