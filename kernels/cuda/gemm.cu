/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product with exactly the host's bits (kernels/args/gemm.h): for checking; cuBLAS is
 * the fast one (kernels/blas). A thread has one output for MM_GEMM_TOKENS tokens and keeps their
 * sixteen partial sums each in registers; sixteen weights at a time come in as one sector of
 * memory, the activations are the same for a whole warp. No fused multiply-add, no shared memory,
 * no barrier. Bound: latency of memory for a few tokens (a tenth of the bandwidth can be expected),
 * arithmetic for many.
 */
#include "kernels/cuda/vector.h"

struct gemm_lanes {
	float v[MM_GEMM_LANES];
};

MM_DEVICE struct gemm_lanes gemm_load(const char *row, uint32_t k, uint32_t n, uint32_t dtype)
{
	struct gemm_lanes l;

	MM_UNROLL(4)
	for (uint32_t i = 0; i < MM_GEMM_LANES; i += 4) {
		const float4 v = mm_load4(row, k + i, n, dtype);

		l.v[i] = v.x;
		l.v[i + 1] = v.y;
		l.v[i + 2] = v.z;
		l.v[i + 3] = v.w;
	}
	return l;
}

/* The same tree as the host's: mm_lanes_sum(), kernels/host/lanes.h. */
MM_DEVICE float gemm_tree(const struct gemm_lanes *l)
{
	float sum[8];

	MM_UNROLL(8)
	for (uint32_t i = 0; i < 8; i++)
		sum[i] = l->v[i] + l->v[i + 8];
	MM_UNROLL(4)
	for (uint32_t i = 0; i < 4; i++)
		sum[i] += sum[i + 4];
	return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Computes one output for @tokens tokens from @x on, at most MM_GEMM_TOKENS. */
MM_DEVICE void gemm_output(const char *w, const float *x, float *y, uint32_t tokens, uint32_t k,
			   uint32_t dtype, uint32_t y_stride)
{
	struct gemm_lanes sum[MM_GEMM_TOKENS];

	MM_UNROLL(4)
	for (uint32_t t = 0; t < MM_GEMM_TOKENS; t++)
		MM_UNROLL(16)
	for (uint32_t i = 0; i < MM_GEMM_LANES; i++)
		sum[t].v[i] = 0;
	for (uint32_t at = 0; at < k; at += MM_GEMM_LANES) {
		const struct gemm_lanes ws = gemm_load(w, at, k, dtype);

		MM_UNROLL(4)
		for (uint32_t t = 0; t < MM_GEMM_TOKENS; t++) {
			if (t < tokens) {
				const struct gemm_lanes xs = gemm_load(
					(const char *)(x + (uint64_t)t * k), at, k, MM_DTYPE_F32);

				MM_UNROLL(16)
				for (uint32_t i = 0; i < MM_GEMM_LANES; i++)
					sum[t].v[i] += ws.v[i] * xs.v[i];
			}
		}
	}
	MM_UNROLL(4)
	for (uint32_t t = 0; t < MM_GEMM_TOKENS; t++)
		if (t < tokens)
			y[(uint64_t)t * y_stride] = gemm_tree(&sum[t]);
}

MM_KERNEL(gemm, MM_GEMM_THREADS)
{
	const uint64_t row_bytes = (uint64_t)a.k * mm_element_bytes(a.dtype);

	for (uint64_t t = blockIdx.y * MM_GEMM_TOKENS; t < a.tokens;
	     t += gridDim.y * MM_GEMM_TOKENS) {
		const uint64_t left = a.tokens - t;
		const uint32_t tokens = left < MM_GEMM_TOKENS ? (uint32_t)left : MM_GEMM_TOKENS;

		for (uint64_t o = blockIdx.x * MM_GEMM_THREADS + threadIdx.x; o < a.outputs;
		     o += gridDim.x * MM_GEMM_THREADS)
			gemm_output(MM_AT(const char, a.w_va) + o * row_bytes,
				    MM_AT(const float, a.x_va) + t * a.k,
				    MM_AT(float, a.y_va) + t * a.y_stride + o, tokens, a.k, a.dtype,
				    a.y_stride);
	}
}
