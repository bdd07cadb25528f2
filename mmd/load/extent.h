/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_extent - which parts of a file are data, and which are holes
 *
 * Concept:    A hole reads as zeros, and so does memory of a store that was never written. So holes
 *             are neither read nor given memory: a model of tens of GiB whose files are all holes
 *             loads at once and takes no memory. On a file system that does not report holes, all
 *             is data.
 * Threading:  any; the position of the fd is shared.
 * Invariants: extents are not empty, and their ends that are not the caller's are aligned.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_EXTENT_ALIGN UINT64_C(4096) /* alignment of a read by O_DIRECT */

struct mm_extent {
	uint64_t start, end;
};

/**
 * mm_extent_next() - the next data of a file
 * @fd:         regular; its position changes
 * @at:         where to begin
 * @end:        where to stop
 * @ret_extent: rounded outwards to MM_EXTENT_ALIGN, but within @at and @end; written only on
 *              success
 *
 * Return: false if the rest is a hole.
 */
bool mm_extent_next(int fd, uint64_t at, uint64_t end, struct mm_extent *ret_extent);

/* True if [@at, @end) has a hole of at least a page. */
bool mm_extent_sparse(int fd, uint64_t at, uint64_t end);
