/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timed mode. What is asserted is device time: work waits at a gate until all of it is queued, so
 * that no slowness of the host comes between. The profile: 10 GB/s of memory, 1 GB/s of link, so a
 * byte that a kernel moves takes 0.1 ns, and copies slow kernels down by a tenth, either way.
 */
#include "tests/conformance/conf.h"

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mm/softgpu.h"
#include "tests/unit/kernels/softgpu/timed.h"

#define gpu (&conf.gpu)

#define SLOW_LAUNCHES                                                                  \
	"gh200-96,hbm_gbps=10,mem_efficiency=1,h2d_gbps=1,d2h_gbps=1,duplex_loss=0.2," \
	"kernel_us=2,copy_us=2,launch_us=500,create_us=1000"
#define MS       MM_NS_PER_MS
#define GIB      (UINT64_C(1) << 30)
#define BYTES_MS UINT64_C(10000000) /* of device memory in a millisecond */

static CUfunction spend, peek, store;
static CUstream stream;
static uint32_t *gate; /* [0]: what streams wait at, [1]: what they write */
static CUdeviceptr gate_va;
static mm_softgpu_stats_fn *stats_of;

static void role_begin_at(void *shared)
{
	CUmodule module;

	timed_open();
	*(void **)&stats_of = timed_symbol(MM_SOFTGPU_STATS_SYMBOL);
	ok(gpu->cuModuleLoad(&module, getenv("MM_TEST_KERNELS")));
	ok(gpu->cuModuleGetFunction(&spend, module, "spend"));
	ok(gpu->cuModuleGetFunction(&peek, module, "peek"));
	ok(gpu->cuModuleGetFunction(&store, module, "store"));
	stream = conf_stream();
	gate = shared;
	gate_va = conf_register(shared, 4096, 0);
}

static void role_begin(void)
{
	role_begin_at(conf_shared(4096, NULL));
}

static struct mm_softgpu_stats stats(void)
{
	struct mm_softgpu_stats s;

	check(stats_of(0, &s, sizeof(s)) == 0);
	return s;
}

static void kernel(CUstream s, uint64_t bytes)
{
	void *params[] = { &bytes };

	ok(gpu->cuLaunchKernel(spend, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

/* ---- durations ---- */

static void check_kernels(void)
{
	CUevent from, to;
	float ms = 0;

	timed_gate_close(gate);
	timed_hold(stream, gate);
	kernel(stream, 0); /* behind what others have reserved */
	from = timed_record(stream);
	for (int i = 0; i < 200; i++)
		kernel(stream, BYTES_MS / 10);
	kernel(stream, 0); /* the least that a kernel takes */
	to = timed_record(stream);
	expect(gpu->cuEventElapsedTime(&ms, from, to), CUDA_ERROR_NOT_READY);
	timed_gate_open(gate);
	check(timed_ns(to) - timed_ns(from) == 20 * MS + 2000);
	ok(gpu->cuEventElapsedTime(&ms, from, to));
	check(ms > 20.00199F && ms < 20.00201F);
}

static int role_kernels(int sock)
{
	uint64_t before;

	(void)sock;
	role_begin();
	before = stats().compute_ns;
	check_kernels();
	check(stats().compute_ns - before == 20 * MS + 4000 && stats().kernels >= 201);
	return 0;
}

/*
 * The host's time for a launch is paid once for a graph; what a kernel costs is asked when it runs.
 */
static int role_graph(int sock)
{
	CUdeviceptr va = 0;
	void *params[] = { &va };
	CUevent from, to;
	CUgraphExec exec;
	CUgraph graph;
	uint64_t bytes;

	(void)sock;
	role_begin();
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	from = timed_event();
	to = timed_event();
	ok(gpu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ok(gpu->cuEventRecordWithFlags(from, stream, CU_EVENT_RECORD_EXTERNAL));
	for (int i = 0; i < 200; i++)
		kernel(stream, 0);
	ok(gpu->cuLaunchKernel(peek, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	ok(gpu->cuEventRecordWithFlags(to, stream, CU_EVENT_RECORD_EXTERNAL));
	ok(gpu->cuStreamEndCapture(stream, &graph));
	ok(gpu->cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint64_t ms = 1; ms <= 3; ms++) {
		bytes = ms * BYTES_MS;
		ok(gpu->cuMemcpyHtoDAsync(va, &bytes, sizeof(bytes), stream));
		ok(gpu->cuGraphLaunch(exec, stream));
		check(timed_ns(to) - timed_ns(from) == 400000 + ms * MS);
		ok(gpu->cuStreamSynchronize(stream));
	}
	ok(gpu->cuGraphExecDestroy(exec));
	return 0;
}

/* Rows of a hundredth each, with as much between them. */
static void fill_rows(CUdeviceptr va, size_t bytes)
{
	CUresult(CUDAAPI * fill)(CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream);

	*(void **)&fill = dlsym(gpu->library, "cuMemsetD2D8Async");
	ok(fill(va, bytes / 50, 1, bytes / 100, 100, stream));
}

/* The role's begin: a gibibyte of device memory, and one of registered host memory. */
static CUdeviceptr begin_copies(char **ret_host)
{
	CUdeviceptr va;

	role_begin();
	va = conf_reserve(GIB);
	*ret_host = conf_shared(GIB, NULL);
	conf_register(*ret_host, GIB, 0);
	conf_map(va, GIB, conf_create(GIB), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return va;
}

static int role_copies(int sock)
{
	CUdeviceptr va;
	CUevent at[6];
	char *host;

	(void)sock;
	va = begin_copies(&host);
	timed_hold(stream, gate);
	at[0] = timed_record(stream);
	ok(gpu->cuMemcpyHtoDAsync(va, host, 1000000, stream));
	at[1] = timed_record(stream);
	ok(gpu->cuMemcpyDtoHAsync(host, va, 2000000, stream));
	at[2] = timed_record(stream);
	ok(gpu->cuMemsetD8Async(va, 1, BYTES_MS, stream));
	at[3] = timed_record(stream);
	ok(gpu->cuMemcpyDtoDAsync(va, va + GIB / 2, BYTES_MS, stream));
	at[4] = timed_record(stream);
	fill_rows(va, BYTES_MS);
	at[5] = timed_record(stream);
	timed_gate_open(gate);
	check(timed_ns(at[1]) - timed_ns(at[0]) == MS);
	check(timed_ns(at[2]) - timed_ns(at[1]) == 2 * MS);
	check(timed_ns(at[3]) - timed_ns(at[2]) == MS);
	check(timed_ns(at[4]) - timed_ns(at[3]) == 2 * MS);
	check(timed_ns(at[5]) - timed_ns(at[4]) == MS);
	check(stats().h2d_bytes == 1000000 && stats().d2h_bytes == 2000000);
	return 0;
}

/* Copies that take longer than any test lasts: whatever runs beside them is slower by a tenth. */
static void copy_for_ever(CUstream s, CUdeviceptr va, const char *host)
{
	for (int i = 0; i < 500; i++)
		ok(gpu->cuMemcpyHtoDAsync(va, host, GIB, s));
	(void)gpu->cuStreamQuery(s);
	while (stats().h2d_bytes < 500 * GIB)
		usleep(1000);
}

/* The same to the host; fewer, because each takes longer while both directions are busy. */
static void copy_out_for_ever(CUstream s, CUdeviceptr va, char *host)
{
	for (int i = 0; i < 300; i++)
		ok(gpu->cuMemcpyDtoHAsync(host, va, GIB, s));
	(void)gpu->cuStreamQuery(s);
	while (stats().d2h_bytes < 300 * GIB)
		usleep(1000);
}

/* Are ten kernels of a millisecond each over after @want_ns? */
static void check_ten_kernels(uint64_t want_ns)
{
	CUevent at[2];

	timed_gate_close(gate);
	timed_hold(stream, gate);
	at[0] = timed_record(stream);
	for (int i = 0; i < 10; i++)
		kernel(stream, BYTES_MS);
	at[1] = timed_record(stream);
	timed_gate_open(gate);
	check(timed_ns(at[1]) - timed_ns(at[0]) >= want_ns - 10);
	check(timed_ns(at[1]) - timed_ns(at[0]) <= want_ns + 10);
}

static int role_overlap(int sock)
{
	CUdeviceptr va;
	CUstream link, back;
	CUevent at[3];
	char *host;

	(void)sock;
	va = begin_copies(&host);
	link = conf_stream();
	back = conf_stream();
	copy_for_ever(link, va, host);
	check_ten_kernels(11 * MS);
	/* A small copy does not stand behind them. */
	timed_gate_close(gate);
	timed_hold(stream, gate);
	at[0] = timed_record(stream);
	ok(gpu->cuMemcpyHtoDAsync(va, host, 50000, stream));
	at[1] = timed_record(stream);
	timed_gate_open(gate);
	check(timed_ns(at[1]) - timed_ns(at[0]) == 50000);
	/* The other direction loses a fifth of its rate. */
	ok(gpu->cuMemcpyDtoHAsync(host, va, 4000000, back));
	at[0] = timed_record(back);
	ok(gpu->cuMemcpyDtoHAsync(host, va, 4000000, back));
	at[2] = timed_record(back);
	check(timed_ns(at[2]) - timed_ns(at[0]) >= 5 * MS);
	/* With both directions busy kernels are slower by both. */
	copy_out_for_ever(back, va, host);
	check_ten_kernels(12 * MS);
	_exit(0); /* what the link has reserved elapses without us */
}

static int role_overlap_out(int sock)
{
	CUdeviceptr va;
	char *host;

	(void)sock;
	va = begin_copies(&host);
	copy_out_for_ever(conf_stream(), va, host);
	check_ten_kernels(11 * MS);
	_exit(0); /* what the link has reserved elapses without us */
}

/* ---- what is touched ---- */

static int role_bytes(int sock)
{
	const uint64_t big = 4 << 20;
	CUdeviceptr va, arg;
	void *params[] = { &arg };
	CUevent at[2];
	char *host;
	uint64_t word = 3 * BYTES_MS;

	(void)sock;
	role_begin();
	va = conf_reserve(big);
	arg = va;
	host = calloc(1, big);
	check(host != NULL);
	memset(host, 7, big);
	conf_map(va, big, conf_create(big), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	/* A large copy moves nothing, a small one does. */
	ok(gpu->cuMemcpyHtoD(va, host, big));
	ok(gpu->cuMemcpyDtoH(host, va, 16));
	check(host[0] == 0 && host[15] == 0 && host[16] == 7);
	ok(gpu->cuMemcpyHtoD(va, &word, sizeof(word)));
	/* A kernel writes nothing; its cost function reads what is on the device. */
	ok(gpu->cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	timed_hold(stream, gate);
	at[0] = timed_record(stream);
	ok(gpu->cuLaunchKernel(peek, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	at[1] = timed_record(stream);
	timed_gate_open(gate);
	check(timed_ns(at[1]) - timed_ns(at[0]) == 3 * MS);
	word = 0;
	ok(gpu->cuMemcpyDtoH(&word, va, sizeof(word)));
	check(word == 3 * BYTES_MS);
	free(host);
	return 0;
}

static uint64_t disk_bytes(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	uint64_t sum = 0;
	struct stat st;

	check(dir != NULL);
	while ((entry = readdir(dir)))
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			sum += (uint64_t)st.st_blocks * 512;
	closedir(dir);
	return sum;
}

/* 90 of 96 GiB are written to, and the host has none of it. */
static int role_capacity(int sock)
{
	CUmemGenericAllocationHandle more;
	const uint64_t large = 90 * GIB;
	size_t free_bytes, total;
	CUdeviceptr va;
	char pages[256];
	struct stat st;
	void *host;
	int fd;

	(void)sock;
	role_begin();
	ok(gpu->cuMemGetInfo(&free_bytes, &total));
	check(total == 96 * GIB);
	va = conf_reserve(large);
	conf_map(va, large, conf_create(large), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(gpu->cuMemsetD8Async(va, 255, large / 4096, stream));
	host = conf_shared(8 * GIB, &fd);
	conf_register(host, 8 * GIB, 0);
	ok(gpu->cuMemcpyHtoDAsync(va + GIB, host, 8 << 20, stream));
	ok(gpu->cuStreamSynchronize(stream));
	check(fstat(fd, &st) == 0 && st.st_blocks == 0);
	snprintf(pages, sizeof(pages), "%s/pages", getenv("MM_SOFTGPU_DIR"));
	check(disk_bytes(pages) < 1 << 20);
	expect(gpu->cuMemCreate(&more, 10 * GIB, &conf.prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	return 0;
}

/* The role's begin: twice as many addresses as @bytes, of which the first half is mapped. */
static CUdeviceptr begin_half_mapped(size_t bytes, CUmemAccess_flags access)
{
	CUdeviceptr va;

	role_begin();
	va = conf_reserve(2 * bytes);
	conf_map(va, bytes, conf_create(bytes), access);
	return va;
}

static int role_fault(int sock)
{
	CUdeviceptr va = begin_half_mapped(4 << 20, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	char *host;

	(void)sock;
	host = conf_shared(8 << 20, NULL);
	conf_register(host, 8 << 20, 0);
	ok(gpu->cuMemcpyHtoDAsync(va, host, 4 << 20, stream));
	ok(gpu->cuStreamSynchronize(stream));
	/* The second half of it is not mapped. */
	ok(gpu->cuMemcpyHtoDAsync(va + (2 << 20), host, 4 << 20, stream));
	expect(gpu->cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

static int role_fault_rows(int sock)
{
	CUdeviceptr va = begin_half_mapped(4 << 20, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	(void)sock;
	fill_rows(va, 2 << 20);
	ok(gpu->cuStreamSynchronize(stream));
	/* Half as many bytes again, but the last rows are behind the mapping. */
	fill_rows(va, 3 << 20);
	expect(gpu->cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

static int role_read_only(int sock)
{
	CUdeviceptr va = begin_half_mapped(4 << 20, CU_MEM_ACCESS_FLAGS_PROT_READ);

	(void)sock;
	ok(gpu->cuMemsetD8Async(va, 1, 4 << 20, stream));
	expect(gpu->cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

/* ---- several at once ---- */

#define ROUNDS 40

/* Reports when its kernels ran. */
static int role_neighbour(int sock)
{
	CUevent at[ROUNDS];
	int fd = -1;

	conf_recv(sock, &fd);
	role_begin_at(conf_shared_from(fd, 4096, PROT_READ | PROT_WRITE));
	timed_hold(stream, gate);
	for (int i = 0; i < ROUNDS; i++) {
		kernel(stream, BYTES_MS);
		at[i] = timed_record(stream);
		/* Others see a value at its time, so the neighbour comes in between. */
		ok(gpu->cuStreamWriteValue32(stream, gate_va + 4, (uint32_t)i, 0));
	}
	conf_send(sock, 1, -1);
	for (int i = 0; i < ROUNDS; i++)
		conf_send(sock, timed_ns(at[i]), -1);
	return 0;
}

/* Two processes, one device: no two kernels at the same time. */
static void test_neighbours(void **state)
{
	struct conf_peer peer[2];
	uint64_t end[2][ROUNDS];
	uint32_t *word;
	int fd;

	(void)state;
	word = conf_shared(4096, &fd);
	for (int p = 0; p < 2; p++) {
		peer[p] = conf_spawn("neighbour");
		conf_send(peer[p].sock, 1, fd);
		check(conf_recv(peer[p].sock, NULL) == 1);
	}
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	for (int p = 0; p < 2; p++)
		for (int i = 0; i < ROUNDS; i++)
			end[p][i] = conf_recv(peer[p].sock, NULL);
	for (int p = 0; p < 2; p++)
		check(conf_join(&peer[p]) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		check(i == 0 || end[0][i] - end[0][i - 1] >= MS);
		for (int k = 0; k < ROUNDS; k++)
			check(end[0][i] >= end[1][k] + MS || end[1][k] >= end[0][i] + MS);
	}
	munmap(word, 4096);
	close(fd);
}

/* Ends in the middle of its work: its thread sleeps, an hour of the link is reserved. */
static int role_victim(int sock)
{
	role_begin();
	for (int i = 0; i < 1000; i++) {
		kernel(stream, 20 * BYTES_MS);
		ok(gpu->cuStreamWriteValue32(stream, gate_va + 4, (uint32_t)i, 0));
	}
	while (!__atomic_load_n(&gate[1], __ATOMIC_ACQUIRE))
		usleep(1000);
	conf_send(sock, 1, -1);
	pause();
	return 0;
}

static int role_survivor(int sock)
{
	struct conf_peer peer;

	(void)sock;
	role_begin();
	for (int i = 0; i < 3; i++) {
		peer = conf_spawn("victim");
		check(conf_recv(peer.sock, NULL) == 1);
		conf_kill(&peer);
		check_kernels();
	}
	return 0;
}

static int role_order(int sock)
{
	CUstream other;
	CUevent done, seen;

	(void)sock;
	role_begin();
	other = conf_stream();
	for (uint32_t i = 1; i <= 20; i++) {
		kernel(stream, BYTES_MS);
		done = timed_record(stream);
		ok(gpu->cuStreamWriteValue32(stream, gate_va + 4, i, 0));
		ok(gpu->cuStreamWaitValue32(other, gate_va + 4, i, CU_STREAM_WAIT_VALUE_GEQ));
		seen = timed_record(other);
		check(timed_ns(seen) >= timed_ns(done));
		check(__atomic_load_n(&gate[1], __ATOMIC_ACQUIRE) >= i);
	}
	/* The same by an event, which costs nobody a look at the clock. */
	timed_hold(stream, gate);
	kernel(stream, BYTES_MS);
	done = timed_record(stream);
	ok(gpu->cuStreamWaitEvent(other, done, 0));
	kernel(other, BYTES_MS);
	seen = timed_record(other);
	timed_gate_open(gate);
	check(timed_ns(seen) == timed_ns(done) + MS);
	check(stats().effects >= 20);
	return 0;
}

/*
 * Host code between two streams says what it knows: neither that it saw the value late, nor that it
 * wrote and put in work late, is to be seen in device time.
 */
static int role_host(int sock)
{
	CUstream link, other;
	mm_softgpu_written_ns_fn *written;
	mm_softgpu_wrote_fn *wrote;
	mm_softgpu_act_at_fn *act_at;
	uint64_t done = 0, ns = 0;
	CUdeviceptr va;
	CUevent at[2];
	struct stat st;
	uint32_t *host;
	int fd;

	(void)sock;
	host = conf_shared(4096, &fd);
	role_begin_at(host);
	link = conf_stream();
	other = conf_stream();
	check(fstat(fd, &st) == 0);
	*(void **)&written = timed_symbol(MM_SOFTGPU_WRITTEN_SYMBOL);
	*(void **)&wrote = timed_symbol(MM_SOFTGPU_WROTE_SYMBOL);
	*(void **)&act_at = timed_symbol(MM_SOFTGPU_ACT_SYMBOL);
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	check(written(0, st.st_ino, 4, 7, &ns) == -ENOENT);
	ok(gpu->cuStreamWaitValue32(other, gate_va + 8, 9, CU_STREAM_WAIT_VALUE_EQ));
	at[1] = timed_record(other);
	timed_hold(stream, gate);
	kernel(stream, BYTES_MS);
	at[0] = timed_record(stream);
	ok(gpu->cuStreamWriteValue32(stream, gate_va + 4, 7, 0));
	timed_gate_open(gate);
	ok(gpu->cuStreamSynchronize(stream));
	done = timed_ns(at[0]);
	check(written(0, st.st_ino, 4, 7, &ns) == 0 && ns == done);
	check(written(0, st.st_ino, 4, 8, &ns) == -ENOENT);
	usleep(20000); /* so late */
	act_at(done);
	ok(gpu->cuMemcpyHtoDAsync(va, host, 1000, link));
	at[0] = timed_record(link);
	act_at(0);
	check(timed_ns(at[0]) == done + 2000);
	usleep(20000);
	check(wrote(0, st.st_ino, 8, 9, done + 2000) == 0);
	__atomic_store_n(&gate[2], 9, __ATOMIC_RELEASE);
	check(timed_ns(at[1]) == done + 2000);
	close(fd);
	return 0;
}

/* ---- driver calls ---- */

static int role_calls(int sock)
{
	struct timespec from, to;
	int64_t ns;

	(void)sock;
	role_begin();
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 20; i++)
		conf_create(conf.granule);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ns = (to.tv_sec - from.tv_sec) * (int64_t)MM_NS_PER_S + to.tv_nsec - from.tv_nsec;
	check(ns >= 19 * (int64_t)MS);
	return 0;
}

/* ---- what is shared ---- */

/* Time goes on, whatever somebody wrote over what is shared. */
static int role_scribbled(int sock)
{
	static const unsigned char rubbish[] = { 0xff, 0x01, 0x7f, 0x00 };
	char path[256], *base;
	struct stat st;
	int fd;

	(void)sock;
	role_begin();
	snprintf(path, sizeof(path), "%s/timeline", getenv("MM_SOFTGPU_DIR"));
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0 && fstat(fd, &st) == 0);
	base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(base != MAP_FAILED);
	for (size_t i = 0; i < MM_ARRAY_SIZE(rubbish); i++) {
		memset(base, rubbish[i], (size_t)st.st_size);
		kernel(stream, BYTES_MS);
		ok(gpu->cuStreamWriteValue32(stream, gate_va + 4, (uint32_t)i, 0));
		ok(gpu->cuStreamSynchronize(stream));
	}
	munmap(base, (size_t)st.st_size);
	close(fd);
	return 0;
}

/* ---- all of them ---- */

static void run(const char *role)
{
	struct conf_peer peer = conf_spawn(role);

	check(conf_join(&peer) == 0);
}

#define IN_ROLE(name)                         \
	static void test_##name(void **state) \
	{                                     \
		(void)state;                  \
		run(#name);                   \
	}
IN_ROLE(kernels)
IN_ROLE(copies)
IN_ROLE(overlap)
IN_ROLE(overlap_out)
IN_ROLE(bytes)
IN_ROLE(capacity)
IN_ROLE(fault)
IN_ROLE(fault_rows)
IN_ROLE(read_only)
IN_ROLE(survivor)
IN_ROLE(order)
IN_ROLE(host)
IN_ROLE(calls)
IN_ROLE(scribbled)

static void test_graph(void **state)
{
	(void)state;
	setenv("MM_SOFTGPU_PROFILE", SLOW_LAUNCHES, 1);
	run("graph");
	setenv("MM_SOFTGPU_PROFILE", PROFILE, 1);
}

/* Device time is the same, however slowly it passes. */
static void test_dilation(void **state)
{
	(void)state;
	setenv("MM_SOFTGPU_DILATION", "2.5", 1);
	run("kernels");
	run("copies");
	unsetenv("MM_SOFTGPU_DILATION");
}

int main(int argc, char **argv)
{
	static const struct conf_role roles[] = {
		{ "kernels", role_kernels },
		{ "graph", role_graph },
		{ "copies", role_copies },
		{ "overlap", role_overlap },
		{ "overlap_out", role_overlap_out },
		{ "bytes", role_bytes },
		{ "capacity", role_capacity },
		{ "fault", role_fault },
		{ "fault_rows", role_fault_rows },
		{ "read_only", role_read_only },
		{ "neighbour", role_neighbour },
		{ "victim", role_victim },
		{ "survivor", role_survivor },
		{ "order", role_order },
		{ "calls", role_calls },
		{ "host", role_host },
		{ "scribbled", role_scribbled },
		{ NULL, NULL },
	};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels),     cmocka_unit_test(test_graph),
		cmocka_unit_test(test_copies),      cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_overlap_out), cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_capacity),    cmocka_unit_test(test_fault),
		cmocka_unit_test(test_fault_rows),  cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_neighbours),  cmocka_unit_test(test_survivor),
		cmocka_unit_test(test_order),       cmocka_unit_test(test_calls),
		cmocka_unit_test(test_host),        cmocka_unit_test(test_scribbled),
		cmocka_unit_test(test_dilation),
	};

	if (argc == 1) {
		setenv("MM_SOFTGPU_PROFILE", PROFILE, 1);
		unsetenv("MM_SOFTGPU_DILATION");
	}
	return conf_main(argc, argv, "timed", tests, MM_ARRAY_SIZE(tests), roles);
}
