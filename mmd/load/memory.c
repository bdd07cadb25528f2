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
/* below this per thread, another thread costs more than it saves */
#define SLICE_BYTES (UINT64_C(64) << 20)
#define STEP_BYTES  (UINT64_C(16) << 20)
#define PAGE_BYTES  UINT64_C(4096)
#define NODES_MAX   1024

struct slice {
	char *base;
	uint64_t bytes;
	int result;
	pthread_t thread;
};

static int range_populate(char *base, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += STEP_BYTES) {
		uint64_t n = MM_MIN(STEP_BYTES, bytes - at);

		while (madvise(base + at, n, MADV_POPULATE_WRITE) < 0)
			if (errno != EINTR && errno != EAGAIN)
				return -errno;
	}
	return 0;
}

static void *slice_populate(void *arg)
{
	struct slice *slice = arg;

	slice->result = range_populate(slice->base, slice->bytes);
	return NULL;
}

static uint64_t thread_count(uint64_t bytes)
{
	cpu_set_t cpus;
	uint64_t n = 1;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = (uint64_t)CPU_COUNT(&cpus);
	return MM_MAX(1, MM_MIN(MM_MIN(n, THREADS_MAX), bytes / SLICE_BYTES));
}

/* The caller's thread takes the first slice, and any whose thread could not be started. */
static int range_populate_parallel(char *base, uint64_t bytes)
{
	struct slice slice[THREADS_MAX] = { 0 };
	uint64_t n = thread_count(bytes);
	uint64_t each = mm_round_up(mm_div_up(bytes, n), PAGE_BYTES);
	bool started[THREADS_MAX] = { false };
	int r = 0;

	for (uint64_t i = 0; i < n; i++) {
		slice[i].base = base + MM_MIN(bytes, i * each);
		slice[i].bytes = MM_MIN(each, bytes - MM_MIN(bytes, i * each));
		started[i] = i > 0 &&
			     pthread_create(&slice[i].thread, NULL, slice_populate, &slice[i]) == 0;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (started[i])
			pthread_join(slice[i].thread, NULL);
		else
			slice_populate(&slice[i]);
		r = r ? r : slice[i].result;
	}
	return r;
}

/*
 * Prefers @node, without binding to it: weights on the wrong node are slow, but no weights are
 * worse. The seccomp filter of a container may forbid mbind(): then no node is preferred.
 */
static int node_prefer(void *base, uint64_t bytes, int node, struct mm_why *why)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	const unsigned int word_bits = 8 * sizeof(unsigned long);
	int r = -EINVAL;

	if (node == -1)
		return 0;
	if (node >= 0 && node < NODES_MAX) {
		mask[(unsigned int)node / word_bits] |= 1ul << ((unsigned int)node % word_bits);
		/* The kernel uses one bit less than this argument. */
		r = mbind(base, bytes, MPOL_PREFERRED, mask, NODES_MAX + 1, 0) < 0 ? -errno : 0;
	}
	if (r == -EINVAL)
		return mm_refuse(why, r, "the host has no memory on NUMA node %d", node);
	if (r < 0)
		mm_log(MM_LOG_DEBUG, "load.numa", "node=%d error=\"%s\"", node, strerror(-r));
	return 0;
}

static int map_prepare(const struct mm_memory_map *map, int numa_node, struct mm_why *why)
{
	int r = node_prefer(map->base, map->bytes, numa_node, why);

	if (r < 0)
		return r;
	/*
	 * Registration with a driver pins page by page, and would undo a collapse into huge pages.
	 */
	(void)madvise(map->base, map->bytes, MADV_NOHUGEPAGE);
	return 0;
}

int mm_memory_populate(const struct mm_memory_map *map, uint64_t from, uint64_t bytes,
		       struct mm_why *why)
{
	uint64_t start = from / PAGE_BYTES * PAGE_BYTES;
	uint64_t end = MM_MIN(mm_round_up(from + bytes, PAGE_BYTES), map->bytes);
	int r = 0;

	if (start < end)
		r = range_populate_parallel((char *)map->base + start, end - start);
	if (r < 0)
		return mm_refuse(why, -ENOMEM,
				 "the host has no memory for a store of %" PRIu64 " bytes (%s)",
				 map->bytes, strerror(-r));
	return 0;
}

int mm_memory_map(int fd, uint64_t bytes, int numa_node, struct mm_memory_map *ret_map,
		  struct mm_why *why)
{
	struct mm_memory_map map;
	struct stat st;
	int r;

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
	r = map_prepare(&map, numa_node, why);
	if (r < 0) {
		mm_memory_unmap(&map);
		return r;
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
	/* The page cache can drop the pages only after the mapping has. */
	(void)madvise(map->base, map->bytes, MADV_DONTNEED);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

void mm_memory_unmap(struct mm_memory_map *map)
{
	munmap(map->base, map->bytes);
	*map = (struct mm_memory_map){ 0 };
}
