/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas cublas - the few symbols of cuBLAS that we use, found at run time
 *
 * Concept:    as mm/gpu.h does for the driver: the library's own names and signatures in a table,
 *             types declared here so that no toolkit is needed, and checked against cublas_api.h by
 *             kernels/blas/check.c where there is one. MM_CUBLAS_LIB names a library to load
 *             instead, such as libmm-softblas.so, which works on the software GPU.
 * Ownership:  a library that was loaded stays: cuBLAS registers its code with the driver for the
 *             life of the process.
 * Threading:  a filled table is read-only; a handle is used by one thread at a time.
 * Limits:     cuBLAS 12 and 13.
 */
#pragma once

#include <stddef.h>

#include "mm/gpu.h"

#define MM_CUBLAS_VERSION_MIN 120000 /* 12.0 */

#define MM_CUBLAS_STATUSES(X)                 \
	X(CUBLAS_STATUS_SUCCESS, 0)           \
	X(CUBLAS_STATUS_NOT_INITIALIZED, 1)   \
	X(CUBLAS_STATUS_ALLOC_FAILED, 3)      \
	X(CUBLAS_STATUS_INVALID_VALUE, 7)     \
	X(CUBLAS_STATUS_ARCH_MISMATCH, 8)     \
	X(CUBLAS_STATUS_MAPPING_ERROR, 11)    \
	X(CUBLAS_STATUS_EXECUTION_FAILED, 13) \
	X(CUBLAS_STATUS_INTERNAL_ERROR, 14)   \
	X(CUBLAS_STATUS_NOT_SUPPORTED, 15)    \
	X(CUBLAS_STATUS_LICENSE_ERROR, 16)
#define MM_CUBLAS_OPERATIONS(X) X(CUBLAS_OP_N, 0) X(CUBLAS_OP_T, 1) X(CUBLAS_OP_C, 2)
#define MM_CUBLAS_MATHS(X)         \
	X(CUBLAS_DEFAULT_MATH, 0)  \
	X(CUBLAS_PEDANTIC_MATH, 2) \
	X(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)
#define MM_CUBLAS_COMPUTES(X) X(CUBLAS_COMPUTE_32F, 68) X(CUBLAS_COMPUTE_32F_PEDANTIC, 69)
#define MM_CUBLAS_ALGOS(X)    X(CUBLAS_GEMM_DEFAULT, -1)
#define MM_CUBLAS_TYPES(X)    X(CUDA_R_32F, 0) X(CUDA_R_16F, 2) X(CUDA_R_16BF, 14)

#ifndef CUBLAS_API_H_ /* cublas_api.h was not included before */
#define MM_CUBLAS_ENUMERATOR(name, value) name = value,
typedef enum { MM_CUBLAS_STATUSES(MM_CUBLAS_ENUMERATOR) } cublasStatus_t;
typedef enum { MM_CUBLAS_OPERATIONS(MM_CUBLAS_ENUMERATOR) } cublasOperation_t;
typedef enum { MM_CUBLAS_MATHS(MM_CUBLAS_ENUMERATOR) } cublasMath_t;
typedef enum { MM_CUBLAS_COMPUTES(MM_CUBLAS_ENUMERATOR) } cublasComputeType_t;
typedef enum { MM_CUBLAS_ALGOS(MM_CUBLAS_ENUMERATOR) } cublasGemmAlgo_t;
typedef enum { MM_CUBLAS_TYPES(MM_CUBLAS_ENUMERATOR) } cudaDataType;
#undef MM_CUBLAS_ENUMERATOR
typedef struct cublasContext *cublasHandle_t;
#endif

/* X(result, name, parameters); a CUstream is a cudaStream_t. */
#define MM_CUBLAS_ENTRIES(X)                                                                      \
	X(cublasStatus_t, cublasCreate_v2, (cublasHandle_t * handle))                             \
	X(cublasStatus_t, cublasDestroy_v2, (cublasHandle_t handle))                              \
	X(cublasStatus_t, cublasGetVersion_v2, (cublasHandle_t handle, int *version))             \
	X(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t handle, CUstream stream))           \
	X(cublasStatus_t, cublasSetWorkspace_v2,                                                  \
	  (cublasHandle_t handle, void *workspace, size_t bytes))                                 \
	X(cublasStatus_t, cublasSetMathMode, (cublasHandle_t handle, cublasMath_t mode))          \
	X(cublasStatus_t, cublasGemmEx,                                                           \
	  (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,   \
	   int k, const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b,  \
	   cudaDataType b_type, int ldb, const void *beta, void *c, cudaDataType c_type, int ldc, \
	   cublasComputeType_t compute, cublasGemmAlgo_t algo))                                   \
	X(const char *, cublasGetStatusString, (cublasStatus_t status))

struct mm_cublas {
#define MM_CUBLAS_MEMBER(result, name, params) result(*name) params;
	MM_CUBLAS_ENTRIES(MM_CUBLAS_MEMBER)
#undef MM_CUBLAS_MEMBER
};

/**
 * mm_cublas_load() - find the library and its symbols
 * @ret_lib:   written only on success
 * @err:       gets one line with what is missing; may be NULL
 * @err_bytes: size of @err
 *
 * Loads $MM_CUBLAS_LIB if it is set, else libcublas.so.13 or .12, from the dynamic linker's path
 * and from /usr/local/cuda/lib64.
 *
 * Return: 0; -ENOENT no library; -ENOSYS it lacks a symbol.
 */
int mm_cublas_load(struct mm_cublas *ret_lib, char *err, size_t err_bytes);
