/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the host kernels' module: names as in CUDA, one struct argument each
 * (kernels/args/args.h).
 */
#include "libclient/base/base.h"
#include "kernels/host/checksum.h"
#include "kernels/host/cost.h"
#include "kernels/host/gemm_blas.h"
#include "kernels/host/isa.h"
#include "kernels/host/kernel.h"
#include "kernels/host/rows.h"

#include <string.h>

/* Set once, because identifying the processor is slow in a virtual machine. */
static const struct mm_isa *isa;

__attribute__((constructor)) static void pick_isa(void)
{
	isa = mm_isa_best();
}

static void checksum_to_memory(const struct mm_checksum_args *a)
{
	const uint64_t sum =
		mm_checksum_bytes((const void *)(uintptr_t)a->data_va, (size_t)a->length_bytes);

	memcpy((void *)(uintptr_t)a->out_va, &sum, sizeof(sum));
}

static void gemm_by_isa(const struct mm_gemm_args *a)
{
#ifdef MM_GEMM_BLAS
	mm_gemm_blas(a);
#else
	isa->gemm(a);
#endif
}

static void attention_by_isa(const struct mm_paged_attention_args *a)
{
	isa->attention(a);
}

/* Copies the argument: the launch's bytes need not be aligned for the struct. */
#define KERNEL(noun, function)                                                          \
	static void run_##noun(const struct mm_host_launch *launch, void *const *args)  \
	{                                                                               \
		struct mm_##noun##_args a;                                              \
                                                                                        \
		(void)launch;                                                           \
		memcpy(&a, args[0], sizeof(a));                                         \
		function(&a);                                                           \
	}                                                                               \
                                                                                        \
	static void cost_##noun(const struct mm_host_launch *launch, void *const *args, \
				struct mm_cost *ret)                                    \
	{                                                                               \
		struct mm_##noun##_args a;                                              \
                                                                                        \
		(void)launch;                                                           \
		memcpy(&a, args[0], sizeof(a));                                         \
		*ret = mm_costs_##noun(&a);                                             \
	}

KERNEL(embed, mm_rows_embed)
KERNEL(position_embed, mm_rows_position_embed)
KERNEL(gather, mm_rows_gather)
KERNEL(rmsnorm, mm_rows_rmsnorm)
KERNEL(layernorm, mm_rows_layernorm)
KERNEL(bias_add, mm_rows_bias_add)
KERNEL(rope, mm_rows_rope)
KERNEL(kv_write, mm_rows_kv_write)
KERNEL(paged_attention, attention_by_isa)
KERNEL(swiglu, mm_rows_swiglu)
KERNEL(relu, mm_rows_relu)
KERNEL(add, mm_rows_add)
KERNEL(gemm, gemm_by_isa)
KERNEL(narrow, mm_rows_narrow)
KERNEL(argmax, mm_rows_argmax)
KERNEL(checksum, checksum_to_memory)
KERNEL(fill, mm_rows_fill)
KERNEL(kv_gather, mm_rows_kv_gather)
KERNEL(kv_scatter, mm_rows_kv_scatter)

#define ENTRY(noun)                                                                      \
	{                                                                                \
		.name = "mm_" #noun, .fn = run_##noun, .cost = cost_##noun, .n_args = 1, \
		.arg_bytes = {                                                           \
			sizeof(struct mm_##noun##_args)                                  \
		}                                                                        \
	}

MM_EXPORT const struct mm_host_kernel mm_host_kernels[] = {
	ENTRY(embed),     ENTRY(position_embed),  ENTRY(gather),     ENTRY(rmsnorm),
	ENTRY(layernorm), ENTRY(bias_add),        ENTRY(rope),       ENTRY(kv_write),
	ENTRY(gemm),      ENTRY(paged_attention), ENTRY(swiglu),     ENTRY(relu),
	ENTRY(add),       ENTRY(narrow),          ENTRY(argmax),     ENTRY(checksum),
	ENTRY(fill),      ENTRY(kv_gather),       ENTRY(kv_scatter), { .name = NULL },
};
