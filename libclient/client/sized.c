/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/client/sized.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"

static size_t size_of(const void *theirs)
{
	size_t size;

	memcpy(&size, theirs, sizeof(size));
	return size;
}

int mm_sized_check(const void *theirs, size_t v1_bytes)
{
	if (!theirs || size_of(theirs) < v1_bytes || size_of(theirs) > MM_SIZED_MAX)
		return -EINVAL;
	return 0;
}

int mm_sized_copy_in(const void *theirs, size_t bytes, void *own, size_t own_bytes)
{
	const unsigned char *from = theirs;
	const size_t known = MM_MIN(bytes, own_bytes);

	for (size_t i = known; i < bytes; i++)
		if (from[i])
			return -EINVAL;
	memset(own, 0, own_bytes);
	memcpy(own, theirs, known);
	return 0;
}

int mm_sized_read(const void *theirs, size_t v1_bytes, void *own, size_t own_bytes)
{
	int r = mm_sized_check(theirs, v1_bytes);

	return r ? r : mm_sized_copy_in(theirs, size_of(theirs), own, own_bytes);
}

void mm_sized_write(void *theirs, const void *own, size_t own_bytes)
{
	const size_t first = sizeof(size_t), size = size_of(theirs);
	const size_t known = MM_MIN(size, own_bytes);

	memcpy((char *)theirs + first, (const char *)own + first, known - first);
	memset((char *)theirs + known, 0, size - known);
}
