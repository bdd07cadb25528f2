/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - one daemon, its tenants, one trace, one policy
 *
 * Concept:   A run starts mmd, on a software GPU of its own or on the devices there are, one
 *            mmserve per model, waits until all models stand, lets the clock start for all at once,
 *            samples mmd while they serve, and ends everything in order. Nothing of a run outlives
 *            it, whatever happens.
 * Protocol:  with --sync mmserve says `ready`, waits for `start NS` (CLOCK_MONOTONIC) on stdin,
 *            says `done` after its last request, and holds its memory until stdin ends: an engine
 *            that has nothing to do is still there, and its weights with it.
 * Ownership: mm_run_result_done() frees what mm_run() returned.
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
	uint64_t layers_remapped_max; /* over time, of the sum over all tenants */
	uint64_t bytes_streamed, plan_changes, turns;
	double stall_total_s; /* of all tenants */
	double stall_p99_s;   /* of a step in which layers cycled; of the tenant that waited most */
};

struct mm_run_tenant {
	const char *model; /* folder */
	uint64_t kv_share_bytes;
	uint64_t seed; /* of the prompts' ids */
	uint32_t device;
};

struct mm_run_plan {
	const char *work_dir; /* each run makes a folder in it, */
	const char *label;    /* called so, */
	uint32_t index;       /* and -index */
	const char *driver;   /* NULL: the software GPU */
	const char *bin_dir;  /* mmd and mmserve are here */
	int signals;          /* from mm_signals_open() */
	enum mm_policy policy;
	uint64_t pool_bytes; /* of each device */
	uint64_t page_bytes;
	uint64_t headroom_bytes;    /* of the software GPU beside the pool, */
	uint64_t granularity_bytes; /* and its granularity */
	const char *profile;        /* it keeps the time of this device; NULL: it computes */
	uint32_t dilation;          /* a second of the device takes so many */
	const char *slots;
	uint32_t devices;
	uint32_t block_tokens, batch_max, batched_tokens_max;
	struct mm_bench_words mmd, mmserve; /* flags that they get besides */
	bool verify;
	struct mm_run_tenant tenant[MM_BENCH_TENANTS_MAX];
	uint32_t tenants;
	/* Called when all requests are answered, with all memory still held; NULL: nobody. */
	void (*served)(void *user);
	void *served_user;
	/* Writes a tenant's requests as CSV. Return: how many, or negative errno. */
	int (*write_trace)(const void *user, uint32_t tenant, const char *path);
	const void *user;
	uint64_t start_ns,
		serve_ns; /* until all models stand, and from the start to the last answer */
};

/**
 * mm_run() - one run
 * @plan:       all set
 * @ret_result: written only on success
 *
 * Says on stderr what failed. Return: 0; -EINTR a signal came; another negative errno.
 */
int mm_run(const struct mm_run_plan *plan, struct mm_run_result *ret_result);

void mm_run_result_done(struct mm_run_result *result);
