/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulate/device - CUDA's names for a C compiler; only kernels/cuda/device.h includes it
 *
 * Concept:   kernels/emulate/emulate.h explains how a block's threads run. Each CUDA builtin that
 *            needs the emulator is a call, so that sanitizers instrument kernels, not the
 *            emulation.
 * Threading: only inside a kernel that mm_emulate_launch() runs.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/host/narrow.h"
#include "mm/abi.h"

struct mm_uint3 {
	uint32_t x, y, z;
};

typedef struct {
	uint32_t x, y;
} __attribute__((aligned(8))) uint2;

typedef struct {
	uint32_t x, y, z, w;
} __attribute__((aligned(16))) uint4;

typedef struct {
	float x, y;
} __attribute__((aligned(8))) float2;

typedef struct {
	float x, y, z, w;
} __attribute__((aligned(16))) float4;

/* Indices for kernels. They are constant for a thread while it runs. */
__attribute__((const)) struct mm_uint3 mm_emulate_thread_index(void);
__attribute__((const)) struct mm_uint3 mm_emulate_block_index(void);
__attribute__((const)) struct mm_uint3 mm_emulate_block_size(void);
__attribute__((const)) struct mm_uint3 mm_emulate_grid_size(void);

enum mm_emulate_exchange {
	MM_EMULATE_SYNC,
	MM_EMULATE_FROM,
	MM_EMULATE_UP,
	MM_EMULATE_DOWN,
	MM_EMULATE_XOR,
	MM_EMULATE_BALLOT,
};

void mm_emulate_barrier(int line);
uint64_t mm_emulate_exchange(enum mm_emulate_exchange kind, uint32_t mask, uint64_t value,
			     uint32_t lane, uint32_t width, int line);
void *mm_emulate_shared(const void *site, size_t bytes);
void *mm_emulate_shared_dynamic(void);

#define threadIdx (mm_emulate_thread_index())
#define blockIdx  (mm_emulate_block_index())
#define blockDim  (mm_emulate_block_size())
#define gridDim   (mm_emulate_grid_size())

#define MM_DEVICE static inline __attribute__((always_inline))
#define MM_KERNEL(noun, threads)                   \
	void mm_##noun(struct mm_##noun##_args a); \
	void mm_##noun(const struct mm_##noun##_args a)
#define MM_KERNEL_RESIDENT(noun, threads, blocks) MM_KERNEL(noun, threads)
#define MM_SHARED(type, name)          \
	static const char name##_ = 0; \
	type *const name = (type *)mm_emulate_shared(&name##_, sizeof(type))
#define MM_SHARED_DYNAMIC(type, name) type *const name = (type *)mm_emulate_shared_dynamic()
#define MM_AT(type, va)               ((type *)(uintptr_t)(va))
#define MM_PRAGMA(text)               _Pragma(#text)
#define MM_KEEP(x)                    ((void)(x))
#if defined(__clang__)
#define MM_UNROLL(n) MM_PRAGMA(clang loop unroll_count(n))
#else
#define MM_UNROLL(n) MM_PRAGMA(GCC unroll n)
#endif

/* ---- exchange between threads ---- */

#define __syncthreads()  mm_emulate_barrier(__LINE__)
#define __syncwarp(mask) ((void)mm_emulate_exchange(MM_EMULATE_SYNC, mask, 0, 0, 32, __LINE__))
#define __threadfence() \
	__asm__ volatile("" ::: "memory") /* nothing to order: blocks run one after the other */
#define __ballot_sync(mask, predicate) \
	((uint32_t)mm_emulate_exchange(MM_EMULATE_BALLOT, mask, !!(predicate), 0, 32, __LINE__))
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, !(predicate)) == 0)

MM_DEVICE float mm_emulate_exchange_f32(enum mm_emulate_exchange kind, uint32_t mask, float v,
					uint32_t lane, uint32_t width, int line)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	bits = (uint32_t)mm_emulate_exchange(kind, mask, bits, lane, width, line);
	memcpy(&v, &bits, sizeof(v));
	return v;
}

MM_DEVICE uint32_t mm_emulate_exchange_u32(enum mm_emulate_exchange kind, uint32_t mask, uint32_t v,
					   uint32_t lane, uint32_t width, int line)
{
	return (uint32_t)mm_emulate_exchange(kind, mask, v, lane, width, line);
}

MM_DEVICE int32_t mm_emulate_exchange_s32(enum mm_emulate_exchange kind, uint32_t mask, int32_t v,
					  uint32_t lane, uint32_t width, int line)
{
	return (int32_t)mm_emulate_exchange(kind, mask, (uint32_t)v, lane, width, line);
}

/* The width is 32 where it is not given, as in CUDA. */
#define MM_EMULATE_EXCHANGE(kind, mask, v, ...)                                                    \
	_Generic((v), float                                                                        \
		 : mm_emulate_exchange_f32, uint32_t                                               \
		 : mm_emulate_exchange_u32, int32_t                                                \
		 : mm_emulate_exchange_s32, uint64_t                                               \
		 : mm_emulate_exchange)(kind, mask, v, ((const uint32_t[]){ __VA_ARGS__, 32 })[0], \
					((const uint32_t[]){ __VA_ARGS__, 32 })[1], __LINE__)
#define __shfl_sync(mask, v, ...)      MM_EMULATE_EXCHANGE(MM_EMULATE_FROM, mask, v, __VA_ARGS__)
#define __shfl_up_sync(mask, v, ...)   MM_EMULATE_EXCHANGE(MM_EMULATE_UP, mask, v, __VA_ARGS__)
#define __shfl_down_sync(mask, v, ...) MM_EMULATE_EXCHANGE(MM_EMULATE_DOWN, mask, v, __VA_ARGS__)
#define __shfl_xor_sync(mask, v, ...)  MM_EMULATE_EXCHANGE(MM_EMULATE_XOR, mask, v, __VA_ARGS__)

/* ---- atomics: they order as well, since a sanitizer would not see __threadfence() ---- */

#define MM_EMULATE_ATOMIC(name, suffix, type, result)                                       \
	MM_DEVICE type mm_emulate_##name##_##suffix(type *p, type v)                        \
	{                                                                                   \
		type old = __atomic_load_n(p, __ATOMIC_ACQUIRE);                            \
                                                                                            \
		while (!__atomic_compare_exchange_n(p, &old, (result), 0, __ATOMIC_ACQ_REL, \
						    __ATOMIC_ACQUIRE))                      \
			;                                                                   \
		return old;                                                                 \
	}

MM_EMULATE_ATOMIC(add, u32, uint32_t, old + v)
MM_EMULATE_ATOMIC(add, u64, uint64_t, old + v)
MM_EMULATE_ATOMIC(max, u32, uint32_t, old > v ? old : v)
MM_EMULATE_ATOMIC(max, u64, uint64_t, old > v ? old : v)
MM_EMULATE_ATOMIC(max, s32, int32_t, old > v ? old : v)
MM_EMULATE_ATOMIC(inc, u32, uint32_t, old >= v ? 0 : old + 1)
MM_EMULATE_ATOMIC(exch, u32, uint32_t, v)

#define atomicAdd(p, v) \
	_Generic((p), uint32_t * : mm_emulate_add_u32, uint64_t * : mm_emulate_add_u64)(p, v)
#define atomicMax(p, v)                           \
	_Generic((p), uint32_t *                  \
		 : mm_emulate_max_u32, uint64_t * \
		 : mm_emulate_max_u64, int32_t *  \
		 : mm_emulate_max_s32)(p, v)
#define atomicInc(p, v)  mm_emulate_inc_u32(p, v)
#define atomicExch(p, v) mm_emulate_exch_u32(p, v)

/* ---- loads ---- */

MM_DEVICE uint4 mm_load_const(const uint4 *p)
{
	return *p;
}

MM_DEVICE float mm_load_fresh(const float *p)
{
	return *p;
}

/* ---- bits ---- */

MM_DEVICE uint32_t __float_as_uint(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

MM_DEVICE float __uint_as_float(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

#define __clz(v)  ((v) ? __builtin_clz(v) : 32)
#define __ffs(v)  __builtin_ffs((int)(v))
#define __popc(v) __builtin_popcount(v)

/* The same arithmetic as kernels/host/lanes.h, one element at a time. */
MM_DEVICE float mm_widen_f16(uint16_t h)
{
	const uint32_t sign = (h & 0x8000u) << 16;
	const uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
	const float scaled = __uint_as_float((h & 0x7fffu) << 13) * 0x1p112f;

	return __uint_as_float(__float_as_uint(scaled) | sign | special);
}

MM_DEVICE float mm_widen_bf16(uint16_t h)
{
	return __uint_as_float((uint32_t)h << 16);
}

MM_DEVICE uint16_t mm_round_f16(float v)
{
	return mm_narrow_f16(v);
}

MM_DEVICE uint16_t mm_round_bf16(float v)
{
	return mm_narrow_bf16(v);
}
