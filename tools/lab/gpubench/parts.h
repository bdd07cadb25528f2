/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_parts - the parts of `mmbench gpu`
 *
 * Concept:   Each part measures one thing, in a process of its own (gpubench.h).
 *            Documentation/mmbench.md explains the numbers.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/gpubench/gpubench.h"

int mm_gpu_attention_run(struct mm_gpu_bench *bench);
int mm_gpu_decode_run(struct mm_gpu_bench *bench);
int mm_gpu_gemm_run(struct mm_gpu_bench *bench);
int mm_gpu_grant_run(struct mm_gpu_bench *bench);
int mm_gpu_kernels_run(struct mm_gpu_bench *bench);
int mm_gpu_memops_run(struct mm_gpu_bench *bench);
int mm_gpu_overhead_run(struct mm_gpu_bench *bench);
int mm_gpu_pages_run(struct mm_gpu_bench *bench);
int mm_gpu_scrub_run(struct mm_gpu_bench *bench);
int mm_gpu_stream_run(struct mm_gpu_bench *bench);
