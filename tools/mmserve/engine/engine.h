/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - serves the requests: scheduler, memory and forward pass, step after step
 *
 * Concept:    a loop, until all requests are served or, with an inbox (live.h), until somebody
 *             stops it. Between steps it admits requests that have arrived, handles the memory's
 *             events (chunks granted, denied, reclaimed), requests chunks ahead of need without
 *             waiting for them, and releases chunks that have been empty for a while (kvman.h
 *             decides both). Then it plans a step, computes it and commits it. A step never waits
 *             for KV, and no chunk is released inside a step.
 * Ownership:  memory, weights and requests are the caller's; the engine owns scheduler and forward.
 * Threading:  one thread, the caller's.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/mmserve/engine/cooler.h"
#include "tools/mmserve/engine/forward.h"
#include "tools/mmserve/engine/graphs.h"
#include "tools/mmserve/engine/live.h"
#include "tools/mmserve/sched/kvman.h"
#include "tools/mmserve/engine/progress.h"
#include "tools/mmserve/engine/report.h"
#include "tools/mmserve/engine/requests.h"
#include "tools/mmserve/sched/sched.h"
#include "tools/mmserve/engine/stamps.h"

#define MM_SWAP_AUTO UINT64_MAX

struct mm_engine_opts {
	const char *module;
	enum mm_gemm_kind gemm; /* what computes matrix products */
	bool fast;              /* tokens may depend on the batch */
	uint32_t graphs_max;    /* sizes of decode steps that are kept as graphs; 0: none */
	bool graphs_must;       /* a step that cannot be captured is an error */
	uint32_t block_tokens;
	uint32_t max_batch;
	uint32_t max_batched_tokens;
	enum mm_kv_order kv_order;
	enum mm_admit admit;
	enum mm_dtype kv_dtype;
	uint64_t kv_share_bytes;   /* 0: as much as the batch can ever use */
	uint64_t swap_bytes;       /* 0: none; MM_SWAP_AUTO: chosen by the memory's policy */
	uint32_t cold;             /* blocks that may be streamed from the swap space */
	uint32_t swap_tokens;      /* for mm_sched_config */
	uint32_t slice_tokens;     /* for mm_sched_config */
	uint32_t kv_keep_permille; /* part of the share that is kept although it is empty */
	double time_scale;         /* seconds of the host in a second of the device */
	/* Times of the device. Chunks that stay empty for kv_idle_ns are released. */
	uint64_t kv_idle_ns;
	struct mm_request_goals goals; /* what counts as late */
	uint64_t kv_timeout_ns;        /* a request that gets no KV for this long is refused */
	uint32_t break_permille; /* steps in 1000 that break off between two layers, and repeat */
	uint64_t break_seed;
	bool verify;
	bool device_times;                 /* take times from the device's clock, not the host's */
	FILE *out;                         /* gets a line for each request; NULL: none */
	struct mm_progress *progress;      /* gets the state of the run; NULL: none */
	const volatile sig_atomic_t *stop; /* when it is not 0, the run ends early */
	struct mm_inbox *inbox;            /* serve its jobs until stopped; NULL: the requests */
	uint32_t max_length;               /* with an inbox: tokens of a job; 0: the model's */
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
	struct mm_cooler cooler;
	uint64_t *finished;   /* [max_batch] */
	CUevent retired_done; /* behind all work that may touch retired chunks */
	struct mm_kv_arena kv;
	uint32_t chunks_share;
	struct mm_stamps stamps;
	double step_end_s; /* end of the step before; valid if stepping */
	bool stepping;     /* nothing else was done since the step before */
	struct mm_live live;
	bool leaving;          /* mmd has it leave: no new job, and the open ones until leave_ns */
	uint64_t leave_ns;     /* CLOCK_MONOTONIC */
	size_t next_arrival;   /* requests that have arrived */
	uint32_t layers_away;  /* by the last change of the plan */
	uint64_t tokens;       /* output tokens so far */
	uint64_t break_random; /* state of the random numbers for break_permille */
	char *err;
};

/**
 * mm_engine_init() - set up everything that a run needs
 * @e:        any bytes; give back with mm_engine_done(), also after failure
 * @opts:     copied
 * @memory:   open, with the model loaded
 * @weights:  bound to @memory
 * @requests: in order of arrival; results are written into them
 * @err:      gets the sentence of a failure, now or in the run; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mm_engine_init(struct mm_engine *e, const struct mm_engine_opts *opts, struct mm_memory *memory,
		   const struct mm_weights *weights, struct mm_requests *requests, char *err);
void mm_engine_done(struct mm_engine *e);

/* Handles the memory's events. Return: 0; -ECONNRESET; -EINTR stopped; other negative errno. */
int mm_engine_events(struct mm_engine *e);

/**
 * mm_engine_hold() - only handle the memory's events until a file descriptor is readable
 * @e:  initialised
 * @fd: the file descriptor
 *
 * Return: 0; -ECONNRESET mmd is gone; -EINTR stopped; other negative errno.
 */
int mm_engine_hold(struct mm_engine *e, int fd);

/**
 * mm_engine_run() - serve all requests, or the jobs of the inbox until it is stopped or must leave
 * @e:        initialised
 * @start_ns: CLOCK_MONOTONIC of arrival 0, which may be in the future; 0: now
 *
 * Return: 0 each request was served or refused, or with an inbox it was stopped, or mmd had it
 * leave; -ECONNRESET mmd is gone; -EINTR stopped; other negative errno. With an inbox no job is
 * open afterwards.
 */
int mm_engine_run(struct mm_engine *e, uint64_t start_ns);
