/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the options of `mmbench serve --models`
 *
 * Concept:    A table, and what follows from several options together.
 * Ownership:  strings point into argv.
 * Threading:  one thread.
 * Invariants: after mm_bench_settle() every field is in its range.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/support/options.h"
#include "mmd/core/core.h"
#include "tools/lab/workload/trace.h"

#define MM_BENCH_TENANTS_MAX 16
#define MM_BENCH_REPEAT_MAX  100
#define MM_BENCH_DEVICES_MAX 8
#define MM_BENCH_EXTRA_MAX   16

/* Further words for a command line of mmd or mmserve. */
struct mm_bench_words {
	char *word[MM_BENCH_EXTRA_MAX];
	uint32_t n;
};

struct mm_bench_opts {
	const char *model[MM_BENCH_TENANTS_MAX]; /* one tenant each */
	const char *trace_path;                  /* NULL: synthetic */
	const char *driver;                      /* software, cuda, or a path */
	const char *slots;                       /* of mmd: auto, 1 or 2 */
	const char *keep_dir;                    /* folder for files; NULL: a temporary one */
	const char *host_store_max;              /* of mmd; NULL: its default */
	const char *kv_layout;                   /* of mmserve; NULL: its default */
	struct mm_trace_shape shape;
	uint32_t devices;                   /* tenant t uses device t % devices */
	struct mm_bench_words mmd, mmserve; /* further flags for these programs */
	uint64_t pool_bytes;                /* on each device; 0: the weights and 60 % more */
	uint64_t page_bytes;
	uint64_t kv_share_bytes; /* 0: an equal part of what the weights leave */
	uint32_t repeat;
	uint32_t block_tokens, batch_max, batched_tokens_max;
	enum mm_policy policy[MM_POLICY_COUNT];
	uint32_t n_policies;
	bool fused; /* of mmserve */
	bool verify;
	bool json;
};

#define MM_BENCH_DURATION_AUTO (-1.0)

extern const struct mm_opt_choice mm_bench_policy_choices[];
extern const struct mm_opt mm_bench_options[]; /* into struct mm_bench_opts */

/* The value of fields that have no preset, before the command line is read. */
#define MM_BENCH_OPTS_INIT                                 \
	{                                                  \
		.shape.duration_s = MM_BENCH_DURATION_AUTO \
	}

/**
 * mm_bench_settle() - derive what follows from several options, and check them together
 * @opts: as a command line was read into it
 * @why:  MM_OPT_ERROR_BYTES: on failure what is wrong
 *
 * Return: 0; -EINVAL.
 */
int mm_bench_settle(struct mm_bench_opts *opts, char *why);
