/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - one daemon, its tenants, one trace, one policy
 *
 * Concept:   A run starts mmd on a software GPU of its own, one mmserve per model, waits until all
 *            models stand, lets the clock start for all at once, samples mmd while they serve, and
 *            ends everything in order. Nothing of a run outlives it, whatever happens.
 * Protocol:  with --sync mmserve says `ready`, waits for `start NS` (CLOCK_MONOTONIC) on stdin, says
 *            `done` after its last request, and holds its memory until stdin ends: an engine that has
 *            nothing to do is still there, and its weights with it.
 * Ownership: mm_run_result_done() frees what mm_run() returned.
 */
#pragma once

#include "tools/mmbench/options.h"
#include "tools/mmbench/results.h"
#include "tools/workload/trace.h"

struct mm_run_result {
	enum mm_policy policy;
	struct mm_results results;
	struct mm_latency latency;
	uint64_t preemptions, steps, checksum_failures;
	uint64_t swapped_out_bytes, swapped_in_bytes;
	uint64_t layers_remapped_max; /* over time, of the sum over all tenants */
	uint64_t bytes_streamed, plan_changes;
	double stall_p99_s; /* of a step in which layers cycled; of the tenant that waited most */
};

struct mm_run_env {
	const struct mm_bench_opts *opts;
	const struct mm_trace *trace;
	const char *work_dir; /* each run makes a folder in it */
	const char *bin_dir;  /* mmd and mmserve are here */
	uint64_t pool_bytes;  /* of each device */
	uint64_t kv_share_bytes;
	int signals; /* from mm_signals_open() */
};

/**
 * mm_run() - one run
 * @env:        all set
 * @policy:     which
 * @index:      of the repetition, for the folder's name
 * @ret_result: written only on success
 *
 * Says on stderr what failed. Return: 0; -EINTR a signal came; another negative errno.
 */
int mm_run(const struct mm_run_env *env, enum mm_policy policy, uint32_t index,
	   struct mm_run_result *ret_result);

void mm_run_result_done(struct mm_run_result *result);
