/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softblas - cuBLAS for the software GPU: the few symbols that kernels/blas/cublas.h names
 *
 * Concept:    stands in for libcublas where there is no GPU (MM_CUBLAS_LIB), so that callers of
 *             cuBLAS are tested with real products: transposes, leading dimensions, padding,
 *             streams. A product is a kernel of this library's own, launched on the handle's
 *             stream: in stream order, captured into graphs, with the faults of any kernel.
 * Strictness: arguments are refused as cuBLAS documents it, and with the same status. Two rules are
 *             stricter: pointers must be aligned to their element, and a product may be captured
 *             only with a workspace of the caller's (cuBLAS would allocate inside the graph).
 * Threading:  as cuBLAS: a handle is used by one thread at a time.
 * Limits:     inputs both F32, F16 or BF16, C F32, scalars on the host.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/blas/cublas.h"
#include "kernels/softblas/product.h"
#include "libclient/base/base.h"

#define VERSION             130000
#define WORKSPACE_ALIGNMENT 256u

struct cublasContext {
	struct mm_gpu_api gpu;
	CUmodule module;
	CUfunction product;
	CUstream stream;
	bool own_workspace; /* the caller set a workspace */
};

/*
 * Declares the exported symbols as the table of kernels/blas/cublas.h has them, so that the
 * compiler compares them.
 */
#define DECLARE(result, name, params) MM_EXPORT result name params;
MM_CUBLAS_ENTRIES(DECLARE)

static cublasStatus_t open_handle(struct cublasContext *h)
{
	CUcontext context = NULL;
	Dl_info info;

	if (mm_gpu_open("software", &h->gpu, NULL, 0))
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (h->gpu.cuCtxGetCurrent(&context) || !context)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	/* This library is its own module of kernels. */
	if (!dladdr((const void *)&cublasCreate_v2, &info) || !info.dli_fname)
		return CUBLAS_STATUS_INTERNAL_ERROR;
	if (h->gpu.cuModuleLoad(&h->module, info.dli_fname) ||
	    h->gpu.cuModuleGetFunction(&h->product, h->module, SOFTBLAS_KERNEL))
		return CUBLAS_STATUS_ALLOC_FAILED;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *ret_handle)
{
	struct cublasContext *h;
	cublasStatus_t s;

	if (!ret_handle)
		return CUBLAS_STATUS_INVALID_VALUE;
	h = calloc(1, sizeof(*h));
	if (!h)
		return CUBLAS_STATUS_ALLOC_FAILED;
	s = open_handle(h);
	if (s) {
		cublasDestroy_v2(h);
		return s;
	}
	*ret_handle = h;
	return s;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
	if (!h)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (h->module)
		h->gpu.cuModuleUnload(h->module);
	if (h->gpu.library)
		mm_gpu_close(&h->gpu);
	free(h);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t h, int *version)
{
	if (!version)
		return CUBLAS_STATUS_INVALID_VALUE;
	(void)h; /* may be NULL */
	*version = VERSION;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, CUstream stream)
{
	if (!h)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	h->stream = stream;
	h->own_workspace = false; /* "unconditionally resets the workspace" */
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *workspace, size_t bytes)
{
	if (!h)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT || (bytes && !workspace))
		return CUBLAS_STATUS_INVALID_VALUE;
	h->own_workspace = true;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
	const unsigned int known = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
	const unsigned int base = (unsigned int)mode & ~known;

	if (!h)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	return base == CUBLAS_DEFAULT_MATH || base == CUBLAS_PEDANTIC_MATH
		       ? CUBLAS_STATUS_SUCCESS
		       : CUBLAS_STATUS_INVALID_VALUE;
}

static bool dtype_of(cudaDataType type, uint16_t *ret_dtype)
{
	switch (type) {
	case CUDA_R_32F:
		*ret_dtype = MM_DTYPE_F32;
		return true;
	case CUDA_R_16F:
		*ret_dtype = MM_DTYPE_F16;
		return true;
	case CUDA_R_16BF:
		*ret_dtype = MM_DTYPE_BF16;
		return true;
	default:
		return false;
	}
}

static bool operation_is_valid(cublasOperation_t op)
{
	return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

/*
 * @rows: of the matrix as it is stored. @ret gets all but the transposition. Return: false, an
 * argument is invalid.
 */
static bool matrix_check(const void *at, cudaDataType type, int ld, int rows,
			 struct softblas_matrix *ret)
{
	if (!dtype_of(type, &ret->dtype) || ld < MM_MAX(rows, 1) || !at ||
	    (uintptr_t)at % (ret->dtype == MM_DTYPE_F32 ? 4 : 2))
		return false;
	ret->va = (uintptr_t)at;
	ret->ld = (uint32_t)ld;
	return true;
}

static cublasStatus_t product_launch(struct cublasContext *h, struct softblas_args *args)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	void *params[] = { args };

	if (h->gpu.cuStreamIsCapturing && h->gpu.cuStreamIsCapturing(h->stream, &capture))
		return CUBLAS_STATUS_EXECUTION_FAILED;
	if (capture != CU_STREAM_CAPTURE_STATUS_NONE && !h->own_workspace)
		return CUBLAS_STATUS_ALLOC_FAILED;
	if (h->gpu.cuLaunchKernel(h->product, 1, 1, 1, 1, 1, 1, 0, h->stream, params, NULL))
		return CUBLAS_STATUS_EXECUTION_FAILED;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m,
			    int n, int k, const void *alpha, const void *a, cudaDataType a_type,
			    int lda, const void *b, cudaDataType b_type, int ldb, const void *beta,
			    void *c, cudaDataType c_type, int ldc, cublasComputeType_t compute,
			    cublasGemmAlgo_t algo)
{
	struct softblas_args args = { .m = (uint32_t)m, .n = (uint32_t)n, .k = (uint32_t)k };

	if (!h)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (!operation_is_valid(op_a) || !operation_is_valid(op_b) || m < 0 || n < 0 || k < 0 ||
	    !alpha || !beta)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (!m || !n)
		return CUBLAS_STATUS_SUCCESS;
	if (a_type != b_type || c_type != CUDA_R_32F || algo != CUBLAS_GEMM_DEFAULT ||
	    (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (!matrix_check(a, a_type, lda, op_a == CUBLAS_OP_N ? m : k, &args.a) ||
	    !matrix_check(b, b_type, ldb, op_b == CUBLAS_OP_N ? k : n, &args.b) ||
	    !matrix_check(c, c_type, ldc, m, &args.c))
		return CUBLAS_STATUS_INVALID_VALUE;
	args.a.transposed = op_a != CUBLAS_OP_N;
	args.b.transposed = op_b != CUBLAS_OP_N;
	memcpy(&args.alpha, alpha, sizeof(args.alpha));
	memcpy(&args.beta, beta, sizeof(args.beta));
	return product_launch(h, &args);
}

const char *cublasGetStatusString(cublasStatus_t status)
{
	switch (status) {
#define NAME(name, value) \
	case name:        \
		return #name;
		MM_CUBLAS_STATUSES(NAME)
	default:
		return "<unknown>";
	}
}
