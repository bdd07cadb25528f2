/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon - an mmd that a benchmark starts, sets plans of, and ends
 *
 * Concept:   the benchmark's own process is a tenant of it, or starts tenants. Every wait looks
 *            whether the daemon is still there and whether a signal came, and has a generous end.
 * Ownership: mm_bench_mmd_stop() ends it and gives back all; accepts a zeroed one.
 * Threading: one thread.
 * Errors:    a sentence in @err, MM_SERVE_ERROR_BYTES, and negative errno; nothing is printed.
 */
#pragma once

#include <stdint.h>

#include "mmd/core/plan/plan.h"
#include "tools/lab/common/procs.h"
#include "tools/mmserve/engine/config.h"

#define MM_BENCH_MMD_PATH_BYTES 512

struct mm_bench_mmd {
	struct mm_child child;
	char errors[MM_BENCH_MMD_PATH_BYTES]; /* the file of its stderr; set before */
	char admin[MM_BENCH_MMD_PATH_BYTES + 16];
	char socket[MM_BENCH_MMD_PATH_BYTES + 16]; /* of tenants */
	int rpc;
	int signals; /* borrowed */
	uint64_t timeout_ns;
};

/**
 * mm_bench_mmd_start() - start mmd, wait until it answers
 * @d:       errors, signals and timeout_ns are set, all else zero
 * @bin_dir: of the programs
 * @dir:     of its sockets; made
 * @flags:   further ones; NULL ends them
 */
int mm_bench_mmd_start(struct mm_bench_mmd *d, const char *bin_dir, const char *dir,
		       char *const *flags, char *err);

/* Is it still there? Return: 0; -ECHILD. */
int mm_bench_mmd_check(struct mm_bench_mmd *d, char *err);

/* Return: 0 go on; -EINTR a signal came; -ECHILD it ended. */
int mm_bench_mmd_pause(struct mm_bench_mmd *d, int ms, char *err);

/**
 * mm_bench_mmd_explain() - why something failed that needs mmd
 * @error: what it failed with; -ECONNRESET, -ECONNREFUSED, -EPIPE: mmd may be gone
 * @err:   its sentence; that mmd ended, how, and its last words, where that is why
 *
 * Waits a moment for the end of an mmd whose connections have ended.
 * Return: -ECHILD it ended; -EINTR a signal came; @error otherwise.
 */
int mm_bench_mmd_explain(struct mm_bench_mmd *d, int error, char *err);

/**
 * mm_bench_mmd_set_plan() - so many layers of a tenant away, until that is in force
 * @name:    of the only tenant
 * @alpha:   layers away
 * @beta:    slots
 * @layers:  of its model
 * @ret_set: the set that mmd chose
 *
 * No step may be open meanwhile.
 */
int mm_bench_mmd_set_plan(struct mm_bench_mmd *d, const char *name, uint32_t alpha, uint32_t beta,
			  uint32_t layers, struct mm_plan_set *ret_set, char *err);

/* A number of `status`, or of an object in it: "bytes_streamed", "pages.free". 0: not there. */
int mm_bench_mmd_status(struct mm_bench_mmd *d, const char *key, uint64_t *ret_value, char *err);

/* Ends it in order; who wants to be sure of its roles too calls mm_procs_sweep() behind it. */
void mm_bench_mmd_stop(struct mm_bench_mmd *d);
