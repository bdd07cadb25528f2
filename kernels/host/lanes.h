/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes - 16 partial sums in a fixed order, whatever the machine's vectors are
 *
 * Concept:    mm_lanes is a compiler vector of 16 floats: one register with AVX-512, two with AVX2,
 *             four with SSE or NEON. Arithmetic on it is lane by lane, so its results do not depend
 *             on the machine; contraction into FMA is off for every file that includes this.
 * Threading:  pure.
 */
#pragma once

#include "kernels/args/gemm.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define MM_INLINE static inline __attribute__((always_inline))

typedef float mm_lanes __attribute__((vector_size(64)));
typedef float mm_lanes8 __attribute__((vector_size(32)));
typedef float mm_lanes4 __attribute__((vector_size(16)));
typedef uint32_t mm_lanes_u32 __attribute__((vector_size(64)));
typedef uint16_t mm_lanes_u16 __attribute__((vector_size(32)));

/* Adds up 16 partial sums in the one order that all kernels use: halves, quarters, pairs. */
MM_INLINE float mm_lanes_sum(mm_lanes v)
{
	mm_lanes8 a, b;
	mm_lanes4 c, d;

	memcpy(&a, &v, sizeof(a));
	memcpy(&b, (const char *)&v + sizeof(a), sizeof(b));
	a += b;
	memcpy(&c, &a, sizeof(c));
	memcpy(&d, (const char *)&a + sizeof(c), sizeof(d));
	c += d;
	return (c[0] + c[2]) + (c[1] + c[3]);
}

/*
 * Exact for every finite half: shifts the bits into place, then undoes the bias by a power of two.
 */
MM_INLINE mm_lanes mm_lanes_widen_f16(mm_lanes_u16 h)
{
#if defined(__AVX512F__)
	__m256i raw;
	__m512 wide;
	mm_lanes v;

	memcpy(&raw, &h, sizeof(raw));
	wide = _mm512_cvtph_ps(raw);
	memcpy(&v, &wide, sizeof(v));
	return v;
#elif defined(__F16C__)
	__m128i raw[2];
	__m256 wide[2];
	mm_lanes v;

	memcpy(raw, &h, sizeof(raw));
	wide[0] = _mm256_cvtph_ps(raw[0]);
	wide[1] = _mm256_cvtph_ps(raw[1]);
	memcpy(&v, wide, sizeof(v));
	return v;
#else
	const mm_lanes_u32 u = __builtin_convertvector(h, mm_lanes_u32);
	const mm_lanes_u32 sign = (u & 0x8000u) << 16;
	const mm_lanes_u32 special = (mm_lanes_u32)((u & 0x7c00u) == 0x7c00u) & 0x7f800000u;
	mm_lanes_u32 bits = (u & 0x7fffu) << 13;
	mm_lanes v;

	memcpy(&v, &bits, sizeof(v));
	v *= 0x1p112f;
	memcpy(&bits, &v, sizeof(bits));
	bits |= sign | special;
	memcpy(&v, &bits, sizeof(v));
	return v;
#endif
}

MM_INLINE mm_lanes mm_lanes_widen_bf16(mm_lanes_u16 h)
{
	const mm_lanes_u32 bits = __builtin_convertvector(h, mm_lanes_u32) << 16;
	mm_lanes v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* Return: @n elements from @p, widened; at most 16, the rest are zero. */
MM_INLINE mm_lanes mm_lanes_load(const char *p, uint32_t n, enum mm_dtype dtype)
{
	mm_lanes_u16 h = { 0 };
	mm_lanes v = { 0 };

	if (dtype == MM_DTYPE_F32) {
		if (n == MM_GEMM_LANES)
			memcpy(&v, p, sizeof(v));
		else
			memcpy(&v, p, n * sizeof(float));
		return v;
	}
	if (n == MM_GEMM_LANES)
		memcpy(&h, p, sizeof(h));
	else
		memcpy(&h, p, n * sizeof(uint16_t));
	return dtype == MM_DTYPE_F16 ? mm_lanes_widen_f16(h) : mm_lanes_widen_bf16(h);
}

/* Return: the row of token @position of the sequence with @table, from @base_va (k_va or v_va). */
MM_INLINE void *mm_kv_row(const struct mm_kv_layout *kv, uint64_t base_va, const uint32_t *table,
			  uint32_t position)
{
	const uint64_t block = (uint64_t)table[position / kv->block_tokens] * MM_KV_UNIT_BYTES;
	const uint64_t row = position % kv->block_tokens;

	return (void *)(uintptr_t)(base_va + block + row * kv->kv_dim * mm_dtype_bytes(kv->dtype));
}

/*
 * Return: the host's pointer for a device address: these kernels run on the software GPU, where
 * they are equal.
 */
MM_INLINE void *mm_at(uint64_t va)
{
	return (void *)(uintptr_t)va;
}
