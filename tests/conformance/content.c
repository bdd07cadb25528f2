/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the content of memory that comes back after its owner was killed, and how fast memory is
 * filled and copied.
 */
#include "tests/conformance/conf.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/conformance/kernels.h"

#define gpu (&conf.gpu)

#define SEED 0x5ec3e7

static size_t device_bytes(void)
{
	return conf.software ? 64 * conf.granule : 2 * conf.bulk;
}

/* ---- After a death ---- */

/* Fills a large part of the device with a pattern, and waits to be killed. */
static int run_secretive(int sock)
{
	struct conf_fill_args args = { .seed = SEED };

	conf_context();
	args.words = device_bytes() / 8;
	args.va = conf_take(device_bytes());
	conf_launch(conf_kernel("conf_fill"), 256, 256, NULL, &args);
	ok(gpu->cuCtxSynchronize());
	conf_send(sock, 1, -1);
	while (pause() < 0)
		;
	return 0;
}

static void test_after_a_death(void **state)
{
	const size_t bytes = device_bytes();
	CUfunction count = conf_kernel("conf_count");
	struct conf_peer peer = conf_spawn("secretive");
	struct conf_count_args args = { .words = bytes / 8, .seed = SEED };
	uint64_t seen[2], begin;
	size_t before;

	(void)state;
	args.ret_va = conf_zeroed(sizeof(seen));
	check(conf_recv(peer.sock, NULL) == 1);
	before = conf_free_bytes();
	begin = conf_now_ns();
	conf_kill(&peer);
	conf_fact("death.memory", "bytes", (double)bytes);
	conf_fact("death.reaped", "ms", (double)(conf_now_ns() - begin) / 1e6);
	check(conf_comes_back(before + bytes));
	conf_fact("death.memory_back", "ms", (double)(conf_now_ns() - begin) / 1e6);
	args.va = conf_take(bytes);
	conf_launch(count, 256, 256, NULL, &args);
	conf_read(seen, args.ret_va, sizeof(seen));
	conf_fact("death.words_of_the_dead", "", (double)seen[0]);
	conf_fact("death.words_not_zero", "", (double)seen[1]);
	/* mmd zeroes what it passes on, whatever the driver does. */
	check(!conf.software || (seen[0] == 0 && seen[1] == 0));
	conf_give(args.va, bytes);
	ok(gpu->cuMemFree(args.ret_va));
}

/* The patterns' kernels themselves: what is not there is not found. */
static void test_patterns(void **state)
{
	const size_t bytes = conf.granule;
	uint64_t seen[4];
	struct conf_fill_args fill = { .words = bytes / 8, .seed = 1 };
	struct conf_count_args count = { .words = bytes / 8, .seed = 1 };

	(void)state;
	fill.va = count.va = conf_take(bytes);
	count.ret_va = conf_zeroed(sizeof(seen));
	conf_launch(conf_kernel("conf_fill"), 3, 96, NULL, &fill);
	ok(gpu->cuMemsetD8Async(fill.va + 80, 0, 16, NULL));
	conf_launch(conf_kernel("conf_count"), 5, 64, NULL, &count);
	count.seed = 2;
	count.ret_va += 16;
	conf_launch(conf_kernel("conf_count"), 5, 64, NULL, &count);
	conf_read(seen, count.ret_va - 16, sizeof(seen));
	check(seen[0] == bytes / 8 - 2 && seen[1] == bytes / 8 - 2);
	check(seen[2] == 0 && seen[3] == bytes / 8 - 2);
	conf_give(fill.va, bytes);
	ok(gpu->cuMemFree(count.ret_va - 16));
}

/* ---- How fast ---- */

enum work { SET_D8, SET_D32, COPY, N_WORK };

static const char *const work_names[N_WORK] = { "scrub.d8", "scrub.d32", "copy.within" };

static void work_submit(enum work work, CUdeviceptr va, size_t bytes, CUstream stream)
{
	if (work == SET_D8)
		ok(gpu->cuMemsetD8Async(va, 0, bytes, stream));
	else if (work == SET_D32)
		ok(gpu->cuMemsetD32Async(va, 0, bytes / 4, stream));
	else
		ok(gpu->cuMemcpyDtoDAsync(va, va + bytes, bytes, stream));
}

/* GB/s of bytes written; a copy within the device also reads as many. */
static double work_rate(enum work work, CUdeviceptr va, size_t bytes, CUstream stream)
{
	const int times = conf.software ? 2 : 20;
	CUevent begin, end;
	float ms = 0;

	ok(gpu->cuEventCreate(&begin, 0));
	ok(gpu->cuEventCreate(&end, 0));
	work_submit(work, va, bytes, stream); /* the first is slow */
	ok(gpu->cuEventRecord(begin, stream));
	for (int i = 0; i < times; i++)
		work_submit(work, va, bytes, stream);
	ok(gpu->cuEventRecord(end, stream));
	ok(gpu->cuEventSynchronize(end));
	ok(gpu->cuEventElapsedTime(&ms, begin, end));
	ok(gpu->cuEventDestroy(begin));
	ok(gpu->cuEventDestroy(end));
	return (double)bytes * times / 1e6 / (double)ms;
}

static void test_scrub(void **state)
{
	const size_t most = device_bytes() / 4;
	CUdeviceptr va = conf_take(2 * most);
	CUstream stream = conf_stream();
	char name[96], size[16];

	(void)state;
	for (size_t bytes = conf.granule; bytes <= most; bytes *= 4) {
		for (int work = 0; work < N_WORK; work++) {
			snprintf(name, sizeof(name), "%s.%s", work_names[work],
				 conf_size(bytes, size));
			conf_fact(name, "GB/s", work_rate((enum work)work, va, bytes, stream));
		}
	}
	ok(gpu->cuStreamDestroy(stream));
	conf_give(va, 2 * most);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_patterns),
	T(test_after_a_death),
	T(test_scrub),
};

static const struct conf_role roles[] = { { "secretive", run_secretive }, { NULL, NULL } };

CONF_MAIN("content", tests, roles)
