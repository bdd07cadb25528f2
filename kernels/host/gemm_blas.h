/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_blas - mm_gemm by OpenBLAS, for the fast module
 *
 * Concept:   weights narrower than F32 are widened in stripes that fit the cache. OpenBLAS uses one
 *            thread, the stream's own. Rounding depends on the batch, so token ids may depend on it
 *            too (kernels/args/gemm.h).
 * Threading: any thread, one call per thread at a time.
 */
#pragma once

#include "kernels/args/gemm.h"

void mm_gemm_blas(const struct mm_gemm_args *a);
