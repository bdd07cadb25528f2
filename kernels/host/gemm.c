/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product, for one instruction set. Tiles of TILE_O outputs by up to TILE_T tokens keep
 * their partial sums in registers. A tile's shape determines only the sums that are computed
 * together, never the order within one.
 */
#include "kernels/host/isa.h"
#include "kernels/host/lanes.h"

#if defined(__AVX512F__)
#define TILE_O 4
#define TILE_T 4
#elif defined(__AVX2__)
#define TILE_O 2
#define TILE_T 3
#else
#define TILE_O 1
#define TILE_T 2
#endif

MM_INLINE void tile_step(mm_lanes acc[TILE_O][TILE_T], const char *const w[TILE_O],
			 const char *const x[TILE_T], uint32_t k, uint32_t n, enum mm_dtype dtype,
			 int outputs, int tokens)
{
	const uint32_t w_offset = k * (dtype == MM_DTYPE_F32 ? 4 : 2);
	mm_lanes xs[TILE_T];

#pragma GCC unroll 8
	for (int t = 0; t < tokens; t++)
		xs[t] = mm_lanes_load(x[t] + k * 4, n, MM_DTYPE_F32);
#pragma GCC unroll 8
	for (int o = 0; o < outputs; o++) {
		const mm_lanes ws = mm_lanes_load(w[o] + w_offset, n, dtype);

#pragma GCC unroll 8
		for (int t = 0; t < tokens; t++)
			acc[o][t] += ws * xs[t];
	}
}

MM_INLINE void tile_multiply(const struct mm_gemm_args *a, uint32_t o0, uint32_t t0,
			     enum mm_dtype dtype, int outputs, int tokens)
{
	const uint64_t w_row = (uint64_t)a->k * (dtype == MM_DTYPE_F32 ? 4 : 2);
	mm_lanes acc[TILE_O][TILE_T] = { 0 };
	const char *w[TILE_O], *x[TILE_T];
	float *y = mm_at(a->y_va);
	uint32_t k = 0;

	for (int o = 0; o < outputs; o++)
		w[o] = (const char *)mm_at(a->w_va) + (o0 + (uint32_t)o) * w_row;
	for (int t = 0; t < tokens; t++)
		x[t] = (const char *)mm_at(a->x_va) + (uint64_t)(t0 + (uint32_t)t) * a->k * 4;
	for (; k + MM_GEMM_LANES <= a->k; k += MM_GEMM_LANES)
		tile_step(acc, w, x, k, MM_GEMM_LANES, dtype, outputs, tokens);
	if (k < a->k)
		tile_step(acc, w, x, k, a->k - k, dtype, outputs, tokens);
#pragma GCC unroll 8
	for (int t = 0; t < tokens; t++)
#pragma GCC unroll 8
		for (int o = 0; o < outputs; o++)
			y[(uint64_t)(t0 + (uint32_t)t) * a->y_stride + o0 + (uint32_t)o] =
				mm_lanes_sum(acc[o][t]);
}

/* Multiplies all tokens with TILE_O (or fewer) rows of weights, which are read from memory once. */
MM_INLINE void tiles_multiply(const struct mm_gemm_args *a, uint32_t o, enum mm_dtype dtype,
			      int outputs)
{
	uint32_t t = 0;

	for (; t + TILE_T <= a->tokens; t += TILE_T)
		tile_multiply(a, o, t, dtype, outputs, TILE_T);
	switch (a->tokens - t) {
#if TILE_T > 3
	case 3:
		tile_multiply(a, o, t, dtype, outputs, 3);
		break;
#endif
#if TILE_T > 2
	case 2:
		tile_multiply(a, o, t, dtype, outputs, 2);
		break;
#endif
	case 1:
		tile_multiply(a, o, t, dtype, outputs, 1);
		break;
	default:
		break;
	}
}

MM_INLINE void gemm_multiply(const struct mm_gemm_args *a, enum mm_dtype dtype)
{
	uint32_t o = 0;

	for (; o + TILE_O <= a->outputs; o += TILE_O)
		tiles_multiply(a, o, dtype, TILE_O);
	for (; o < a->outputs; o++)
		tiles_multiply(a, o, dtype, 1);
}

void MM_ISA_NAME(mm_isa_gemm)(const struct mm_gemm_args *a)
{
	switch (a->dtype) {
	case MM_DTYPE_F32:
		gemm_multiply(a, MM_DTYPE_F32);
		break;
	case MM_DTYPE_F16:
		gemm_multiply(a, MM_DTYPE_F16);
		break;
	default:
		gemm_multiply(a, MM_DTYPE_BF16);
		break;
	}
}
