/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/extent.h"

#include <errno.h>
#include <unistd.h>

#include "libclient/base/base.h"

bool mm_extent_next(int fd, uint64_t at, uint64_t end, struct mm_extent *ret_extent)
{
	struct mm_extent found = { at, end };
	off_t data, hole;

	if (at >= end)
		return false;
	data = lseek(fd, (off_t)at, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return false;
	hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
	/* Without SEEK_HOLE in the file system, all of it counts as data. */
	if (hole > data) {
		found.start = (uint64_t)data / MM_EXTENT_ALIGN * MM_EXTENT_ALIGN;
		found.end = mm_round_up((uint64_t)hole, MM_EXTENT_ALIGN);
	}
	found.start = MM_MAX(found.start, at);
	found.end = MM_MIN(found.end, end);
	if (found.start >= end)
		return false;
	*ret_extent = found;
	return true;
}

bool mm_extent_sparse(int fd, uint64_t at, uint64_t end)
{
	struct mm_extent first;

	if (at >= end)
		return false;
	return !mm_extent_next(fd, at, end, &first) || first.start > at || first.end < end;
}
