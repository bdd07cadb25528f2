/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepper - a tenant that computes one and the same batch, step after step
 *
 * Concept:    mmserve's forward pass with memory from mmd, without requests and a scheduler: each
 *             sequence of the batch decodes the token at the end of its context, again and again.
 *             So every step costs the same, and steps differ only by their plan. A step's time is
 *             device time, by events on the stream: from the end of the previous step to its own
 *             end.
 * Ownership:  mm_stepper_close() frees everything; accepts a struct that is zeroed or half-opened.
 * Threading:  one thread.
 */
#pragma once

#include "tools/mmserve/engine/forward.h"

struct mm_stepper_opts {
	const char *model;  /* folder */
	const char *socket; /* mmd's socket for tenants */
	const char *kernels;
	uint32_t batch;   /* sequences */
	uint32_t context; /* tokens per sequence, with the one that is decoded */
	uint32_t cold;    /* KV blocks in host memory that may be streamed, at most */
};

struct mm_stepper {
	struct mm_gpu_api gpu;
	CUdevice device;
	bool retained;
	struct mm_memory memory;
	struct mm_arch arch;
	struct mm_weights weights;
	struct mm_kv_arena kv;
	struct mm_forward forward;
	CUevent ends[2]; /* ends of the last two steps */
	uint64_t steps;
	uint32_t cold; /* entries that are declared */
};

/**
 * mm_stepper_open() - connect, load the model, get the KV memory of the batch
 * @s:   zeroed
 * @err: gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * The variables MM_SOFTGPU_* of the environment describe the device. Return: 0; negative errno.
 */
int mm_stepper_open(struct mm_stepper *s, const struct mm_stepper_opts *opts, char *err);

/*
 * Has each of the next steps stream @entries blocks, at most as many as were declared. Their bytes
 * are those of the swap space as it is: no sequence reads them. Return: 0; negative errno.
 */
int mm_stepper_stream(struct mm_stepper *s, uint32_t entries, char *err);

/**
 * mm_stepper_step() - compute a step, and wait for it
 * @ret_ns: device time since the end of the previous step; 0 for the first one
 *
 * Return: 0; negative errno.
 */
int mm_stepper_step(struct mm_stepper *s, uint64_t *ret_ns, char *err);

void mm_stepper_close(struct mm_stepper *s);
