/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that use all of the language, rightly and wrongly: a kind of each, chosen by `what`. */
#include "tests/unit/kernels/cuda/kernels_of_test.h"

struct room {
	uint32_t words[TEST_THREADS];
	float floats[4];
};

/* out[i] = 3 * in[n - 1 - i] + 3 of each block, through shared memory, in three rounds */
MM_KERNEL(test_reverse, TEST_THREADS)
{
	MM_SHARED(struct room, room);
	const uint32_t *in = MM_AT(const uint32_t, a.in_va);
	uint32_t *out = MM_AT(uint32_t, a.out_va);
	const uint32_t base = blockIdx.x * blockDim.x;
	uint32_t sum = 0;

	for (uint32_t round = 0; round < 3; round++) {
		room->words[threadIdx.x] = in[base + threadIdx.x] + round;
		if (a.what != TEST_NO_FIRST_BARRIER)
			__syncthreads();
		sum += room->words[blockDim.x - 1 - threadIdx.x];
		if (a.what != TEST_NO_SECOND_BARRIER)
			__syncthreads();
	}
	out[base + threadIdx.x] = sum;
}

/* out[i] = in[i ^ 1], each warp by itself */
MM_KERNEL(test_warp_swap, TEST_THREADS)
{
	MM_SHARED(struct room, room);

	room->words[threadIdx.x] = MM_AT(const uint32_t, a.in_va)[threadIdx.x];
	if (a.what != TEST_NO_FIRST_BARRIER)
		__syncwarp(MM_WARP_ALL);
	MM_AT(uint32_t, a.out_va)[threadIdx.x] = room->words[threadIdx.x ^ 1];
}

/* Every way that lanes have to look at each other: out[what][thread] */
MM_KERNEL(test_lanes, TEST_THREADS)
{
	const uint32_t v = MM_AT(const uint32_t, a.in_va)[threadIdx.x];
	const uint32_t lane = threadIdx.x % MM_WARP_THREADS;
	uint32_t *out = MM_AT(uint32_t, a.out_va) + threadIdx.x;

	out[0] = __shfl_sync(MM_WARP_ALL, v, 5);
	out[TEST_THREADS] = __shfl_sync(MM_WARP_ALL, v, lane + 3, 8);
	out[2 * TEST_THREADS] = __shfl_up_sync(MM_WARP_ALL, v, 3);
	out[3 * TEST_THREADS] = __shfl_down_sync(MM_WARP_ALL, v, 3, 16);
	out[4 * TEST_THREADS] = __shfl_xor_sync(MM_WARP_ALL, v, 9);
	out[5 * TEST_THREADS] = __ballot_sync(MM_WARP_ALL, v & 1);
	out[6 * TEST_THREADS] =
		(uint32_t)(__shfl_xor_sync(MM_WARP_ALL, (uint64_t)v << 33, 1) >> 33);
	out[7 * TEST_THREADS] = __float_as_uint(__shfl_xor_sync(MM_WARP_ALL, (float)v, 2));
	out[8 * TEST_THREADS] =
		__any_sync(MM_WARP_ALL, lane == 7) && !__all_sync(MM_WARP_ALL, lane);
	if (lane < 16) /* half of a warp on its own, the other at the same time elsewhere */
		out[9 * TEST_THREADS] = __shfl_xor_sync(0x0000ffffu, v, 1);
	else
		out[9 * TEST_THREADS] = __shfl_xor_sync(0xffff0000u, v, 2);
}

/* out[0] += 1 and out[1] = max, of all threads of the grid; then where each one is: out[2 + i] */
MM_KERNEL(test_places, TEST_THREADS)
{
	const uint32_t in_block =
		(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
	const uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
	const uint32_t i = block * blockDim.x * blockDim.y * blockDim.z + in_block;
	uint32_t *out = MM_AT(uint32_t, a.out_va);

	atomicAdd(&out[0], 1u);
	atomicMax(&out[1], i);
	out[2 + i] = i;
}

/* out[i] = dynamic shared words as found (a.what 0), or one written beyond them */
MM_KERNEL(test_dynamic, TEST_THREADS)
{
	MM_SHARED_DYNAMIC(uint32_t, words);

	MM_AT(uint32_t, a.out_va)[threadIdx.x] = words[threadIdx.x];
	if (threadIdx.x == 0)
		words[a.what == TEST_BEYOND ? blockDim.x : 0] = 1;
}

/* What must not be done: each ends the process. */
MM_KERNEL(test_wrong, TEST_THREADS)
{
	const uint32_t i = threadIdx.x;

	if (a.what == TEST_ENDED && i == 9)
		return;
	if (a.what == TEST_TWO_BARRIERS && i == 9)
		__syncthreads();
	else if (a.what == TEST_ENDED || a.what == TEST_TWO_BARRIERS)
		__syncthreads();
	if (a.what == TEST_LANE_ENDED && i == 9)
		return;
	if (a.what == TEST_LANE_ENDED)
		__syncwarp(MM_WARP_ALL);
	if (a.what == TEST_NOT_IN_MASK)
		__syncwarp(0xfffffffeu);
	if (a.what == TEST_OUTSIDE_OF_MASK && i % MM_WARP_THREADS < 16)
		MM_AT(uint32_t, a.out_va)[i] = __shfl_sync(0x0000ffffu, i, 20);
	if (a.what == TEST_NO_SUCH_LANE) /* launched with half a warp */
		__syncwarp(MM_WARP_ALL);
	if (a.what == TEST_FOR_EVER && i < 16)
		__syncwarp(MM_WARP_ALL);
	if (a.what == TEST_FOR_EVER)
		__syncthreads();
}
