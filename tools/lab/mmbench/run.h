/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - one daemon, its tenants, one trace, one policy
 *
 * Concept:   A run starts mmd, on a software GPU of its own or on this machine's devices, and one
 *            mmserve per model. It waits until all models are loaded, starts the clock for all at
 *            once, samples mmd while they serve, and ends everything in order. No process or folder
 *            of a run outlives it, also when it fails.
 *            With --sync mmserve writes `ready`, waits for `start NS` (CLOCK_MONOTONIC) on stdin,
 *            writes `done` after its last request, and holds its memory until stdin ends: like an
 *            idle engine, which keeps its weights.
 * Ownership: mm_run_result_done() frees the result of mm_run().
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmbench/options.h"
#include "tools/lab/mmbench/results.h"

struct mm_run_result {
	enum mm_policy policy;
	struct mm_results results;
	struct mm_latency latency;
	uint64_t preemptions, steps, checksum_failures;
	uint64_t swapped_out_bytes, swapped_in_bytes;
	uint64_t layers_remapped_max; /* most layers away at one time, of all tenants together */
	uint64_t bytes_streamed, plan_changes, turns;
	double stall_total_s; /* sum over all tenants */
	double stall_p99_s;   /* per step with cycling layers; of the tenant that waited most */
};

struct mm_run_tenant {
	const char *model; /* folder */
	uint64_t kv_share_bytes;
	uint64_t seed; /* for the token ids of prompts */
	uint32_t device;
};

struct mm_run_plan {
	const char *work_dir; /* each run makes a folder LABEL-INDEX in it */
	const char *label;
	uint32_t index;
	const char *driver;  /* NULL: the software GPU */
	const char *bin_dir; /* folder of mmd and mmserve */
	int signals;         /* from mm_signals_open() */
	enum mm_policy policy;
	uint64_t pool_bytes; /* on each device */
	uint64_t page_bytes;
	uint64_t headroom_bytes;    /* memory of the software GPU beside the pool */
	uint64_t granularity_bytes; /* granularity of the software GPU */
	const char *profile; /* device whose time the software GPU keeps; NULL: it computes */
	uint32_t dilation;   /* seconds of the host per second of the device */
	const char *slots;
	uint32_t devices;
	uint32_t block_tokens, batch_max, batched_tokens_max;
	struct mm_bench_words mmd, mmserve; /* further flags for these programs */
	bool verify;
	struct mm_run_tenant tenant[MM_BENCH_TENANTS_MAX];
	uint32_t tenants;
	/* Called when all requests are answered, with all memory still held; may be NULL. */
	void (*served)(void *user);
	void *served_user;
	/* Writes a tenant's requests as CSV. Return: how many, or negative errno. */
	int (*write_trace)(const void *user, uint32_t tenant, const char *path);
	const void *user;
	uint64_t start_ns; /* timeout until all models are loaded */
	uint64_t serve_ns; /* timeout from the start to the last answer */
};

/**
 * mm_run() - do one run
 * @plan:       all fields are set
 * @ret_result: written only on success
 *
 * Errors are reported on stderr. Return: 0; -EINTR a signal came; another negative errno.
 */
int mm_run(const struct mm_run_plan *plan, struct mm_run_result *ret_result);

void mm_run_result_done(struct mm_run_result *result);
