/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSNorm and LayerNorm: a block a row. Sums are taken as the host's (kernels/host/lanes.h):
 * element i goes to partial sum i mod 16, each in order of i, and the 16 are added in one fixed
 * tree; so a row's bits depend on nothing but the row. The block brings NORM_TILE elements at a
 * time to shared memory, 16 bytes a load, and sixteen threads add them up: a chain of hidden / 16
 * additions, about a microsecond for 4096, which other blocks of the processor hide when there are
 * many rows. The row is read from memory once and from the caches after that. Bound: latency for a
 * few rows, memory for many.
 */
#include "kernels/cuda/vector.h"

#define NORM_TILE 4096u

struct norm_room {
	float terms[NORM_TILE];
	float lanes[MM_GEMM_LANES];
};

enum norm_term { NORM_VALUE, NORM_SQUARE };

MM_DEVICE float norm_term(float v, float mean, enum norm_term term)
{
	const float d = v - mean;

	return term == NORM_SQUARE ? d * d : d;
}

/* Stores the terms of x[0 .. count) in shared memory, four per thread and round. */
MM_DEVICE void norm_fetch(float *terms, const float *x, uint32_t count, float mean,
			  enum norm_term term)
{
	for (uint32_t i = threadIdx.x * 4; i < count; i += MM_NORM_THREADS * 4) {
		float4 v = mm_load4_f32(x, i, count);

		v.x = norm_term(v.x, mean, term);
		v.y = norm_term(v.y, mean, term);
		v.z = norm_term(v.z, mean, term);
		v.w = norm_term(v.w, mean, term);
		*(float4 *)(terms + i) = v; /* there is unread room behind the count */
	}
}

MM_DEVICE float norm_add_up(const float *terms, uint32_t count, float sum)
{
	MM_UNROLL(8)
	for (uint32_t i = threadIdx.x; i < count; i += MM_GEMM_LANES)
		sum += terms[i];
	return sum;
}

/* The same tree as the host's: mm_lanes_sum(), kernels/host/lanes.h. */
MM_DEVICE float norm_tree(const float *lanes)
{
	float sum[8];

	MM_UNROLL(8)
	for (uint32_t i = 0; i < 8; i++)
		sum[i] = lanes[i] + lanes[i + 8];
	MM_UNROLL(4)
	for (uint32_t i = 0; i < 4; i++)
		sum[i] += sum[i + 4];
	return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Return: the sum over the row of x - mean, or of its squares; the same in all threads. */
MM_DEVICE float norm_sum(struct norm_room *room, const float *x, uint32_t n, float mean,
			 enum norm_term term)
{
	float sum = 0;

	for (uint32_t first = 0; first < n; first += NORM_TILE) {
		const uint32_t count = n - first < NORM_TILE ? n - first : NORM_TILE;

		__syncthreads(); /* all threads have read the last tile, or the lanes */
		norm_fetch(room->terms, x + first, count, mean, term);
		__syncthreads();
		if (threadIdx.x < MM_GEMM_LANES)
			sum = norm_add_up(room->terms, count, sum);
	}
	if (threadIdx.x < MM_GEMM_LANES)
		room->lanes[threadIdx.x] = sum;
	__syncthreads();
	return norm_tree(room->lanes);
}

MM_KERNEL(rmsnorm, MM_NORM_THREADS)
{
	MM_SHARED(struct norm_room, room);
	const float *x = MM_AT(const float, a.x_va) + (uint64_t)blockIdx.x * a.hidden;
	float *out = MM_AT(float, a.out_va) + (uint64_t)blockIdx.x * a.hidden;
	const char *gain = MM_AT(const char, a.gain_va);
	const float mean = norm_sum(room, x, a.hidden, 0, NORM_SQUARE) / (float)a.hidden;
	const float scale = 1.0f / sqrtf(mean + a.eps);

	for (uint32_t i = threadIdx.x * 4; i < a.hidden; i += MM_NORM_THREADS * 4) {
		const float4 g = mm_load4(gain, i, a.hidden, a.dtype);
		float4 v = mm_load4_f32(x, i, a.hidden);

		v.x = v.x * scale * g.x;
		v.y = v.y * scale * g.y;
		v.z = v.z * scale * g.z;
		v.w = v.w * scale * g.w;
		mm_store4_f32(out, i, a.hidden, v);
	}
}

MM_KERNEL(layernorm, MM_NORM_THREADS)
{
	MM_SHARED(struct norm_room, room);
	const float *x = MM_AT(const float, a.x_va) + (uint64_t)blockIdx.x * a.hidden;
	float *out = MM_AT(float, a.out_va) + (uint64_t)blockIdx.x * a.hidden;
	const char *gain = MM_AT(const char, a.gain_va), *bias = MM_AT(const char, a.bias_va);
	const float mean = norm_sum(room, x, a.hidden, 0, NORM_VALUE) / (float)a.hidden;
	const float square = norm_sum(room, x, a.hidden, mean, NORM_SQUARE);
	const float scale = 1.0f / sqrtf(square / (float)a.hidden + a.eps);

	for (uint32_t i = threadIdx.x * 4; i < a.hidden; i += MM_NORM_THREADS * 4) {
		const float4 g = mm_load4(gain, i, a.hidden, a.dtype);
		const float4 b = mm_load4(bias, i, a.hidden, a.bias_dtype);
		float4 v = mm_load4_f32(x, i, a.hidden);

		v.x = (v.x - mean) * scale * g.x + b.x;
		v.y = (v.y - mean) * scale * g.y + b.y;
		v.z = (v.z - mean) * scale * g.z + b.z;
		v.w = (v.w - mean) * scale * g.w + b.w;
		mm_store4_f32(out, i, a.hidden, v);
	}
}
