/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/host.h"

#include <ctype.h>
#include <errno.h>
#include <numa.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif
#define LOG2_2M 21u
#define LOG2_1G 30u

bool mm_host_node_usable(int node)
{
	struct bitmask *nodes;
	bool usable;

	if (node < 0 || node >= MM_HOST_NODES_MAX || numa_available() < 0)
		return false;
	nodes = numa_get_mems_allowed();
	usable = nodes && numa_bitmask_isbitset(nodes, (unsigned int)node);
	if (nodes)
		numa_bitmask_free(nodes);
	return usable && numa_node_size64(node, NULL) > 0;
}

int mm_host_pci_node(const char *bus_id)
{
	char path[96];
	size_t prefix;
	FILE *file;
	int node;

	/* A bus id with other characters could name a path outside of the folder. */
	if (strlen(bus_id) > 16 || strspn(bus_id, "0123456789abcdefABCDEF:.") != strlen(bus_id))
		return -1;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", bus_id);
	prefix = strlen("/sys/bus/pci/devices/");
	for (size_t i = 0; i < strlen(bus_id); i++)
		path[prefix + i] = (char)tolower((unsigned char)bus_id[i]);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &node) != 1)
		node = -1;
	fclose(file);
	return node;
}

/* ---- memory ---- */

void mm_host_prefer(void *base, uint64_t bytes, int node)
{
	if (mm_host_node_usable(node))
		numa_tonode_memory(base, bytes, node);
}

/* A mapping of a memfd in huge pages reserves them for the file, and for longer than it exists. */
static bool huge_pages_reserve(int fd, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return false;
	munmap(base, bytes);
	return true;
}

static bool huge_memfd(uint64_t bytes, unsigned int log2, int *ret_fd, uint64_t *ret_host,
		       uint64_t *ret_huge)
{
	const uint64_t rounded = mm_round_up(bytes, UINT64_C(1) << log2);
	const unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB;
	mm_cleanup(mm_close_fd) int fd = memfd_create("mm-store", flags | log2 << MFD_HUGE_SHIFT);

	if (fd < 0 || ftruncate(fd, (off_t)rounded) < 0 || !huge_pages_reserve(fd, rounded))
		return false;
	*ret_fd = fd;
	*ret_host = rounded;
	*ret_huge = UINT64_C(1) << log2;
	fd = -1;
	return true;
}

static bool rounding_is_small(uint64_t bytes, unsigned int log2)
{
	return mm_round_up(bytes, UINT64_C(1) << log2) - bytes <= bytes / 8;
}

int mm_host_memfd(uint64_t bytes, enum mm_hugepages wanted, int *ret_fd, uint64_t *ret_host,
		  uint64_t *ret_huge)
{
	mm_cleanup(mm_close_fd) int fd = -1;

	if (wanted == MM_HUGE_1G || (wanted == MM_HUGE_AUTO && rounding_is_small(bytes, LOG2_1G)))
		if (huge_memfd(bytes, LOG2_1G, ret_fd, ret_host, ret_huge))
			return 0;
	if (wanted == MM_HUGE_2M || (wanted == MM_HUGE_AUTO && rounding_is_small(bytes, LOG2_2M)))
		if (huge_memfd(bytes, LOG2_2M, ret_fd, ret_host, ret_huge))
			return 0;
	fd = memfd_create("mm-store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	*ret_fd = fd;
	*ret_host = bytes;
	*ret_huge = 0;
	fd = -1;
	return 0;
}
