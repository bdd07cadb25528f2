/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps_report - the results of `mmbench steps`
 *
 * Concept:   A table, or a JSON object with --json.
 * Ownership: everything is borrowed.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmbench/steps.h"

/* Prints the table, or the JSON object, on stdout. Return: 0; negative errno. */
int mm_bench_steps_report(const struct mm_bench_steps_opts *opts,
			  const struct mm_bench_steps_result *result);
