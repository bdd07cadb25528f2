/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig_cold - streams cold blocks for the rig's engine, as mmd does
 *
 * Concept:    each class of layers has a transfer ahead: that of its first layer is done before
 *             a step begins, with the live bits of then, and each further one when the layer
 *             before it in the class has been computed. Memory that is not streamed is filled
 *             with NaN. Limits change and windows are answered at random times, and versions are
 *             acknowledged when each class has begun a transfer with them.
 * Threading:  one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/mmserve/engine/memory.h"

struct rig_cold {
	const struct mm_gpu_api *gpu;
	CUdeviceptr arena;
	uint64_t chunk_bytes;
	const uint8_t *space;
	struct mm_cold_opts opts; /* size 0: not declared */
	uint32_t classes, window_first, window_chunks, next_first, next_chunks;
	uint64_t live[MM_COLD_MAX / 64], version, seen[MM_COLD_CLASSES_MAX];
	uint32_t lowest; /* chunk that was in any window; 0: there was none */
	struct mm_cold_state state;
	uint32_t streamed; /* the limit that counts: that which the engine has seen, or less */
};

int rig_cold_open(struct rig_cold *c, const struct mm_cold_opts *opts, uint32_t *ret_classes);
int rig_cold_window(struct rig_cold *c, uint32_t first_chunk, uint32_t chunks);
int rig_cold_set(struct rig_cold *c, uint32_t entry, bool live);
uint64_t rig_cold_commit(struct rig_cold *c);
int rig_cold_state(struct rig_cold *c, struct mm_cold_state *ret_state);

/* The window that was requested is in force. */
void rig_cold_answer(struct rig_cold *c);

/* Is @chunk in the window, or on its way to it? */
bool rig_cold_names(const struct rig_cold *c, uint32_t chunk);

/* A step has ended, or the window has begun: the first layer of each class is streamed. */
void rig_cold_restart(struct rig_cold *c);

/*
 * The limit changes after the engine has read it. True: it falls, and counts at once, so that the
 * step that was planned may not begin.
 */
bool rig_cold_cut(struct rig_cold *c, uint32_t limit);

/* @layer is enqueued on @stream: the next one of its class is streamed behind it. */
void rig_cold_layer_end(struct rig_cold *c, uint32_t layer, CUstream stream);
