/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepper - a tenant that computes one and the same batch, step after step
 *
 * Concept:    mmserve's forward pass with memory from mmd, without requests and a scheduler: as
 *             many sequences as the batch has, each decodes the token at the end of its context,
 *             again and again. So every step costs the same, and what differs between two steps is
 *             the plan's. A step's time is the device's: from the end of the step before to its own
 *             end, by events on the stream.
 * Ownership:  mm_stepper_close() gives back all; accepts zeroed and half-opened ones.
 * Threading:  one thread.
 */
#pragma once

#include "tools/mmserve/engine/forward.h"

struct mm_stepper_opts {
	const char *model;  /* folder */
	const char *socket; /* of mmd */
	const char *kernels;
	uint32_t batch;   /* sequences */
	uint32_t context; /* tokens of each, with the one that is decoded */
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
	CUevent ends[2]; /* of the last steps */
	uint64_t steps;
};

/**
 * mm_stepper_open() - connect, load the model, get the KV memory of the batch
 * @s:   zeroed
 * @err: gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * The device is what MM_SOFTGPU_* in the environment say. Return: 0; negative errno.
 */
int mm_stepper_open(struct mm_stepper *s, const struct mm_stepper_opts *opts, char *err);

/**
 * mm_stepper_step() - compute a step, and wait for it
 * @ret_ns: device time since the end of the step before; 0 for the first
 *
 * Return: 0; negative errno.
 */
int mm_stepper_step(struct mm_stepper *s, uint64_t *ret_ns, char *err);

void mm_stepper_close(struct mm_stepper *s);
