/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered host memory: what it costs in time and in device memory, what limits it, and that
 * nobody can register for writing what he can only read.
 */
#include "tests/conformance/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define gpu (&conf.gpu)

#define PAGE        4096u
#define HUGE_BYTES  ((size_t)2 << 20)
#define DEVICE_MAP  (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
#define READ_ONLY   CU_MEMHOSTREGISTER_READ_ONLY
#define SOFTWARE_MB 8
#define HARDWARE_MB 1024

static size_t block_bytes(void)
{
	return (size_t)(conf.software ? SOFTWARE_MB : HARDWARE_MB) << 20;
}

static double ms_since(uint64_t begin)
{
	return (double)(conf_now_ns() - begin) / 1e6;
}

/*
 * A memfd that is there already: registering does not have to make the pages. NULL if there is
 * none.
 */
static void *memfd_make(size_t bytes, unsigned int flags, int *ret_fd)
{
	int fd = memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	void *addr = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (addr == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	*ret_fd = fd;
	return addr;
}

static void tell_registration(const char *kind, void *addr, size_t bytes, unsigned int flags)
{
	const double gib = (double)bytes / (double)((size_t)1 << 30);
	size_t before = conf_free_bytes(), with;
	char name[96];
	uint64_t begin;

	begin = conf_now_ns();
	ok(gpu->cuMemHostRegister(addr, bytes, flags));
	snprintf(name, sizeof(name), "register.%s", kind);
	conf_fact(name, "ms per GiB", ms_since(begin) / gib);
	with = conf_free_bytes();
	snprintf(name, sizeof(name), "register.%s.device_memory", kind);
	conf_fact(name, "bytes per GiB", ((double)before - (double)with) / gib);
	begin = conf_now_ns();
	ok(gpu->cuMemHostUnregister(addr));
	snprintf(name, sizeof(name), "unregister.%s", kind);
	conf_fact(name, "ms per GiB", ms_since(begin) / gib);
}

static void test_cost(void **state)
{
	const size_t bytes = block_bytes();
	void *addr, *read_only;
	int fd;

	(void)state;
	addr = memfd_make(bytes, 0, &fd);
	if (!addr)
		conf_skip("no %zu MiB of shared memory: %s", bytes >> 20, strerror(errno));
	tell_registration("mapped", addr, bytes, DEVICE_MAP);
	tell_registration("not_mapped", addr, bytes, CU_MEMHOSTREGISTER_PORTABLE);
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	if (conf_attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)) {
		read_only = conf_shared_from(fd, bytes, PROT_READ);
		tell_registration("sealed", read_only, bytes, DEVICE_MAP | READ_ONLY);
		munmap(read_only, bytes);
	}
	munmap(addr, bytes);
	close(fd);
}

static void test_cost_of_huge_pages(void **state)
{
	const size_t bytes = conf.software ? 4 * HUGE_BYTES : block_bytes();
	void *addr;
	int fd;

	(void)state;
	addr = memfd_make(bytes, MFD_HUGETLB, &fd);
	if (!addr)
		conf_skip("no %zu MiB of huge pages: %s", bytes >> 20, strerror(errno));
	tell_registration("huge", addr, bytes, DEVICE_MAP);
	munmap(addr, bytes);
	close(fd);
}

/* The same pages in two processes at once, as mmd and a tenant have them. */
static int run_registrant(int sock)
{
	CUstream stream;
	CUdeviceptr va;

	conf_context();
	conf_receive_shared(sock, PAGE, &va);
	stream = conf_stream();
	ok(gpu->cuStreamWriteValue64(stream, va + 8, 2, 0));
	ok(gpu->cuStreamSynchronize(stream));
	return 0;
}

static void test_twice(void **state)
{
	struct conf_peer peer = conf_spawn("registrant");
	uint64_t *page;
	CUdeviceptr va;
	int fd;

	(void)state;
	page = conf_shared(PAGE, &fd);
	va = conf_register(page, PAGE, 0);
	conf_send(peer.sock, 1, fd);
	close(fd);
	ok(gpu->cuStreamWriteValue64(NULL, va, 1, 0));
	ok(gpu->cuCtxSynchronize());
	conf_finish(&peer);
	check(page[0] == 1 && page[1] == 2);
	/* The other one's end took nothing of ours. */
	ok(gpu->cuStreamWriteValue64(NULL, va, 3, 0));
	ok(gpu->cuCtxSynchronize());
	check(page[0] == 3);
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* Whether the usual limit of locked memory holds for registered memory: containers set it low. */
static int run_limited(int sock)
{
	const struct rlimit limit = { 64 << 10, 64 << 10 };
	const size_t bytes = 16u << 20;
	CUresult res;
	void *addr;
	int fd;

	(void)sock;
	conf_context();
	check(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	addr = memfd_make(bytes, 0, &fd);
	if (!addr)
		conf_skip("no shared memory: %s", strerror(errno));
	res = gpu->cuMemHostRegister(addr, bytes, DEVICE_MAP);
	conf_fact_result("register.beyond_memlock", res);
	check(!conf.software || !res);
	if (!res)
		ok(gpu->cuMemHostUnregister(addr));
	munmap(addr, bytes);
	close(fd);
	return 0;
}

static void test_memlock(void **state)
{
	struct conf_peer peer = conf_spawn("limited");

	(void)state;
	conf_finish(&peer);
}

/* A seal on what is registered: writable before, and then nobody new can have it for writing. */
static void test_sealed(void **state)
{
	void *page, *read_only;
	CUresult res;
	int fd;

	(void)state;
	conf_needs_read_only();
	page = conf_shared(4 * PAGE, &fd);
	conf_register(page, 4 * PAGE, 0);
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	read_only = conf_shared_from(fd, 4 * PAGE, PROT_READ);
	res = gpu->cuMemHostRegister(read_only, 4 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP);
	conf_fact_result("register.sealed_for_writing", res);
	check(res != CUDA_SUCCESS);
	check(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	conf_register(read_only, 4 * PAGE, READ_ONLY);
	ok(gpu->cuMemHostUnregister(read_only));
	ok(gpu->cuMemHostUnregister(page));
	munmap(read_only, 4 * PAGE);
	munmap(page, 4 * PAGE);
	close(fd);
}

/*
 * Where the driver pins only for writing, mmd has the memory writable, and gives others a
 * descriptor to read. Whether they could register that is a fact.
 */
static void test_pinned_for_writing(void **state)
{
	uint64_t *page, *theirs;
	char path[32];
	CUresult res;
	CUdeviceptr va;
	int fd, to_read;

	(void)state;
	page = conf_shared(4 * PAGE, &fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	to_read = open(path, O_RDONLY | O_CLOEXEC);
	check(to_read >= 0);
	theirs = conf_shared_from(to_read, 4 * PAGE, PROT_READ);
	check(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, to_read, 0) == MAP_FAILED);
	va = conf_register(page, 4 * PAGE, 0);
	res = gpu->cuMemHostRegister(theirs, 4 * PAGE, CU_MEMHOSTREGISTER_PORTABLE);
	conf_fact_result("register.to_read_for_writing", res);
	check(res != CUDA_SUCCESS);
	res = gpu->cuMemHostRegister(theirs, 4 * PAGE, READ_ONLY);
	conf_fact_result("register.to_read_read_only", res);
	if (!res)
		ok(gpu->cuMemHostUnregister(theirs));
	ok(gpu->cuStreamWriteValue64(NULL, va, 5, 0));
	ok(gpu->cuCtxSynchronize());
	check(__atomic_load_n(theirs, __ATOMIC_ACQUIRE) == 5);
	ok(gpu->cuMemHostUnregister(page));
	munmap(theirs, 4 * PAGE);
	munmap(page, 4 * PAGE);
	close(to_read);
	close(fd);
}

/* Pages of registered memory are the device's until it is unregistered, unmapped or not. */
static int run_unmapper(int sock)
{
	void *page;
	CUresult res;

	(void)sock;
	conf_context();
	page = conf_shared(PAGE, NULL);
	conf_register(page, PAGE, 0);
	munmap(page, PAGE);
	res = gpu->cuMemHostUnregister(page);
	conf_fact_result("unregister.after_munmap", res);
	check(!conf.software || !res);
	_exit(0);
}

static void test_unregister_after_munmap(void **state)
{
	struct conf_peer peer = conf_spawn("unmapper");
	int status;

	(void)state;
	status = conf_join(&peer);
	conf_fact("unregister.after_munmap.status", "", status);
	check(status == 0 || !conf.software);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_cost),
	T(test_cost_of_huge_pages),
	T(test_twice),
	T(test_memlock),
	T(test_sealed),
	T(test_pinned_for_writing),
	T(test_unregister_after_munmap),
};

static const struct conf_role roles[] = {
	{ "registrant", run_registrant },
	{ "limited", run_limited },
	{ "unmapper", run_unmapper },
	{ NULL, NULL },
};

CONF_MAIN("hostmem", tests, roles)
