/* SPDX-License-Identifier: Apache-2.0 */
/* Compares cublas.h with cublas_api.h. Compiled only where a CUDA toolkit is found. */
#include <cuda.h>
#include <cublas_api.h>

#include "kernels/blas/cublas.h"

#define SAME_VALUE(name, value) static_assert((int)name == (value), #name);
MM_CUBLAS_STATUSES(SAME_VALUE)
MM_CUBLAS_OPERATIONS(SAME_VALUE)
MM_CUBLAS_MATHS(SAME_VALUE)
MM_CUBLAS_COMPUTES(SAME_VALUE)
MM_CUBLAS_ALGOS(SAME_VALUE)
MM_CUBLAS_TYPES(SAME_VALUE)

/* With cublas_api.h included, the table is declared with the library's own types. */
#define SAME_SIGNATURE(result, name, params)                                                  \
	static_assert(__builtin_types_compatible_p(__typeof__(((struct mm_cublas *)0)->name), \
						   __typeof__(&name)),                        \
		      #name);
MM_CUBLAS_ENTRIES(SAME_SIGNATURE)
