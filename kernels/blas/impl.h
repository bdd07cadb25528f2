/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas impl - the parts that the backends share
 *
 * Concept:   a backend embeds struct mm_gemm as its first member and fills the table.
 * Ownership: as kernels/blas/backend.h.
 * Threading: as kernels/blas/backend.h.
 */
#pragma once

#include "kernels/blas/backend.h"
#include "kernels/launch/launch.h"

struct mm_gemm_ops {
	uint32_t (*room)(const struct mm_gemm *gemm, uint32_t rows);
	CUresult (*multiply)(struct mm_gemm *gemm, const struct mm_gemm_args *a, CUstream stream);
	void (*close)(struct mm_gemm *gemm);
};

struct mm_gemm {
	const struct mm_gemm_ops *ops;
	const struct mm_gpu_api *gpu;
	struct mm_gemm_opts opts;
	char description[96];
};

struct mm_gemm_error { /* buffer for the line with the reason */
	char *text;
	size_t bytes;
};

void __attribute__((format(printf, 2, 3)))
mm_gemm_fail(const struct mm_gemm_error *err, const char *format, ...);

/*
 * Finds a kernel of opts.module. Return: 0; -ENOENT or another negative errno, with the reason in
 * @err.
 */
int mm_gemm_find(const struct mm_gemm *gemm, enum mm_kernel kernel, CUfunction *ret_function,
		 const struct mm_gemm_error *err);

/* @args: the kernel's struct, as mm_launch_shape() takes it. */
CUresult mm_gemm_launch(const struct mm_gemm *gemm, enum mm_kernel kernel, CUfunction function,
			void *args, CUstream stream);

int mm_gemm_cublas_open(const struct mm_gpu_api *gpu, const struct mm_gemm_opts *opts,
			struct mm_gemm **ret_gemm, const struct mm_gemm_error *err);
int mm_gemm_kernel_open(const struct mm_gpu_api *gpu, const struct mm_gemm_opts *opts,
			struct mm_gemm **ret_gemm, const struct mm_gemm_error *err);
