/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/ipc/region.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"

#define THREADS_MAX 8
#define SLICE_BYTES (UINT64_C(64) << 20) /* less than this per thread does not pay */
#define STEP_BYTES  (UINT64_C(16) << 20)
#define PAGE_BYTES  UINT64_C(4096)
#define NODES_MAX   1024

struct slice {
	char *base;
	uint64_t bytes;
	int result;
	pthread_t thread;
};

static int populate(char *base, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += STEP_BYTES) {
		uint64_t n = MM_MIN(STEP_BYTES, bytes - at);

		while (madvise(base + at, n, MADV_POPULATE_WRITE) < 0)
			if (errno != EINTR && errno != EAGAIN)
				return -errno;
	}
	return 0;
}

static void *populate_slice(void *arg)
{
	struct slice *slice = arg;

	slice->result = populate(slice->base, slice->bytes);
	return NULL;
}

static uint64_t threads_for(uint64_t bytes)
{
	cpu_set_t cpus;
	uint64_t n = 1;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = (uint64_t)CPU_COUNT(&cpus);
	return MM_MAX(1, MM_MIN(MM_MIN(n, THREADS_MAX), bytes / SLICE_BYTES));
}

/* The caller's thread takes the first slice, and any whose thread could not be started. */
static int populate_parallel(char *base, uint64_t bytes)
{
	struct slice slice[THREADS_MAX] = { 0 };
	uint64_t n = threads_for(bytes);
	uint64_t each = mm_round_up(mm_div_up(bytes, n), PAGE_BYTES);
	bool started[THREADS_MAX] = { false };
	int rc = 0;

	for (uint64_t i = 0; i < n; i++) {
		slice[i].base = base + MM_MIN(bytes, i * each);
		slice[i].bytes = MM_MIN(each, bytes - MM_MIN(bytes, i * each));
		started[i] = i > 0 &&
			     pthread_create(&slice[i].thread, NULL, populate_slice, &slice[i]) == 0;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (started[i])
			pthread_join(slice[i].thread, NULL);
		else
			populate_slice(&slice[i]);
		rc = rc ? rc : slice[i].result;
	}
	return rc;
}

/*
 * Preferred, not bound: weights on the wrong node are slow, no weights are worse. A container's
 * filter may forbid to ask at all.
 */
static int prefer_node(void *base, uint64_t bytes, int node, struct mm_why *why)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	const unsigned int word_bits = 8 * sizeof(unsigned long);
	int rc = -EINVAL;

	if (node == -1)
		return 0;
	if (node >= 0 && node < NODES_MAX) {
		mask[(unsigned int)node / word_bits] |= 1ul << ((unsigned int)node % word_bits);
		/* The kernel takes one bit less than it is told. */
		rc = mbind(base, bytes, MPOL_PREFERRED, mask, NODES_MAX + 1, 0) < 0 ? -errno : 0;
	}
	if (rc == -EINVAL)
		return mm_refuse(why, rc, "the host has no memory on NUMA node %d", node);
	if (rc < 0)
		mm_log(MM_LOG_DEBUG, "load.numa", "node=%d error=\"%s\"", node, strerror(-rc));
	return 0;
}

static int prepare(const struct mm_memory_map *map, int numa_node, struct mm_why *why)
{
	int rc = prefer_node(map->base, map->bytes, numa_node, why);

	if (rc < 0)
		return rc;
	/* Registration with a driver pins page by page; a collapse would only be undone by it. */
	(void)madvise(map->base, map->bytes, MADV_NOHUGEPAGE);
	return 0;
}

int mm_memory_populate(const struct mm_memory_map *map, uint64_t from, uint64_t bytes,
		       struct mm_why *why)
{
	uint64_t start = from / PAGE_BYTES * PAGE_BYTES;
	uint64_t end = MM_MIN(mm_round_up(from + bytes, PAGE_BYTES), map->bytes);
	int rc = 0;

	if (start < end)
		rc = populate_parallel((char *)map->base + start, end - start);
	if (rc < 0)
		return mm_refuse(why, -ENOMEM,
				 "the host has no memory for a store of %" PRIu64 " bytes (%s)",
				 map->bytes, strerror(-rc));
	return 0;
}

int mm_memory_map(int fd, uint64_t bytes, int numa_node, struct mm_memory_map *ret_map,
		  struct mm_why *why)
{
	struct mm_memory_map map;
	struct stat st;
	int rc;

	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return mm_refuse(why, -EPROTO, "the store that core gave is too short");
	if (mm_fault("load.memory"))
		return mm_refuse(why, -ENOMEM,
				 "the host has no memory for a store of %" PRIu64 " bytes", bytes);
	map.bytes = mm_region_map_bytes(&st, bytes);
	map.base = mmap(NULL, map.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map.base == MAP_FAILED)
		return mm_refuse(why, -errno, "mapping a store of %" PRIu64 " bytes: %s", bytes,
				 strerror(errno));
	rc = prepare(&map, numa_node, why);
	if (rc < 0) {
		mm_memory_unmap(&map);
		return rc;
	}
	*ret_map = map;
	return 0;
}

int mm_memory_map_file(int fd, uint64_t bytes, struct mm_memory_map *ret_map, struct mm_why *why)
{
	struct stat st;
	void *base;

	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return mm_refuse(why, -EPROTO, "the file that core gave is too short");
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return mm_refuse(why, -errno, "mapping a file of %" PRIu64 " bytes: %s", bytes,
				 strerror(errno));
	*ret_map = (struct mm_memory_map){ .base = base, .bytes = bytes };
	return 0;
}

int mm_memory_flush(const struct mm_memory_map *map, int fd, struct mm_why *why)
{
	if (mm_fault("load.flush"))
		return mm_refuse(why, -EIO, "writing the store to disk: %s", strerror(EIO));
	if (fdatasync(fd) < 0)
		return mm_refuse(why, -errno, "writing the store to disk: %s", strerror(errno));
	/* First our mapping lets go of the pages, then the cache can. */
	(void)madvise(map->base, map->bytes, MADV_DONTNEED);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

void mm_memory_unmap(struct mm_memory_map *map)
{
	munmap(map->base, map->bytes);
	*map = (struct mm_memory_map){ 0 };
}
