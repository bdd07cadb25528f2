/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of rows in timed mode: one submission and one copy's time, as a linear copy of as many
 * bytes; nothing of large ones is moved, and all from the first row to the last must be mapped.
 */
#include "tests/conformance/conf.h"

#include <cmocka.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/unit/kernels/softgpu/timed.h"

#define gpu (&conf.gpu)

#define PAGE   4096u
#define DEVICE ((size_t)64 << 20)
#define HOST   ((size_t)512 << 20)

static CUdeviceptr device_va;
static unsigned char *host;
static uint32_t *gate;
static CUstream stream;

static void rows_begin(void)
{
	timed_open();
	stream = conf_stream();
	device_va = conf_take(DEVICE);
	host = conf_shared(HOST, NULL);
	conf_register(host, HOST, 0);
	gate = conf_shared(PAGE, NULL);
	conf_register(gate, PAGE, 0);
}

static CUDA_MEMCPY2D rows_of(size_t width, size_t rows, bool in)
{
	CUDA_MEMCPY2D copy = { .WidthInBytes = width, .Height = rows };

	copy.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	copy.dstMemoryType = in ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	copy.srcHost = copy.dstHost = host;
	copy.srcDevice = copy.dstDevice = device_va;
	copy.srcPitch = in ? 32 * width : 4 * width;
	copy.dstPitch = in ? 4 * width : 32 * width;
	return copy;
}

/* Device time of a copy, all of which is queued before any of it begins; @copy NULL: linear. */
static uint64_t copy_time(const CUDA_MEMCPY2D *copy, size_t bytes, bool in)
{
	CUevent from, to;

	timed_gate_close(gate);
	timed_hold(stream, gate);
	from = timed_record(stream);
	if (copy)
		ok(gpu->cuMemcpy2DAsync(copy, stream));
	else if (in)
		ok(gpu->cuMemcpyHtoDAsync(device_va, host, bytes, stream));
	else
		ok(gpu->cuMemcpyDtoHAsync(host, device_va, bytes, stream));
	to = timed_record(stream);
	timed_gate_open(gate);
	return timed_ns(to) - timed_ns(from);
}

static int role_times(int sock)
{
	static const struct {
		size_t width, rows;
	} cases[] = {
		{ 4096, 4000 }, { 65536, 200 }, { 262144, 50 }, { 100, 4000 }, { 512, 16 },
	};

	(void)sock;
	rows_begin();
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		for (int in = 0; in < 2; in++) {
			CUDA_MEMCPY2D copy = rows_of(cases[i].width, cases[i].rows, in);
			size_t bytes = cases[i].width * cases[i].rows;
			uint64_t rows = copy_time(&copy, bytes, in);

			/* A link of 1 GB/s: a byte takes a nanosecond. */
			check(rows >= bytes);
			check(rows == copy_time(NULL, bytes, in));
		}
	return 0;
}

/* A launch of a graph gives the same time. */
static int role_graph(int sock)
{
	const size_t width = 65536, rows = 200;
	CUDA_MEMCPY2D copy;
	CUevent from, to;
	CUgraphExec exec;
	CUgraph graph;
	uint64_t want;

	(void)sock;
	rows_begin();
	copy = rows_of(width, rows, true);
	want = copy_time(&copy, width * rows, true);
	ok(gpu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ok(gpu->cuMemcpy2DAsync(&copy, stream));
	ok(gpu->cuStreamEndCapture(stream, &graph));
	ok(gpu->cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		timed_gate_close(gate);
		timed_hold(stream, gate);
		from = timed_record(stream);
		ok(gpu->cuGraphLaunch(exec, stream));
		to = timed_record(stream);
		timed_gate_open(gate);
		check(timed_ns(to) - timed_ns(from) == want);
	}
	ok(gpu->cuGraphExecDestroy(exec));
	return 0;
}

/* Small ones are made, large ones are not. */
static int role_bytes(int sock)
{
	unsigned char seen[4 * 64];
	CUDA_MEMCPY2D copy;

	(void)sock;
	rows_begin();
	for (size_t row = 0; row < 8; row++)
		host[row * 32 * 64] = (unsigned char)(row + 1);
	copy = rows_of(64, 8, true);
	ok(gpu->cuMemcpy2DAsync(&copy, stream));
	ok(gpu->cuStreamSynchronize(stream));
	for (size_t row = 0; row < 8; row++) {
		ok(gpu->cuMemcpyDtoH(seen, device_va + row * sizeof(seen), sizeof(seen)));
		check(seen[0] == row + 1 && !seen[1] && !seen[64]);
	}
	copy = rows_of(65536, 100, true);
	ok(gpu->cuMemcpy2DAsync(&copy, stream));
	ok(gpu->cuStreamSynchronize(stream));
	ok(gpu->cuMemcpyDtoH(seen, device_va, sizeof(seen)));
	check(seen[0] == 1 && !seen[1]);
	return 0;
}

/* Memory, a hole, memory: rows that step over it fault, and one that ends before it does not. */
static int hole_run(size_t rows, CUresult want)
{
	const size_t part = (size_t)4 << 20, width = 256 << 10;
	CUDA_MEMCPY2D copy;
	CUdeviceptr va;

	rows_begin();
	va = conf_reserve(4 * part);
	conf_map(va, part, conf_create(part), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	conf_map(va + 2 * part, part, conf_create(part), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	copy = rows_of(width, rows, true);
	copy.dstDevice = va;
	copy.dstPitch = 2 * part;
	copy.dstXInBytes = part - width;
	ok(gpu->cuMemcpy2DAsync(&copy, stream));
	expect(gpu->cuStreamSynchronize(stream), want);
	return 0;
}

static int role_over_hole(int sock)
{
	(void)sock;
	return hole_run(2, CUDA_ERROR_LAUNCH_FAILED);
}

static int role_up_to_hole(int sock)
{
	(void)sock;
	return hole_run(1, CUDA_SUCCESS);
}

#define IN_ROLE(name)                                      \
	static void test_##name(void **state)              \
	{                                                  \
		struct conf_peer peer = conf_spawn(#name); \
                                                           \
		(void)state;                               \
		conf_finish(&peer);                        \
	}
IN_ROLE(times)
IN_ROLE(graph)
IN_ROLE(bytes)
IN_ROLE(over_hole)
IN_ROLE(up_to_hole)

int main(int argc, char **argv)
{
	static const struct conf_role roles[] = {
		{ "times", role_times },           { "graph", role_graph },
		{ "bytes", role_bytes },           { "over_hole", role_over_hole },
		{ "up_to_hole", role_up_to_hole }, { NULL, NULL },
	};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),      cmocka_unit_test(test_graph),
		cmocka_unit_test(test_bytes),      cmocka_unit_test(test_over_hole),
		cmocka_unit_test(test_up_to_hole),
	};

	if (argc == 1) {
		setenv("MM_SOFTGPU_PROFILE", PROFILE, 1);
		unsetenv("MM_SOFTGPU_DILATION");
	}
	return conf_main(argc, argv, "timed_2d", tests, MM_ARRAY_SIZE(tests), roles);
}
