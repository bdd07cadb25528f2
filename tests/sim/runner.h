/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner - the same function for many seeds, in processes, of which any may die
 *
 * Concept:    Processes share the seeds out. What a seed does wrong ends its process: a panic, a
 *             signal, a sanitizer's exit, or a time limit. The runner then knows which seed it was,
 *             says so on stderr, and another process goes on behind it.
 * Ownership:  @context is the caller's; what its function is to leave behind must lie in shared
 *             memory.
 * Threading:  one thread, which has no other children.
 * Invariants: every seed is either done or failed when the run ends, unless enough have failed;
 *             else the run itself is a failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RUNNER_JOBS_MAX     64
#define RUNNER_FAILURES_MAX 1000

/* In process @job, which has it for itself. A seed is done when it returns; nothing else is. */
typedef void runner_fn(void *context, uint32_t job, uint64_t seed);

struct runner_opts {
	uint64_t first, seeds;
	uint32_t jobs;         /* 1 to RUNNER_JOBS_MAX */
	uint32_t failures_max; /* 1 to RUNNER_FAILURES_MAX: stop at so many */
	uint32_t hangs_s;      /* of computing time, one seed */
	const char *again;     /* behind which a failed seed is printed */
};

struct runner_result {
	uint64_t done;
	uint32_t n_failed;
	uint64_t failed[RUNNER_FAILURES_MAX];
};

/* False: it could not be done, or seeds were lost; stderr says why. Failed seeds are a result. */
bool runner_run(const struct runner_opts *opts, runner_fn *fn, void *context,
		struct runner_result *ret);
