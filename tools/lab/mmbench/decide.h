/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - `mmbench decide`: the processor time that the core's decisions cost
 *
 * Concept:    The core runs under a busy load in virtual time, with nothing around it but a model
 *             of the answers: tenants whose KV demand comes in bursts, which run idle and resume,
 *             and which park, map and release when they are asked to; jobs that take the time of a
 *             link. Only the core's own time is measured: each event with everything that settles
 *             after it, and taking its actions out.
 * Ownership:  strings point into argv.
 * Threading:  one thread.
 */
#pragma once

#include "libclient/support/options.h"
#include "tools/lab/mmbench/decide_load.h"

#define MM_DECIDE_POINTS_MAX 16

struct mm_decide_line {
	uint32_t tenants[MM_DECIDE_POINTS_MAX], points;
	struct mm_decide_opts load; /* those with an option */
	const char *profile, *shape;
	bool json;
};

extern const struct mm_opt mm_decide_options[]; /* into struct mm_decide_line */

/* The subcommand `mmbench decide`. Return: the exit status. */
int mm_bench_decide(const struct mm_decide_line *line);
