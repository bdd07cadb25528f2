/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_lender - a process that makes pages and passes their descriptors, and does nothing else
 *
 * Concept:   what an import costs is measured with handles that another process made, as mmd's are.
 *            It must be forked before this process opens the driver.
 * Ownership: the process ends when the lender is closed. Descriptors are the caller's.
 */
#pragma once

#include "tools/lab/gpubench/gpubench.h"

#define MM_GPU_LENT_MAX 4096

struct mm_gpu_lender {
	struct mm_gpu_bench *bench;
	int fd;
};

int mm_gpu_lender_open(struct mm_gpu_lender *lender, struct mm_gpu_bench *bench);

/* New pages in place of those before. @ret_fds: [n], written only on success. */
int mm_gpu_lender_lend(struct mm_gpu_lender *lender, uint64_t page_bytes, uint32_t n, int *ret_fds);

void mm_gpu_lender_close(struct mm_gpu_lender *lender);
