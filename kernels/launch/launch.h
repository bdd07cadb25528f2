/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch - the kernels of a module, and the grid and blocks that each is launched with
 *
 * Concept:    the only place that computes shapes, for mmserve, tests and benchmarks. The CUDA
 *             kernels (kernels/cuda) take the sizes of their blocks from here too; where a grid is
 *             smaller than the work, they stride over the rest. Host kernels ignore shapes.
 * Invariants: a shape depends on the arguments alone, so a graph that was captured with one stays
 *             right for as long as the arguments do. No kernel is given more than the 48 KiB of
 *             shared memory that every device has.
 * Threading:  pure.
 */
#pragma once

#include <stdint.h>

enum mm_kernel {
	MM_KERNEL_EMBED,
	MM_KERNEL_POSITION_EMBED,
	MM_KERNEL_GATHER,
	MM_KERNEL_RMSNORM,
	MM_KERNEL_LAYERNORM,
	MM_KERNEL_BIAS_ADD,
	MM_KERNEL_ROPE,
	MM_KERNEL_KV_WRITE,
	MM_KERNEL_ATTENTION,
	MM_KERNEL_SWIGLU,
	MM_KERNEL_RELU,
	MM_KERNEL_ADD,
	MM_KERNEL_GEMM,
	MM_KERNEL_ARGMAX,
	MM_KERNEL_CHECKSUM,
	MM_KERNEL_FILL,
	MM_KERNEL_KV_GATHER,
	MM_KERNEL_KV_SCATTER,
	MM_KERNEL_NARROW,
	MM_KERNEL_COUNT
};

/* ---- what a block does: shared with the kernels ---- */

#define MM_ROW_THREADS     128u  /* threads of kernels that take rows by columns */
#define MM_ROW_COLUMNS     1024u /* columns of a row that a block of these takes at once */
#define MM_NORM_THREADS    256u  /* threads of kernels whose blocks take whole rows */
#define MM_ROPE_PAIRS      512u  /* pairs of a token that MM_ROW_THREADS threads rotate at once */
#define MM_FLAT_THREADS    256u  /* threads of kernels over one long range */
#define MM_FLAT_BYTES      8192u /* bytes of the range that a block of these takes at once */
#define MM_GEMM_THREADS    128u  /* threads of a block, one for each output */
#define MM_GEMM_TOKENS     4u    /* tokens of a block */
#define MM_CHECKSUM_PIECES 32u   /* pieces that a block takes at once, by eight threads each */

#define MM_ARGMAX_THREADS    512u
#define MM_ATTENTION_THREADS 128u
/* Query rows that a block takes at once. */
#define MM_ATTENTION_ROWS(head_dim) ((head_dim) > 128 ? 4u : 8u)
/* Lanes that share a key; each holds at most 16 of its elements. */
#define MM_ATTENTION_KEY_LANES(head_dim) ((head_dim) <= 64 ? 4u : (head_dim) <= 128 ? 8u : 16u)

struct mm_launch_shape {
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes; /* dynamic */
};

/* Return: the kernel's name in every module, "mm_embed" for example. */
const char *mm_kernel_name(enum mm_kernel kernel);

/**
 * mm_launch_shape() - how to launch a kernel
 * @kernel: below MM_KERNEL_COUNT
 * @args:   its struct (kernels/args/args.h, kernels/args/gemm.h), aligned as such
 * @ret:    always written; each number is at least 1, shared_bytes may be 0
 *
 * No grid is empty. Products and kernels over a range do nothing if the range is empty; kernels
 * over rows or blocks assume that there is a first one, so that a launch without rows is not
 * allowed.
 */
void mm_launch_shape(enum mm_kernel kernel, const void *args, struct mm_launch_shape *ret);
