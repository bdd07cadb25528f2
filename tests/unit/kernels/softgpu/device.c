/* SPDX-License-Identifier: Apache-2.0 */
/* The software GPU as a device: its environment, its sharing, failures on request. */
#include "libclient/support/cleanup.h"
#include "tests/conformance/conf.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define gpu (&conf.gpu)

/* ---- Roles ---- */

/* cuInit() and the answer; then memory as the device has it. */
static int run_init(int sock)
{
	CUresult res = gpu->cuInit(0);
	size_t total = 0;

	if (!res)
		ok(gpu->cuDeviceTotalMem(&total, 0));
	conf_send(sock, (uint64_t)res << 48 | total, -1);
	conf_recv(sock, NULL);
	return 0;
}

static int run_uuid(int sock)
{
	uint64_t halves[2];
	CUuuid id;

	conf_init();
	ok(gpu->cuDeviceGetUuid(&id, 0));
	memcpy(halves, id.bytes, sizeof(halves));
	conf_send(sock, halves[0] ^ halves[1], -1);
	return 0;
}

/* The environment asks for failures: see the test. */
static int run_injected(int sock)
{
	CUmemGenericAllocationHandle h;

	(void)sock;
	conf_context();
	ok(gpu->cuMemCreate(&h, conf.granule, &conf.prop, 0));
	expect(gpu->cuMemCreate(&h, conf.granule, &conf.prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ok(gpu->cuMemCreate(&h, conf.granule, &conf.prop, 0));
	expect(gpu->cuMemHostUnregister(NULL), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuStreamQuery(NULL), CUDA_ERROR_UNKNOWN);
	expect(gpu->cuStreamQuery(NULL), CUDA_ERROR_UNKNOWN);
	return 0;
}

/* More handles than the shell's soft limit of descriptors. */
static int run_many(int sock)
{
	struct rlimit limit;
	int n = 0;

	(void)sock;
	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 64;
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	conf_context();
	for (; n < 500; n++)
		conf_create(conf.granule);
	check(conf_free_bytes() == (UINT64_C(64) << 20) - 500 * conf.granule);
	return 0;
}

/* Leaves with memory in hand. */
static int run_leaver(int sock)
{
	CUdeviceptr va;

	conf_context();
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(gpu->cuMemsetD8Async(va, 1, conf.granule, NULL));
	ok(gpu->cuCtxSynchronize());
	conf_create(conf.granule);
	conf_send(sock, 1, -1);
	exit(0);
}

/* Its child, which never asked for it, has the memory too. */
static int run_parent(int sock)
{
	conf_context();
	conf_create(conf.granule);
	if (fork() == 0) {
		conf_send(sock, (uint64_t)getpid(), -1);
		alarm(600); /* should the test not come to kill it */
		pause();
		_exit(0);
	}
	conf_recv(sock, NULL);
	_exit(0);
}

/* Another user who may only enter the directory. */
static int run_read_only(int sock)
{
	CUmemGenericAllocationHandle h;
	uint32_t seen = 0;
	CUdeviceptr va;
	int fd;

	check(setgid(65534) == 0 && setuid(65534) == 0);
	conf_context();
	check(conf_recv(sock, &fd) == 1 && fd >= 0);
	h = conf_import(fd);
	close(fd);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(gpu->cuMemcpyDtoH(&seen, va, sizeof(seen)));
	check(seen == 0x01010101);
	expect(gpu->cuMemCreate(&h, conf.granule, &conf.prop, 0), CUDA_ERROR_NOT_PERMITTED);
	expect(gpu->cuMemAlloc(&va, 4096), CUDA_ERROR_NOT_PERMITTED);
	check(conf_free_bytes() < UINT64_C(64) << 20);
	check(!opendir(getenv("MM_SOFTGPU_DIR")));
	return 0;
}

/* Holds memory until the test has looked at it. */
static int run_keeper(int sock)
{
	umask(0);
	conf_context();
	conf_create(conf.granule);
	conf_send(sock, 1, -1);
	conf_recv(sock, NULL);
	return 0;
}

/* ---- Tests ---- */

static uint64_t device_query(const char *role)
{
	struct conf_peer peer = conf_spawn(role);
	uint64_t word = conf_recv(peer.sock, NULL);

	assert_int_equal(conf_join(&peer), 0);
	return word;
}

static void test_environment(void **state)
{
	static const struct {
		const char *variable, *value;
		bool refused;
	} cases[] = {
		{ "MM_SOFTGPU_MEMORY", "64M", false },
		{ "MM_SOFTGPU_MEMORY", "65536K", false },
		{ "MM_SOFTGPU_MEMORY", "", false },
		{ "MM_SOFTGPU_MEMORY", "32M", true },
		{ "MM_SOFTGPU_MEMORY", "0", true },
		{ "MM_SOFTGPU_MEMORY", "-1", true },
		{ "MM_SOFTGPU_MEMORY", "64MB", true },
		{ "MM_SOFTGPU_MEMORY", "99999999T", true },
		{ "MM_SOFTGPU_MEMORY", "M", true },
		{ "MM_SOFTGPU_GRANULARITY", "64K", false },
		{ "MM_SOFTGPU_GRANULARITY", "128K", true },
		{ "MM_SOFTGPU_GRANULARITY", "96K", true },
		{ "MM_SOFTGPU_GRANULARITY", "512", true },
		{ "MM_SOFTGPU_UUID", "12", true },
		{ "MM_SOFTGPU_UUID", "zz", true },
		{ "MM_SOFTGPU_DIR", "/proc/no", true },
		{ "MM_SOFTGPU_DEVICES", "2", false },
		{ "MM_SOFTGPU_DEVICES", "0", true },
		{ "MM_SOFTGPU_DEVICES", "17", true },
		{ "MM_SOFTGPU_DEVICES", "2x", true },
		{ "MM_SOFTGPU_VISIBLE", "0", false },
		{ "MM_SOFTGPU_VISIBLE", "1", true },
		{ "MM_SOFTGPU_VISIBLE", "0,", true },
		{ "MM_SOFTGPU_VISIBLE", "0,0", true },
		{ "MM_SOFTGPU_VISIBLE", "-1", true },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const char *old = getenv(cases[i].variable);
		mm_cleanup(mm_free_ptr) char *kept = old ? strdup(old) : NULL;
		uint64_t word;

		setenv(cases[i].variable, cases[i].value, 1);
		word = device_query("init");
		if (kept)
			setenv(cases[i].variable, kept, 1);
		else
			unsetenv(cases[i].variable);
		if ((word >> 48 != 0) != cases[i].refused)
			fail_msg("%s=%s: %d", cases[i].variable, cases[i].value, (int)(word >> 48));
	}
}

/* Once nobody uses it, a device may be made anew; while somebody does, it stays as it is. */
static void test_remade_when_alone(void **state)
{
	mm_cleanup(mm_free_ptr) char *dir = strdup(getenv("MM_SOFTGPU_DIR"));
	struct conf_peer user;
	char other[128];

	(void)state;
	snprintf(other, sizeof(other), "%s/other", dir);
	setenv("MM_SOFTGPU_DIR", other, 1);
	setenv("MM_SOFTGPU_MEMORY", "1M", 1);
	assert_int_equal(device_query("init"), 1 << 20);
	setenv("MM_SOFTGPU_MEMORY", "2M", 1);
	assert_int_equal(device_query("init"), 2 << 20);
	user = conf_spawn("init");
	assert_int_equal(conf_recv(user.sock, NULL), 2 << 20);
	setenv("MM_SOFTGPU_MEMORY", "4M", 1);
	assert_int_equal(device_query("init") >> 48, CUDA_ERROR_INVALID_VALUE);
	unsetenv("MM_SOFTGPU_MEMORY");
	assert_int_equal(device_query("init"), 2 << 20);
	conf_send(user.sock, 0, -1);
	assert_int_equal(conf_join(&user), 0);
	setenv("MM_SOFTGPU_DIR", dir, 1);
	setenv("MM_SOFTGPU_MEMORY", "64M", 1);
}

static void test_uuid(void **state)
{
	mm_cleanup(mm_free_ptr) char *dir = strdup(getenv("MM_SOFTGPU_DIR"));
	uint64_t id = device_query("uuid"), other_id;
	char other[128];

	(void)state;
	assert_int_equal(device_query("uuid"), id);
	snprintf(other, sizeof(other), "%s/uuid", dir);
	setenv("MM_SOFTGPU_DIR", other, 1);
	other_id = device_query("uuid");
	assert_true(other_id != id);
	setenv("MM_SOFTGPU_UUID", "00000000-0000-0001-0000-000000000002", 1);
	assert_int_equal(device_query("uuid"), UINT64_C(0x0300000000000000));
	unsetenv("MM_SOFTGPU_UUID");
	setenv("MM_SOFTGPU_DIR", dir, 1);
}

static void role_run(const char *role)
{
	struct conf_peer peer = conf_spawn(role);
	int status = conf_join(&peer);

	if (status)
		fail_msg("%s: %d", role, status);
}

static void test_injected(void **state)
{
	(void)state;
	setenv("MM_SOFTGPU_FAIL", "cuMemCreate:2:2,cuStreamQuery:0:999,rubbish", 1);
	role_run("injected");
	unsetenv("MM_SOFTGPU_FAIL");
}

static void test_many(void **state)
{
	(void)state;
	role_run("many");
}

static size_t count_pages(void)
{
	char path[128];
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/pages", getenv("MM_SOFTGPU_DIR"));
	dir = opendir(path);
	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A process that ends by itself leaves nothing behind, not even for the next one to find. */
static void test_exit_cleans_up(void **state)
{
	(void)state;
	assert_int_equal(count_pages(), 0);
	assert_int_equal(device_query("slob"), 1);
	assert_int_equal(count_pages(), 0);
}

/* The memory is a fork's too, and comes back when that is gone. */
static void test_fork_holds(void **state)
{
	struct conf_peer peer = conf_spawn("parent");
	pid_t child = (pid_t)conf_recv(peer.sock, NULL);
	const struct timespec nap = { .tv_nsec = 5000000 };
	size_t before;

	(void)state;
	assert_true(child > 0);
	conf_send(peer.sock, 0, -1);
	assert_int_equal(conf_join(&peer), 0);
	before = conf_free_bytes();
	kill(child, SIGKILL);
	for (int i = 0; i < 36000 && conf_free_bytes() == before; i++)
		nanosleep(&nap, NULL);
	assert_int_equal(conf_free_bytes(), before + conf.granule);
}

static void test_guest(void **state)
{
	CUmemGenericAllocationHandle h;
	struct conf_peer peer;
	char pages[128];
	CUdeviceptr va;
	size_t before;
	int fd;

	(void)state;
	if (geteuid() != 0)
		skip();
	snprintf(pages, sizeof(pages), "%s/pages", getenv("MM_SOFTGPU_DIR"));
	assert_int_equal(chmod(getenv("MM_SOFTGPU_DIR"), 0711), 0);
	assert_int_equal(chmod(pages, 0711), 0);
	snprintf(pages, sizeof(pages), "%s/state", getenv("MM_SOFTGPU_DIR"));
	assert_int_equal(chmod(pages, 0644), 0);
	before = conf_free_bytes();
	h = conf_create(conf.granule);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(gpu->cuMemsetD8Async(va, 1, conf.granule, NULL));
	ok(gpu->cuCtxSynchronize());
	fd = conf_export(h);
	peer = conf_spawn("guest");
	conf_send(peer.sock, 1, fd);
	close(fd);
	ok(gpu->cuMemUnmap(va, conf.granule));
	ok(gpu->cuMemRelease(h));
	/* The guest, last of its holders, cannot remove it: we do, when we count. */
	assert_int_equal(conf_join(&peer), 0);
	assert_int_equal(conf_free_bytes(), before);
}

static mode_t mode_of(const char *dir, const char *name)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

/* A page is its maker's alone. What is no one's data is as open as the directory. */
static void look_at_modes(const char *dir, mode_t state_mode)
{
	char pages[256];
	size_t n = 0;
	DIR *d;

	snprintf(pages, sizeof(pages), "%s/pages", dir);
	d = opendir(pages);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		assert_int_equal(mode_of(pages, e->d_name), 0600);
		n++;
	}
	closedir(d);
	assert_int_equal(n, 1);
	assert_int_equal(mode_of(dir, "state"), state_mode);
}

static void test_modes(void **state)
{
	static const struct {
		mode_t directory, state;
	} cases[] = {
		{ 0700, 0600 }, { 0744, 0644 }, { 0711, 0644 }, { 0755, 0644 }, { 0777, 0666 }
	};
	mm_cleanup(mm_free_ptr) char *dir = strdup(getenv("MM_SOFTGPU_DIR"));
	struct conf_peer peer;
	char other[128];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		snprintf(other, sizeof(other), "%s/modes-%zu", dir, i);
		assert_int_equal(mkdir(other, 0700), 0);
		assert_int_equal(chmod(other, cases[i].directory), 0);
		setenv("MM_SOFTGPU_DIR", other, 1);
		peer = conf_spawn("keeper");
		assert_int_equal(conf_recv(peer.sock, NULL), 1);
		look_at_modes(other, cases[i].state);
		conf_send(peer.sock, 0, -1);
		assert_int_equal(conf_join(&peer), 0);
	}
	setenv("MM_SOFTGPU_DIR", dir, 1);
}

/* A holder that opened the file anew, past the driver, is counted from its import on. */
static void test_reopened(void **state)
{
	size_t before = conf_free_bytes();
	CUmemGenericAllocationHandle h = conf_create(conf.granule), again;
	int fd = conf_export(h), reopened;
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reopened = open(path, O_RDWR | O_CLOEXEC);
	assert_true(reopened >= 0);
	again = conf_import(reopened);
	close(reopened);
	close(fd);
	ok(gpu->cuMemRelease(h));
	assert_int_equal(conf_free_bytes(), before - conf.granule);
	ok(gpu->cuMemRelease(again));
	assert_int_equal(conf_free_bytes(), before);
}

/* 4,000 handles take well under a second of processor time, full or not. */
static void test_speed(void **state)
{
	CUmemGenericAllocationHandle h[1000];
	struct timespec start, end;
	int64_t ms;

	(void)state;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 1000; i++)
			h[i] = conf_create(conf.granule);
		for (int i = 0; i < 1000; i++)
			ok(gpu->cuMemRelease(h[i]));
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	ms = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
	print_message("4000 handles made and released in %d ms\n", (int)ms);
	assert_true(ms < 30000);
}

static int set_up(void **state)
{
	(void)state;
	if (!conf.ctx)
		conf_context();
	return 0;
}

/* Each is a process of its own; those that remake the device do not use it themselves. */
static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_remade_when_alone),
	cmocka_unit_test(test_uuid),
	cmocka_unit_test_setup(test_environment, set_up),
	cmocka_unit_test(test_injected),
	cmocka_unit_test(test_many),
	cmocka_unit_test(test_exit_cleans_up),
	cmocka_unit_test_setup(test_fork_holds, set_up),
	cmocka_unit_test_setup(test_guest, set_up),
	cmocka_unit_test(test_modes),
	cmocka_unit_test_setup(test_reopened, set_up),
	cmocka_unit_test_setup(test_speed, set_up),
};

static const struct conf_role roles[] = {
	{ "init", run_init },     { "uuid", run_uuid },     { "injected", run_injected },
	{ "many", run_many },     { "slob", run_leaver },   { "guest", run_read_only },
	{ "parent", run_parent }, { "keeper", run_keeper }, { NULL, NULL },
};

CONF_MAIN("device", tests, roles)
