/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for stores: in huge pages where there are any, else in usual ones; NUMA nodes. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libclient/ipc/region.h"
#include "libclient/base/base.h"
#include "mmd/common/host.h"

#define HUGE  (UINT64_C(2) << 20)
#define STORE (3 * HUGE + 12345)

static uint64_t free_huge_pages(void)
{
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
	unsigned long long n = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%llu", &n) != 1)
		n = 0;
	fclose(file);
	return n;
}

static void check_bytes(int fd, uint64_t bytes)
{
	struct mm_region region;
	char last = 'x', got = 0;

	assert_true(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	/* Maps it as tenants and xfer do; the size need not be a multiple of the huge page. */
	assert_int_equal(mm_region_open(fcntl(fd, F_DUPFD_CLOEXEC, 0), bytes, true, &region), 0);
	((char *)region.base)[bytes - 1] = last;
	assert_int_equal(pread(fd, &got, 1, (off_t)bytes - 1), 1);
	assert_int_equal(got, last);
	assert_true(region.size_bytes >= bytes);
	assert_int_equal(munmap(region.base, region.size_bytes), 0);
	region.base = NULL;
	mm_region_done(&region);
}

static void test_usual(void **state)
{
	uint64_t host = 0, huge = 1;
	int fd = -1;

	(void)state;
	assert_int_equal(mm_host_memfd(STORE, MM_HUGE_OFF, &fd, &host, &huge), 0);
	assert_int_equal(host, STORE);
	assert_int_equal(huge, 0);
	check_bytes(fd, STORE);
	close(fd);
}

/*
 * When more huge pages are requested than exist, usual pages are reported, and none stays reserved.
 */
static void test_too_few(void **state)
{
	const uint64_t before = free_huge_pages(), bytes = (before + 1) * HUGE;
	uint64_t host = 0, huge = 1;
	int fd = -1;

	(void)state;
	assert_int_equal(mm_host_memfd(bytes, MM_HUGE_2M, &fd, &host, &huge), 0);
	assert_int_equal(host, bytes);
	assert_int_equal(huge, 0);
	close(fd);
	assert_int_equal(free_huge_pages(), before);
}

static void test_huge(void **state)
{
	uint64_t host = 0, huge = 0;
	struct stat st;
	int fd = -1;

	(void)state;
	if (free_huge_pages() < 4) {
		print_message("skipped: fewer than 4 free huge pages of 2 MiB\n");
		skip();
	}
	assert_int_equal(mm_host_memfd(STORE, MM_HUGE_2M, &fd, &host, &huge), 0);
	assert_int_equal(host, 4 * HUGE);
	assert_int_equal(huge, HUGE);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_blksize, HUGE);
	check_bytes(fd, STORE);
	close(fd);
	/* AUTO takes no huge pages when they would be half empty. */
	assert_int_equal(mm_host_memfd(HUGE + 1, MM_HUGE_AUTO, &fd, &host, &huge), 0);
	assert_int_equal(huge, 0);
	close(fd);
}

static void test_nodes(void **state)
{
	(void)state;
	assert_false(mm_host_node_usable(-1));
	assert_false(mm_host_node_usable(MM_HOST_NODES_MAX - 1));
	assert_false(mm_host_node_usable(MM_HOST_NODES_MAX));
	assert_int_equal(mm_host_pci_node("ffff:ff:1f.7"), -1);
	assert_int_equal(mm_host_pci_node("../../../etc"), -1);
	assert_int_equal(mm_host_pci_node(""), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usual),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
