/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - what people and programs get to read about a set of runs
 */
#pragma once

#include "tools/lab/mmbench/run.h"

struct mm_report {
	const struct mm_run_result *result; /* one per policy, in the order of opts->policy */
	uint64_t token_mismatches;          /* of all runs against the first */
	uint64_t checksum_failures;         /* of all runs */
	const struct mm_bench_opts *opts;
	uint64_t pool_bytes; /* of each device */
	uint64_t kv_share_bytes;
};

void mm_report_table(const struct mm_report *report);

/* Return: 0; -ENOMEM. */
int mm_report_json(const struct mm_report *report);
