/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - statistics of a software GPU that other processes use
 *
 * Concept:   The library reads its environment once per process, and a benchmark uses one device
 *            after the other, so a child process reads the statistics and ends.
 * Threading: one thread; the process is forked.
 */
#pragma once

#include <stdbool.h>

#include "mm/gpu.h"
#include "mm/softgpu.h"

/* Does this name of a driver, as mm_gpu_open() takes it, mean a software GPU? */
bool mm_device_is_software(const char *driver);

/**
 * mm_device_stats() - read the statistics of device 0 of the environment's MM_SOFTGPU_DIR
 * @ret_stats: written only on success
 *
 * Return: 0; -ENODEV the device cannot be opened; another negative errno.
 */
int mm_device_stats(struct mm_softgpu_stats *ret_stats);
