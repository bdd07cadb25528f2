/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_parts - what `mmbench gpu` can measure; Documentation/mmbench.md says what each number is
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
