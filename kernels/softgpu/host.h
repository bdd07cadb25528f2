/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_host - host memory that the device may access: registered, or from cuMemHostAlloc()
 *
 * Concept:   a device address of such memory is its host address. Registration is bookkeeping and a
 *            check of what the driver checks: whole pages that exist, writable unless READ_ONLY.
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
	bool allocated;     /* from cuMemHostAlloc() */
	uint64_t start, end;
	/*
	 * Timed mode: inode of the file that is mapped there, and the offset in it; 0 = none, or
	 * several mappings.
	 */
	uint64_t inode, offset;
};

struct sg_host_info sg_host_describe(uint64_t addr);

/*
 * Return: whether some of the bytes are registered and others are not, which drivers refuse. A
 * registration has the whole of each page.
 */
bool sg_host_is_mixed(uint64_t addr, uint64_t bytes);

/* Frees the memory of @owner's cuMemHostAlloc(), and unregisters what it registered. */
void sg_host_free_owned(const struct sg_context *owner);
