/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned - host memory that the device can copy from and to by itself
 *
 * Concept:   the driver allocates the memory; if it cannot, the memory comes from aligned_alloc()
 *            and is registered with the driver.
 * Ownership: mm_pinned_free() frees what mm_pinned_alloc() returned.
 * Threading: none; the context is current.
 */
#pragma once

#include <stdint.h>

#include "mm/gpu.h"

struct mm_pinned { /* zeroed: no memory */
	void *at;
	bool registered; /* at is from aligned_alloc() */
};

/**
 * mm_pinned_alloc() - allocate zeroed pinned memory
 * @gpu:   open
 * @bytes: at least 1
 * @ret:   written only on success; give back with mm_pinned_free()
 *
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; the driver's result.
 */
CUresult mm_pinned_alloc(const struct mm_gpu_api *gpu, uint64_t bytes, struct mm_pinned *ret);

/* Frees the memory, which no copy may use any more. Accepts a zeroed one. */
void mm_pinned_free(const struct mm_gpu_api *gpu, struct mm_pinned *p);
