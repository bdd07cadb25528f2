/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_groups - the groups of measurements
 *
 * Concept:   Each group measures one thing, in a process of its own (gpubench.h).
 *            Documentation/gpubench.md explains the numbers.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/gpubench/gpubench.h"
#include "tools/lab/gpubench/measure.h"

extern const struct mm_gpu_group mm_gpu_attention, mm_gpu_decode, mm_gpu_gemm, mm_gpu_grant,
	mm_gpu_kernels, mm_gpu_memops, mm_gpu_overhead, mm_gpu_pages, mm_gpu_scrub, mm_gpu_sharing,
	mm_gpu_stream, mm_gpu_stream2d;
