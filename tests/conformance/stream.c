/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, waits and writes of values in registered memory shared between processes. */
#include "tests/conformance/conf.h"
#include "tests/conformance/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sched.h>
#include <unistd.h>

#define gpu (&conf.gpu)

#define ROUNDS 20000u

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/* ---- One process ---- */

static const struct wait_case {
	const char *name;
	bool is_64;
	unsigned int flags;
	uint64_t value, held, passed; /* what keeps it waiting, what lets it through */
} wait_cases[] = {
	{ "32 GEQ", false, CU_STREAM_WAIT_VALUE_GEQ, 10, 9, 10 },
	{ "32 GEQ, later", false, CU_STREAM_WAIT_VALUE_GEQ, 10, 9, 1000 },
	{ "32 GEQ is cyclic", false, CU_STREAM_WAIT_VALUE_GEQ, 5, 0xfffffff0, 5 },
	{ "32 GEQ past the wrap", false, CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0, 0xffffffef, 3 },
	{ "32 EQ", false, CU_STREAM_WAIT_VALUE_EQ, 7, 8, 7 },
	{ "32 AND", false, CU_STREAM_WAIT_VALUE_AND, 6, 9, 4 },
	{ "32 NOR", false, CU_STREAM_WAIT_VALUE_NOR, 0xffff0000, 0xffff, 0xfff7 },
	{ "64 GEQ", true, CU_STREAM_WAIT_VALUE_GEQ, UINT64_C(1) << 40, 0xffffffff,
	  UINT64_C(1) << 40 },
	{ "64 GEQ is cyclic", true, CU_STREAM_WAIT_VALUE_GEQ, 5, UINT64_MAX - 5, 6 },
	{ "64 EQ", true, CU_STREAM_WAIT_VALUE_EQ, RESIDENT, 0, RESIDENT },
	{ "64 AND, high half", true, CU_STREAM_WAIT_VALUE_AND, MAY_RUN, DONE, RESIDENT },
	{ "64 AND, low half", true, CU_STREAM_WAIT_VALUE_AND, MAY_RUN, EMPTY, READY },
	{ "64 NOR", true, CU_STREAM_WAIT_VALUE_NOR, UINT64_C(0xffffffff) << 32, 0xffffffff,
	  0xfffffffe },
};

/* Held back by one value, let through by another, in host and in device memory. */
static void check_wait(const struct wait_case *c, uint64_t *word, CUdeviceptr va)
{
	CUstream stream = conf_stream();

	store(word, c->held);
	if (c->is_64)
		ok(gpu->cuStreamWaitValue64(stream, va, c->value, c->flags));
	else
		ok(gpu->cuStreamWaitValue32(stream, va, (cuuint32_t)c->value, c->flags));
	conf_nap_ms(3);
	if (gpu->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
		fail_msg("%s: not held back", c->name);
	store(word, c->passed);
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuStreamDestroy(stream));
}

static void test_wait_values(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(wait_cases); i++) {
		if (wait_cases[i].flags == CU_STREAM_WAIT_VALUE_NOR &&
		    !conf_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR))
			continue; /* not used; memory.c tells that it is not there */
		check_wait(&wait_cases[i], line(page, 3), va + 3 * LINE);
	}
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

static void test_write_values(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream stream = conf_stream();

	(void)state;
	store(line(page, 0), UINT64_C(0x1111111122222222));
	ok(gpu->cuStreamWriteValue32(stream, va, 7, 0));
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == UINT64_C(0x1111111100000007));
	ok(gpu->cuStreamWriteValue32(stream, va + 4, 8, 0));
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == UINT64_C(0x0000000800000007));
	ok(gpu->cuStreamWriteValue64(stream, va, RESIDENT, 0));
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == RESIDENT);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

static void test_batch(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream stream = conf_stream();
	CUstreamBatchMemOpParams ops[3] = { 0 };

	(void)state;
	if (!gpu->cuStreamBatchMemOp)
		conf_skip("this driver has no cuStreamBatchMemOp");
	ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	ops[0].waitValue.address = va;
	ops[0].waitValue.value64 = MAY_RUN;
	ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[1].writeValue.address = va;
	ops[1].writeValue.value = (cuuint32_t)DONE;
	ops[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	ops[2].writeValue.address = va + LINE;
	ops[2].writeValue.value64 = 9;
	ok(gpu->cuStreamBatchMemOp(stream, 3, ops, 0));
	conf_nap_ms(3);
	check(load(line(page, 1)) == 0);
	store(line(page, 0), RESIDENT | READY);
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == (RESIDENT | DONE) && load(line(page, 1)) == 9);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* A stream keeps its order; another one runs on meanwhile. */
static void test_order(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0), mem = conf_take(conf.granule);
	CUstream held = conf_stream(), other = conf_stream();
	uint32_t seen[2];

	(void)state;
	ok(gpu->cuMemsetD32Async(mem, 1, 2, held));
	ok(gpu->cuStreamWaitValue32(held, va, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(gpu->cuMemsetD32Async(mem, 2, 2, held));
	ok(gpu->cuMemcpyDtoDAsync(mem + 4, mem, 4, held));
	ok(gpu->cuMemsetD32Async(mem, 3, 1, held));
	ok(gpu->cuMemsetD32Async(mem + 64, 4, 1, other));
	ok(gpu->cuStreamSynchronize(other));
	expect(gpu->cuStreamQuery(held), CUDA_ERROR_NOT_READY);
	store(line(page, 0), 1);
	ok(gpu->cuStreamSynchronize(held));
	ok(gpu->cuMemcpyDtoH(seen, mem, sizeof(seen)));
	check(seen[0] == 3 && seen[1] == 2);
	ok(gpu->cuStreamDestroy(held));
	ok(gpu->cuStreamDestroy(other));
	conf_give(mem, conf.granule);
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

static void test_events(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream a = conf_stream(), b = conf_stream();
	CUevent start, end, never;
	float ms = -1;

	(void)state;
	ok(gpu->cuEventCreate(&start, 0));
	ok(gpu->cuEventCreate(&end, 0));
	ok(gpu->cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
	ok(gpu->cuEventQuery(never));
	ok(gpu->cuStreamWaitEvent(b, never, 0));
	ok(gpu->cuEventRecord(start, a));
	ok(gpu->cuStreamWaitValue32(a, va, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(gpu->cuEventRecord(end, a));
	ok(gpu->cuStreamWaitEvent(b, end, 0));
	ok(gpu->cuStreamWriteValue32(b, va + LINE, 5, 0));
	ok(gpu->cuEventSynchronize(start));
	conf_nap_ms(20);
	expect(gpu->cuEventQuery(end), CUDA_ERROR_NOT_READY);
	check(load(line(page, 1)) == 0);
	store(line(page, 0), 1);
	ok(gpu->cuEventSynchronize(end));
	ok(gpu->cuStreamSynchronize(b));
	check(load(line(page, 1)) == 5);
	ok(gpu->cuEventElapsedTime(&ms, start, end));
	check(ms > 10 && ms < 600000);
	ok(gpu->cuEventDestroy(start));
	ok(gpu->cuEventDestroy(end));
	ok(gpu->cuEventDestroy(never));
	ok(gpu->cuStreamDestroy(a));
	ok(gpu->cuStreamDestroy(b));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

static void CUDA_CB count_up(void *arg)
{
	(*(int *)arg)++;
}

static void test_host_function(void **state)
{
	CUstream stream = conf_stream();
	int n = 0;

	(void)state;
	for (int i = 0; i < 10; i++)
		ok(gpu->cuLaunchHostFunc(stream, count_up, &n));
	ok(gpu->cuStreamSynchronize(stream));
	check(n == 10);
	ok(gpu->cuStreamDestroy(stream));
}

/* The legacy default stream waits for the blocking streams, and they for it. */
static void test_default_stream(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0), mem = conf_take(conf.granule);
	CUstream blocking;
	uint32_t seen;

	(void)state;
	ok(gpu->cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ok(gpu->cuStreamWaitValue32(blocking, va, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(gpu->cuMemsetD32Async(mem, 1, 1, blocking));
	ok(gpu->cuMemsetD32Async(mem, 2, 1, NULL));
	expect(gpu->cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	store(line(page, 0), 1);
	ok(gpu->cuMemsetD32Async(mem + 4, 7, 1, blocking));
	ok(gpu->cuStreamSynchronize(blocking));
	ok(gpu->cuStreamQuery(NULL));
	ok(gpu->cuMemcpyDtoH(&seen, mem, sizeof(seen)));
	check(seen == 2);
	ok(gpu->cuStreamDestroy(blocking));
	conf_give(mem, conf.granule);
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* Pageable host memory: the source may be reused at once, the destination is there on return. */
static void test_pageable(void **state)
{
	CUdeviceptr mem = conf_take(conf.granule);
	CUstream stream = conf_stream();
	uint32_t out[64], in[64];

	(void)state;
	for (uint32_t round = 0; round < 100; round++) {
		for (uint32_t i = 0; i < 64; i++)
			out[i] = round * 64 + i;
		ok(gpu->cuMemcpyHtoDAsync(mem, out, sizeof(out), stream));
		memset(out, 0, sizeof(out));
		ok(gpu->cuMemcpyDtoHAsync(in, mem, sizeof(in), stream));
		for (uint32_t i = 0; i < 64; i++)
			check(in[i] == round * 64 + i);
	}
	ok(gpu->cuStreamDestroy(stream));
	conf_give(mem, conf.granule);
}

/*
 * A synchronous copy from pageable memory has read its source when it returns; the device need not
 * have the bytes yet. Its own stream's order brings them, or waiting for that stream; work of a
 * stream that does not wait for it may see the old ones.
 */
static void test_synchronous_copy_is_late(void **state)
{
	enum { COPY_BYTES = 1 << 20, TRIES = 64 };
	uint32_t *from = calloc(1, COPY_BYTES), *seen = conf_shared(COPY_BYTES, NULL), old = 0;
	CUdeviceptr va = conf_take(mm_round_up(COPY_BYTES, conf.granule));
	CUstream stream = conf_stream();

	(void)state;
	check(from != NULL);
	conf_register(seen, COPY_BYTES, 0);
	for (uint32_t round = 1; round <= TRIES; round++) {
		from[0] = from[COPY_BYTES / 4 - 1] = round;
		ok(gpu->cuMemcpyHtoD(va, from, COPY_BYTES));
		ok(gpu->cuMemcpyDtoHAsync(seen, va, COPY_BYTES, stream));
		ok(gpu->cuStreamSynchronize(stream));
		old += seen[COPY_BYTES / 4 - 1] != round;
		ok(gpu->cuStreamSynchronize(NULL));
		ok(gpu->cuMemcpyDtoHAsync(seen, va, COPY_BYTES, stream));
		ok(gpu->cuStreamSynchronize(stream));
		check(seen[0] == round && seen[COPY_BYTES / 4 - 1] == round);
	}
	conf_fact("copy.pageable.late", "of 64", old);
	check(old > 0 || !conf.software);
	free(from);
	ok(gpu->cuMemHostUnregister(seen));
	conf_give(va, mm_round_up(COPY_BYTES, conf.granule));
	ok(gpu->cuStreamDestroy(stream));
}

/* ---- Host registration ---- */

static void test_register_rules(void **state)
{
	void *page = conf_shared(4 * PAGE, NULL);
	CUdeviceptr va, again = 0;
	CUresult res;

	(void)state;
	va = conf_register(page, 4 * PAGE, 0);
	res = gpu->cuMemHostRegister(page, 4 * PAGE, 0);
	conf_fact_result("register.twice", res);
	check(conf.software ? res == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : res != 0);
	/* Addresses inside, and after: the software GPU's truth, told of a driver. */
	res = gpu->cuMemHostGetDevicePointer(&again, (char *)page + PAGE + 8, 0);
	conf_fact_text("register.pointer_inside", "%s, %s", mm_gpu_strerror(gpu, res),
		       again == va + PAGE + 8 ? "at the same offset" : "elsewhere");
	check(!conf.software || (!res && again == va + PAGE + 8));
	ok(gpu->cuMemHostUnregister(page));
	res = gpu->cuMemHostUnregister(page);
	conf_fact_result("register.unregister_twice", res);
	check(conf.software ? res == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : res != CUDA_SUCCESS);
	res = gpu->cuMemHostGetDevicePointer(&again, page, 0);
	conf_fact_result("register.pointer_afterwards", res);
	check(!conf.software || res);
	munmap(page, 4 * PAGE);
}

/* Weights: read-only registered memory is what copies to the device come from. */
static void test_copy_from_read_only(void **state)
{
	int fd;
	uint32_t *page = conf_shared(conf.granule, &fd), *read_only, seen;
	CUdeviceptr mem = conf_take(conf.granule);
	CUstream stream = conf_stream();

	(void)state;
	conf_needs_read_only();
	page[5] = 0x7777;
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	read_only = conf_shared_from(fd, conf.granule, PROT_READ);
	conf_register(read_only, conf.granule, CU_MEMHOSTREGISTER_READ_ONLY);
	ok(gpu->cuMemcpyHtoDAsync(mem, read_only, conf.granule, stream));
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuMemcpyDtoH(&seen, mem + 20, sizeof(seen)));
	check(seen == 0x7777);
	ok(gpu->cuMemHostUnregister(read_only));
	ok(gpu->cuStreamDestroy(stream));
	conf_give(mem, conf.granule);
	munmap(read_only, conf.granule);
	munmap(page, conf.granule);
	close(fd);
}

/* ---- Between processes ---- */

/* Ends the wait in line 0 by a store of the CPU's, and that in line 1 by one of its stream's. */
static int signaller(int sock)
{
	CUstream stream;
	CUdeviceptr va;
	void *page;

	conf_context();
	page = conf_receive_shared(sock, PAGE, &va);
	stream = conf_stream();
	conf_send(sock, 2, -1);
	check(conf_recv(sock, NULL) == 3);
	store(line(page, 0), 1);
	ok(gpu->cuStreamWaitValue64(stream, va + 2 * LINE, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(gpu->cuStreamWriteValue64(stream, va + LINE, 1, 0));
	ok(gpu->cuStreamSynchronize(stream));
	return 0;
}

static void test_across_processes(void **state)
{
	struct conf_peer peer = conf_spawn("signaller");
	CUstream stream = conf_stream();
	CUdeviceptr va;
	void *page;
	int fd;

	(void)state;
	page = conf_shared(PAGE, &fd);
	va = conf_register(page, PAGE, 0);
	conf_send(peer.sock, 1, fd);
	close(fd);
	check(conf_recv(peer.sock, NULL) == 2);
	ok(gpu->cuStreamWaitValue64(stream, va, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(gpu->cuStreamWriteValue64(stream, va + 2 * LINE, 1, 0));
	ok(gpu->cuStreamWaitValue64(stream, va + LINE, 1, CU_STREAM_WAIT_VALUE_GEQ));
	conf_nap_ms(3);
	expect(gpu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	conf_send(peer.sock, 3, -1);
	ok(gpu->cuStreamSynchronize(stream));
	conf_finish(&peer);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* On hardware what the time allows: two contexts may take turns for each layer. */
static bool is_enough(uint32_t rounds, uint64_t begin)
{
	const uint64_t seconds = conf.is_long ? 600 : 15;

	if (!conf.software && conf_now_ns() - begin > seconds * MM_NS_PER_S)
		return true;
	return rounds >= (conf.is_long ? 50 * ROUNDS : ROUNDS);
}

static bool is_told(int sock)
{
	struct pollfd poller = { .fd = sock, .events = POLLIN };

	return poll(&poller, 1, 0) > 0;
}

static int gate_keeper(int sock)
{
	struct gate_keeper k;

	gate_keeper_begin(&k, sock);
	while (!is_told(sock)) {
		for (unsigned int l = 0; l < GATE_LAYERS; l++)
			gate_keeper_serve(&k, l);
		/* As xfer does not: but k.numbers is reused, and must have been read. */
		ok(gpu->cuStreamSynchronize(k.stream));
	}
	return 0;
}

/*
 * The tenant's side, with constants that never change: wait for READY | RESIDENT | ABORT, "kernel",
 * write DONE into the low half. The "kernel" copies the layer's page out, so that a layer that ran
 * too early or twice on the same occupancy shows.
 */
static void test_gates(void **state)
{
	enum { BATCH = 50 };
	struct conf_peer peer = conf_spawn("gate_keeper");
	CUmemGenericAllocationHandle h = conf_create(conf.granule);
	CUdeviceptr mem = conf_reserve(conf.granule), va;
	CUstream stream = conf_stream();
	uint64_t begin = conf_now_ns();
	uint32_t *log, done;
	void *page;
	int fd;

	(void)state;
	conf_map(mem, conf.granule, h, RW);
	page = conf_shared(PAGE, &fd);
	va = conf_register(page, PAGE, 0);
	log = conf_shared(BATCH * GATE_LAYERS * LINE, NULL);
	conf_register(log, BATCH * GATE_LAYERS * LINE, 0);
	gate_keeper_start(&peer, page, fd, h);
	for (done = 0; !is_enough(done, begin); done += BATCH) {
		for (unsigned int i = 0; i < BATCH * GATE_LAYERS; i++) {
			unsigned int l = i % GATE_LAYERS;

			ok(gpu->cuStreamWaitValue64(stream, va + l * LINE, MAY_RUN,
						    CU_STREAM_WAIT_VALUE_AND));
			ok(gpu->cuMemcpyDtoHAsync(&log[i * 16], mem + l * LINE, 4, stream));
			ok(gpu->cuStreamWriteValue32(stream, va + l * LINE, (cuuint32_t)DONE, 0));
		}
		ok(gpu->cuStreamSynchronize(stream));
		for (unsigned int i = 0; i < BATCH * GATE_LAYERS; i++)
			if (log[i * 16] != done + i / GATE_LAYERS + 1)
				fail_msg("round %u, layer %u: ran on %u",
					 done + i / GATE_LAYERS + 1, i % GATE_LAYERS, log[i * 16]);
	}
	conf_fact("gates.rounds", "", done);
	conf_fact("gates.layer", "us", (double)(conf_now_ns() - begin) / 1e3 / done / GATE_LAYERS);
	conf_send(peer.sock, 3, -1);
	conf_finish(&peer);
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	ok(gpu->cuMemHostUnregister(log));
	munmap(page, PAGE);
	munmap(log, BATCH * GATE_LAYERS * LINE);
	conf_give(mem, conf.granule);
	ok(gpu->cuMemRelease(h));
}

/* A resident layer never waits and needs no re-arming; one store of ABORT frees a whole chain. */
static void test_gate_constants(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream stream = conf_stream();

	(void)state;
	store(line(page, 0), RESIDENT | EMPTY);
	store(line(page, 1), EMPTY);
	for (int i = 0; i < 100; i++) {
		ok(gpu->cuStreamWaitValue64(stream, va, MAY_RUN, CU_STREAM_WAIT_VALUE_AND));
		ok(gpu->cuStreamWriteValue32(stream, va, (cuuint32_t)DONE, 0));
	}
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == (RESIDENT | DONE));
	for (int i = 0; i < 100; i++) {
		ok(gpu->cuStreamWaitValue64(stream, va + LINE, MAY_RUN, CU_STREAM_WAIT_VALUE_AND));
		ok(gpu->cuStreamWriteValue32(stream, va + LINE, (cuuint32_t)DONE, 0));
	}
	conf_nap_ms(3);
	expect(gpu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	store(line(page, 1), ABORT | EMPTY);
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 1)) == (ABORT | DONE));
	ok(gpu->cuStreamDestroy(stream));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, PAGE);
}

/* Copies a block from the device to host memory, then raises a flag; the CPU over there reads. */
static int copier(int sock)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr mem, va;
	CUstream stream;
	char *page;

	conf_context();
	page = conf_receive_shared(sock, 4 * PAGE, &va);
	h = conf_create(conf.granule);
	mem = conf_reserve(conf.granule);
	conf_map(mem, conf.granule, h, RW);
	stream = conf_stream();
	for (uint32_t round = 1; round <= 5000; round++) {
		ok(gpu->cuMemsetD32Async(mem, round, 2 * PAGE / 4, stream));
		ok(gpu->cuMemcpyDtoHAsync(page + PAGE, mem, 2 * PAGE, stream));
		ok(gpu->cuStreamWriteValue32(stream, va, round, 0));
		ok(gpu->cuStreamWaitValue32(stream, va + LINE, round, CU_STREAM_WAIT_VALUE_GEQ));
	}
	ok(gpu->cuStreamSynchronize(stream));
	return 0;
}

static void test_copy_then_flag(void **state)
{
	struct conf_peer peer = conf_spawn("copier");
	uint32_t *data;
	void *page;
	int fd;

	(void)state;
	page = conf_shared(4 * PAGE, &fd);
	data = (uint32_t *)((char *)page + PAGE);
	conf_send(peer.sock, 1, fd);
	close(fd);
	for (uint32_t round = 1; round <= 5000; round++) {
		while (__atomic_load_n((uint32_t *)line(page, 0), __ATOMIC_ACQUIRE) != round)
			sched_yield();
		for (size_t i = 0; i < 2 * PAGE / 4; i += 37)
			if (__atomic_load_n(&data[i], __ATOMIC_RELAXED) != round)
				fail_msg("round %u: word %zu is older", round, i);
		store(line(page, 1), round);
	}
	conf_finish(&peer);
	munmap(page, 4 * PAGE);
}

/* Ends with a wait in its stream that nobody will ever end. */
static int stuck(int sock)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va;

	conf_context();
	va = conf_register(page, PAGE, 0);
	ok(gpu->cuStreamWaitValue32(conf_stream(), va, 1, CU_STREAM_WAIT_VALUE_EQ));
	conf_send(sock, 1, -1);
	return 0;
}

static int stuck_awake(int sock)
{
	stuck(sock);
	while (pause() < 0)
		;
	return 0;
}

static void test_exit_while_waiting(void **state)
{
	struct conf_peer peer = conf_spawn("stuck");
	uint64_t begin;
	int status;

	(void)state;
	check(conf_recv(peer.sock, NULL) == 1);
	begin = conf_now_ns();
	status = conf_join_within(&peer, conf.software ? 300 : 20);
	conf_fact("exit_while_waiting", "ms", (double)(conf_now_ns() - begin) / 1e6);
	conf_fact_text("exit_while_waiting.status", status == -ETIMEDOUT ? "hangs" : "%d", status);
	if (status == -ETIMEDOUT && !conf.software)
		conf_kill(&peer); /* what mmd would do */
	else
		check(status == 0);
}

/* Killed while its stream waits: gone, and the device serves others. */
static void test_kill_while_waiting(void **state)
{
	struct conf_peer peer = conf_spawn("stuck_awake");
	CUdeviceptr mem;
	uint64_t begin;

	(void)state;
	check(conf_recv(peer.sock, NULL) == 1);
	begin = conf_now_ns();
	conf_kill(&peer);
	conf_fact("kill_while_waiting", "ms", (double)(conf_now_ns() - begin) / 1e6);
	mem = conf_take(conf.granule);
	ok(gpu->cuMemsetD32Async(mem, 1, 16, NULL));
	ok(gpu->cuCtxSynchronize());
	conf_give(mem, conf.granule);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_wait_values),
	T(test_write_values),
	T(test_batch),
	T(test_order),
	T(test_events),
	T(test_host_function),
	T(test_default_stream),
	T(test_pageable),
	T(test_synchronous_copy_is_late),
	T(test_register_rules),
	T(test_copy_from_read_only),
	T(test_across_processes),
	T(test_gate_constants),
	T(test_gates),
	T(test_copy_then_flag),
	T(test_exit_while_waiting),
	T(test_kill_while_waiting),
};

static const struct conf_role roles[] = {
	{ "signaller", signaller }, { "gate_keeper", gate_keeper }, { "copier", copier },
	{ "stuck", stuck },         { "stuck_awake", stuck_awake }, { NULL, NULL },
};

CONF_MAIN("stream", tests, roles)
