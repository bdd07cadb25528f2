/* SPDX-License-Identifier: Apache-2.0 */
/* The backend that launches the module's own mm_gemm. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/blas/impl.h"

struct kernel_gemm {
	struct mm_gemm base; /* first */
	CUfunction function;
};

static uint32_t kernel_room(const struct mm_gemm *gemm, uint32_t rows)
{
	(void)gemm;
	return rows;
}

static CUresult kernel_multiply(struct mm_gemm *gemm, const struct mm_gemm_args *a, CUstream stream)
{
	const struct kernel_gemm *g = (const struct kernel_gemm *)gemm;
	struct mm_gemm_args args = *a;

	return mm_gemm_launch(gemm, MM_KERNEL_GEMM, g->function, &args, stream);
}

static void kernel_close(struct mm_gemm *gemm)
{
	free(gemm);
}

int mm_gemm_kernel_open(const struct mm_gpu_api *gpu, const struct mm_gemm_opts *opts,
			struct mm_gemm **ret_gemm, const struct mm_gemm_error *err)
{
	static const struct mm_gemm_ops ops = { kernel_room, kernel_multiply, kernel_close };
	struct kernel_gemm *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		mm_gemm_fail(err, "out of memory");
		return -ENOMEM;
	}
	g->base = (struct mm_gemm){ .ops = &ops, .gpu = gpu, .opts = *opts };
	r = mm_gemm_find(&g->base, MM_KERNEL_GEMM, &g->function, err);
	if (r) {
		free(g);
		return r;
	}
	snprintf(g->base.description, sizeof(g->base.description), "kernel");
	*ret_gemm = &g->base;
	return 0;
}
