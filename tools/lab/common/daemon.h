/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon - an mmd that a benchmark starts, sets plans in, and ends
 *
 * Concept:   The benchmark's own process is a tenant of this mmd, or starts tenants. Every wait
 *            checks whether mmd still runs and whether a signal came, and has a generous deadline.
 * Ownership: mm_bench_mmd_stop() ends mmd and releases everything; accepts a zeroed struct.
 * Threading: one thread.
 * Errors:    a sentence in @err, MM_SERVE_ERROR_BYTES, and negative errno; nothing is printed.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "mmd/core/plan/plan.h"
#include "tools/lab/common/procs.h"
#include "tools/mmserve/engine/config.h"

#define MM_BENCH_MMD_PATH_BYTES 512

struct mm_bench_mmd {
	struct mm_child child;
	const char *program;                  /* in the folder of the programs; NULL: mmd */
	char errors[MM_BENCH_MMD_PATH_BYTES]; /* file for its stderr; set by the caller */
	char admin[MM_BENCH_MMD_PATH_BYTES + 16];
	char socket[MM_BENCH_MMD_PATH_BYTES + 16]; /* the socket for tenants */
	int rpc;
	int signals; /* from mm_signals_open(); borrowed */
	uint64_t timeout_ns;
};

/**
 * mm_bench_mmd_start() - start mmd and wait until it answers
 * @d:       errors, signals and timeout_ns are set, all else is zero
 * @bin_dir: folder of the programs
 * @dir:     folder for its sockets; is created
 * @flags:   further flags of mmd; NULL ends the list
 */
int mm_bench_mmd_start(struct mm_bench_mmd *d, const char *bin_dir, const char *dir,
		       char *const *flags, char *err);

/**
 * mm_bench_mmd_request() - make a request to mmd's admin socket
 * @params:     taken over; NULL: none
 * @ret_result: a reference that the caller owns; written only on success
 *
 * Return: 0; negative errno of mm_rpc_client_request(), or as of mm_bench_mmd_explain().
 */
int mm_bench_mmd_request(struct mm_bench_mmd *d, const char *method, json_t *params,
			 json_t **ret_result, char *err);

/* Checks whether mmd still runs. Return: 0; -ECHILD it has ended. */
int mm_bench_mmd_check(struct mm_bench_mmd *d, char *err);

/* Waits for @ms milliseconds. Return: 0; -EINTR a signal came; -ECHILD mmd ended. */
int mm_bench_mmd_pause(struct mm_bench_mmd *d, int ms, char *err);

/**
 * mm_bench_mmd_explain() - find out why a call that needs mmd failed
 * @error: error of the call; -ECONNRESET, -ECONNREFUSED and -EPIPE mean that mmd may have ended
 * @err:   sentence of the call; replaced by how mmd ended and its last words, where mmd ended
 *
 * An mmd whose connections have ended gets a few seconds to end itself.
 * Return: -ECHILD mmd ended; -EINTR a signal came; @error otherwise.
 */
int mm_bench_mmd_explain(struct mm_bench_mmd *d, int error, char *err);

/**
 * mm_bench_mmd_set_plan() - set a tenant's plan and wait until it is in force
 * @name:    name of the only tenant
 * @alpha:   layers away
 * @beta:    slots
 * @layers:  layers of the tenant's model
 * @ret_set: the set that mmd chose
 *
 * No step may be open during the call.
 */
int mm_bench_mmd_set_plan(struct mm_bench_mmd *d, const char *name, uint32_t alpha, uint32_t beta,
			  uint32_t layers, struct mm_plan_set *ret_set, char *err);

/*
 * Reads a number of `status`, or of an object in it: "bytes_streamed", "pages.free". The value is
 * 0 where `status` has no such number.
 */
int mm_bench_mmd_status(struct mm_bench_mmd *d, const char *key, uint64_t *ret_value, char *err);

/* Ends mmd in order. A call of mm_procs_sweep() afterwards makes sure that its roles end, too. */
void mm_bench_mmd_stop(struct mm_bench_mmd *d);
