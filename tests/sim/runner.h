/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner - calls a function for many seeds, in processes of which any may die
 *
 * Concept:    Processes share the seeds out. An error of a seed ends its process: a panic, a
 *             signal, the exit of a sanitizer, or a time limit. The runner prints on stderr which
 *             seed it was, and another process continues with the next one.
 * Ownership:  The caller owns @context; results that its function leaves must be in shared memory.
 * Threading:  one thread, which has no other children.
 * Invariants: Every seed is either done or failed when the run ends, unless enough have failed;
 *             else the run itself fails.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RUNNER_JOBS_MAX     64
#define RUNNER_FAILURES_MAX 1000

/* Runs in process @job, which runs nothing else. A seed is done only when the function returns. */
typedef void runner_fn(void *context, uint32_t job, uint64_t seed);

struct runner_opts {
	uint64_t first, seeds;
	uint32_t jobs;         /* 1 to RUNNER_JOBS_MAX */
	uint32_t failures_max; /* 1 to RUNNER_FAILURES_MAX: the run stops at so many failures */
	uint32_t hangs_s;      /* limit of computing time for one seed, in seconds */
	const char *again;     /* command that is printed before the number of a failed seed */
};

struct runner_result {
	uint64_t done;
	uint32_t n_failed;
	uint64_t failed[RUNNER_FAILURES_MAX];
};

/*
 * Returns false if the run could not be done or seeds were lost; stderr has the reason. Failed
 * seeds are a result.
 */
bool runner_run(const struct runner_opts *opts, runner_fn *fn, void *context,
		struct runner_result *ret);
