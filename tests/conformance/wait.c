/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that last, waits that are ended from elsewhere, and whether whoever waited sees what was
 * written in front of the value: between kernels and copies of two processes.
 */
#include "tests/conformance/conf.h"
#include "tests/conformance/gate.h"

#include <stdio.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/kernels.h"

#define gpu (&conf.gpu)

#define SEEDS 8
#define BATCH 64

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

static CUdeviceptr line_at(CUdeviceptr va, unsigned int i)
{
	return va + i * 64;
}

static double us_since(uint64_t begin)
{
	return (double)(conf_now_ns() - begin) / 1e3;
}

/* ---- Long and aborted waits ---- */

/* A stream with a chain of waits on line 0; says when it stands there, and ends with it. */
static int run_chained(int sock)
{
	CUdeviceptr va;
	CUstream stream;

	conf_context();
	conf_receive_shared(sock, PAGE, &va);
	stream = conf_stream();
	for (int i = 0; i < 200; i++) {
		ok(gpu->cuStreamWaitValue64(stream, va, ABORT | 1, CU_STREAM_WAIT_VALUE_AND));
		ok(gpu->cuStreamWriteValue32(stream, va, 2, 0));
	}
	ok(gpu->cuStreamWriteValue64(stream, line_at(va, 1), 1, 0));
	conf_send(sock, 2, -1);
	ok(gpu->cuStreamSynchronize(stream));
	return 0;
}

/*
 * Seconds, or ten minutes: the device does other work meanwhile, of this process and, in turns, of
 * the one that waits; then one store of the processor's ends all of it.
 */
static void test_long_wait(void **state)
{
	const uint64_t seconds = conf.is_long ? 600 : conf.software ? 1 : 5;
	struct conf_peer peer = conf_spawn("chained");
	uint64_t end, begin;
	CUstream stream = conf_stream(), other = conf_stream();
	CUdeviceptr va, mem;
	void *page;
	int fd;

	(void)state;
	page = conf_shared(PAGE, &fd);
	va = conf_register(page, PAGE, 0);
	ok(gpu->cuMemAlloc(&mem, PAGE));
	conf_send(peer.sock, 1, fd);
	close(fd);
	check(conf_recv(peer.sock, NULL) == 2);
	ok(gpu->cuStreamWaitValue64(stream, line_at(va, 1), 1, CU_STREAM_WAIT_VALUE_GEQ));
	end = conf_now_ns() + seconds * MM_NS_PER_S;
	do {
		ok(gpu->cuMemsetD32Async(mem, 1, 16, other));
		ok(gpu->cuStreamSynchronize(other));
		conf_nap_ms(5);
	} while (conf_now_ns() < end);
	expect(gpu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	check(load(line(page, 1)) == 0);
	begin = conf_now_ns();
	store(line(page, 0), ABORT);
	/* The other process's stream goes through, and lets ours through. */
	ok(gpu->cuStreamSynchronize(stream));
	conf_fact("wait.lasted", "s", (double)seconds);
	conf_fact("wait.chain_of_200_freed", "us", us_since(begin));
	conf_finish(&peer);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuStreamDestroy(other));
	ok(gpu->cuMemFree(mem));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/*
 * From a store of the processor's to what the stream behind the wait writes, seen by the processor.
 */
static void test_round_trip(void **state)
{
	enum { MOST = 1000 };
	const size_t rounds = conf.software ? 128 : 960;
	static uint64_t ns[MOST];
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream stream = conf_stream();
	uint64_t begin;

	(void)state;
	for (size_t i = 1; i <= rounds; i++) {
		if (i % BATCH == 1)
			for (size_t k = i; k < i + BATCH; k++) {
				ok(gpu->cuStreamWaitValue64(stream, va, k,
							    CU_STREAM_WAIT_VALUE_GEQ));
				ok(gpu->cuStreamWriteValue64(stream, line_at(va, 1), k, 0));
			}
		begin = conf_now_ns();
		store(line(page, 0), i);
		while (load(line(page, 1)) != i)
			sched_yield();
		ns[i - 1] = conf_now_ns() - begin;
	}
	conf_fact_times("gate.round_trip", ns, rounds);
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* ---- Order ---- */

/* Two words that one stream writes are seen in that order. */
static void test_two_words(void **state)
{
	const uint32_t rounds = conf.software ? 2000 : 20000;
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream stream = conf_stream();
	uint64_t second, first;

	(void)state;
	for (uint32_t i = 1; i <= rounds; i++) {
		ok(gpu->cuStreamWriteValue64(stream, va, i, 0));
		ok(gpu->cuStreamWriteValue64(stream, line_at(va, 1), i, 0));
		second = load(line(page, 1));
		first = load(line(page, 0));
		if (first < second)
			fail_msg("%zu is there before %zu", (size_t)second, (size_t)first);
	}
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == rounds && load(line(page, 1)) == rounds);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* On hardware as many as the time lets be: two contexts may take turns for each of them. */
static bool is_enough(uint32_t rounds, uint64_t begin)
{
	const uint64_t seconds = conf.is_long ? 600 : 15;

	if (conf.software)
		return rounds >= 4 * BATCH;
	return rounds >= 10000000 || conf_now_ns() - begin > seconds * MM_NS_PER_S;
}

static size_t order_bytes(void)
{
	return conf.software ? conf.granule : (size_t)2 << 20;
}

static uint64_t seed_of(uint32_t round)
{
	return 1 + round % SEEDS;
}

static void page_fill(CUdeviceptr va, uint64_t seed, CUstream stream)
{
	const struct conf_fill_args args = { va, order_bytes() / 8, seed };

	conf_launch(conf_kernel("conf_fill"), 64, 256, stream, &args);
}

/*
 * Writes a page anew in each round, by a kernel or by a copy from the host, and says so in line 0
 * when line 1 says that the last round was read: nobody but the device orders them. A batch for
 * each word.
 */
static int run_writer(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va, mem;
	CUstream stream;
	size_t bytes;
	char *host;
	int fd;

	conf_context();
	bytes = order_bytes();
	conf_receive_shared(sock, PAGE, &va);
	check(conf_recv(sock, &fd) == 2 && fd >= 0);
	h = conf_import(fd);
	close(fd);
	mem = conf_reserve(bytes);
	conf_map(mem, bytes, h, RW);
	host = conf_shared(SEEDS * bytes, NULL);
	conf_register(host, SEEDS * bytes, 0);
	stream = conf_stream();
	for (uint32_t i = 0; i < SEEDS; i++) {
		page_fill(mem, seed_of(i), stream);
		ok(gpu->cuMemcpyDtoHAsync(host + i * bytes, mem, bytes, stream));
	}
	ok(gpu->cuStreamSynchronize(stream));
	for (uint32_t i = 1; i % BATCH != 1 || conf_recv(sock, NULL) == 3; i++) {
		ok(gpu->cuStreamWaitValue32(stream, line_at(va, 1), i - 1,
					    CU_STREAM_WAIT_VALUE_GEQ));
		/*
		 * Seeds come round in even numbers: each by a kernel in one turn, by a copy in the
		 * next.
		 */
		if ((i / SEEDS) % 2)
			page_fill(mem, seed_of(i), stream);
		else
			ok(gpu->cuMemcpyHtoDAsync(mem, host + (seed_of(i) - 1) * bytes, bytes,
						  stream));
		ok(gpu->cuStreamWriteValue32(stream, va, i, 0));
		if (i % BATCH == 0)
			ok(gpu->cuStreamSynchronize(stream));
	}
	return 0;
}

/*
 * Each round's kernel, released by the value alone, sees all of that round's bytes and no older
 * one.
 */
static void test_order(void **state)
{
	const size_t bytes = order_bytes();
	CUfunction count = conf_kernel("conf_count");
	CUmemGenericAllocationHandle h = conf_create(bytes);
	struct conf_peer peer = conf_spawn("writer");
	CUdeviceptr va, mem = conf_reserve(bytes), seen_va = conf_zeroed(BATCH * 16);
	uint64_t seen[2 * BATCH], begin = conf_now_ns();
	CUstream stream = conf_stream();
	void *page;
	uint32_t i;
	int fd;

	(void)state;
	page = conf_shared(PAGE, &fd);
	va = conf_register(page, PAGE, 0);
	conf_send(peer.sock, 1, fd);
	close(fd);
	fd = conf_export(h);
	conf_send(peer.sock, 2, fd);
	close(fd);
	conf_map(mem, bytes, h, RW);
	for (i = 1; i % BATCH != 1 || !is_enough(i - 1, begin); i++) {
		struct conf_count_args args = { mem, bytes / 8, seed_of(i),
						seen_va + (i % BATCH) * 16 };

		if (i % BATCH == 1)
			conf_send(peer.sock, 3, -1);
		ok(gpu->cuStreamWaitValue32(stream, va, i, CU_STREAM_WAIT_VALUE_GEQ));
		conf_launch(count, 64, 256, stream, &args);
		ok(gpu->cuStreamWriteValue32(stream, line_at(va, 1), i, 0));
		if (i % BATCH)
			continue;
		ok(gpu->cuStreamSynchronize(stream));
		conf_read(seen, seen_va, sizeof(seen));
		for (size_t k = 0; k < BATCH; k++)
			if (seen[2 * k] != bytes / 8)
				fail_msg("up to round %u: %zu of %zu words", i, (size_t)seen[2 * k],
					 bytes / 8);
		ok(gpu->cuMemsetD8Async(seen_va, 0, sizeof(seen), stream));
	}
	conf_fact("order.rounds", "", i - 1);
	conf_fact("order.round", "us", us_since(begin) / (i - 1));
	conf_send(peer.sock, 4, -1);
	conf_finish(&peer);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemUnmap(mem, bytes));
	ok(gpu->cuMemAddressFree(mem, bytes));
	ok(gpu->cuMemRelease(h));
	ok(gpu->cuMemFree(seen_va));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_round_trip),
	T(test_long_wait),
	T(test_two_words),
	T(test_order),
};

static const struct conf_role roles[] = {
	{ "chained", run_chained },
	{ "writer", run_writer },
	{ NULL, NULL },
};

CONF_MAIN("wait", tests, roles)
