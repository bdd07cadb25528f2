/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - serves the requests: scheduler, memory and forward pass, step after step
 *
 * Concept:    a loop. Between steps: let arrivals in, answer the memory's events (chunks granted,
 *             denied, asked back), ask for chunks ahead of need without waiting, give back what has
 *             been empty for a while. Then plan, compute, commit. A step never waits for KV.
 *             A chunk that goes back is drained, emptied by copies on the device, retired, and released
 *             when the device has done all that could touch it; never inside a step. Chunks that are
 *             asked back have until half of their time to empty by themselves or by copies; then
 *             sequences are preempted.
 * Ownership:  memory, weights and requests are the caller's; the engine owns scheduler and forward.
 * Threading:  one thread, the caller's.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/mmserve/forward.h"
#include "tools/mmserve/report.h"
#include "tools/mmserve/requests.h"
#include "tools/mmserve/sched.h"

struct mm_engine_opts {
	const char *module;
	uint32_t block_tokens;
	uint32_t max_batch;
	uint32_t max_batched_tokens;
	enum mm_kv_order kv_order;
	uint64_t kv_share_bytes; /* 0: as much as the batch can ever use */
	uint64_t swap_bytes;     /* 0: as the memory's policy says */
	uint64_t kv_idle_ns;     /* chunks that stay empty for so long are given back */
	uint64_t kv_timeout_ns;  /* a request that KV is denied for so long is refused */
	uint32_t break_permille; /* of the steps break off between two layers and are repeated */
	uint64_t break_seed;
	bool verify;
	FILE *out;                         /* request lines */
	const volatile sig_atomic_t *stop; /* not 0: end early */
};

struct mm_engine {
	struct mm_engine_opts opts;
	struct mm_memory *memory;
	const struct mm_weights *weights;
	struct mm_requests *requests;
	struct mm_sched sched;
	struct mm_forward forward;
	struct mm_stats stats;
	struct mm_sched_move *moves; /* [blocks_per_chunk] */
	uint64_t *finished;          /* [max_batch] */
	uint64_t *usable;            /* bitmap of chunks */
	uint32_t *retired;           /* [kv_chunks] whose release waits for the device */
	uint32_t n_retired;
	CUevent retired_done; /* after all work that may touch them */
	struct mm_kv_arena kv;
	uint32_t chunks_share;
	uint64_t start_ns;
	size_t next_arrival;
	uint32_t chunks_asked;
	bool may_grow;             /* asked, and not denied yet */
	uint64_t grow_deadline_ns; /* no answer until then: denied */
	uint64_t retry_ns;         /* earliest time to ask for the same again */
	uint64_t stuck_since_ns;   /* 0: something could run */
	uint64_t surplus_since_ns; /* 0: all chunks are wanted */
	uint64_t step_ns;          /* of the last step */
	uint64_t break_dice;
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
