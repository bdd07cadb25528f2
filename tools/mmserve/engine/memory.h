/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - the device memory of the engine's weights and KV: its own, or mmd's
 *
 * Concept:    one table of functions with two implementations. `plain` (memory_plain.c) allocates
 *             with cuMemAlloc, and its memory never grows or shrinks: it is the engine without mmd,
 *             the reference that token ids are compared with. `mmd` (memory_mmd.c) is libclient.
 *             Each function means what the function of the same name in mm/client.h means.
 * Ownership:  mm_memory_*_open() fills the caller's struct; mm_memory_close() empties it.
 * Threading:  the engine's thread only.
 */
#pragma once

#include <stdbool.h>

#include "mm/client.h"
#include "mm/client_cold.h"
#include "mm/gpu.h"

struct mm_memory;

struct mm_memory_ops {
	int (*tensor)(struct mm_memory *m, const char *name, struct mm_tensor *ret_tensor);
	const void *(*store)(struct mm_memory *m, const char *name, uint64_t *ret_bytes);
	/* @ret_va: [opts->ranges] */
	int (*kv_open)(struct mm_memory *m, const struct mm_kv_opts *opts, CUdeviceptr *ret_va);
	/* @first: like mm_kv_want_from(); 0: like mm_kv_want() */
	int (*kv_want)(struct mm_memory *m, uint32_t chunks_total, uint32_t first);
	void (*kv_usable)(struct mm_memory *m, uint64_t *ret_bitmap, size_t words);
	int (*kv_release)(struct mm_memory *m, uint32_t chunk);
	uint32_t (*kv_owed)(struct mm_memory *m); /* NULL: no chunk is ever reclaimed */
	/* These three are NULL if there is no swap space. */
	int (*swap_open)(struct mm_memory *m, uint64_t bytes);
	int (*swap)(struct mm_memory *m, bool in, const struct mm_swap_piece *pieces, uint32_t n,
		    uint64_t user_data);
	int (*swap_next)(struct mm_memory *m, struct mm_swap_done *ret_done);
	/* These are NULL if no block can be cold. */
	int (*cold_open)(struct mm_memory *m, const struct mm_cold_opts *opts,
			 uint32_t *ret_classes);
	int (*cold_window)(struct mm_memory *m, uint32_t first_chunk, uint32_t chunks);
	int (*cold_set)(struct mm_memory *m, uint32_t entry, bool live);
	uint64_t (*cold_commit)(struct mm_memory *m);
	int (*cold_state)(struct mm_memory *m, struct mm_cold_state *ret_state);
	int (*event_fd)(struct mm_memory *m); /* -1: there are never events */
	int (*next_event)(struct mm_memory *m, struct mm_event *ret_event);
	/* Return: the time in which plan changes kept steps from beginning. */
	uint64_t (*plan_held_ns)(struct mm_memory *m);
	void (*hint)(struct mm_memory *m, const struct mm_load_hint *hint);
	/* Return: 0 steps may run; -EAGAIN not before MM_EVENT_TURN_BEGIN. */
	int (*turn_want)(struct mm_memory *m);
	/* To be called between steps. Does nothing where tenants do not take turns. */
	int (*turn_yield)(struct mm_memory *m);
	int (*step_begin)(struct mm_memory *m);
	int (*step_end)(struct mm_memory *m, CUstream stream, struct mm_step_info *ret_info);
	int (*step_abandon)(struct mm_memory *m, CUstream stream);
	int (*layer_begin)(struct mm_memory *m, uint32_t layer, CUstream stream);
	int (*layer_end)(struct mm_memory *m, uint32_t layer, CUstream stream);
	/* Like mm_step_wants_times() and so on; the memory owns the times. */
	bool (*step_wants_times)(struct mm_memory *m);
	int (*step_capture)(struct mm_memory *m, bool timed);
	int (*step_replay)(struct mm_memory *m, bool timed);
	/* Return: the sentence of the last failed call. */
	const char *(*error)(struct mm_memory *m);
	void (*close)(struct mm_memory *m);
};

struct mm_memory {
	const struct mm_memory_ops *ops; /* NULL: closed */
	const struct mm_gpu_api *gpu;
	void *state;
	uint64_t page_bytes;        /* chunks are multiples of this */
	uint64_t kv_pages_max;      /* most pages that an arena can ever have */
	struct mm_model_info model; /* zero: not known */
	bool swaps;                 /* the policy is one under which engines swap */
	bool fixed;                 /* KV never grows beyond its share, and is never released */
};

/**
 * mm_memory_plain_open() - load the model into memory that the engine allocates itself
 * @gpu:        open; the context is current
 * @dir:        folder of the model
 * @model_opts: packing list; NULL: none
 * @ret_memory: written only on success; give back with mm_memory_close()
 * @err:        gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mm_memory_plain_open(const struct mm_gpu_api *gpu, const char *dir,
			 const struct mm_model_opts *model_opts, struct mm_memory *ret_memory,
			 char *err);

/**
 * mm_memory_mmd_open() - connect to mmd and load the model through it
 * @opts:          options of mm_client_open()
 * @dir:           folder of the model
 * @model_opts:    packing list; NULL: none
 * @ret_memory:    written only on success; give back with mm_memory_close()
 * @ret_reachable: always written: false if no mmd answered, true also if one refused
 * @err:           gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno of mm_client_open() or mm_model_load().
 */
int mm_memory_mmd_open(const struct mm_client_opts *opts, const char *dir,
		       const struct mm_model_opts *model_opts, struct mm_memory *ret_memory,
		       bool *ret_reachable, char *err);

/**
 * mm_memory_mmd_take_turns() - compute only in turns, like other tenants of the device that do
 * @m:     from mm_memory_mmd_open()
 * @turns: copied
 * @err:   gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno of mm_turn_join().
 */
int mm_memory_mmd_take_turns(struct mm_memory *m, const struct mm_turn_opts *turns, char *err);

void mm_memory_close(struct mm_memory *memory);
