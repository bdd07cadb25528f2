/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "kernels/blas/impl.h"

void mm_gemm_fail(const struct mm_gemm_error *err, const char *format, ...)
{
	va_list args;

	if (!err->text || !err->bytes)
		return;
	va_start(args, format);
	vsnprintf(err->text, err->bytes, format, args);
	va_end(args);
}

int mm_gemm_find(const struct mm_gemm *gemm, enum mm_kernel kernel, CUfunction *ret_function,
		 const struct mm_gemm_error *err)
{
	const char *name = mm_kernel_name(kernel);
	const CUresult r = mm_gpu_kernel(gemm->gpu, gemm->opts.module, name, ret_function);

	if (r)
		mm_gemm_fail(err, "%s: %s", name, mm_gpu_strerror(gemm->gpu, r));
	return mm_gpu_errno(r);
}

CUresult mm_gemm_launch(const struct mm_gemm *gemm, enum mm_kernel kernel, CUfunction function,
			void *args, CUstream stream)
{
	void *params[] = { args };
	struct mm_launch_shape s;

	mm_launch_shape(kernel, args, &s);
	return gemm->gpu->cuLaunchKernel(function, s.grid[0], s.grid[1], s.grid[2], s.block[0],
					 s.block[1], s.block[2], s.shared_bytes, stream, params,
					 NULL);
}

int mm_gemm_open(const struct mm_gpu_api *gpu, const struct mm_gemm_opts *opts,
		 struct mm_gemm **ret_gemm, char *err, size_t err_bytes)
{
	const struct mm_gemm_error to = { err, err ? err_bytes : 0 };

	switch (opts->kind) {
	case MM_GEMM_KERNEL:
		return mm_gemm_kernel_open(gpu, opts, ret_gemm, &to);
	case MM_GEMM_CUBLAS:
		return mm_gemm_cublas_open(gpu, opts, ret_gemm, &to);
	default:
		mm_gemm_fail(&to, "no such backend of matrix products");
		return -EINVAL;
	}
}

uint32_t mm_gemm_room(const struct mm_gemm *gemm, uint32_t rows)
{
	return gemm->ops->room(gemm, rows);
}

CUresult mm_gemm_multiply(struct mm_gemm *gemm, const struct mm_gemm_args *a, CUstream stream)
{
	if (!a->tokens || !a->outputs)
		return CUDA_SUCCESS;
	if (a->y_stride < a->outputs || (a->y_rows && a->y_rows < a->tokens))
		return CUDA_ERROR_INVALID_VALUE;
	return gemm->ops->multiply(gemm, a, stream);
}

const char *mm_gemm_describe(const struct mm_gemm *gemm)
{
	return gemm->description;
}

void mm_gemm_close(struct mm_gemm *gemm)
{
	if (gemm)
		gemm->ops->close(gemm);
}
