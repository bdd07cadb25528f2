/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that calls cuBLAS: y = x . w as a BLAS computes it. A row-major matrix is
 * column-major and transposed to a BLAS: w [outputs][k] is a k by outputs matrix of leading
 * dimension k, to be transposed; x [rows][k] is k by rows; y [rows][y_stride] is outputs by rows of
 * leading dimension y_stride.
 */
#include "kernels/blas/cublas.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/blas/impl.h"
#include "libclient/base/base.h"

#define ALIGNMENT       256u
#define WORKSPACE_BYTES ((size_t)32 << 20) /* the size that cuBLAS recommends on Hopper and later */

struct cublas_gemm {
	struct mm_gemm base; /* first */
	struct mm_cublas lib;
	cublasHandle_t handle;
	CUfunction narrow;
	CUdeviceptr memory; /* the workspace, then x, then y */
	CUdeviceptr x, y;   /* scratch */
	CUstream stream;    /* the stream that the handle is bound to, if bound */
	bool bound;
};

static CUresult status_to_result(cublasStatus_t status)
{
	switch (status) {
	case CUBLAS_STATUS_SUCCESS:
		return CUDA_SUCCESS;
	case CUBLAS_STATUS_NOT_INITIALIZED:
		return CUDA_ERROR_NOT_INITIALIZED;
	case CUBLAS_STATUS_ALLOC_FAILED:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case CUBLAS_STATUS_INVALID_VALUE:
		return CUDA_ERROR_INVALID_VALUE;
	case CUBLAS_STATUS_ARCH_MISMATCH:
	case CUBLAS_STATUS_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	case CUBLAS_STATUS_EXECUTION_FAILED:
		return CUDA_ERROR_LAUNCH_FAILED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static uint32_t cublas_room(const struct mm_gemm *gemm, uint32_t rows)
{
	return gemm->opts.fast ? rows : (uint32_t)mm_round_up(rows, gemm->opts.rows);
}

/* Setting a stream resets the workspace, so that it is set again, too. */
static CUresult handle_bind(struct cublas_gemm *g, CUstream stream)
{
	cublasStatus_t s;

	if (g->bound && g->stream == stream)
		return CUDA_SUCCESS;
	s = g->lib.cublasSetStream_v2(g->handle, stream);
	if (!s)
		s = g->lib.cublasSetWorkspace_v2(g->handle, (void *)(uintptr_t)g->memory,
						 g->base.opts.workspace_bytes);
	g->bound = !s;
	g->stream = stream;
	return status_to_result(s);
}

/* ---- x ---- */

/* Narrows all rows to 16 bits, padded with zeros to whole products. */
static CUresult x_narrow(const struct cublas_gemm *g, const struct mm_gemm_args *a)
{
	struct mm_narrow_args args = { .x_va = a->x_va,
				       .out_va = g->x,
				       .rows = a->tokens,
				       .padded_rows = cublas_room(&g->base, a->tokens),
				       .n = a->k,
				       .stride = a->k,
				       .dtype = a->dtype };

	return mm_gemm_launch(&g->base, MM_KERNEL_NARROW, g->narrow, &args, g->stream);
}

/*
 * Copies the F32 rows from @first on, which are fewer than a product has, and adds rows of zeros.
 */
static CUresult x_pad(const struct cublas_gemm *g, const struct mm_gemm_args *a, uint32_t first,
		      CUdeviceptr to)
{
	const struct mm_gpu_api *gpu = g->base.gpu;
	const size_t row = (size_t)a->k * sizeof(float), rows = a->tokens - first;
	CUresult r = gpu->cuMemcpyDtoDAsync(to, a->x_va + first * row, rows * row, g->stream);

	if (r)
		return r;
	return gpu->cuMemsetD32Async(to + rows * row, 0, (g->base.opts.rows - rows) * a->k,
				     g->stream);
}

/* Returns the address from which a product reads its @rows rows. */
static CUresult x_for_product(const struct cublas_gemm *g, const struct mm_gemm_args *a,
			      uint32_t first, uint32_t rows, CUdeviceptr *ret_x)
{
	if (a->dtype != MM_DTYPE_F32) {
		*ret_x = g->x + (CUdeviceptr)first * a->k * sizeof(uint16_t);
		return CUDA_SUCCESS;
	}
	if (first + rows <= a->tokens) {
		*ret_x = a->x_va + (CUdeviceptr)first * a->k * sizeof(float);
		return CUDA_SUCCESS;
	}
	*ret_x = g->x + a->x_va % ALIGNMENT; /* aligned like whole products: see backend.h */
	return x_pad(g, a, first, *ret_x);
}

/* ---- y ---- */

/* Copies the rows that have tokens from a product in scratch, and no element beside them. */
static CUresult y_copy_out(const struct cublas_gemm *g, const struct mm_gemm_args *a,
			   uint32_t first, CUdeviceptr from)
{
	const size_t pitch = (size_t)a->y_stride * sizeof(float);
	CUresult r = CUDA_SUCCESS;

	for (uint32_t t = first; t < a->tokens && !r; t++)
		r = g->base.gpu->cuMemcpyDtoDAsync(a->y_va + t * pitch, from + (t - first) * pitch,
						   a->outputs * sizeof(float), g->stream);
	return r;
}

static CUresult product_enqueue(const struct cublas_gemm *g, const struct mm_gemm_args *a,
				CUdeviceptr x, CUdeviceptr y, uint32_t rows)
{
	static const cudaDataType types[] = { [MM_DTYPE_F32] = CUDA_R_32F,
					      [MM_DTYPE_F16] = CUDA_R_16F,
					      [MM_DTYPE_BF16] = CUDA_R_16BF };
	const cublasComputeType_t compute =
		a->dtype == MM_DTYPE_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
	const float one = 1, zero = 0;

	return status_to_result(g->lib.cublasGemmEx(
		g->handle, CUBLAS_OP_T, CUBLAS_OP_N, (int)a->outputs, (int)rows, (int)a->k, &one,
		(const void *)(uintptr_t)a->w_va, types[a->dtype], (int)a->k,
		(const void *)(uintptr_t)x, types[a->dtype], (int)a->k, &zero, (void *)(uintptr_t)y,
		CUDA_R_32F, (int)a->y_stride, compute, CUBLAS_GEMM_DEFAULT));
}

static CUresult rows_multiply(const struct cublas_gemm *g, const struct mm_gemm_args *a,
			      uint32_t first, uint32_t rows)
{
	const bool fits = first + rows <= MM_MAX(a->tokens, a->y_rows);
	CUdeviceptr y = a->y_va + (CUdeviceptr)first * a->y_stride * sizeof(float), x;
	CUresult r;

	if (!fits) {
		if (a->y_stride > g->base.opts.max_y_stride)
			return CUDA_ERROR_INVALID_VALUE;
		y = g->y + a->y_va % ALIGNMENT;
	}
	r = x_for_product(g, a, first, rows, &x);
	if (!r)
		r = product_enqueue(g, a, x, y, rows);
	return r || fits ? r : y_copy_out(g, a, first, y);
}

static CUresult cublas_multiply(struct mm_gemm *gemm, const struct mm_gemm_args *a, CUstream stream)
{
	struct cublas_gemm *g = (struct cublas_gemm *)gemm;
	const struct mm_gemm_opts *o = &gemm->opts;
	const uint32_t rows = o->fast ? a->tokens : o->rows;
	CUresult r;

	if (a->tokens > o->max_tokens || a->k > o->max_k || a->dtype < MM_DTYPE_F32 ||
	    a->dtype > MM_DTYPE_BF16 || a->y_stride > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	r = handle_bind(g, stream);
	if (!r && a->dtype != MM_DTYPE_F32)
		r = x_narrow(g, a);
	for (uint32_t first = 0; first < a->tokens && !r; first += rows)
		r = rows_multiply(g, a, first, rows);
	return r;
}

/* ---- open and close ---- */

static void cublas_close(struct mm_gemm *gemm)
{
	struct cublas_gemm *g = (struct cublas_gemm *)gemm;

	if (g->handle)
		g->lib.cublasDestroy_v2(g->handle);
	if (g->memory)
		gemm->gpu->cuMemFree(g->memory);
	free(g);
}

static int scratch_allocate(struct cublas_gemm *g, const struct mm_gemm_error *err)
{
	const struct mm_gemm_opts *o = &g->base.opts;
	const size_t row = (size_t)o->max_k * sizeof(float);
	const size_t narrowed = cublas_room(&g->base, o->max_tokens) * row / 2;
	const size_t padded = o->fast ? 0 : o->rows * row + ALIGNMENT;
	const size_t x_bytes = mm_round_up(MM_MAX(narrowed, padded), ALIGNMENT);
	const size_t y_bytes =
		o->fast || !o->max_y_stride
			? 0
			: (size_t)o->rows * o->max_y_stride * sizeof(float) + ALIGNMENT;
	const size_t workspace = mm_round_up(o->workspace_bytes, ALIGNMENT);
	const CUresult r = g->base.gpu->cuMemAlloc(&g->memory, workspace + x_bytes + y_bytes);

	if (r) {
		mm_gemm_fail(err, "device memory for matrix products: %s",
			     mm_gpu_strerror(g->base.gpu, r));
		return mm_gpu_errno(r);
	}
	g->x = g->memory + workspace;
	g->y = g->x + x_bytes;
	return 0;
}

static int handle_open(struct cublas_gemm *g, const struct mm_gemm_error *err)
{
	int version = 0, mode = CUBLAS_DEFAULT_MATH;
	cublasStatus_t s = g->lib.cublasCreate_v2(&g->handle);

	mode |= CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
	if (!s)
		s = g->lib.cublasGetVersion_v2(g->handle, &version);
	if (!s)
		s = g->lib.cublasSetMathMode(g->handle, (cublasMath_t)mode);
	if (s) {
		mm_gemm_fail(err, "cuBLAS: %s", g->lib.cublasGetStatusString(s));
		return mm_gpu_errno(status_to_result(s));
	}
	if (version < MM_CUBLAS_VERSION_MIN) {
		mm_gemm_fail(err, "cuBLAS: version %d.%d is too old; 12 or later is needed",
			     version / 10000, version / 100 % 100);
		return -ENOSYS;
	}
	snprintf(g->base.description, sizeof(g->base.description), "cublas %d.%d.%d, %s",
		 version / 10000, version / 100 % 100, version % 100,
		 g->base.opts.fast ? "fast" : "deterministic");
	return 0;
}

static int cublas_check_opts(const struct mm_gemm_opts *o, const struct mm_gemm_error *err)
{
	if (o->rows && o->rows % MM_GEMM_ROWS == 0 && o->max_tokens &&
	    o->max_tokens <= INT_MAX / 2 && o->max_k && o->max_k <= INT_MAX / 4)
		return 0;
	mm_gemm_fail(err,
		     "matrix products of %u rows, %u tokens by %u: rows must be a multiple of %u, "
		     "sizes above 0",
		     o->rows, o->max_tokens, o->max_k, MM_GEMM_ROWS);
	return -EINVAL;
}

int mm_gemm_cublas_open(const struct mm_gpu_api *gpu, const struct mm_gemm_opts *opts,
			struct mm_gemm **ret_gemm, const struct mm_gemm_error *err)
{
	static const struct mm_gemm_ops ops = { cublas_room, cublas_multiply, cublas_close };
	struct cublas_gemm *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		mm_gemm_fail(err, "out of memory");
		return -ENOMEM;
	}
	g->base = (struct mm_gemm){ .ops = &ops, .gpu = gpu, .opts = *opts };
	if (!opts->rows)
		g->base.opts.rows = MM_GEMM_ROWS;
	if (!opts->workspace_bytes)
		g->base.opts.workspace_bytes = WORKSPACE_BYTES;
	r = cublas_check_opts(&g->base.opts, err);
	if (!r)
		r = mm_cublas_load(&g->lib, err->text, err->bytes);
	if (!r)
		r = mm_gemm_find(&g->base, MM_KERNEL_NARROW, &g->narrow, err);
	if (!r)
		r = handle_open(g, err);
	if (!r)
		r = scratch_allocate(g, err);
	if (r) {
		cublas_close(&g->base);
		return r;
	}
	*ret_gemm = &g->base;
	return 0;
}
