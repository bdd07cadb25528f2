/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest of each row: a block a row, 16 bytes a load, four loads in flight at once. The order
 * in which equal elements meet does not matter: the lower index always wins.
 * Bound: memory, and one multiprocessor's share of it while there are few rows.
 */
#include "kernels/cuda/device.h"

#define ARGMAX_WARPS (MM_ARGMAX_THREADS / MM_WARP_THREADS)
#define ARGMAX_AHEAD 4u

struct argmax_best {
	float value;
	uint32_t at;
};

/* A NaN compares false and never wins. Where nothing is larger than -inf, index 0 stays. */
MM_DEVICE void argmax_combine(struct argmax_best *b, float value, uint32_t at)
{
	if (value > b->value || (value == b->value && at < b->at)) {
		b->value = value;
		b->at = at;
	}
}

MM_DEVICE void argmax_meet4(struct argmax_best *b, float4 v, uint32_t at)
{
	argmax_combine(b, v.x, at);
	argmax_combine(b, v.y, at + 1);
	argmax_combine(b, v.z, at + 2);
	argmax_combine(b, v.w, at + 3);
}

/* Takes the aligned elements from @head on, four at a time. */
MM_DEVICE void argmax_middle(struct argmax_best *b, const float *x, uint32_t head, uint32_t fours)
{
	const float4 *v = (const float4 *)(x + head);
	const uint32_t stride = MM_ARGMAX_THREADS;
	uint32_t i = threadIdx.x;

	for (; i + (ARGMAX_AHEAD - 1) * stride < fours; i += ARGMAX_AHEAD * stride) {
		float4 four[ARGMAX_AHEAD];

		MM_UNROLL(4)
		for (uint32_t k = 0; k < ARGMAX_AHEAD; k++)
			four[k] = v[i + k * stride];
		MM_UNROLL(4)
		for (uint32_t k = 0; k < ARGMAX_AHEAD; k++)
			argmax_meet4(b, four[k], head + (i + k * stride) * 4);
	}
	for (; i < fours; i += stride)
		argmax_meet4(b, v[i], head + i * 4);
}

MM_DEVICE void argmax_warp(struct argmax_best *b)
{
	for (uint32_t step = MM_WARP_THREADS / 2; step; step /= 2) {
		const float value = __shfl_xor_sync(MM_WARP_ALL, b->value, step);
		const uint32_t at = __shfl_xor_sync(MM_WARP_ALL, b->at, step);

		argmax_combine(b, value, at);
	}
}

struct argmax_room {
	struct argmax_best warps[ARGMAX_WARPS];
};

MM_KERNEL(argmax, MM_ARGMAX_THREADS)
{
	MM_SHARED(struct argmax_room, room);
	const float *x = MM_AT(const float, a.x_va) + (uint64_t)blockIdx.x * a.n;
	const uint32_t beyond = (uint32_t)((uintptr_t)x / sizeof(float) % 4);
	const uint32_t head = (4 - beyond) % 4 < a.n ? (4 - beyond) % 4 : a.n;
	const uint32_t fours = (a.n - head) / 4, tail = head + fours * 4 + threadIdx.x;
	struct argmax_best b = { -__builtin_inff(), 0 };

	if (threadIdx.x < head)
		argmax_combine(&b, x[threadIdx.x], threadIdx.x);
	argmax_middle(&b, x, head, fours);
	if (tail < a.n)
		argmax_combine(&b, x[tail], tail);
	argmax_warp(&b);
	if (threadIdx.x % MM_WARP_THREADS == 0)
		room->warps[threadIdx.x / MM_WARP_THREADS] = b;
	__syncthreads();
	if (threadIdx.x)
		return;
	for (uint32_t i = 1; i < ARGMAX_WARPS; i++)
		argmax_combine(&b, room->warps[i].value, room->warps[i].at);
	MM_AT(uint32_t, a.out_va)[blockIdx.x] = b.at;
}
