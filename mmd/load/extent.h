/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_extent - what of a file is data, and what holes
 *
 * Concept: a hole reads as zeros, and so does a store's memory that was never written. So holes are
 *          neither read nor given memory: a model of tens of GiB whose files have none of it on
 *          disk loads at once, and takes no memory. Where a file system knows of no holes, all is
 *          data.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_EXTENT_ALIGN UINT64_C(4096) /* of a read by O_DIRECT */

struct mm_extent {
	uint64_t start, end;
};

/**
 * mm_extent_next() - the next data of a file
 * @fd:         regular; its position changes
 * @at:         looked for from here on
 * @end:        up to here
 * @ret_extent: within both, but for that, rounded outwards to MM_EXTENT_ALIGN; written only on
 *             success
 *
 * Return: false if the rest is a hole.
 */
bool mm_extent_next(int fd, uint64_t at, uint64_t end, struct mm_extent *ret_extent);

/* Is there any hole, of the size of a page at least, in [@at, @end)? */
bool mm_extent_sparse(int fd, uint64_t at, uint64_t end);
