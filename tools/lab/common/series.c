/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/base/percentile.h"

void mm_series_add(struct mm_series *s, double value)
{
	if (s->n == s->room) {
		const uint32_t room = MM_MAX(s->room * 2, 64u);
		double *at = realloc(s->at, room * sizeof(*at));

		if (!at) {
			s->lost++;
			return;
		}
		s->at = at;
		s->room = room;
	}
	s->at[s->n++] = value;
}

void mm_series_done(struct mm_series *s)
{
	free(s->at);
	*s = (struct mm_series){ 0 };
}

double mm_series_percentile(const struct mm_series *s, double percent)
{
	mm_cleanup(mm_free_ptr) double *sorted = malloc((s->n + 1) * sizeof(*sorted));

	if (!sorted || !s->n)
		return 0;
	memcpy(sorted, s->at, s->n * sizeof(*sorted));
	return mm_percentile(sorted, s->n, percent);
}

/* Percentiles of @values, which get sorted. */
static struct mm_summary values_summarize(double *values, uint32_t n)
{
	return (struct mm_summary){ .median = mm_percentile(values, n, 50),
				    .p10 = mm_percentile(values, n, 10),
				    .p90 = mm_percentile(values, n, 90),
				    .n = n };
}

struct mm_summary mm_series_summary(const struct mm_series *s)
{
	mm_cleanup(mm_free_ptr) double *values = malloc((s->n + 1) * sizeof(*values));

	if (!values || !s->n)
		return (struct mm_summary){ 0 };
	memcpy(values, s->at, s->n * sizeof(*values));
	return values_summarize(values, s->n);
}

struct mm_summary mm_series_pairs(const struct mm_series *figure, const struct mm_series *reference)
{
	const uint32_t n = MM_MIN(figure->n, reference->n);
	mm_cleanup(mm_free_ptr) double *ratios = malloc((n + 1) * sizeof(*ratios));
	uint32_t there = 0;

	for (uint32_t i = 0; ratios && i < n; i++)
		if (reference->at[i] > 0)
			ratios[there++] = figure->at[i] / reference->at[i];
	return there ? values_summarize(ratios, there) : (struct mm_summary){ 0 };
}

bool mm_goal_check(const struct mm_goal *goal, double ratio, bool *ret_reached)
{
	if (goal->kind == MM_GOAL_NONE || !isfinite(ratio) || ratio <= 0)
		return false;
	*ret_reached = goal->kind == MM_GOAL_AT_LEAST ? ratio >= goal->bound : ratio <= goal->bound;
	return true;
}
