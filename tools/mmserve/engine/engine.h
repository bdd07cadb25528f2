/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - serves the requests: scheduler, memory and forward pass, step after step
 *
 * Concept:    a loop. Between steps: let arrivals in, answer the memory's events (chunks granted,
 *             denied, asked back), ask for chunks ahead of need without waiting, give back what has
 *             been empty for a while (kvman.h decides). Then plan, compute, commit. A step never
 *             waits for KV, and no chunk is released inside a step.
 * Ownership:  memory, weights and requests are the caller's; the engine owns scheduler and forward.
 * Threading:  one thread, the caller's.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/mmserve/engine/forward.h"
#include "tools/mmserve/engine/graphs.h"
#include "tools/mmserve/sched/kvman.h"
#include "tools/mmserve/engine/progress.h"
#include "tools/mmserve/engine/report.h"
#include "tools/mmserve/engine/requests.h"
#include "tools/mmserve/sched/sched.h"
#include "tools/mmserve/engine/stamps.h"

#define MM_SWAP_AUTO UINT64_MAX

struct mm_engine_opts {
	const char *module;
	enum mm_gemm_kind gemm; /* who multiplies */
	bool fast;              /* tokens may depend on the batch */
	uint32_t graphs_max;    /* sizes of decode steps that are kept as graphs; 0: none */
	bool graphs_must;       /* or it is an error */
	uint32_t block_tokens;
	uint32_t max_batch;
	uint32_t max_batched_tokens;
	enum mm_kv_order kv_order;
	enum mm_admit admit;
	enum mm_dtype kv_dtype;
	uint64_t kv_share_bytes;   /* 0: as much as the batch can ever use */
	uint64_t swap_bytes;       /* 0: none; MM_SWAP_AUTO: as the memory's policy says */
	uint32_t swap_tokens;      /* as mm_sched_config's */
	uint32_t kv_keep_permille; /* of the share, kept although it is empty */
	double time_scale;         /* the host's time per the device's */
	uint64_t kv_idle_ns; /* the device's: chunks that stay empty for so long are given back */
	uint64_t kv_timeout_ns;  /* likewise: a request that KV is denied for so long is refused */
	uint32_t break_permille; /* of the steps break off between two layers and are repeated */
	uint64_t break_seed;
	bool verify;
	bool device_times;                 /* by the device's clock, not the host's */
	FILE *out;                         /* request lines */
	struct mm_progress *progress;      /* told how far it is; NULL: nobody is */
	const volatile sig_atomic_t *stop; /* not 0: end early */
};

struct mm_engine {
	struct mm_engine_opts opts;
	struct mm_memory *memory;
	const struct mm_weights *weights;
	struct mm_requests *requests;
	struct mm_sched sched;
	struct mm_forward forward;
	struct mm_graphs graphs;
	struct mm_stats stats;
	struct mm_kvman kvman;
	uint64_t *finished;   /* [max_batch] */
	CUevent retired_done; /* after all work that may touch retired chunks */
	struct mm_kv_arena kv;
	uint32_t chunks_share;
	struct mm_stamps stamps;
	double step_end_s; /* of the step before, if nothing else was between */
	bool stepping;
	size_t next_arrival;
	uint64_t tokens; /* put out so far */
	uint64_t break_random;
	char *err;
};

/**
 * mm_engine_init() - make everything that a run needs
 * @e:        any bytes; give back with mm_engine_done(), also after failure
 * @opts:     copied
 * @memory:   open, with the model loaded
 * @weights:  bound to @memory
 * @requests: in order of arrival; results are written into them
 * @err:      gets the sentence of a failure, now or in the run, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mm_engine_init(struct mm_engine *e, const struct mm_engine_opts *opts, struct mm_memory *memory,
		   const struct mm_weights *weights, struct mm_requests *requests, char *err);
void mm_engine_done(struct mm_engine *e);

/* Answers the memory's events. Return: 0; -ECONNRESET; -EINTR stopped; other negative errno. */
int mm_engine_events(struct mm_engine *e);

/**
 * mm_engine_hold() - do nothing, but answer the memory, until a file descriptor is readable
 * @e:  initialised
 * @fd: to wait for
 *
 * Return: 0; -ECONNRESET mmd is gone; -EINTR stopped; other negative errno.
 */
int mm_engine_hold(struct mm_engine *e, int fd);

/**
 * mm_engine_run() - serve all requests
 * @e:        initialised
 * @start_ns: CLOCK_MONOTONIC of arrival 0; it may lie ahead; 0 = now
 *
 * Return: 0 all were served or refused one by one; -ECONNRESET mmd is gone; -EINTR stopped; other
 * negative errno.
 */
int mm_engine_run(struct mm_engine *e, uint64_t start_ns);
