/* SPDX-License-Identifier: Apache-2.0 */
/* Memory between processes: import, lifetime, and how it comes back. */
#include "tests/conformance/conf.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define gpu (&conf.gpu)

#define NOBODY 65534

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
static const CUmemAccess_flags RO = CU_MEM_ACCESS_FLAGS_PROT_READ;

static void page_fill(CUdeviceptr va, uint32_t value)
{
	ok(gpu->cuMemsetD32Async(va, value, conf.granule / 4, NULL));
	ok(gpu->cuCtxSynchronize());
}

static uint32_t page_peek(CUdeviceptr va)
{
	uint32_t value;

	ok(gpu->cuMemcpyDtoH(&value, va, sizeof(value)));
	return value;
}

/* ---- Roles ---- */

static int wait_for_kill(void)
{
	while (pause() < 0)
		;
	return 0;
}

/* Writes into the page that it is sent, and says so; then as told: 0 ends, else is peeked. */
static int run_importer(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	int fd;

	conf_context();
	va = conf_reserve(conf.granule);
	check(conf_recv(sock, &fd) == 1 && fd >= 0);
	h = conf_import(fd);
	close(fd);
	conf_map(va, conf.granule, h, RW);
	ok(gpu->cuMemRelease(h));
	conf_send(sock, page_peek(va), -1);
	page_fill(va, 0x1111);
	conf_send(sock, 2, -1);
	while (conf_recv(sock, NULL))
		conf_send(sock, page_peek(va), -1);
	return 0;
}

/* As importer, as another user; whom a machine may keep from the device altogether. */
static int run_other_user(int sock)
{
	CUresult res;

	check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	/* Another user is no child of ours any more in this. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	res = gpu->cuInit(0);
	if (res && !conf.software)
		conf_skip("cuInit as another user: %s", mm_gpu_strerror(gpu, res));
	return run_importer(sock);
}

/* Maps what it is sent read-only, and then takes more. */
static int run_climber(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	int fd;

	conf_context();
	check(conf_recv(sock, &fd) == 1 && fd >= 0);
	h = conf_import(fd);
	close(fd);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, h, RO);
	check(page_peek(va) == 0x7777);
	conf_access(va, conf.granule, RW);
	page_fill(va, 0x8888);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	return 0;
}

/* Keeps a descriptor, without the driver, for whoever asks next. */
static int run_keeper(int sock)
{
	int fd;

	while (conf_recv(sock, &fd) == 1 && fd >= 0) {
		conf_send(sock, 2, -1);
		check(conf_recv(sock, NULL) == 3);
		conf_send(sock, 4, fd);
		close(fd);
	}
	return 0;
}

/* Makes a page with something in it, sends it, and waits to be killed. */
static int run_creator(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;

	conf_context();
	h = conf_create(conf.granule);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, h, RW);
	page_fill(va, 0x2222);
	conf_send(sock, 1, conf_export(h));
	return wait_for_kill();
}

/* Holds what it is sent in the way that it is told, and says so. */
enum hold { BY_FD = 1, BY_HANDLE, BY_MAPPING };

static int run_holder(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	uint64_t how;
	int fd;

	how = conf_recv(sock, &fd);
	check(fd >= 0);
	if (how == BY_MAPPING)
		conf_context();
	else
		conf_init();
	if (how != BY_FD) {
		h = conf_import(fd);
		close(fd);
	}
	if (how == BY_MAPPING) {
		va = conf_reserve(conf.bulk);
		conf_map(va, conf.bulk, h, RO);
		ok(gpu->cuMemRelease(h));
	}
	conf_send(sock, 1, -1);
	return wait_for_kill();
}

/*
 * Makes, maps and passes on pages at random until it is killed. On hardware a lost page must show.
 */
static int run_churner(int sock)
{
	const size_t bytes = conf.software ? 1 : 32;
	CUmemGenericAllocationHandle h[16] = { 0 };
	unsigned int seed = (unsigned int)getpid();
	size_t page;
	CUdeviceptr va;
	uint32_t i;

	conf_context();
	page = bytes * conf.granule;
	va = conf_reserve(16 * page);
	conf_send(sock, 1, -1);
	while (getppid() != 1) {
		i = (uint32_t)rand_r(&seed) % 16;
		if (h[i]) {
			gpu->cuMemUnmap(va + i * page, page);
			ok(gpu->cuMemRelease(h[i]));
			h[i] = 0;
			continue;
		}
		if (gpu->cuMemCreate(&h[i], page, &conf.prop, 0)) {
			h[i] = 0;
			continue;
		}
		if (rand_r(&seed) % 2)
			conf_map(va + i * page, page, h[i], RW);
		if (rand_r(&seed) % 4 == 0)
			close(conf_export(h[i]));
	}
	return 0;
}

/* ---- Facts ---- */

static void share_with(const char *role)
{
	CUmemGenericAllocationHandle h = conf_create(conf.granule);
	CUdeviceptr va = conf_reserve(conf.granule);
	struct conf_peer peer = conf_spawn(role);
	int fd = conf_export(h);

	conf_map(va, conf.granule, h, RW);
	page_fill(va, 0x3333);
	conf_send(peer.sock, 1, fd);
	close(fd);
	if (conf_recv(peer.sock, NULL) != 0x3333) {
		conf_finish(&peer); /* it may have been skipped */
		check(false);
	}
	check(conf_recv(peer.sock, NULL) == 2);
	check(page_peek(va) == 0x1111);
	page_fill(va, 0x4444);
	conf_send(peer.sock, 1, -1);
	check(conf_recv(peer.sock, NULL) == 0x4444);
	conf_send(peer.sock, 0, -1);
	conf_finish(&peer);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemAddressFree(va, conf.granule));
	ok(gpu->cuMemRelease(h));
}

static void test_import(void **state)
{
	(void)state;
	share_with("importer");
}

static void test_import_by_another_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		conf_skip("only root can become another user");
	share_with("stranger");
}

/* Exported memory outlives its creator, which is killed. */
static void test_outlives_creator(void **state)
{
	struct conf_peer peer = conf_spawn("creator");
	CUdeviceptr va = conf_reserve(conf.granule);
	CUmemGenericAllocationHandle h;
	int fd;

	(void)state;
	check(conf_recv(peer.sock, &fd) == 1 && fd >= 0);
	conf_kill(&peer);
	h = conf_import(fd);
	close(fd);
	conf_map(va, conf.granule, h, RW);
	check(page_peek(va) == 0x2222);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, conf.granule));
}

/* Tries to export @handle, of memory that @what names, and tells what came of it. */
static void try_export(CUmemGenericAllocationHandle handle, const char *what, CUresult software)
{
	char fact[64];
	CUresult res;
	int fd = -1;

	res = gpu->cuMemExportToShareableHandle(&fd, handle,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	snprintf(fact, sizeof(fact), "export.%s", what);
	conf_fact_result(fact, res);
	check(!conf.software || res == software);
	if (!res)
		close(fd);
}

/*
 * A driver may refuse to export an imported handle, whether it comes from the import or from its
 * mapping. The maker's handle, and one that is retained from the maker's mapping, stay good.
 */
static void test_reexport(void **state)
{
	CUmemGenericAllocationHandle first = conf_create(conf.granule), second, third;
	CUdeviceptr va = conf_reserve(2 * conf.granule);
	int fd = conf_export(first);

	(void)state;
	second = conf_import(fd);
	close(fd);
	conf_map(va, conf.granule, first, RW);
	conf_map(va + conf.granule, conf.granule, second, RW);
	page_fill(va, 0x5555);
	check(page_peek(va + conf.granule) == 0x5555);
	try_export(second, "imported", CUDA_ERROR_INVALID_VALUE);
	ok(gpu->cuMemRetainAllocationHandle(&third, (void *)(uintptr_t)(va + conf.granule)));
	try_export(third, "imported_and_retained", CUDA_ERROR_INVALID_VALUE);
	ok(gpu->cuMemRelease(third));
	ok(gpu->cuMemRetainAllocationHandle(&third, (void *)(uintptr_t)va));
	try_export(third, "made_and_retained", CUDA_SUCCESS);
	ok(gpu->cuMemRelease(third));
	close(conf_export(first));
	ok(gpu->cuMemUnmap(va, 2 * conf.granule));
	ok(gpu->cuMemRelease(first));
	ok(gpu->cuMemRelease(second));
	ok(gpu->cuMemAddressFree(va, 2 * conf.granule));
}

/* Read-only is what the importer makes of it: nothing keeps it from asking for more. */
static void test_importer_chooses_access(void **state)
{
	CUmemGenericAllocationHandle h = conf_create(conf.granule), imported;
	CUdeviceptr va = conf_reserve(conf.granule);
	int fd = conf_export(h);

	(void)state;
	imported = conf_import(fd);
	close(fd);
	conf_map(va, conf.granule, imported, RO);
	conf_access(va, conf.granule, RW);
	page_fill(va, 0x6666);
	check(page_peek(va) == 0x6666);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemRelease(imported));
	ok(gpu->cuMemAddressFree(va, conf.granule));
}

static void test_importer_takes_more(void **state)
{
	CUmemGenericAllocationHandle h = conf_create(conf.granule);
	CUdeviceptr va = conf_reserve(conf.granule);
	struct conf_peer peer = conf_spawn("climber");
	int fd = conf_export(h);

	(void)state;
	conf_map(va, conf.granule, h, RW);
	page_fill(va, 0x7777);
	conf_send(peer.sock, 1, fd);
	close(fd);
	conf_finish(&peer);
	check(page_peek(va) == 0x8888);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, conf.granule));
}

/* Has the descriptor of a page, which @creating made, kept by @keeping; ends the maker. */
static int store_descriptor(struct conf_peer *creating, struct conf_peer *keeping)
{
	int fd;

	check(conf_recv(creating->sock, &fd) == 1 && fd >= 0);
	conf_send(keeping->sock, 1, fd);
	close(fd);
	check(conf_recv(keeping->sock, NULL) == 2);
	conf_kill(creating);
	conf_send(keeping->sock, 3, -1);
	check(conf_recv(keeping->sock, &fd) == 4 && fd >= 0);
	conf_finish(keeping);
	return fd;
}

/*
 * As a daemon that starts again: its memory waits in a descriptor that a process without a driver
 * keeps, through the end of who made it. It is imported as often as it is needed, and passed on.
 */
static void test_stored_descriptor(void **state)
{
	struct conf_peer creating = conf_spawn("creator"), keeping = conf_spawn("keeper");
	struct conf_peer importing = conf_spawn("importer");
	CUdeviceptr va = conf_reserve(conf.granule);
	CUmemGenericAllocationHandle h, again;
	int fd = store_descriptor(&creating, &keeping);

	(void)state;
	h = conf_import(fd);
	conf_map(va, conf.granule, h, RW);
	check(page_peek(va) == 0x2222);
	again = conf_import(fd);
	ok(gpu->cuMemRelease(again));
	conf_send(importing.sock, 1, fd);
	close(fd);
	check(conf_recv(importing.sock, NULL) == 0x2222);
	check(conf_recv(importing.sock, NULL) == 2);
	check(page_peek(va) == 0x1111);
	conf_send(importing.sock, 0, -1);
	conf_finish(&importing);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemAddressFree(va, conf.granule));
}

/* The maker is gone: whoever has imported what it made may still not be able to export it. */
static void test_reexport_of_stored(void **state)
{
	struct conf_peer creating = conf_spawn("creator"), keeping = conf_spawn("keeper");
	int fd = store_descriptor(&creating, &keeping);
	CUmemGenericAllocationHandle h;

	(void)state;
	h = conf_import(fd);
	close(fd);
	try_export(h, "imported_of_the_dead", CUDA_ERROR_INVALID_VALUE);
	ok(gpu->cuMemRelease(h));
}

/*
 * Descriptors are close-on-exec at birth, or else their receiver makes them so; foreign ones are no
 * memory.
 */
static void test_descriptors(void **state)
{
	CUmemGenericAllocationHandle h = conf_create(conf.granule), imported;
	int fd = conf_export(h), wrong[3];

	(void)state;
	conf_fact("export.close_on_exec", "", (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	check(!conf.software || (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	wrong[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	wrong[1] = memfd_create("conformance", MFD_CLOEXEC);
	check(ftruncate(wrong[1], (off_t)conf.granule) == 0);
	wrong[2] = fd;
	close(fd);
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++)
		check(gpu->cuMemImportFromShareableHandle(
			      &imported, (void *)(uintptr_t)wrong[i],
			      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS);
	close(wrong[0]);
	close(wrong[1]);
	ok(gpu->cuMemRelease(h));
}

static void test_not_exportable(void **state)
{
	CUmemAllocationProp prop = conf.prop;
	CUmemGenericAllocationHandle h;
	int fd = -1;

	(void)state;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	ok(gpu->cuMemCreate(&h, conf.granule, &prop, 0));
	check(gpu->cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						0) != CUDA_SUCCESS);
	ok(gpu->cuMemRelease(h));
}

/* Whatever holds a page in whichever process, the page is gone only after it. */
static void test_last_holder(void **state)
{
	static const struct {
		enum hold how;
		const char *fact;
	} cases[] = {
		{ BY_FD, "free.back_after_kill.fd" },
		{ BY_HANDLE, "free.back_after_kill.handle" },
		{ BY_MAPPING, "free.back_after_kill.mapping" },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct conf_peer peer = conf_spawn("holder");
		CUmemGenericAllocationHandle h = conf_create(conf.bulk);
		int fd = conf_export(h);
		uint64_t begin;
		size_t with;

		conf_send(peer.sock, cases[i].how, fd);
		close(fd);
		check(conf_recv(peer.sock, NULL) == 1);
		with = conf_free_bytes();
		ok(gpu->cuMemRelease(h));
		conf_nap_ms(20);
		check(conf_free_bytes() <= with + conf.noise);
		begin = conf_now_ns();
		conf_kill(&peer);
		check(conf_comes_back(with + conf.bulk));
		conf_fact(cases[i].fact, "ms", (double)(conf_now_ns() - begin) / 1e6);
	}
}

/* A descriptor in a socket that nobody reads is a holder like any other. */
static void test_in_flight(void **state)
{
	size_t before = conf_free_bytes();
	CUmemGenericAllocationHandle h = conf_create(conf.bulk), again;
	int pair[2], fd = conf_export(h);

	(void)state;
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	conf_send(pair[0], 1, fd);
	close(fd);
	ok(gpu->cuMemRelease(h));
	check(conf_free_bytes() <= before - conf.bulk + conf.noise);
	check(conf_recv(pair[1], &fd) == 1 && fd >= 0);
	again = conf_import(fd);
	close(fd);
	ok(gpu->cuMemRelease(again));
	check(conf_comes_back(before));
	h = conf_create(conf.bulk);
	fd = conf_export(h);
	conf_send(pair[0], 1, fd);
	close(fd);
	ok(gpu->cuMemRelease(h));
	close(pair[0]);
	close(pair[1]);
	check(conf_comes_back(before));
}

/* Killed at any instant, again and again: the device is whole, and all of it is there. */
static void test_kill_storm(void **state)
{
	enum { PEERS = 4 };
	const int rounds = conf.software ? 40 : conf.is_long ? 100 : 4;
	size_t before = conf_free_bytes();
	unsigned int seed = 1;
	uint64_t slowest = 0, begin;

	(void)state;
	for (int round = 0; round < rounds; round++) {
		struct conf_peer peers[PEERS];

		for (int i = 0; i < PEERS; i++)
			peers[i] = conf_spawn("churner");
		for (int i = 0; i < PEERS; i++)
			check(conf_recv(peers[i].sock, NULL) == 1);
		conf_nap_ms((unsigned int)rand_r(&seed) % (conf.software ? 20 : 200));
		begin = conf_now_ns();
		for (int i = 0; i < PEERS; i++)
			kill(peers[i].pid, SIGKILL);
		for (int i = 0; i < PEERS; i++)
			check(conf_join(&peers[i]) == -SIGKILL);
		check(conf_comes_back(before));
		slowest = MM_MAX(slowest, conf_now_ns() - begin);
	}
	conf_fact("free.back_after_storm.max", "ms", (double)slowest / 1e6);
	check(conf_free_bytes() == before || !conf.software);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_import),
	T(test_import_by_another_user),
	T(test_outlives_creator),
	T(test_reexport),
	T(test_importer_chooses_access),
	T(test_importer_takes_more),
	T(test_stored_descriptor),
	T(test_reexport_of_stored),
	T(test_descriptors),
	T(test_not_exportable),
	T(test_last_holder),
	T(test_in_flight),
	T(test_kill_storm),
};

static const struct conf_role roles[] = {
	{ "importer", run_importer }, { "stranger", run_other_user },
	{ "creator", run_creator },   { "climber", run_climber },
	{ "keeper", run_keeper },     { "holder", run_holder },
	{ "churner", run_churner },   { NULL, NULL },
};

CONF_MAIN("share", tests, roles)
