/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - what a software GPU that others use says of itself
 *
 * Concept:   the library reads its environment once in a process, and a benchmark uses one device
 *            after the other: so a child asks, and is gone.
 */
#pragma once

#include <stdbool.h>

#include "mm/gpu.h"
#include "mm/softgpu.h"

/* Is that a software GPU? By its name, as mm_gpu_open() takes it. */
bool mm_device_is_software(const char *driver);

/**
 * mm_device_stats() - of device 0 of the environment's MM_SOFTGPU_DIR
 * @ret_stats: written only on success
 *
 * Return: 0; -ENODEV it cannot be opened; another negative errno.
 */
int mm_device_stats(struct mm_softgpu_stats *ret_stats);
