/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the calls that move pages: by size, by number of mappings, by number of processes that
 * call at once. No time is required; each result is a fact. The software GPU's numbers only show
 * that the tests work.
 */
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define gpu (&conf.gpu)

#define SAMPLES   64
#define PROCESSES 8

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

enum call { CREATE, EXPORT, IMPORT, RESERVE, MAP, ACCESS, UNMAP, RELEASE, FREE, N_CALLS };

static const char *const names[N_CALLS] = {
	[CREATE] = "create",   [EXPORT] = "export",   [IMPORT] = "import",
	[RESERVE] = "reserve", [MAP] = "map",         [ACCESS] = "access",
	[UNMAP] = "unmap",     [RELEASE] = "release", [FREE] = "free",
};

struct times {
	uint64_t ns[N_CALLS][SAMPLES];
	size_t n[N_CALLS];
};

#define TIMED(t, what, call)                                            \
	do {                                                            \
		uint64_t begin_ = conf_now_ns();                        \
                                                                        \
		call;                                                   \
		(t)->ns[what][(t)->n[what]++] = conf_now_ns() - begin_; \
	} while (0)

/* One page through its whole life; what was last to hold it is the release. */
static void page_cycle(struct times *t, size_t bytes)
{
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr va;
	int fd;

	TIMED(t, CREATE, h = conf_create(bytes));
	TIMED(t, EXPORT, fd = conf_export(h));
	TIMED(t, IMPORT, again = conf_import(fd));
	close(fd);
	ok(gpu->cuMemRelease(again));
	TIMED(t, RESERVE, va = conf_reserve(bytes));
	TIMED(t, MAP, ok(gpu->cuMemMap(va, bytes, 0, h, 0)));
	TIMED(t, ACCESS, conf_access(va, bytes, RW));
	ok(gpu->cuMemsetD32Async(va, 1, bytes / 4, NULL));
	ok(gpu->cuCtxSynchronize());
	TIMED(t, UNMAP, ok(gpu->cuMemUnmap(va, bytes)));
	TIMED(t, RELEASE, ok(gpu->cuMemRelease(h)));
	TIMED(t, FREE, ok(gpu->cuMemAddressFree(va, bytes)));
}

static void report_times(struct times *t, const char *suffix)
{
	char name[96];

	for (int call = 0; call < N_CALLS; call++) {
		snprintf(name, sizeof(name), "%s.%s", names[call], suffix);
		conf_fact_times(name, t->ns[call], t->n[call]);
	}
}

/* 2 MiB to 1 GiB on hardware, 64 KiB to 1 MiB here. */
static void test_by_size(void **state)
{
	const size_t largest = conf.software ? 16 * conf.granule : (size_t)1 << 30;
	char size[16];

	(void)state;
	for (size_t bytes = conf.granule; bytes <= largest; bytes *= conf.software ? 4 : 2) {
		const size_t n = bytes > (size_t)128 << 20 ? 8 : SAMPLES / 2;
		static struct times t;

		memset(&t, 0, sizeof(t));
		for (size_t i = 0; i < n; i++)
			page_cycle(&t, bytes);
		report_times(&t, conf_size(bytes, size));
	}
}

static double us_since(uint64_t begin)
{
	return (double)(conf_now_ns() - begin) / 1e3;
}

static void map_all(CUdeviceptr va, CUmemGenericAllocationHandle h, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ok(gpu->cuMemMap(va + i * conf.granule, conf.granule, 0, h, 0));
}

/* Access to @n mappings in one call, and in @n; all unmapped in one call, and in @n. */
static void report_runs(CUdeviceptr va, CUmemGenericAllocationHandle h, size_t n)
{
	const size_t g = conf.granule;
	char name[96];
	uint64_t begin;

	map_all(va, h, n);
	begin = conf_now_ns();
	conf_access(va, n * g, RW);
	snprintf(name, sizeof(name), "access.one_call.%zu", n);
	conf_fact(name, "us", us_since(begin));
	begin = conf_now_ns();
	ok(gpu->cuMemUnmap(va, n * g));
	snprintf(name, sizeof(name), "unmap.one_call.%zu", n);
	conf_fact(name, "us", us_since(begin));
	map_all(va, h, n);
	begin = conf_now_ns();
	for (size_t i = 0; i < n; i++)
		conf_access(va + i * g, g, RW);
	snprintf(name, sizeof(name), "access.as_many_calls.%zu", n);
	conf_fact(name, "us", us_since(begin));
	begin = conf_now_ns();
	for (size_t i = 0; i < n; i++)
		ok(gpu->cuMemUnmap(va + i * g, g));
	snprintf(name, sizeof(name), "unmap.as_many_calls.%zu", n);
	conf_fact(name, "us", us_since(begin));
}

/* One page more, where @n are mapped. */
static void report_beside(CUdeviceptr va, CUmemGenericAllocationHandle h, size_t n)
{
	static const char *const what[] = { "map", "access", "unmap" };
	static uint64_t ns[3][SAMPLES];
	const size_t g = conf.granule;
	char name[96];
	uint64_t begin;

	for (size_t i = 0; i < SAMPLES; i++) {
		begin = conf_now_ns();
		ok(gpu->cuMemMap(va, g, 0, h, 0));
		ns[0][i] = conf_now_ns() - begin;
		begin = conf_now_ns();
		conf_access(va, g, RW);
		ns[1][i] = conf_now_ns() - begin;
		begin = conf_now_ns();
		ok(gpu->cuMemUnmap(va, g));
		ns[2][i] = conf_now_ns() - begin;
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(what); i++) {
		snprintf(name, sizeof(name), "%s.beside.%zu", what[i], n);
		conf_fact_times(name, ns[i], SAMPLES);
	}
}

/* A single handle at very many addresses costs no memory. */
static void test_by_mappings(void **state)
{
	const size_t g = conf.granule, most = conf.software ? 512 : 4096;
	CUmemGenericAllocationHandle h = conf_create(g), one = conf_create(g);
	CUdeviceptr va = conf_reserve(most * g), beside = conf_reserve(g);

	(void)state;
	for (size_t n = 1; n <= most; n *= 8) {
		report_runs(va, h, n);
		map_all(va, h, n);
		conf_access(va, n * g, RW);
		report_beside(beside, one, n);
		ok(gpu->cuMemUnmap(va, n * g));
	}
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemRelease(one));
	ok(gpu->cuMemAddressFree(va, most * g));
	ok(gpu->cuMemAddressFree(beside, g));
}

/* Cycles while others do, and tells the median of each call, in nanoseconds. */
static int run_cycler(int sock)
{
	static struct times t;
	uint64_t go;

	conf_context();
	page_cycle(&t, conf.granule); /* what comes first is slow once */
	memset(&t, 0, sizeof(t));
	conf_send(sock, 1, -1);
	go = conf_recv(sock, NULL);
	check(go == 2);
	for (size_t i = 0; i < SAMPLES; i++)
		page_cycle(&t, conf.granule);
	for (int call = 0; call < N_CALLS; call++) {
		uint64_t sum = 0;

		for (size_t i = 0; i < SAMPLES; i++)
			sum += t.ns[call][i];
		conf_send(sock, 1 + sum / SAMPLES, -1);
	}
	return 0;
}

static void test_by_processes(void **state)
{
	char name[96];

	(void)state;
	for (size_t n = 1; n <= PROCESSES; n *= 2) {
		struct conf_peer peers[PROCESSES];
		double sum[N_CALLS] = { 0 };

		for (size_t i = 0; i < n; i++)
			peers[i] = conf_spawn("cycler");
		for (size_t i = 0; i < n; i++)
			check(conf_recv(peers[i].sock, NULL) == 1);
		for (size_t i = 0; i < n; i++)
			conf_send(peers[i].sock, 2, -1);
		for (size_t i = 0; i < n; i++) {
			for (int call = 0; call < N_CALLS; call++)
				sum[call] += (double)conf_recv(peers[i].sock, NULL) / 1e3;
			conf_finish(&peers[i]);
		}
		for (int call = 0; call < N_CALLS; call++) {
			snprintf(name, sizeof(name), "%s.processes.%zu.mean", names[call], n);
			conf_fact(name, "us", sum[call] / (double)n);
		}
	}
}

/* A context's own memory, which every tenant costs and mmd, without one, does not. */
static int context_holder(int sock)
{
	conf_context();
	conf_send(sock, 1, -1);
	conf_recv(sock, NULL);
	return 0;
}

static void test_context_memory(void **state)
{
	size_t before = conf_free_bytes(), with;
	struct conf_peer peer = conf_spawn("context_holder");
	uint64_t begin;

	(void)state;
	begin = conf_now_ns();
	check(conf_recv(peer.sock, NULL) == 1);
	conf_fact("context.create", "ms", (double)(conf_now_ns() - begin) / 1e6);
	with = conf_free_bytes();
	conf_fact("context.memory", "bytes", (double)before - (double)with);
	conf_send(peer.sock, 2, -1);
	conf_finish(&peer);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_by_size),
	T(test_by_mappings),
	T(test_by_processes),
	T(test_context_memory),
};

static const struct conf_role roles[] = {
	{ "cycler", run_cycler },
	{ "context_holder", context_holder },
	{ NULL, NULL },
};

CONF_MAIN("cost", tests, roles)
