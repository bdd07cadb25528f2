/* SPDX-License-Identifier: Apache-2.0 */
/* A cuBLAS of version 11, to which MM_CUBLAS_LIB may point by mistake. */
#include "kernels/blas/cublas.h"

#include "libclient/base/base.h"

#define DECLARE(result, name, params) MM_EXPORT result name params;
MM_CUBLAS_ENTRIES(DECLARE)

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
	*handle = (cublasHandle_t)(void *)handle;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
	(void)handle;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
	(void)handle;
	*version = 111103;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream)
{
	(void)handle;
	(void)stream;
	return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
	(void)handle;
	(void)workspace;
	(void)bytes;
	return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
	(void)handle;
	(void)mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
			    int m, int n, int k, const void *alpha, const void *a,
			    cudaDataType a_type, int lda, const void *b, cudaDataType b_type,
			    int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
			    cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
	(void)handle, (void)op_a, (void)op_b, (void)m, (void)n, (void)k, (void)alpha, (void)a;
	(void)a_type, (void)lda, (void)b, (void)b_type, (void)ldb, (void)beta, (void)c;
	(void)c_type, (void)ldc, (void)compute, (void)algo;
	return CUBLAS_STATUS_NOT_SUPPORTED;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
	(void)status;
	return "of old";
}
