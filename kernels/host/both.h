/* SPDX-License-Identifier: Apache-2.0 */
/*
 * both - functions that host kernels and CUDA kernels share, so that they give the same bits
 *
 * Concept:   MM_BOTH stands before a function in a header that nvcc reads too. Such a function is a
 *            fixed sequence of IEEE operations; no compiler of the tree contracts them.
 * Threading: pure.
 */
#pragma once

#if defined(__CUDACC__)
#define MM_BOTH static __host__ __device__ __forceinline__
#else
#define MM_BOTH static inline
#endif
