/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/gemm_blas.h"
#include "kernels/host/isa.h"
#include "kernels/host/lanes.h"

#include <cblas.h>
#include <string.h>

#define STRIPE_FLOATS 65536u

__attribute__((constructor)) static void openblas_use_one_thread(void)
{
	openblas_set_num_threads(1);
}

/* Computes y[:, o .. o + n) from @n rows of F32 weights. */
static void stripe_multiply(const struct mm_gemm_args *a, const float *w, uint32_t o, uint32_t n)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)a->tokens, (blasint)n,
		    (blasint)a->k, 1.0f, mm_at(a->x_va), (blasint)a->k, w, (blasint)a->k, 0.0f,
		    (float *)mm_at(a->y_va) + o, (blasint)a->y_stride);
}

static void weights_widen(const struct mm_gemm_args *a, uint64_t first, uint64_t n, float *out)
{
	const char *w = (const char *)mm_at(a->w_va) + first * 2;

	for (uint64_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t count = n - i < MM_GEMM_LANES ? (uint32_t)(n - i) : MM_GEMM_LANES;
		const mm_lanes v = mm_lanes_load(w + i * 2, count, a->dtype);

		memcpy(out + i, &v, count * sizeof(float));
	}
}

void mm_gemm_blas(const struct mm_gemm_args *a)
{
	static _Thread_local float stripe[STRIPE_FLOATS];
	const uint32_t rows = STRIPE_FLOATS / a->k;

	if (a->dtype == MM_DTYPE_F32) {
		stripe_multiply(a, mm_at(a->w_va), 0, a->outputs);
		return;
	}
	if (rows == 0) { /* a row does not fit the stripe: use the exact form */
		mm_isa_gemm_plain(a);
		return;
	}
	for (uint32_t o = 0; o < a->outputs; o += rows) {
		const uint32_t n = a->outputs - o < rows ? a->outputs - o : rows;

		weights_widen(a, (uint64_t)o * a->k, (uint64_t)n * a->k, stripe);
		stripe_multiply(a, stripe, o, n);
	}
}
