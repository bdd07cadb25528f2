/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_settings - the environment's settings for the devices of this process
 *
 * Concept:   the variables MM_SOFTGPU_*, parsed and checked one by one. A mistake is a line on
 *            stderr, because the driver's ABI has no place for a message.
 * Ownership: strings point into the environment.
 * Threading: safe from any thread while nobody changes the environment.
 */
#pragma once

#include "kernels/softgpu/device.h"

/* A value of zero and an empty string stand for "not set". */
struct sg_settings {
	uint64_t memory_bytes, granularity_bytes;
	const char *name;
	CUuuid uuid;
	bool has_uuid;
	unsigned int device[SG_DEVICES_MAX]; /* device number of each ordinal */
	unsigned int n_devices;
	unsigned int there;     /* number of GPUs, visible or not */
	unsigned int instances; /* MIG instances of the first GPU; 0: it is not in MIG mode */
	struct sg_timing timing;
	bool has_dilation;
};

/* Writes a line to stderr. Return: @result. */
CUresult MM_PRINTF(2, 3) sg_error(CUresult result, const char *format, ...);

/* @ret: zeroed. Return: CUDA_SUCCESS; INVALID_VALUE, after a line on stderr. */
CUresult sg_settings_read(struct sg_settings *ret);

/* Return: the memory that a new device gets. */
uint64_t sg_settings_memory(const struct sg_settings *w);

/* Return: the name that a new device gets. */
const char *sg_settings_name(const struct sg_settings *w);
