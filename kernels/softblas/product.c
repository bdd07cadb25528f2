/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softblas/product.h"

#include <string.h>

#include "kernels/host/kernel.h"
#include "kernels/host/lanes.h"
#include "libclient/base/base.h"

#define STRETCH_MAX  256u
#define TILE_COLUMNS 64u

/*
 * A vector of op(A)'s row or op(B)'s column along k: its first element, and the step to the next.
 */
struct vector {
	const char *at;
	uint64_t step; /* in elements */
	enum mm_dtype dtype;
};

uint32_t softblas_stretch(uint32_t columns)
{
	if (columns <= 8)
		return 48;
	if (columns <= 32)
		return 96;
	return columns <= 128 ? 160 : STRETCH_MAX;
}

static struct vector vector_of_row(const struct softblas_args *g, uint32_t i)
{
	const uint64_t step = g->a.transposed ? 1 : g->a.ld, skip = g->a.transposed ? g->a.ld : 1;
	const uint32_t bytes = mm_dtype_bytes(g->a.dtype);

	return (struct vector){ (const char *)(uintptr_t)g->a.va + i * skip * bytes, step,
				g->a.dtype };
}

static struct vector vector_of_column(const struct softblas_args *g, uint32_t j)
{
	const uint64_t step = g->b.transposed ? g->b.ld : 1, skip = g->b.transposed ? 1 : g->b.ld;
	const uint32_t bytes = mm_dtype_bytes(g->b.dtype);

	return (struct vector){ (const char *)(uintptr_t)g->b.va + j * skip * bytes, step,
				g->b.dtype };
}

/* Widens @n elements from @first on to F32, with zeros up to whole lanes. */
static void vector_widen(const struct vector *v, uint32_t first, uint32_t n, float *out)
{
	const uint32_t bytes = mm_dtype_bytes(v->dtype);

	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t count = MM_MIN(n - i, MM_GEMM_LANES);
		mm_lanes lanes;

		if (v->step == 1) {
			lanes = mm_lanes_load(v->at + (uint64_t)(first + i) * bytes, count,
					      v->dtype);
		} else {
			lanes = (mm_lanes){ 0 };
			for (uint32_t e = 0; e < count; e++)
				lanes[e] = mm_lanes_load(v->at + (first + i + e) * v->step * bytes,
							 1, v->dtype)[0];
		}
		memcpy(out + i, &lanes, sizeof(lanes));
	}
}

static float dot_product(const float *a, const float *b, uint32_t n)
{
	mm_lanes sum = { 0 };

	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		mm_lanes x, y;

		memcpy(&x, a + i, sizeof(x));
		memcpy(&y, b + i, sizeof(y));
		sum += x * y;
	}
	return mm_lanes_sum(sum);
}

/*
 * Adds a stretch of k to @columns columns of C from @j on; the first stretch overwrites or scales
 * C.
 */
static void stretch_add(const struct softblas_args *g, uint32_t j, uint32_t columns, uint32_t first,
			uint32_t n)
{
	static _Thread_local float b[TILE_COLUMNS][STRETCH_MAX];
	float *c = (float *)(uintptr_t)g->c.va + (uint64_t)j * g->c.ld, a[STRETCH_MAX];

	for (uint32_t t = 0; t < columns; t++) {
		const struct vector v = vector_of_column(g, j + t);

		vector_widen(&v, first, n, b[t]);
	}
	for (uint32_t i = 0; i < g->m; i++) {
		const struct vector v = vector_of_row(g, i);

		vector_widen(&v, first, n, a);
		for (uint32_t t = 0; t < columns; t++) {
			float *to = c + (uint64_t)t * g->c.ld + i;
			const float sum = g->alpha * dot_product(a, b[t], n);

			if (first)
				*to += sum;
			else /* BLAS does not read C where beta is 0 */
				*to = g->beta == 0.0f ? sum : g->beta * *to + sum;
		}
	}
}

void softblas_product(const struct softblas_args *g)
{
	const uint32_t stretch = softblas_stretch(g->n);

	for (uint32_t j = 0; j < g->n; j += TILE_COLUMNS) {
		const uint32_t columns = MM_MIN(g->n - j, TILE_COLUMNS);

		for (uint32_t k = 0; k == 0 || k < g->k; k += stretch)
			stretch_add(g, j, columns, k, MM_MIN(g->k - k, stretch));
	}
}

static void product_run(const struct mm_host_launch *launch, void *const *args)
{
	struct softblas_args g;

	(void)launch;
	memcpy(&g, args[0], sizeof(g));
	softblas_product(&g);
}

static void product_cost(const struct mm_host_launch *launch, void *const *args,
			 struct mm_cost *ret)
{
	struct softblas_args g;

	(void)launch;
	memcpy(&g, args[0], sizeof(g));
	*ret = mm_cost_gemm(g.n, g.m, g.k, mm_dtype_bytes(g.a.dtype));
}

MM_EXPORT const struct mm_host_kernel mm_host_kernels[] = {
	{ .name = SOFTBLAS_KERNEL,
	  .fn = product_run,
	  .cost = product_cost,
	  .n_args = 1,
	  .arg_bytes = { sizeof(struct softblas_args) } },
	{ .name = NULL },
};
