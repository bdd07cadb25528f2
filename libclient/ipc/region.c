/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ipc/region.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"

static int region_map(struct mm_region *region, size_t size_bytes, int prot)
{
	void *base = mmap(NULL, size_bytes, prot, MAP_SHARED, region->fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	region->base = base;
	region->size_bytes = size_bytes;
	return 0;
}

static int file_open_again(int fd, int flags)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Replaces the region's fd by one that is open for reading only. */
static int region_make_readonly(struct mm_region *region)
{
	int fd = file_open_again(region->fd, O_RDONLY);

	if (fd < 0)
		return fd;
	close(region->fd);
	region->fd = fd;
	return 0;
}

int mm_region_create(size_t size_bytes, enum mm_region_kind kind, const char *name,
		     struct mm_region *ret_region)
{
	mm_cleanup(mm_region_done) struct mm_region region = MM_REGION_NULL;
	int r;

	if (mm_fault("region.create"))
		return -ENOMEM;
	if (!size_bytes || size_bytes > PTRDIFF_MAX)
		return -EINVAL;
	region.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (region.fd < 0)
		return -errno;
	/* A memfd is born with mode 0777: whoever gets it could open it again for writing. */
	if (fchmod(region.fd, 0600) < 0 || ftruncate(region.fd, (off_t)size_bytes) < 0)
		return -errno;
	r = region_map(&region, size_bytes, PROT_READ | PROT_WRITE);
	if (r)
		return r;
	if (fcntl(region.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	if (kind == MM_REGION_READONLY)
		r = region_make_readonly(&region);
	if (r)
		return r;

	*ret_region = region;
	region = MM_REGION_NULL;
	return 0;
}

int mm_region_again(int fd, size_t least_bytes, size_t most_bytes, struct mm_region *ret_region)
{
	mm_cleanup(mm_region_done) struct mm_region region = { .fd = fd };
	mm_cleanup(mm_region_done) struct mm_region writable = MM_REGION_NULL;
	size_t size_bytes;
	struct stat st;
	int r;

	if (mm_fault("region.again"))
		return -ENOMEM;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size < least_bytes ||
	    (uint64_t)st.st_size > most_bytes)
		return -EPROTO;
	size_bytes = (size_t)st.st_size;
	r = file_open_again(fd, O_RDWR);
	if (r < 0)
		return r;
	writable.fd = r;
	r = region_map(&writable, size_bytes, PROT_READ | PROT_WRITE);
	if (r)
		return r;
	region.base = writable.base;
	region.size_bytes = size_bytes;
	writable.base = NULL;
	*ret_region = region;
	region = MM_REGION_NULL;
	return 0;
}

size_t mm_region_map_bytes(const struct stat *st, size_t bytes)
{
	uint64_t unit = st->st_blksize > 0 ? (uint64_t)st->st_blksize : 1;
	uint64_t rounded = mm_round_up(bytes, unit);

	/* Not past the end of the file: access to a page there would fault. */
	return rounded && rounded <= (uint64_t)st->st_size ? rounded : bytes;
}

int mm_region_open(int fd, size_t size_bytes, bool writable, struct mm_region *ret_region)
{
	return mm_region_open_between(fd, size_bytes, size_bytes, writable, ret_region);
}

int mm_region_open_between(int fd, size_t least_bytes, size_t most_bytes, bool writable,
			   struct mm_region *ret_region)
{
	mm_cleanup(mm_region_done) struct mm_region region = { .fd = fd };
	size_t size_bytes;
	struct stat st;
	int seals;
	int r;

	if (mm_fault("region.open"))
		return -ENOMEM;
	/* Seals are checked first: only a memfd has them, and fstat() on one cannot hang. */
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPROTO;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!least_bytes || st.st_size < 0 || (uint64_t)st.st_size < least_bytes)
		return -EPROTO;
	size_bytes = (size_t)MM_MIN((uint64_t)st.st_size, (uint64_t)most_bytes);
	r = region_map(&region, mm_region_map_bytes(&st, size_bytes),
		       writable ? PROT_READ | PROT_WRITE : PROT_READ);
	if (r)
		return r;

	*ret_region = region;
	region = MM_REGION_NULL;
	return 0;
}

void mm_region_done(struct mm_region *region)
{
	if (region->base)
		munmap(region->base, region->size_bytes);
	if (region->fd >= 0)
		close(region->fd);
	*region = MM_REGION_NULL;
}
