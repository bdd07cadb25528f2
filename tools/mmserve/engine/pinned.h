/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinned - host memory that the device copies from and to by itself
 *
 * Concept:   the driver's own, or, where it offers none, ours that it has registered.
 * Threading: none; the context is current.
 */
#pragma once

#include <stdint.h>

#include "mm/gpu.h"

struct mm_pinned { /* zeroed: none */
	void *at;
	bool registered; /* at is ours, from aligned_alloc() */
};

/**
 * mm_pinned_alloc() - get zeroed pinned memory
 * @gpu:   open
 * @bytes: at least 1
 * @ret:   written only on success; give back with mm_pinned_free()
 *
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; the driver's result.
 */
CUresult mm_pinned_alloc(const struct mm_gpu_api *gpu, uint64_t bytes, struct mm_pinned *ret);

/* Nothing may be copied from or to it any more. */
void mm_pinned_free(const struct mm_gpu_api *gpu, struct mm_pinned *p);
