/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of rows with gaps between them: which bytes move and which do not, both directions,
 * registered and pageable host memory, order within a stream, graphs, parameters that are refused,
 * and a row that leaves the mapped memory.
 */
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "libclient/support/cleanup.h"

#define gpu (&conf.gpu)

#define PAGE 4096u

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/* Rows of a copy, and where they lie on either side. */
struct shape {
	size_t width, rows, src_pitch, dst_pitch, src_x, src_y, dst_x, dst_y;
};

static const struct shape shapes[] = {
	{ 1, 1, 1, 1, 0, 0, 0, 0 },          { 100, 7, 100, 100, 0, 0, 0, 0 },
	{ 100, 7, 0, 128, 0, 0, 0, 0 },      { 100, 7, 137, 100, 0, 0, 0, 0 },
	{ 64, 33, 640, 256, 64, 0, 128, 0 }, { 63, 33, 641, 257, 5, 2, 11, 3 },
	{ 1000, 1, 5000, 3000, 7, 1, 9, 2 }, { 2048, 12, 4096, 2048, 2048, 0, 0, 0 },
};

static size_t pitch_of(size_t pitch, const struct shape *s)
{
	return pitch ? pitch : s->width;
}

static size_t src_at(const struct shape *s, size_t row)
{
	return (s->src_y + row) * pitch_of(s->src_pitch, s) + s->src_x;
}

static size_t dst_at(const struct shape *s, size_t row)
{
	return (s->dst_y + row) * pitch_of(s->dst_pitch, s) + s->dst_x;
}

/* Both sides of every shape. */
#define SIDE_BYTES ((size_t)64 << 10)

static unsigned char byte_of(size_t at, unsigned int seed)
{
	return (unsigned char)((at * 2654435761u + seed) >> 7);
}

static CUDA_MEMCPY2D copy_of(const struct shape *s)
{
	return (CUDA_MEMCPY2D){ .srcXInBytes = s->src_x,
				.srcY = s->src_y,
				.srcPitch = s->src_pitch,
				.dstXInBytes = s->dst_x,
				.dstY = s->dst_y,
				.dstPitch = s->dst_pitch,
				.WidthInBytes = s->width,
				.Height = s->rows };
}

static void copy_from_host(CUDA_MEMCPY2D *copy, const void *host)
{
	copy->srcMemoryType = CU_MEMORYTYPE_HOST;
	copy->srcHost = host;
}

static void copy_to_host(CUDA_MEMCPY2D *copy, void *host)
{
	copy->dstMemoryType = CU_MEMORYTYPE_HOST;
	copy->dstHost = host;
}

static void copy_from_device(CUDA_MEMCPY2D *copy, CUdeviceptr va)
{
	copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
	copy->srcDevice = va;
}

static void copy_to_device(CUDA_MEMCPY2D *copy, CUdeviceptr va)
{
	copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy->dstDevice = va;
}

/* Two sides in host memory and two in device memory, and what @dst must hold afterwards. */
struct sides {
	unsigned char *src, *dst, *want;
	CUdeviceptr src_va, dst_va;
	CUstream stream;
	bool registered;
};

static struct sides sides_make(bool registered)
{
	struct sides s = { .stream = conf_stream(), .registered = registered };

	s.src = registered ? conf_shared(SIDE_BYTES, NULL) : malloc(SIDE_BYTES);
	s.dst = registered ? conf_shared(SIDE_BYTES, NULL) : malloc(SIDE_BYTES);
	s.want = malloc(SIDE_BYTES);
	check(s.src && s.dst && s.want);
	if (registered) {
		conf_register(s.src, SIDE_BYTES, 0);
		conf_register(s.dst, SIDE_BYTES, 0);
	}
	s.src_va = conf_take(conf.granule);
	s.dst_va = conf_take(conf.granule);
	check(conf.granule >= SIDE_BYTES);
	return s;
}

/* Shared memory and the context's go with the process. */
static void sides_free(const struct sides *s)
{
	free(s->want);
	if (s->registered)
		return;
	free(s->src);
	free(s->dst);
}

static void sides_fill(const struct sides *s, unsigned int seed)
{
	for (size_t i = 0; i < SIDE_BYTES; i++) {
		s->src[i] = byte_of(i, seed);
		s->dst[i] = s->want[i] = byte_of(i, seed + 77777);
	}
	ok(gpu->cuMemcpyHtoD(s->src_va, s->src, SIDE_BYTES));
	ok(gpu->cuMemcpyHtoD(s->dst_va, s->dst, SIDE_BYTES));
	ok(gpu->cuCtxSynchronize());
}

static void sides_want(const struct sides *s, const struct shape *shape)
{
	for (size_t row = 0; row < shape->rows; row++)
		memcpy(s->want + dst_at(shape, row), s->src + src_at(shape, row), shape->width);
}

static void sides_check(const struct sides *s, bool on_device, const char *what, size_t shape)
{
	if (on_device)
		conf_read(s->dst, s->dst_va, SIDE_BYTES);
	for (size_t i = 0; i < SIDE_BYTES; i++)
		if (s->dst[i] != s->want[i])
			fail_msg("%s, shape %zu: byte %zu is %u instead of %u", what, shape, i,
				 s->dst[i], s->want[i]);
}

enum way { TO_DEVICE, TO_HOST, IN_DEVICE, N_WAYS };

static const char *const ways[N_WAYS] = { "to the device", "to the host", "in the device" };

static CUDA_MEMCPY2D copy_on(const struct sides *s, const struct shape *shape, enum way way)
{
	CUDA_MEMCPY2D copy = copy_of(shape);

	if (way == TO_DEVICE)
		copy_from_host(&copy, s->src);
	else
		copy_from_device(&copy, s->src_va);
	if (way == TO_HOST)
		copy_to_host(&copy, s->dst);
	else
		copy_to_device(&copy, s->dst_va);
	return copy;
}

static void shapes_run(bool registered)
{
	struct sides s = sides_make(registered);

	for (size_t i = 0; i < MM_ARRAY_SIZE(shapes); i++)
		for (int way = 0; way < N_WAYS; way++) {
			CUDA_MEMCPY2D copy = copy_on(&s, &shapes[i], (enum way)way);

			sides_fill(&s, (unsigned int)(i * N_WAYS) + (unsigned int)way);
			sides_want(&s, &shapes[i]);
			ok(gpu->cuMemcpy2DAsync(&copy, s.stream));
			ok(gpu->cuStreamSynchronize(s.stream));
			sides_check(&s, way != TO_HOST, ways[way], i);
		}
	sides_free(&s);
}

static void test_registered(void **state)
{
	(void)state;
	shapes_run(true);
}

static void test_pageable(void **state)
{
	(void)state;
	shapes_run(false);
}

/* CU_MEMORYTYPE_UNIFIED: the driver finds out where each side is. */
static void test_unified(void **state)
{
	const struct shape *shape = &shapes[5];
	struct sides s = sides_make(true);
	CUDA_MEMCPY2D copy = copy_of(shape);

	(void)state;
	sides_fill(&s, 5);
	sides_want(&s, shape);
	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	copy.srcDevice = (uintptr_t)s.src;
	copy.dstDevice = s.dst_va;
	ok(gpu->cuMemcpy2DAsync(&copy, s.stream));
	ok(gpu->cuStreamSynchronize(s.stream));
	sides_check(&s, true, "unified", 5);
	sides_free(&s);
}

/* A pageable source has been read when the call returns, whatever the stream waits for. */
static void test_pageable_is_read(void **state)
{
	const struct shape *shape = &shapes[4];
	struct sides s = sides_make(false);
	CUDA_MEMCPY2D copy = copy_on(&s, shape, TO_DEVICE);

	(void)state;
	sides_fill(&s, 9);
	sides_want(&s, shape);
	ok(gpu->cuMemcpy2DAsync(&copy, s.stream));
	memset(s.src, 0, SIDE_BYTES);
	ok(gpu->cuStreamSynchronize(s.stream));
	sides_check(&s, true, "read", 4);
	sides_free(&s);
}

/* Behind what is in the stream, before what comes after, and as one piece of work. */
static void test_order(void **state)
{
	const struct shape *shape = &shapes[4];
	struct sides s = sides_make(true);
	CUDA_MEMCPY2D in = copy_on(&s, shape, TO_DEVICE);
	uint32_t *word = conf_shared(PAGE, NULL);
	CUdeviceptr word_va = conf_register(word, PAGE, 0);

	(void)state;
	sides_fill(&s, 13);
	ok(gpu->cuStreamWaitValue32(s.stream, word_va, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(gpu->cuMemsetD8Async(s.dst_va, 0xee, SIDE_BYTES, s.stream));
	ok(gpu->cuMemcpy2DAsync(&in, s.stream));
	ok(gpu->cuMemsetD8Async(s.dst_va + dst_at(shape, 0), 0x11, 4, s.stream));
	ok(gpu->cuStreamWriteValue32(s.stream, word_va + 4, 1, 0));
	check(__atomic_load_n(&word[1], __ATOMIC_ACQUIRE) == 0);
	check(gpu->cuStreamQuery(s.stream) == CUDA_ERROR_NOT_READY);
	/* Registered memory is read when the copy runs, and not before. */
	for (size_t i = 0; i < SIDE_BYTES; i++)
		s.src[i] = byte_of(i, 14);
	__atomic_store_n(&word[0], 1, __ATOMIC_RELEASE);
	ok(gpu->cuStreamSynchronize(s.stream));
	check(__atomic_load_n(&word[1], __ATOMIC_ACQUIRE) == 1);
	memset(s.want, 0xee, SIDE_BYTES);
	sides_want(&s, shape);
	memset(s.want + dst_at(shape, 0), 0x11, 4);
	sides_check(&s, true, "order", 4);
	sides_free(&s);
}

/* One node, whatever the number of rows; each launch moves what is there then. */
static void graph_run(bool registered, enum way way)
{
	const struct shape *shape = &shapes[5];
	struct sides s = sides_make(registered);
	CUDA_MEMCPY2D copy = copy_on(&s, shape, way);
	CUgraphNodeType type;
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	size_t n = 0;

	sides_fill(&s, 20);
	ok(gpu->cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ok(gpu->cuMemcpy2DAsync(&copy, s.stream));
	memset(&copy, 0xff, sizeof(copy)); /* it was copied */
	ok(gpu->cuStreamEndCapture(s.stream, &graph));
	ok(gpu->cuGraphGetNodes(graph, NULL, &n));
	check(n == 1);
	ok(gpu->cuGraphGetNodes(graph, &node, &n));
	ok(gpu->cuGraphNodeGetType(node, &type));
	check(type == CU_GRAPH_NODE_TYPE_MEMCPY);
	ok(gpu->cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(gpu->cuGraphDestroy(graph));
	ok(gpu->cuStreamSynchronize(s.stream));
	sides_check(&s, way != TO_HOST, "captured", 5);
	for (unsigned int i = 0; i < 4; i++) {
		sides_fill(&s, 21 + i);
		sides_want(&s, shape);
		ok(gpu->cuGraphLaunch(exec, s.stream));
		ok(gpu->cuStreamSynchronize(s.stream));
		sides_check(&s, way != TO_HOST, "replayed", 5);
	}
	ok(gpu->cuGraphExecDestroy(exec));
	sides_free(&s);
}

static void test_captured(void **state)
{
	(void)state;
	for (int way = 0; way < N_WAYS; way++)
		graph_run(true, (enum way)way);
	graph_run(false, TO_DEVICE);
}

/* ---- What is refused ---- */

static void refusal_check(const char *what, const CUDA_MEMCPY2D *copy, CUstream stream)
{
	CUresult res = gpu->cuMemcpy2DAsync(copy, stream);
	char name[96];

	snprintf(name, sizeof(name), "2d.rule.%s", what);
	conf_fact_result(name, res);
	/* No code relies on another driver's answer. */
	if (conf.software && res != CUDA_ERROR_INVALID_VALUE)
		fail_msg("%s: %s", what, mm_gpu_strerror(gpu, res));
}

static void test_refused(void **state)
{
	const struct shape *shape = &shapes[4];
	struct sides s = sides_make(true);
	const CUDA_MEMCPY2D fine = copy_on(&s, shape, TO_DEVICE);
	CUDA_MEMCPY2D copy;
	const struct {
		const char *name;
		size_t offset, value;
	} cases[] = {
#define FIELD(name) offsetof(CUDA_MEMCPY2D, name)
		{ "width over the source pitch", FIELD(srcPitch), 63 },
		{ "width over the destination pitch", FIELD(dstPitch), 63 },
		{ "column and width over the source pitch", FIELD(srcPitch), 127 },
		{ "column and width over the destination pitch", FIELD(dstPitch), 191 },
		{ "column of no address", FIELD(srcXInBytes), SIZE_MAX - 8 },
		{ "pitch over the device's limit", FIELD(srcPitch), (size_t)INT32_MAX + 1 },
		{ "line of no address", FIELD(srcY), SIZE_MAX / 2 },
		{ "rows of no address", FIELD(Height), SIZE_MAX / 8 },
		{ "rows beyond the reservation", FIELD(Height), (size_t)1 << 40 },
		{ "no source", FIELD(srcHost), 0 },
		{ "no destination", FIELD(dstDevice), 0 },
	};

	(void)state;
	sides_fill(&s, 30);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		/* A driver that takes such a copy would run it. */
		if (!conf.software && cases[i].offset == FIELD(Height))
			continue;
		copy = fine;
		memcpy((char *)&copy + cases[i].offset, &cases[i].value, sizeof(size_t));
		refusal_check(cases[i].name, &copy, s.stream);
	}
	copy = fine;
	copy.srcMemoryType = (CUmemorytype)9;
	refusal_check("unknown sort of memory", &copy, s.stream);
	copy = fine;
	copy.dstDevice = (uintptr_t)s.want;
	refusal_check("pageable memory as the device's", &copy, s.stream);
	if (conf.software)
		refusal_check("nothing", NULL, s.stream);
	/* The stream is none the worse for it. */
	ok(gpu->cuStreamSynchronize(s.stream));
	sides_check(&s, true, "refused", 4);
	sides_free(&s);
}

static void test_empty(void **state)
{
	struct sides s = sides_make(true);
	CUDA_MEMCPY2D copy = copy_on(&s, &shapes[4], TO_DEVICE);

	(void)state;
	sides_fill(&s, 31);
	copy.WidthInBytes = 0;
	ok(gpu->cuMemcpy2DAsync(&copy, s.stream));
	copy = copy_on(&s, &shapes[4], TO_DEVICE);
	copy.Height = 0;
	ok(gpu->cuMemcpy2DAsync(&copy, s.stream));
	ok(gpu->cuStreamSynchronize(s.stream));
	sides_check(&s, true, "empty", 4);
	sides_free(&s);
}

/* ---- The end of a mapping ---- */

/* Mappings side by side, as those of a window: rows, and what lies between them, cross borders. */
static void test_across_mappings(void **state)
{
	enum { MAPPINGS = 4, ROWS = 5 };
	const size_t g = conf.granule, width = g / 2 + 513, pitch = 3 * g / 4, rest = pitch - width;
	CUdeviceptr va = conf_reserve(MAPPINGS * g);
	CUstream stream = conf_stream();
	CUDA_MEMCPY2D copy = { .dstPitch = pitch, .srcPitch = g, .WidthInBytes = width };
	mm_cleanup(mm_free_ptr) unsigned char *seen = malloc(MAPPINGS * g);
	unsigned char *host = conf_shared(ROWS * g, NULL);

	(void)state;
	check(seen != NULL);
	for (size_t i = 0; i < MAPPINGS; i++)
		conf_map(va + i * g, g, conf_create(g), RW);
	conf_register(host, ROWS * g, 0);
	for (size_t i = 0; i < ROWS * g; i++)
		host[i] = byte_of(i, 50);
	copy.Height = ROWS;
	copy_from_host(&copy, host);
	copy_to_device(&copy, va);
	ok(gpu->cuMemsetD8Async(va, 0xee, MAPPINGS * g, stream));
	ok(gpu->cuMemcpy2DAsync(&copy, stream));
	ok(gpu->cuStreamSynchronize(stream));
	conf_read(seen, va, MAPPINGS * g);
	for (size_t row = 0; row < ROWS; row++) {
		check(memcmp(seen + row * pitch, host + row * g, width) == 0);
		check(seen[row * pitch + width] == 0xee && seen[(row + 1) * pitch - 1] == 0xee);
		check(memcmp(seen + row * pitch + width, seen + row * pitch + width + 1,
			     rest - 1) == 0);
	}
}

/* Rows in several registrations, or in part in one: the answer is told. */
static CUresult copy_registered(const char *fact, const size_t (*parts)[2], size_t n, size_t rows)
{
	unsigned char *host = conf_shared(4 * (size_t)PAGE, NULL), seen[512];
	CUstream stream = conf_stream();
	CUDA_MEMCPY2D copy = { .srcPitch = PAGE, .dstPitch = 512, .WidthInBytes = 512 };
	CUresult result;

	memset(host, 0x33, 4 * (size_t)PAGE);
	for (size_t i = 0; i < n; i++)
		conf_register(host + parts[i][0] * PAGE, parts[i][1] * PAGE, 0);
	copy.Height = rows;
	copy_from_host(&copy, host);
	copy_to_device(&copy, conf_take(conf.granule));
	result = gpu->cuMemcpy2DAsync(&copy, stream);
	conf_fact_result(fact, result);
	ok(gpu->cuStreamSynchronize(stream));
	for (size_t row = 0; !result && row < rows; row++) {
		conf_read(seen, copy.dstDevice + row * 512, sizeof(seen));
		check(seen[0] == 0x33 && memcmp(seen, seen + 1, sizeof(seen) - 1) == 0);
	}
	return result;
}

static void test_registrations(void **state)
{
	static const size_t in_part[][2] = { { 0, 2 } }, two[][2] = { { 0, 2 }, { 2, 2 } };
	static const size_t hole[][2] = { { 0, 1 }, { 2, 2 } };
	CUresult result;

	(void)state;
	check(copy_registered("2d.registered.beside", in_part, 1, 2) == CUDA_SUCCESS);
	result = copy_registered("2d.registered.in_part", in_part, 1, 4);
	check(!conf.software || result == CUDA_ERROR_INVALID_VALUE);
	result = copy_registered("2d.registered.but_a_page", hole, 2, 4);
	check(!conf.software || result == CUDA_ERROR_INVALID_VALUE);
	result = copy_registered("2d.registered.twice", two, 2, 4);
	check(!conf.software || result == CUDA_SUCCESS);
}

/* The largest pitch is beyond any block's bytes, 40 units of 448 KiB being 17.5 MiB. */
static void test_max_pitch(void **state)
{
	const int max = conf_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);

	(void)state;
	conf_fact("2d.max_pitch", "byte", max);
	check(max >= 40 * 512 * 1024);
}

/*
 * Two mappings with a hole between them. What a driver does with rows that step over the hole is
 * told; the last byte of a row that is in it takes the context, as that of a linear copy does.
 */
static CUDA_MEMCPY2D hole_copy(size_t into, uint64_t **ret_host)
{
	const size_t g = conf.granule, column = g - 512 + into;
	CUdeviceptr va = conf_reserve(4 * g);
	CUDA_MEMCPY2D copy = { .dstXInBytes = column,
			       .dstPitch = 2 * g,
			       .srcPitch = 512,
			       .WidthInBytes = 512,
			       .Height = 2 };

	conf_map(va, g, conf_create(g), RW);
	conf_map(va + 2 * g, g, conf_create(g), RW);
	*ret_host = conf_shared(PAGE, NULL);
	conf_register(*ret_host, PAGE, 0);
	memset(*ret_host, 0x5a, PAGE);
	copy_from_host(&copy, *ret_host);
	copy_to_device(&copy, va);
	return copy;
}

/* In roles, which may lose their context. */
static CUresult hole_run(const char *fact, size_t into, CUDA_MEMCPY2D *ret_copy)
{
	CUstream stream;
	uint64_t *host;
	CUresult res;

	conf_context();
	stream = conf_stream();
	*ret_copy = hole_copy(into, &host);
	res = gpu->cuMemcpy2DAsync(ret_copy, stream);
	if (!res) {
		(void)gpu->cuStreamWriteValue32(stream, (uintptr_t)host, 1, 0);
		res = gpu->cuStreamSynchronize(stream);
	}
	conf_fact_result(fact, res);
	check(res != CUDA_ERROR_NOT_READY);
	check(!conf.software || res == CUDA_ERROR_LAUNCH_FAILED);
	check(!conf.software || gpu->cuCtxSynchronize() == res);
	check(!res || host[0] == UINT64_C(0x5a5a5a5a5a5a5a5a));
	return res;
}

static int run_over_hole(int sock)
{
	unsigned char seen[512];
	CUDA_MEMCPY2D copy;

	(void)sock;
	if (hole_run("2d.over_hole", 0, &copy))
		return 0;
	for (size_t row = 0; row < 2; row++) {
		conf_read(seen, copy.dstDevice + 2 * row * conf.granule + conf.granule - 512,
			  sizeof(seen));
		check(seen[0] == 0x5a && memcmp(seen, seen + 1, sizeof(seen) - 1) == 0);
	}
	return 0;
}

static int run_into_hole(int sock)
{
	CUDA_MEMCPY2D copy;

	(void)sock;
	check(hole_run("2d.into_hole", 1, &copy) != CUDA_SUCCESS);
	return 0;
}

static void hole_test(const char *role)
{
	struct conf_peer peer;

	if (conf_attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED))
		conf_skip("under MPS a fault takes every client with it");
	peer = conf_spawn(role);
	conf_finish(&peer);
}

static void test_over_a_hole(void **state)
{
	(void)state;
	hole_test("over_hole");
}

static void test_into_a_hole(void **state)
{
	(void)state;
	hole_test("into_hole");
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_registered),      T(test_pageable),      T(test_unified),   T(test_pageable_is_read),
	T(test_order),           T(test_captured),      T(test_refused),   T(test_empty),
	T(test_across_mappings), T(test_registrations), T(test_max_pitch), T(test_over_a_hole),
	T(test_into_a_hole),
};

static const struct conf_role roles[] = { { "over_hole", run_over_hole },
					  { "into_hole", run_into_hole },
					  { NULL, NULL } };

CONF_MAIN("2d", tests, roles)
