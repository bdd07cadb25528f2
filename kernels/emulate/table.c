/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the emulated module: the kernels of kernels/cuda, with the cost functions of the
 * host kernels.
 */
#include "kernels/emulate/emulate.h"
#include "kernels/host/cost.h"

#include <string.h>

/* Copies the argument: the launch's bytes need not be aligned for the struct. */
#define KERNEL(noun)                                                                    \
	void mm_##noun(struct mm_##noun##_args a);                                      \
                                                                                        \
	static void thread_##noun(const void *args)                                     \
	{                                                                               \
		mm_##noun(*(const struct mm_##noun##_args *)args);                      \
	}                                                                               \
                                                                                        \
	static void run_##noun(const struct mm_host_launch *launch, void *const *args)  \
	{                                                                               \
		struct mm_##noun##_args a;                                              \
                                                                                        \
		memcpy(&a, args[0], sizeof(a));                                         \
		mm_emulate_launch("mm_" #noun, launch, thread_##noun, &a);              \
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

KERNEL(embed)
KERNEL(position_embed)
KERNEL(gather)
KERNEL(rmsnorm)
KERNEL(layernorm)
KERNEL(bias_add)
KERNEL(rope)
KERNEL(kv_write)
KERNEL(paged_attention)
KERNEL(argmax)
KERNEL(swiglu)
KERNEL(relu)
KERNEL(add)
KERNEL(gemm)
KERNEL(narrow)
KERNEL(checksum)
KERNEL(fill)
KERNEL(kv_gather)
KERNEL(kv_scatter)

#define ENTRY(noun)                                                                      \
	{                                                                                \
		.name = "mm_" #noun, .fn = run_##noun, .cost = cost_##noun, .n_args = 1, \
		.arg_bytes = {                                                           \
			sizeof(struct mm_##noun##_args)                                  \
		}                                                                        \
	}

MM_EXPORT const struct mm_host_kernel mm_host_kernels[] = {
	ENTRY(embed),      ENTRY(position_embed), ENTRY(gather),
	ENTRY(rmsnorm),    ENTRY(layernorm),      ENTRY(bias_add),
	ENTRY(rope),       ENTRY(kv_write),       ENTRY(paged_attention),
	ENTRY(argmax),     ENTRY(swiglu),         ENTRY(relu),
	ENTRY(add),        ENTRY(gemm),           ENTRY(narrow),
	ENTRY(checksum),   ENTRY(fill),           ENTRY(kv_gather),
	ENTRY(kv_scatter), { .name = NULL },
};
