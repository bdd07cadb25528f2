/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm - the arguments of the matrix product: y[t][o] = sum over k of x[t][k] * w[o][k]
 *
 * Concept:    one kernel name, mm_gemm, in every module. The host's, and the CUDA one with it, is
 *             *batch-invariant*: element k goes to partial sum k mod 16, each partial sum is taken
 *             in order of k, and the 16 are added in one fixed tree, without contraction into FMA:
 *             the same bits on every machine and instruction set, for every batch. The host's fast
 *             module uses OpenBLAS, whose rounding depends on the batch. cuBLAS is in no module:
 *             see kernels/blas.
 * Invariants: y must not overlap x or w. Any shape; no alignment beyond the element's own.
 * Threading:  runs on the calling stream's thread alone.
 */
#pragma once

#include "kernels/args/args.h"

#define MM_GEMM_LANES 16u

struct mm_gemm_args {
	uint64_t x_va; /* f32 [tokens][k] */
	uint64_t w_va; /* dtype [outputs][k] */
	uint64_t y_va; /* f32 [tokens][y_stride], the first outputs of each row are written */
	uint32_t tokens;
	uint32_t outputs;
	uint32_t k;
	uint32_t dtype;
	uint32_t y_stride; /* in elements */
	uint32_t y_rows;   /* rows of y, 0: tokens; rows from tokens on may be overwritten */
};

static_assert(sizeof(struct mm_gemm_args) == 48, "no padding: the struct crosses compilers");
