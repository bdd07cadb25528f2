/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_host - host memory that the device may touch: registered, or from cuMemHostAlloc()
 *
 * Concept:   a device address of such memory is its host address. Registration is bookkeeping and a
 *            check of what the driver checks: whole pages, really there, writable unless READ_ONLY.
 * Ownership: both end with the context that made them, PORTABLE or not.
 * Threading: everything is safe from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sg_context;

struct sg_host_info {
	bool known;
	unsigned int flags; /* CU_MEMHOSTREGISTER_* or CU_MEMHOSTALLOC_* */
	bool allocated;     /* by us */
	uint64_t start, end;
	/*
	 * Timed mode: the file that is mapped there, and where in it; 0 = none, or not of one
	 * piece.
	 */
	uint64_t inode, offset;
};

struct sg_host_info sg_host_describe(uint64_t addr);

/* Frees what @owner's cuMemHostAlloc() gave, and unregisters what it registered. */
void sg_host_free_owned(const struct sg_context *owner);
