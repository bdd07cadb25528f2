/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the command line of `mmbench serve`
 *
 * Concept:    The command line is parsed and checked once.
 * Ownership:  strings point into argv.
 * Threading:  one thread.
 * Invariants: after mm_bench_options() every field is in its range.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "tools/lab/workload/trace.h"

#define MM_BENCH_TENANTS_MAX 16
#define MM_BENCH_REPEAT_MAX  100
#define MM_BENCH_DEVICES_MAX 8
#define MM_BENCH_EXTRA_MAX   16

extern const char *const mm_policy_names[MM_POLICY_COUNT];

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
	bool verify;
	bool json;
};

/**
 * mm_bench_options() - read the command line of `mmbench serve`
 * @argc, @argv: from the subcommand on
 * @ret_opts:    written only on success
 *
 * Errors are reported on stderr. Return: 0; 1 --help or --version was answered; -EINVAL usage.
 */
int mm_bench_options(int argc, char **argv, struct mm_bench_opts *ret_opts);
