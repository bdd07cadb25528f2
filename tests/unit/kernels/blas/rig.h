/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas rig - matrix products on the device that MM_DRIVER names
 *
 * Concept:    the software GPU, the host kernels and libmm-softblas.so, unless MM_DRIVER says cuda:
 *             then the CUDA kernels and the system's cuBLAS. Matrices are made on the host, and y
 *             comes back with all that is around it.
 */
#pragma once

#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/blas/backend.h"

#define RIG_GUARD UINT32_C(0x5a5a5a5a) /* what y holds before */

struct rig {
	struct mm_gpu_api gpu;
	bool software;
	CUmodule module;
	CUstream stream;
};

extern struct rig rig;

struct product {
	uint32_t tokens, outputs, k;
	enum mm_dtype dtype;
	uint32_t column; /* of y where the product goes */
	uint32_t y_stride;
	uint32_t y_rows; /* as mm_gemm_args has it */
	const float *x;  /* [tokens][k] */
	const void *w;   /* dtype [outputs][k] */
};

/* For main(): 0; 77 where there is no such driver. */
int rig_start(void);

/* Fails the test if it cannot be opened. */
struct mm_gemm *rig_open(enum mm_gemm_kind kind, bool fast, uint32_t max_y_stride);

/* Return only when the device has the bytes, for work in whatever stream. */
void rig_write(CUdeviceptr va, const void *from, size_t bytes);
CUdeviceptr rig_upload(const void *from, size_t bytes);

/* y as it is in memory: max(tokens, y_rows) + 1 rows of y_stride; free() it. */
uint32_t *rig_multiply(struct mm_gemm *gemm, const struct product *p);

/* Elements of y of a row. */
const float *rig_row(const struct product *p, const uint32_t *y, uint32_t row);

/* Random: in -1..1, or whole numbers in -4..4, which any order of sums gets right. */
float *rig_floats(size_t n, bool whole);
void *rig_weights(size_t n, enum mm_dtype dtype, bool whole);
double rig_weight(const void *w, size_t i, enum mm_dtype dtype);
