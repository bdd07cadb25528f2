/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict - what a set of runs shows: ratios to one policy, and what they mean in words
 *
 * Concept:   The policies are compared with recompute, which is what engines do without mmd, or
 *            with the first policy if recompute was not run. The sentences are made from the
 *            numbers: losses are stated as plainly as gains, and a reason only if the numbers
 *            support it.
 * Threading: one thread.
 */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "tools/lab/mmbench/report.h"

enum mm_verdict_figure {
	MM_VERDICT_THROUGHPUT,
	MM_VERDICT_TTFT_P50,
	MM_VERDICT_TTFT_P99,
	MM_VERDICT_TBT_P50,
	MM_VERDICT_TBT_P99,
	MM_VERDICT_PREEMPTIONS,
	MM_VERDICT_FIGURES
};

/* Returns the index in @report->result of the run that all others are compared with. */
uint32_t mm_verdict_base(const struct mm_report *report);

/* Return: a figure of @run divided by that of @base; NAN where @base has 0. */
double mm_verdict_ratio(const struct mm_run_result *run, const struct mm_run_result *base,
			enum mm_verdict_figure figure);

/*
 * Prints a table of ratios, what they mean, and what to try next. Prints nothing if there is
 * nothing to compare.
 */
void mm_verdict_print(FILE *out, const struct mm_report *report);

/**
 * mm_verdict_json() - the ratios as JSON
 * @report: of one policy or several
 *
 * Return: {POLICY: {"throughput": r, "ttft_p50": ..., "preemptions": ...}}, without the policy
 * that the others are compared with; null for a ratio to 0. The caller owns the reference; NULL
 * when memory is short.
 */
json_t *mm_verdict_json(const struct mm_report *report);
