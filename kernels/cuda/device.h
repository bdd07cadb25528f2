/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - the language that kernels/cuda is written in: the common subset of C and CUDA C++
 *
 * Concept:    every .cu file here is compiled twice. nvcc makes GPU code of it; a C compiler makes
 *             host code of the same lines, which kernels/emulate runs thread by thread, so that
 *             index arithmetic, barriers and order of sums are tested without a GPU. This header is
 *             all that differs. In the common subset there are structs, pointers and functions: no
 *             templates, classes, references or <<<>>>, no conversion from void * without a cast,
 *             `struct` always written.
 * Names:      CUDA's own where it has them: threadIdx, blockIdx, blockDim, gridDim,
 *             __syncthreads(), __syncwarp(mask), __shfl_sync() and its kin, __ballot_sync(),
 *             __any_sync(), __all_sync(), atomicAdd(), atomicMax(), atomicInc(), atomicExch(),
 *             __threadfence(), float4, uint2, uint4, __float_as_uint(), __uint_as_float(),
 *             __clz(), __ffs(), __popc(). Masks are always given, shuffles take uint32_t lanes;
 *             uint64_t may be shuffled and added. In addition:
 *             - MM_KERNEL(noun, threads): the head of `mm_<noun>`, whose argument is `a`
 *               (kernels/args/args.h)
 *             - MM_KERNEL_RESIDENT(noun, threads, blocks): the same, with registers for so many
 *               blocks at once
 *             - MM_DEVICE: before a function that kernels call
 *             - MM_SHARED(type, name): one object in a block's shared memory, aligned to 16; `name`
 *               points to it
 *             - MM_SHARED_DYNAMIC(type, name): the launch's shared_bytes, aligned to 16, as
 *               type *name
 *             - MM_AT(type, va): a device address as type *
 *             - MM_UNROLL(n): before a loop
 *             - MM_KEEP(x): the float x is computed here, once, not again at each use
 *             - mm_load_const(p): loads a uint4 that is not written while the kernel runs
 *             - mm_load_fresh(p): loads a float that another block of the same launch has written
 *             - mm_widen_f16(), mm_widen_bf16(), mm_round_f16(), mm_round_bf16(): widening is
 *               exact, rounding is to nearest even
 * Invariants: nothing is contracted: neither compiler may fuse a * b + c (-fmad=false,
 *             -ffp-contract=off); a fused operation is written fmaf(). Division and sqrtf() are
 *             IEEE's, and subnormals stay. So equal operations in equal order give exactly the bits
 *             of the host twins.
 * Threading:  a kernel's.
 */
#pragma once

#include <stdint.h>

#include "kernels/args/args.h"
#include "kernels/args/gemm.h"
#include "kernels/launch/launch.h"

#define MM_WARP_THREADS 32u
#define MM_WARP_ALL     0xffffffffu

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define MM_DEVICE static __device__ __forceinline__
#define MM_KERNEL(noun, threads)                              \
	extern "C" __global__ void __launch_bounds__(threads) \
		mm_##noun(const __grid_constant__ struct mm_##noun##_args a)
#define MM_KERNEL_RESIDENT(noun, threads, blocks)                     \
	extern "C" __global__ void __launch_bounds__(threads, blocks) \
		mm_##noun(const __grid_constant__ struct mm_##noun##_args a)
#define MM_SHARED(type, name)                  \
	__shared__ __align__(16) type name##_; \
	type *const name = &name##_
#define MM_SHARED_DYNAMIC(type, name)              \
	extern __shared__ uint4 mm_shared_bytes[]; \
	type *const name = (type *)mm_shared_bytes
#define MM_AT(type, va) ((type *)(va))
#define MM_PRAGMA(text) _Pragma(#text)
#define MM_UNROLL(n)    MM_PRAGMA(unroll n)
#define MM_KEEP(x)      asm volatile("" : "+f"(x))

/* CUDA has these only for unsigned long long; uint64_t is unsigned long here. */
MM_DEVICE uint64_t atomicAdd(uint64_t *p, uint64_t v)
{
	return atomicAdd((unsigned long long *)p, (unsigned long long)v);
}

MM_DEVICE uint64_t atomicMax(uint64_t *p, uint64_t v)
{
	return atomicMax((unsigned long long *)p, (unsigned long long)v);
}

/* Reads past the multiprocessor's own cache, which does not contain the writes of others. */
MM_DEVICE float mm_load_fresh(const float *p)
{
	return __ldcg(p);
}

/* Reads through the cache for constant data. */
MM_DEVICE uint4 mm_load_const(const uint4 *p)
{
	return __ldg(p);
}

MM_DEVICE float mm_widen_f16(uint16_t h)
{
	return __half2float(__ushort_as_half(h));
}

MM_DEVICE float mm_widen_bf16(uint16_t h)
{
	return __uint_as_float((uint32_t)h << 16);
}

/* Rounds as the host does (kernels/host/narrow.h), except for the bits of a NaN. */
MM_DEVICE uint16_t mm_round_f16(float v)
{
	if (v != v)
		return (uint16_t)((__float_as_uint(v) >> 16 & 0x8000u) | 0x7e00u);
	return __half_as_ushort(__float2half_rn(v));
}

MM_DEVICE uint16_t mm_round_bf16(float v)
{
	if (v != v)
		return (uint16_t)(__float_as_uint(v) >> 16 | 0x40u);
	return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

#else

#include "kernels/emulate/device.h"

#endif
