/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device at work while pages move: which calls wait for kernels, of this process or of another;
 * whether a kernel notices that pages beside its own come and go; what copies and kernels of two
 * processes cost each other; whether a stream that waits holds up others.
 */
#include "tests/conformance/conf.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/kernels.h"

#define gpu (&conf.gpu)

#define PAGE      4096u
#define REPEAT    3
#define STREAMS   64
#define LASTS_MS  200 /* how long a call would wait */
#define KERNEL_MS 20  /* of the other process's, one behind the other */

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/* A kernel that runs until a flag is set, or its time is over. */
struct runner {
	CUfunction loop;
	CUstream stream;
	uint64_t *words; /* 1: started, 8: flag */
	CUdeviceptr words_va, rounds_va;
	uint64_t ns;
	unsigned int blocks, threads;
};

static struct runner make_runner(uint64_t ns)
{
	struct runner r = { .loop = conf_kernel("conf_loop"),
			    .stream = conf_stream(),
			    .words = conf_shared(PAGE, NULL),
			    .ns = ns,
			    .blocks = 1,
			    .threads = 32 };

	r.words_va = conf_register(r.words, PAGE, 0);
	r.rounds_va = conf_zeroed(8);
	return r;
}

static void free_runner(struct runner *r)
{
	ok(gpu->cuStreamDestroy(r->stream));
	ok(gpu->cuMemFree(r->rounds_va));
	ok(gpu->cuMemHostUnregister(r->words));
	munmap(r->words, PAGE);
}

static void runner_start(struct runner *r, CUdeviceptr va, size_t bytes)
{
	const struct conf_loop_args args = { .started_va = r->words_va + 8,
					     .flag_va = r->words_va + 64,
					     .va = va,
					     .bytes = bytes,
					     .rounds_va = r->rounds_va,
					     .ns = r->ns,
					     .stop = 1 };

	__atomic_store_n((uint32_t *)&r->words[1], 0, __ATOMIC_RELEASE);
	__atomic_store_n((uint32_t *)&r->words[8], 0, __ATOMIC_RELEASE);
	conf_launch(r->loop, r->blocks, r->threads, r->stream, &args);
	while (!__atomic_load_n((uint32_t *)&r->words[1], __ATOMIC_ACQUIRE))
		conf_nap_ms(1);
}

static void runner_stop(struct runner *r)
{
	__atomic_store_n((uint32_t *)&r->words[8], 1, __ATOMIC_RELEASE);
	ok(gpu->cuStreamSynchronize(r->stream));
}

/* ---- Which calls wait ---- */

enum call { CREATE, MAP, ACCESS, UNMAP, RELEASE, REGISTER, UNREGISTER, ALLOC, DEALLOC, N };

static const char *const names[N] = {
	[CREATE] = "create",         [MAP] = "map",         [ACCESS] = "access",
	[UNMAP] = "unmap",           [RELEASE] = "release", [REGISTER] = "register",
	[UNREGISTER] = "unregister", [ALLOC] = "mem_alloc", [DEALLOC] = "mem_free",
};

static struct {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr va, plain;
	void *page;
} with;

static void do_call(enum call call)
{
	const size_t bytes = conf.granule;

	switch (call) {
	case CREATE:
		with.handle = conf_create(bytes);
		break;
	case MAP:
		ok(gpu->cuMemMap(with.va, bytes, 0, with.handle, 0));
		break;
	case ACCESS:
		conf_access(with.va, bytes, RW);
		break;
	case UNMAP:
		ok(gpu->cuMemUnmap(with.va, bytes));
		break;
	case RELEASE:
		ok(gpu->cuMemRelease(with.handle));
		break;
	case REGISTER:
		ok(gpu->cuMemHostRegister(with.page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
		break;
	case UNREGISTER:
		ok(gpu->cuMemHostUnregister(with.page));
		break;
	case ALLOC:
		ok(gpu->cuMemAlloc(&with.plain, bytes));
		break;
	case DEALLOC:
		ok(gpu->cuMemFree(with.plain));
		break;
	default:
		break;
	}
}

/*
 * @begin and @end surround each call with a kernel that is running; a call that waits shows in the
 * time.
 */
static void report_calls(const char *where, void (*begin)(void *arg), void (*end)(void *arg),
			 void *arg)
{
	static uint64_t ns[N][REPEAT];
	char name[96];

	with.va = conf_reserve(conf.granule);
	with.page = conf_shared(PAGE, NULL);
	for (size_t i = 0; i < REPEAT; i++) {
		for (int call = 0; call < N; call++) {
			uint64_t at;

			begin(arg);
			at = conf_now_ns();
			do_call((enum call)call);
			ns[call][i] = conf_now_ns() - at;
			end(arg);
		}
	}
	for (int call = 0; call < N; call++) {
		snprintf(name, sizeof(name), "%s.%s", names[call], where);
		conf_fact_times(name, ns[call], REPEAT);
	}
	ok(gpu->cuMemAddressFree(with.va, conf.granule));
	munmap(with.page, PAGE);
}

static void do_nothing(void *arg)
{
	(void)arg;
}

static void begin_kernel(void *arg)
{
	runner_start(arg, 0, 0);
}

static void end_kernel(void *arg)
{
	runner_stop(arg);
}

/* A call that takes as long as the kernel could run waits for it. */
static void test_calls_beside_own_kernel(void **state)
{
	struct runner r = make_runner(LASTS_MS * MM_NS_PER_MS);

	(void)state;
	report_calls("idle", do_nothing, do_nothing, NULL);
	conf_fact("kernel.lasts", "us", LASTS_MS * 1000);
	report_calls("own_kernel", begin_kernel, end_kernel, &r);
	free_runner(&r);
}

/*
 * A stream that waits for a value; a helper ends that in time, should the call wait for the stream.
 */
struct waiter {
	CUstream stream;
	uint32_t *words; /* 0: flag, 1: the call returned */
	CUdeviceptr words_va;
	pthread_t thread;
};

static void *end_in_time(void *arg)
{
	struct waiter *w = arg;

	for (int ms = 0; ms < LASTS_MS && !__atomic_load_n(&w->words[1], __ATOMIC_ACQUIRE); ms++)
		conf_nap_ms(1);
	__atomic_store_n(&w->words[0], 1, __ATOMIC_RELEASE);
	return NULL;
}

static void begin_wait(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->words[0], 0, __ATOMIC_RELEASE);
	__atomic_store_n(&w->words[1], 0, __ATOMIC_RELEASE);
	ok(gpu->cuStreamWaitValue32(w->stream, w->words_va, 1, CU_STREAM_WAIT_VALUE_EQ));
	check(pthread_create(&w->thread, NULL, end_in_time, w) == 0);
}

static void end_wait(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->words[1], 1, __ATOMIC_RELEASE);
	pthread_join(w->thread, NULL);
	ok(gpu->cuStreamSynchronize(w->stream));
}

/* Calls that a tenant makes while one of its streams waits at a gate. */
static void test_calls_beside_own_wait(void **state)
{
	struct waiter w = { .stream = conf_stream(), .words = conf_shared(PAGE, NULL) };

	(void)state;
	w.words_va = conf_register(w.words, PAGE, 0);
	conf_fact("wait.lasts", "us", LASTS_MS * 1000);
	report_calls("own_wait", begin_wait, end_wait, &w);
	ok(gpu->cuStreamDestroy(w.stream));
	ok(gpu->cuMemHostUnregister(w.words));
	munmap(w.words, PAGE);
}

/* ---- Two processes ---- */

static bool is_told(int sock)
{
	struct pollfd poller = { .fd = sock, .events = POLLIN };

	return poll(&poller, 1, 0) > 0;
}

/*
 * Kernels over the whole device, one behind the other, of the length that it is told, that compute
 * or read the memory that it is told; answers with how many rounds they made in a second.
 */
static int run_spinner(int sock)
{
	uint64_t begin, bytes, rounds, launched = 0;
	struct runner r;
	CUdeviceptr va = 0;
	CUevent events[2];

	conf_context();
	r = make_runner(conf_recv(sock, NULL));
	bytes = conf_recv(sock, NULL) - 1;
	if (bytes)
		ok(gpu->cuMemAlloc(&va, bytes));
	for (int i = 0; i < 2; i++)
		ok(gpu->cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	begin = conf_now_ns();
	conf_send(sock, 1, -1);
	while (!is_told(sock)) {
		const struct conf_loop_args args = {
			.va = va, .bytes = bytes, .rounds_va = r.rounds_va, .ns = r.ns
		};
		const unsigned int processors =
			(unsigned int)conf_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

		/* One runs, one is queued. */
		if (launched >= 2)
			ok(gpu->cuEventSynchronize(events[launched % 2]));
		conf_launch(r.loop, 2 * processors, 256, r.stream, &args);
		ok(gpu->cuEventRecord(events[launched++ % 2], r.stream));
	}
	ok(gpu->cuStreamSynchronize(r.stream));
	begin = conf_now_ns() - begin;
	conf_recv(sock, NULL);
	conf_read(&rounds, r.rounds_va, sizeof(rounds));
	conf_send(sock, 1 + (uint64_t)((double)rounds * 1e9 / (double)begin), -1);
	return 0;
}

/* Copies to or from the device (1, 2), from the first word on until the next; answers with MB/s. */
static int run_mover(int sock)
{
	const size_t bytes = conf.software ? (size_t)1 << 20 : (size_t)64 << 20;
	uint64_t begin, moved = 0, way;
	CUstream stream;
	CUdeviceptr va;
	void *host;

	conf_context();
	host = conf_shared(bytes, NULL);
	memset(host, 1, bytes);
	conf_register(host, bytes, 0);
	ok(gpu->cuMemAlloc(&va, bytes));
	stream = conf_stream();
	way = conf_recv(sock, NULL);
	begin = conf_now_ns();
	conf_send(sock, 1, -1);
	while (!is_told(sock)) {
		for (int i = 0; i < 4; i++)
			ok(way == 1 ? gpu->cuMemcpyHtoDAsync(va, host, bytes, stream)
				    : gpu->cuMemcpyDtoHAsync(host, va, bytes, stream));
		ok(gpu->cuStreamSynchronize(stream));
		moved += 4 * bytes;
	}
	conf_recv(sock, NULL);
	conf_send(sock, 1 + (uint64_t)((double)moved * 1e3 / (double)(conf_now_ns() - begin)), -1);
	return 0;
}

/* A stream that stands at a value until the next word. */
static int run_waiter(int sock)
{
	uint32_t *page = conf_shared(PAGE, NULL);
	CUstream stream;
	CUdeviceptr va;

	conf_context();
	va = conf_register(page, PAGE, 0);
	stream = conf_stream();
	ok(gpu->cuStreamWaitValue32(stream, va, 1, CU_STREAM_WAIT_VALUE_EQ));
	conf_send(sock, 1, -1);
	conf_recv(sock, NULL);
	__atomic_store_n(page, 1, __ATOMIC_RELEASE);
	ok(gpu->cuStreamSynchronize(stream));
	conf_send(sock, 1, -1);
	return 0;
}

static void range_want(struct conf_peer *peer, uint64_t word)
{
	if (conf_recv(peer->sock, NULL) == word)
		return;
	conf_finish(peer);
	check(false);
}

static struct conf_peer begin_spinner(size_t bytes)
{
	struct conf_peer peer = conf_spawn("spinner");

	conf_send(peer.sock, KERNEL_MS * MM_NS_PER_MS, -1);
	conf_send(peer.sock, bytes + 1, -1);
	range_want(&peer, 1);
	return peer;
}

static struct conf_peer begin_mover(uint64_t way)
{
	struct conf_peer peer = conf_spawn("mover");

	conf_send(peer.sock, way, -1);
	range_want(&peer, 1);
	return peer;
}

static double end_peer(struct conf_peer *peer)
{
	uint64_t said;

	conf_send(peer->sock, 2, -1);
	said = conf_recv(peer->sock, NULL);
	conf_finish(peer);
	check(said > 0);
	return (double)(said - 1);
}

static void calls_measure(void)
{
	conf_nap_ms(conf.software ? 20 : 500);
}

/*
 * How much another process's work slows a copy, and a copy that work. Without MPS the two processes
 * take turns on the device.
 */
static void test_copies_beside_kernels(void **state)
{
	static const char *const ways[] = { "h2d", "d2h" };
	const size_t bytes[] = { 0, conf.software ? conf.granule : (size_t)1 << 30 };
	struct conf_peer a, b;
	double alone, rounds;
	char name[96];

	(void)state;
	conf_kernel("conf_loop");
	for (uint64_t way = 1; way <= 2; way++) {
		a = begin_mover(way);
		calls_measure();
		alone = end_peer(&a);
		snprintf(name, sizeof(name), "%s.alone", ways[way - 1]);
		conf_fact(name, "MB/s", alone);
		a = begin_mover(way);
		b = conf_spawn("waiting");
		range_want(&b, 1);
		calls_measure();
		snprintf(name, sizeof(name), "%s.beside_a_wait", ways[way - 1]);
		conf_fact(name, "of alone", end_peer(&a) / alone);
		end_peer(&b);
		for (int i = 0; i < 2; i++) {
			const char *kind = i ? "reading" : "computing";

			b = begin_spinner(bytes[i]);
			calls_measure();
			rounds = end_peer(&b);
			b = begin_spinner(bytes[i]);
			a = begin_mover(way);
			calls_measure();
			snprintf(name, sizeof(name), "%s.beside_%s", ways[way - 1], kind);
			conf_fact(name, "of alone", end_peer(&a) / alone);
			snprintf(name, sizeof(name), "%s.beside_%s.kernels", ways[way - 1], kind);
			/*
			 * Both were alone while the other process began and ended: the number is at
			 * best a hint.
			 */
			conf_fact(name, "of alone", end_peer(&b) / rounds);
		}
	}
}

/* Whether a process whose stream stands at a gate takes its turns of the device, for nothing. */
static void test_kernels_beside_a_wait(void **state)
{
	struct conf_peer kernels, wait;
	double alone;

	(void)state;
	conf_kernel("conf_loop");
	kernels = begin_spinner(0);
	calls_measure();
	alone = end_peer(&kernels);
	wait = conf_spawn("waiting");
	range_want(&wait, 1);
	kernels = begin_spinner(0);
	calls_measure();
	conf_fact("kernels.beside_a_wait", "of alone", end_peer(&kernels) / alone);
	end_peer(&wait);
}

static void test_calls_beside_another_kernel(void **state)
{
	struct conf_peer peer;

	(void)state;
	conf_kernel("conf_loop");
	peer = begin_spinner(0);
	conf_fact("other_kernel.lasts", "us", KERNEL_MS * 1000);
	report_calls("other_kernel", do_nothing, do_nothing, NULL);
	end_peer(&peer);
}

/* ---- What a kernel sees ---- */

static CUdeviceptr pattern_is_at(CUmemGenericAllocationHandle h, size_t bytes, uint64_t seed)
{
	const struct conf_fill_args args = { .va = conf_reserve(bytes),
					     .words = bytes / 8,
					     .seed = seed };

	conf_map(args.va, bytes, h, RW);
	conf_launch(conf_kernel("conf_fill"), 64, 256, NULL, &args);
	ok(gpu->cuCtxSynchronize());
	return args.va;
}

/* How many words at @va are of the pattern. */
static uint64_t count_pattern(CUdeviceptr va, size_t bytes, uint64_t seed)
{
	const struct conf_count_args args = { va, bytes / 8, seed, conf_zeroed(16) };
	uint64_t seen[2];

	conf_launch(conf_kernel("conf_count"), 64, 256, NULL, &args);
	conf_read(seen, args.ret_va, sizeof(seen));
	ok(gpu->cuMemFree(args.ret_va));
	return seen[0];
}

/*
 * Two pages change places at one address: each kernel reads the one that is mapped, not the last.
 */
static void test_remap_is_seen(void **state)
{
	const int rounds = conf.software ? 50 : conf.is_long ? 20000 : 500;
	const size_t g = conf.granule;
	CUmemGenericAllocationHandle h[2] = { conf_create(g), conf_create(g) };
	CUdeviceptr va = conf_reserve(g), home[2];

	(void)state;
	for (uint64_t i = 0; i < 2; i++)
		home[i] = pattern_is_at(h[i], g, i + 1);
	for (int round = 0; round < rounds; round++) {
		uint64_t same;

		conf_map(va, g, h[round & 1], RW);
		same = count_pattern(va, g, 1 + (uint64_t)(round & 1));
		if (same != g / 8)
			fail_msg("round %d: %zu of %zu words", round, (size_t)same, g / 8);
		ok(gpu->cuMemUnmap(va, g));
	}
	for (size_t i = 0; i < 2; i++) {
		ok(gpu->cuMemUnmap(home[i], g));
		ok(gpu->cuMemAddressFree(home[i], g));
		ok(gpu->cuMemRelease(h[i]));
	}
	ok(gpu->cuMemAddressFree(va, g));
}

/* A kernel reads its pages while the one beside them is mapped and unmapped, over and over. */
static void test_remap_beside_kernel(void **state)
{
	const int rounds = conf.software ? 3 : 20;
	const size_t bytes = conf.software ? 8 * conf.granule : (size_t)512 << 20;
	CUmemGenericAllocationHandle h = conf_create(bytes), other = conf_create(conf.granule);
	CUfunction count = conf_kernel("conf_count");
	uint64_t seen[2], remaps = 0;
	CUdeviceptr va = pattern_is_at(h, bytes, 7), space = conf_reserve(bytes + conf.granule);
	CUdeviceptr beside = space + bytes;
	CUstream stream = conf_stream();

	(void)state;
	conf_map(space, bytes, h, RW);
	for (int round = 0; round < rounds; round++) {
		const struct conf_count_args args = { space, bytes / 8, 7, conf_zeroed(16) };

		conf_launch(count, 16, 128, stream, &args);
		do {
			conf_map(beside, conf.granule, other, RW);
			ok(gpu->cuMemUnmap(beside, conf.granule));
			remaps++;
		} while (gpu->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
		ok(gpu->cuStreamSynchronize(stream));
		conf_read(seen, args.ret_va, sizeof(seen));
		check(seen[0] == bytes / 8);
		ok(gpu->cuMemFree(args.ret_va));
	}
	conf_fact("remaps_beside_kernels", "", (double)remaps);
	ok(gpu->cuMemUnmap(va, bytes));
	ok(gpu->cuMemUnmap(space, bytes));
	ok(gpu->cuMemAddressFree(va, bytes));
	ok(gpu->cuMemAddressFree(space, bytes + conf.granule));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemRelease(other));
	ok(gpu->cuStreamDestroy(stream));
}

/* ---- Streams ---- */

/*
 * @n - 1 streams wait, the last made has work: streams may share a queue of the device, and then it
 * is held up though nothing orders it. Return: whether its work was done while they waited.
 */
static bool runs_beside(size_t n, uint32_t *page, CUdeviceptr va, CUdeviceptr mem)
{
	uint64_t end = conf_now_ns() + (conf.software ? 120 : 1) * MM_NS_PER_S;
	CUstream streams[STREAMS];
	CUresult res;

	__atomic_store_n(page, 0, __ATOMIC_RELEASE);
	for (size_t i = 0; i < n; i++)
		streams[i] = conf_stream();
	for (size_t i = 0; i + 1 < n; i++) {
		ok(gpu->cuStreamWaitValue32(streams[i], va, 1, CU_STREAM_WAIT_VALUE_EQ));
		ok(gpu->cuMemsetD32Async(mem + 64 * i, 1, 1, streams[i]));
	}
	ok(gpu->cuMemsetD32Async(mem + 64 * n, 1, 1, streams[n - 1]));
	while ((res = gpu->cuStreamQuery(streams[n - 1])) == CUDA_ERROR_NOT_READY &&
	       conf_now_ns() < end)
		conf_nap_ms(1);
	__atomic_store_n(page, 1, __ATOMIC_RELEASE);
	for (size_t i = 0; i < n; i++) {
		ok(gpu->cuStreamSynchronize(streams[i]));
		ok(gpu->cuStreamDestroy(streams[i]));
	}
	check(res == CUDA_SUCCESS || res == CUDA_ERROR_NOT_READY);
	return res == CUDA_SUCCESS;
}

static void test_waiting_streams(void **state)
{
	uint32_t *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0), mem;
	char name[96];
	bool free_of_it;

	(void)state;
	ok(gpu->cuMemAlloc(&mem, 64 * (STREAMS + 1)));
	for (size_t n = 2; n <= STREAMS; n *= 2) {
		free_of_it = runs_beside(n, page, va, mem);
		snprintf(name, sizeof(name), "streams.%zu_wait", n - 1);
		conf_fact_text(name, free_of_it ? "another runs" : "another is held up");
		/* A tenant has one stream at gates, and mmd's are in another process. */
		check(free_of_it || (n > 2 && !conf.software));
	}
	ok(gpu->cuMemFree(mem));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_calls_beside_own_kernel),     T(test_calls_beside_own_wait),
	T(test_calls_beside_another_kernel), T(test_copies_beside_kernels),
	T(test_kernels_beside_a_wait),       T(test_remap_is_seen),
	T(test_remap_beside_kernel),         T(test_waiting_streams),
};

static const struct conf_role roles[] = {
	{ "spinner", run_spinner },
	{ "mover", run_mover },
	{ "waiting", run_waiter },
	{ NULL, NULL },
};

CONF_MAIN("busy", tests, roles)
