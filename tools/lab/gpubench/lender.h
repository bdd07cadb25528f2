/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_lender - a process that does nothing but make pages and pass their descriptors
 *
 * Concept:   The cost of an import is measured with handles that another process made, as mmd does.
 *            The lender must be forked before this process opens the driver.
 * Ownership: the process ends when the lender is closed. The caller closes the descriptors.
 * Threading: one thread.
 * Errors:    negative errno, with the sentence in bench->err.
 */
#pragma once

#include "tools/lab/gpubench/gpubench.h"

#define MM_GPU_LENT_MAX 4096

struct mm_gpu_lender {
	struct mm_gpu_bench *bench;
	int fd;
};

int mm_gpu_lender_open(struct mm_gpu_lender *lender, struct mm_gpu_bench *bench);

/* Has @n new pages made in place of the previous ones. @ret_fds: [n], written only on success. */
int mm_gpu_lender_lend(struct mm_gpu_lender *lender, uint64_t page_bytes, uint32_t n, int *ret_fds);

void mm_gpu_lender_close(struct mm_gpu_lender *lender);
