/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels over long ranges. A block takes MM_FLAT_BYTES at once, each thread two pieces of 16 bytes
 * that lie MM_FLAT_BYTES / 2 apart, so that a warp's accesses are 512 bytes side by side; both are
 * loaded before either is stored. Each byte moves once. Bound: memory.
 */
#include "kernels/cuda/vector.h"

#define FLAT_HALF (MM_FLAT_THREADS * 4) /* elements of 4 bytes in half of a block's bytes */

MM_DEVICE uint64_t flat_first(void)
{
	return (uint64_t)blockIdx.x * (2 * FLAT_HALF) + threadIdx.x * 4;
}

MM_DEVICE uint64_t flat_step(void)
{
	return (uint64_t)gridDim.x * (2 * FLAT_HALF);
}

/* Return: how many floats, at most 4, a thread takes at @at of a range of @n. */
MM_DEVICE uint32_t flat_left(uint64_t n, uint64_t at)
{
	return at >= n ? 0 : n - at < 4 ? (uint32_t)(n - at) : 4;
}

MM_DEVICE float4 flat_load(const float *x, uint64_t n, uint64_t at)
{
	return mm_load4_f32(x + at, 0, flat_left(n, at));
}

MM_DEVICE void flat_store(float *x, uint64_t n, uint64_t at, float4 v)
{
	mm_store4_f32(x + at, 0, flat_left(n, at), v);
}

/* A NaN stays a NaN. */
MM_DEVICE float4 relu4(float4 v)
{
	v.x = v.x < 0 ? 0 : v.x;
	v.y = v.y < 0 ? 0 : v.y;
	v.z = v.z < 0 ? 0 : v.z;
	v.w = v.w < 0 ? 0 : v.w;
	return v;
}

MM_KERNEL(relu, MM_FLAT_THREADS)
{
	float *x = MM_AT(float, a.x_va);

	for (uint64_t i = flat_first(); i < a.n; i += flat_step()) {
		const float4 v = flat_load(x, a.n, i), w = flat_load(x, a.n, i + FLAT_HALF);

		flat_store(x, a.n, i, relu4(v));
		flat_store(x, a.n, i + FLAT_HALF, relu4(w));
	}
}

MM_KERNEL(add, MM_FLAT_THREADS)
{
	float *x = MM_AT(float, a.x_va);
	const float *y = MM_AT(const float, a.y_va);

	for (uint64_t i = flat_first(); i < a.n; i += flat_step()) {
		const float4 x0 = flat_load(x, a.n, i), x1 = flat_load(x, a.n, i + FLAT_HALF);
		const float4 y0 = flat_load(y, a.n, i), y1 = flat_load(y, a.n, i + FLAT_HALF);

		flat_store(x, a.n, i, mm_add4(x0, y0));
		flat_store(x, a.n, i + FLAT_HALF, mm_add4(x1, y1));
	}
}

/*
 * The blocks write pairs of words from the first multiple of 16 bytes on; the first thread writes
 * the words before and behind them.
 */
MM_KERNEL(fill, MM_FLAT_THREADS)
{
	const uint64_t head = a.n && a.va % 16 ? 1 : 0, pairs = (a.n - head) / 2;
	uint64_t *words = MM_AT(uint64_t, a.va);
	uint4 *out = (uint4 *)(words + head);
	uint4 v;

	v.x = v.z = (uint32_t)a.pattern;
	v.y = v.w = (uint32_t)(a.pattern >> 32);
	for (uint64_t i = flat_first() / 4; i < pairs; i += flat_step() / 4) {
		out[i] = v;
		if (i + FLAT_HALF / 4 < pairs)
			out[i + FLAT_HALF / 4] = v;
	}
	if (blockIdx.x || threadIdx.x)
		return;
	if (head)
		words[0] = a.pattern;
	if ((a.n - head) % 2)
		words[a.n - 1] = a.pattern;
}

/* Copies this block's share; the block's plane of the grid is its position in the part. */
MM_DEVICE void move_part(char *to, const char *from, uint64_t bytes)
{
	const uint64_t step = (uint64_t)gridDim.z * MM_FLAT_BYTES;
	const uint64_t first = (uint64_t)blockIdx.z * MM_FLAT_BYTES;
	const uint64_t whole = mm_aligned(to, 16) && mm_aligned(from, 16) ? bytes / 16 * 16 : 0;

	for (uint64_t i = first + threadIdx.x * 16; i < whole; i += step) {
		const uint64_t j = i + MM_FLAT_BYTES / 2;
		const uint4 v = *(const uint4 *)(from + i);

		if (j < whole)
			*(uint4 *)(to + j) = *(const uint4 *)(from + j);
		*(uint4 *)(to + i) = v;
	}
	for (uint64_t i = first; i < bytes; i += step) {
		const uint64_t end = bytes - i < MM_FLAT_BYTES ? bytes : i + MM_FLAT_BYTES;

		for (uint64_t j = (i > whole ? i : whole) + threadIdx.x; j < end;
		     j += MM_FLAT_THREADS)
			to[j] = from[j];
	}
}

MM_DEVICE char *move_block(uint64_t parts_va, uint64_t table_va, uint32_t block, uint32_t part)
{
	const uint64_t units = MM_AT(const uint32_t, table_va)[block];

	return MM_AT(char, MM_AT(const uint64_t, parts_va)[part] + units * MM_KV_UNIT_BYTES);
}

MM_DEVICE char *move_staging(uint64_t staging_va, uint32_t block, uint32_t part, uint32_t parts,
			     uint64_t part_bytes)
{
	return MM_AT(char, staging_va) + ((uint64_t)block * parts + part) * part_bytes;
}

MM_KERNEL(kv_gather, MM_FLAT_THREADS)
{
	for (uint32_t part = blockIdx.y; part < a.parts; part += gridDim.y)
		move_part(move_staging(a.staging_va, blockIdx.x, part, a.parts, a.part_bytes),
			  move_block(a.parts_va, a.table_va, blockIdx.x, part), a.part_bytes);
}

MM_KERNEL(kv_scatter, MM_FLAT_THREADS)
{
	for (uint32_t part = blockIdx.y; part < a.parts; part += gridDim.y)
		move_part(move_block(a.parts_va, a.table_va, blockIdx.x, part),
			  move_staging(a.staging_va, blockIdx.x, part, a.parts, a.part_bytes),
			  a.part_bytes);
}
