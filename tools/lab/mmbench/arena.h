/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena - an mmd on a software GPU of its own, a model, and folders, for tenants of both kinds
 *
 * Concept:   What mmbench hostile and mmbench chaos run in. Other users may reach the socket and
 *            the scratch folder and nothing else, so that hostile tenants can be other users.
 * Ownership: mm_arena_close() ends mmd and all other descendants, and removes the folders; accepts
 *            a zeroed one.
 * Threading: one thread.
 * Errors:    a sentence in @err and negative errno; nothing is printed.
 */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "tools/lab/common/daemon.h"

#define MM_ARENA_PATH_BYTES 256

struct mm_arena {
	char dir[PATH_MAX], gpu[MM_ARENA_PATH_BYTES]; /* "" = not made */
	char bin_dir[PATH_MAX];
	char model[MM_ARENA_PATH_BYTES], scratch[MM_ARENA_PATH_BYTES];
	char mmd_dir[MM_ARENA_PATH_BYTES];
	struct mm_bench_mmd mmd;
	int signals; /* from mm_signals_open() */
	bool keep;
	char err[MM_SERVE_ERROR_BYTES];
};

struct mm_arena_opts {
	const char *keep_dir; /* NULL: a folder that is removed */
	uint64_t pool_bytes, page_bytes;
	uint64_t honest_bytes; /* kept for our own user; 0: nothing is */
	uint64_t seed;         /* of the model's weights */
	const char *fail;      /* MM_SOFTGPU_FAIL of mmd; NULL: nothing fails */
	const char *program;   /* NULL: mmd */
};

int mm_arena_open(struct mm_arena *arena, const struct mm_arena_opts *opts);
void mm_arena_close(struct mm_arena *arena);

/* Processes that are started from now on find this device, where there are several arenas. */
int mm_arena_enter(const struct mm_arena *arena);

/* Return: 0; -EINTR a signal came; -ECHILD mmd has ended. */
int mm_arena_pause(struct mm_arena *arena, int ms);

/*
 * Makes a request on a connection of its own, so that a core that takes over from another is
 * reached as well. Return: 0; negative errno.
 */
int mm_arena_request(struct mm_arena *arena, const char *method, json_t *params,
		     json_t **ret_result);

/* Waits until all pages are free. @ret_leaked: how many are not. Return: 0; negative errno. */
int mm_arena_drain(struct mm_arena *arena, uint64_t patience_ns, uint64_t *ret_leaked);

/* The process of mmd that has this role. Return: 0: there is none now. */
pid_t mm_arena_role(const struct mm_arena *arena, const char *role);
