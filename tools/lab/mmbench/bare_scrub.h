/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare_scrub - the time that a device takes to fill pages with zeros
 *
 * Concept:   Pages of our own, mapped side by side; one fill over all, and a wait for it.
 * Threading: one thread. The context is current from mm_bare_scrub_init() on.
 * Errors:    negative errno, and the driver's call that failed in @err.
 */
#pragma once

#include <stdint.h>

#include "mm/gpu.h"

struct mm_bare_scrub {
	struct mm_gpu_api gpu;
	CUdeviceptr va;
	uint64_t pages, page_bytes;
	char err[128];
};

/* On the software GPU of the environment. */
int mm_bare_scrub_init(struct mm_bare_scrub *scrub, uint64_t pages, uint64_t page_bytes);
int mm_bare_scrub_run(struct mm_bare_scrub *scrub, double *ret_ms);
