/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict - what a set of runs shows: ratios to one policy, and what they mean in words
 *
 * Concept:   all other policies are set against recompute, what engines do by themselves, or the
 *            first policy where that was not run. The words are made from the numbers: what was
 *            lost is said as plainly as what was won, and a reason only where the numbers bear it.
 * Ownership: nothing.
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

/* The run that all others are set against; its place in @report->result. */
uint32_t mm_verdict_base(const struct mm_report *report);

/* Return: what @run has for what @base has; NAN where @base has none of it. */
double mm_verdict_ratio(const struct mm_run_result *run, const struct mm_run_result *base,
			enum mm_verdict_figure figure);

/*
 * A table of ratios, what they mean, what to try next; nothing where there is nothing to compare.
 */
void mm_verdict_print(FILE *out, const struct mm_report *report);

/**
 * mm_verdict_json() - the same ratios
 * @report: of one policy or several
 *
 * Return: {POLICY: {"throughput": r, "ttft_p50": ..., "preemptions": ...}}, without the one that
 * they are to; null for a ratio to nothing. The caller's; NULL when memory is short.
 */
json_t *mm_verdict_json(const struct mm_report *report);
