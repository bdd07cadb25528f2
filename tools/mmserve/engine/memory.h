/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - where the engine's weights and KV live: its own device memory, or mmd's
 *
 * Concept:    one table of functions, two makers. `plain` allocates with cuMemAlloc and never gives
 *             or takes: the engine as it is without mmd, and the reference that ids are compared
 *             with. `mmd` is libclient. The meaning of each call is that of its twin in
 *             mm/client.h.
 * Ownership:  mm_memory_*_open() fills the caller's struct; mm_memory_close() empties it.
 * Threading:  the engine's thread only.
 */
#pragma once

#include <stdbool.h>

#include "mm/client.h"
#include "mm/gpu.h"

struct mm_memory;

struct mm_memory_ops {
	int (*tensor)(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor);
	const void *(*store)(struct mm_memory *m, const char *name, uint64_t *ret_bytes);
	/* @ret_va: [opts->ranges] */
	int (*kv_open)(struct mm_memory *m, const struct mm_kv_opts *opts, CUdeviceptr *ret_va);
	int (*kv_want)(struct mm_memory *m, uint32_t chunks_total);
	void (*kv_usable)(struct mm_memory *m, uint64_t *ret_bitmap, size_t words);
	int (*kv_release)(struct mm_memory *m, uint32_t chunk);
	uint32_t (*kv_owed)(struct mm_memory *m); /* NULL: nothing is ever asked back */
	/* NULL, all three: there is no swap space. */
	int (*swap_open)(struct mm_memory *m, uint64_t bytes);
	int (*swap)(struct mm_memory *m, bool in, const struct mm_swap_piece *pieces, uint32_t n,
		    uint64_t user_data);
	int (*swap_next)(struct mm_memory *m, struct mm_swap_done *ret_done);
	int (*event_fd)(struct mm_memory *m); /* -1: there are never events */
	int (*next_event)(struct mm_memory *m, struct mm_event *ret_event);
	uint64_t (*plan_held_ns)(struct mm_memory *m); /* in which plan changes kept steps out */
	void (*hint)(struct mm_memory *m, const struct mm_load_hint *hint);
	int (*turn_want)(struct mm_memory *m); /* 0: steps may run; -EAGAIN: an event will say */
	/* between steps; nothing where there are no turns */
	int (*turn_yield)(struct mm_memory *m);
	int (*step_begin)(struct mm_memory *m);
	int (*step_end)(struct mm_memory *m, CUstream stream, struct mm_step_info *ret_info);
	int (*step_abandon)(struct mm_memory *m, CUstream stream);
	int (*layer_begin)(struct mm_memory *m, uint32_t layer, CUstream stream);
	int (*layer_end)(struct mm_memory *m, uint32_t layer, CUstream stream);
	/* as mm_step_wants_times() and its like; what is timed is the memory's own */
	bool (*step_wants_times)(struct mm_memory *m);
	int (*step_capture)(struct mm_memory *m, bool timed);
	int (*step_replay)(struct mm_memory *m, bool timed);
	const char *(*error)(struct mm_memory *m); /* of the last failed call */
	void (*close)(struct mm_memory *m);
};

struct mm_memory {
	const struct mm_memory_ops *ops; /* NULL: closed */
	const struct mm_gpu_api *gpu;
	void *state;
	uint64_t page_bytes;        /* chunks are multiples of this */
	uint64_t kv_pages_max;      /* that an arena can ever have */
	struct mm_model_info model; /* zero: not known */
	bool swaps;                 /* the policy has use for engines that swap */
	bool fixed;                 /* KV never grows beyond its share, and is never given back */
};

/**
 * mm_memory_plain_open() - load the model into memory of our own
 * @gpu:        open; the context is current
 * @dir:        of the model
 * @model_opts: packing list; NULL: none
 * @ret_memory: written only on success; give back with mm_memory_close()
 * @err:        gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mm_memory_plain_open(const struct mm_gpu_api *gpu, const char *dir,
			 const struct mm_model_opts *model_opts, struct mm_memory *ret_memory,
			 char *err);

/**
 * mm_memory_mmd_open() - connect to mmd and load the model through it
 * @opts:       of the client
 * @dir:        of the model
 * @model_opts: packing list; NULL: none
 * @ret_memory: written only on success; give back with mm_memory_close()
 * @err:        gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno of mm_client_open() (then *@ret_connected is false) or mm_model_load().
 */
int mm_memory_mmd_open(const struct mm_client_opts *opts, const char *dir,
		       const struct mm_model_opts *model_opts, struct mm_memory *ret_memory,
		       bool *ret_connected, char *err);

/**
 * mm_memory_mmd_take_turns() - share the device's time with the other tenants that do
 * @m:     of mm_memory_mmd_open()
 * @turns: copied
 * @err:   gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno of mm_turn_join().
 */
int mm_memory_mmd_take_turns(struct mm_memory *m, const struct mm_turn_opts *turns, char *err);

void mm_memory_close(struct mm_memory *memory);
