/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RoPE: pair p of a token is elements i and i + head_dim / 2 of head p / (head_dim / 2), i the
 * rest. A block rotates MM_ROPE_PAIRS pairs of a token, a thread every MM_ROW_THREADS-th of them,
 * so a warp's loads are two runs of 128 bytes. Angles are doubles, as on the host, sine and cosine
 * the host's own (kernels/host/sincos.h): about fifty operations in double, once a thread where
 * head_dim / 2 divides MM_ROW_THREADS. Each element is read and written once. Bound: memory, or
 * latency for a few tokens.
 */
#include "kernels/cuda/device.h"
#include "kernels/host/sincos.h"

MM_KERNEL(rope, MM_ROW_THREADS)
{
	const uint32_t half = a.head_dim / 2, pairs = a.heads * half;
	const double position = MM_AT(const uint32_t, a.positions_va)[blockIdx.x];
	const double *frequencies = MM_AT(const double, a.frequencies_va);
	float *x = MM_AT(float, a.x_va) + (uint64_t)blockIdx.x * a.stride;
	uint32_t rotated = half; /* pair whose angle s and c have: none yet */
	float s = 0, c = 1;

	for (uint32_t first = blockIdx.y * MM_ROPE_PAIRS; first < pairs;
	     first += gridDim.y * MM_ROPE_PAIRS) {
		for (uint32_t j = threadIdx.x; j < MM_ROPE_PAIRS && first + j < pairs;
		     j += MM_ROW_THREADS) {
			const uint32_t head = (first + j) / half, i = (first + j) % half;
			float *p = x + (uint64_t)head * a.head_dim + i;
			const float low = p[0], high = p[half];

			if (i != rotated)
				mm_sincos(position * frequencies[i], &s, &c);
			rotated = i;
			p[0] = low * c - high * s;
			p[half] = high * c + low * s;
		}
	}
}
