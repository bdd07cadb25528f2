/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - the results of a set of runs, as a table and as JSON
 *
 * Concept:   Both forms show the same results: the table is for people, the JSON for programs.
 * Ownership: everything is borrowed.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmbench/run.h"

struct mm_report {
	const struct mm_run_result *result; /* one per policy, in the order of opts->policy */
	uint64_t token_mismatches;          /* tokens that differ from the first run, all runs */
	uint64_t checksum_failures;         /* in all runs */
	const struct mm_bench_opts *opts;
	uint64_t pool_bytes; /* on each device */
	uint64_t kv_share_bytes;
};

/* Prints the table on stdout. */
void mm_report_table(const struct mm_report *report);

/* Prints the JSON object on stdout. Return: 0; negative errno. */
int mm_report_json(const struct mm_report *report);

/**
 * mm_report_end() - flush stdout after any command's report, and say what went wrong with it
 * @r: 0, or negative errno of printing it
 *
 * Return: @r; negative errno where stdout takes no more. The sentence has been printed.
 */
int mm_report_end(int r);
