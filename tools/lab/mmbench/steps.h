/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps - `mmbench steps`: the duration of a step under each plan, against what the controller
 * computes
 *
 * Concept:    One tenant on a timed software GPU computes the same batch again and again, while
 *             plans are set through mmd's admin socket. The median device time of a step is
 *             compared with mm_plan_set_step_ns() of the set that mmd chose, or, while cold blocks
 *             are streamed, with the longer of that and the time of the link. The times of a
 *             layer's computation and transfer are those of the device's profile.
 * Ownership:  plain values; strings point into argv.
 * Threading:  one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/timing/profile.h"
#include "mmd/core/plan/plan.h"

#define MM_BENCH_STEPS_COLD_MAX  8u
#define MM_BENCH_STEPS_PLANS_MAX (2 * (MM_LAYERS_MAX + 1) * MM_BENCH_STEPS_COLD_MAX)

struct mm_bench_steps_opts {
	const char *profile; /* as mm_profile_load() takes it */
	const char *shape;   /* name of a built-in shape; NULL: model is set */
	const char *model;   /* folder of a model */
	uint32_t batch, context;
	uint32_t alpha[MM_LAYERS_MAX + 1];      /* ascending */
	uint32_t n_alpha;                       /* 0: all values that are possible */
	uint32_t cold[MM_BENCH_STEPS_COLD_MAX]; /* blocks that are streamed, ascending */
	uint32_t n_cold;                        /* 0: none are, under any plan */
	bool beta[3]; /* [1], [2]: whether to measure with so many slots */
	uint32_t steps, warmup;
	double dilation;
	uint64_t page_bytes; /* 0: mmd's own choice */
	bool json;
};

struct mm_bench_steps_plan {  /* one measurement */
	uint32_t alpha, beta; /* beta 0: nothing is away */
	uint32_t cold;        /* blocks that are streamed */
	struct mm_plan_set set;
	uint64_t expected_ns, median_ns, least_ns, most_ns;
};

struct mm_bench_steps_result {
	struct mm_profile profile;
	uint32_t layers;
	uint64_t t_c_ns;      /* a layer's computation, with its part of embedding and head */
	uint64_t t_t_ns;      /* a layer's transfer */
	double t_kv_ns;       /* that of a cold block in one layer */
	uint64_t layer_bytes; /* bytes that a layer's transfer copies */
	struct mm_bench_steps_plan plans[MM_BENCH_STEPS_PLANS_MAX];
	uint32_t n;
	double worst; /* the largest |ratio - 1| */
};

/* The subcommand `mmbench steps`. Return: the exit status. */
int mm_bench_steps(const struct mm_bench_steps_opts *opts);
