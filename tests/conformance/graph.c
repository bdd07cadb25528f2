/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture and graphs: what is captured, what replays, the rules, gates inside graphs. */
#include "tests/conformance/conf.h"
#include "tests/conformance/gate.h"
#include "tests/conformance/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define gpu (&conf.gpu)

static const CUmemAccess_flags RW = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

static uint32_t gate_rounds(void)
{
	return conf.is_long ? 20000 : 4000;
}

static void begin(CUstream stream)
{
	ok(gpu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

/* Ends the capture, and makes of it what can be launched; *ret_graph may be NULL. */
static CUgraphExec finish(CUstream stream, CUgraph *ret_graph)
{
	CUgraphExec exec;
	CUgraph graph;

	ok(gpu->cuStreamEndCapture(stream, &graph));
	ok(gpu->cuGraphInstantiateWithFlags(&exec, graph, 0));
	if (ret_graph)
		*ret_graph = graph;
	else
		ok(gpu->cuGraphDestroy(graph));
	return exec;
}

static void run(CUgraphExec exec, CUstream stream)
{
	ok(gpu->cuGraphLaunch(exec, stream));
	ok(gpu->cuStreamSynchronize(stream));
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
	CUstreamCaptureStatus status;

	ok(gpu->cuStreamIsCapturing(stream, &status));
	return status;
}

/* ---- What a graph is ---- */

/*
 * Nothing runs while it is captured; it runs as often as it is launched; host memory is read then.
 */
static void test_replay(void **state)
{
	CUdeviceptr mem = conf_take(conf.granule);
	CUstream stream = conf_stream();
	uint32_t *host = conf_shared(PAGE, NULL);
	CUgraphExec exec;

	(void)state;
	conf_register(host, PAGE, 0);
	ok(gpu->cuMemsetD32Async(mem, 7, 16, stream));
	ok(gpu->cuStreamSynchronize(stream));
	host[0] = 100;
	begin(stream);
	check(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(gpu->cuMemcpyHtoDAsync(mem, &host[0], 4, stream));
	ok(gpu->cuMemcpyDtoDAsync(mem + 4, mem, 4, stream));
	ok(gpu->cuMemsetD32Async(mem + 8, 9, 1, stream));
	ok(gpu->cuMemcpyDtoHAsync(&host[16], mem, 12, stream));
	exec = finish(stream, NULL);
	check(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
	ok(gpu->cuStreamSynchronize(stream));
	check(host[16] == 0 && host[17] == 0 && host[18] == 0);
	for (uint32_t i = 1; i <= 50; i++) {
		host[0] = i;
		run(exec, stream);
		check(host[16] == i && host[17] == i && host[18] == 9);
	}
	ok(gpu->cuGraphExecDestroy(exec));
}

/* The argument is copied when it is captured. */
static void test_kernel(void **state)
{
	struct conf_fill_args args = { .words = 64, .seed = 3 };
	struct conf_count_args count = { .words = 64, .seed = 3 };
	CUfunction fill = conf_kernel("conf_fill"), counter = conf_kernel("conf_count");
	CUdeviceptr mem = conf_take(conf.granule);
	CUstream stream = conf_stream();
	CUgraphExec exec;
	uint64_t found[2];

	(void)state;
	args.va = mem;
	count.va = mem;
	count.ret_va = mem + PAGE;
	begin(stream);
	ok(gpu->cuMemsetD32Async(mem + PAGE, 0, 4, stream));
	conf_launch(fill, 1, 32, stream, &args);
	args.seed = 4;
	conf_launch(counter, 1, 32, stream, &count);
	exec = finish(stream, NULL);
	for (int i = 0; i < 3; i++) {
		ok(gpu->cuMemsetD32Async(mem, 0, 128, stream));
		run(exec, stream);
		ok(gpu->cuMemcpyDtoH(found, mem + PAGE, sizeof(found)));
		check(found[0] == 64 && found[1] == 64);
	}
	ok(gpu->cuGraphExecDestroy(exec));
}

/* Other memory behind the same addresses between two launches: the case that mmd relies on. */
static void test_remap(void **state)
{
	CUmemGenericAllocationHandle h[2] = { conf_create(conf.granule),
					      conf_create(conf.granule) };
	CUdeviceptr va = conf_reserve(conf.granule), out = conf_take(conf.granule), other;
	CUstream stream = conf_stream();
	CUgraphExec exec;
	uint32_t seen;

	(void)state;
	other = conf_reserve(2 * conf.granule);
	for (unsigned int i = 0; i < 2; i++) {
		conf_map(other + i * conf.granule, conf.granule, h[i], RW);
		ok(gpu->cuMemsetD32Async(other + i * conf.granule, 11 + i, 16, stream));
	}
	ok(gpu->cuStreamSynchronize(stream));
	conf_map(va, conf.granule, h[0], RW);
	begin(stream);
	ok(gpu->cuMemcpyDtoDAsync(out, va, 4, stream));
	exec = finish(stream, NULL);
	for (unsigned int i = 0; i < 20; i++) {
		if (i) {
			ok(gpu->cuMemUnmap(va, conf.granule));
			conf_map(va, conf.granule, h[i % 2], RW);
		}
		run(exec, stream);
		ok(gpu->cuMemcpyDtoH(&seen, out, 4));
		check(seen == 11 + i % 2);
	}
	ok(gpu->cuGraphExecDestroy(exec));
}

static void CUDA_CB append(void *arg)
{
	uint32_t *log = arg;

	log[1 + log[0]] = log[0] + 1;
	log[0]++;
}

/*
 * Launches of one exec come one behind the other, in whatever streams; it may be destroyed
 * meanwhile.
 */
static void test_order(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream a = conf_stream(), b = conf_stream();
	uint32_t log[64] = { 0 };
	CUgraphExec exec;

	(void)state;
	begin(a);
	ok(gpu->cuLaunchHostFunc(a, append, log));
	exec = finish(a, NULL);
	/* A wait that delays the first launch delays the others, in a stream without other work. */
	ok(gpu->cuStreamWaitValue32(b, va, 1, CU_STREAM_WAIT_VALUE_GEQ));
	for (int i = 0; i < 10; i++)
		ok(gpu->cuGraphLaunch(exec, i % 2 ? a : b));
	ok(gpu->cuGraphExecDestroy(exec));
	if (conf.software) /* undefined on hardware */
		expect(gpu->cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
	conf_nap_ms(3);
	expect(gpu->cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	check(__atomic_load_n(&log[0], __ATOMIC_ACQUIRE) == 0);
	store(line(page, 0), 1);
	ok(gpu->cuStreamSynchronize(a));
	ok(gpu->cuStreamSynchronize(b));
	check(log[0] == 10);
	for (uint32_t i = 1; i <= 10; i++)
		check(log[i] == i);
}

static bool has_type(CUgraph graph, CUgraphNodeType want, size_t at_least)
{
	CUgraphNode nodes[64] = { NULL };
	size_t n = MM_ARRAY_SIZE(nodes), found = 0;
	CUgraphNodeType type;

	ok(gpu->cuGraphGetNodes(graph, nodes, &n));
	for (size_t i = 0; i < n; i++) {
		ok(gpu->cuGraphNodeGetType(nodes[i], &type));
		found += type == want;
	}
	return found >= at_least;
}

/*
 * A fork by one event, a join by another: the graph has both branches, and the order between them.
 */
static void test_fork_and_join(void **state)
{
	CUdeviceptr mem = conf_take(conf.granule);
	CUstream a = conf_stream(), b = conf_stream();
	CUevent forked, joined;
	CUgraphExec exec;
	CUgraph graph;
	uint32_t seen[3];
	size_t n = 0;

	(void)state;
	ok(gpu->cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
	ok(gpu->cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
	begin(a);
	ok(gpu->cuMemsetD32Async(mem, 5, 1, a));
	ok(gpu->cuEventRecord(forked, a));
	ok(gpu->cuStreamWaitEvent(b, forked, 0));
	check(status_of(b) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(gpu->cuMemcpyDtoDAsync(mem + 4, mem, 4, b));
	ok(gpu->cuMemsetD32Async(mem + 64, 1, 1, a));
	ok(gpu->cuEventRecord(joined, b));
	ok(gpu->cuStreamWaitEvent(a, joined, 0));
	ok(gpu->cuMemcpyDtoDAsync(mem + 8, mem + 4, 4, a));
	exec = finish(a, &graph);
	check(status_of(b) == CU_STREAM_CAPTURE_STATUS_NONE);
	ok(gpu->cuGraphGetNodes(graph, NULL, &n));
	check(n == 4 && has_type(graph, CU_GRAPH_NODE_TYPE_MEMCPY, 2) &&
	      has_type(graph, CU_GRAPH_NODE_TYPE_MEMSET, 2));
	ok(gpu->cuGraphDestroy(graph));
	for (int i = 0; i < 20; i++) {
		ok(gpu->cuMemsetD32Async(mem, 0, 3, b));
		ok(gpu->cuStreamSynchronize(b));
		run(exec, b);
		ok(gpu->cuMemcpyDtoH(seen, mem, sizeof(seen)));
		check(seen[0] == 5 && seen[1] == 5 && seen[2] == 5);
	}
	ok(gpu->cuGraphExecDestroy(exec));
}

/* ---- The rules ---- */

enum breach {
	SYNCHRONIZE,
	QUERY,
	CONTEXT,
	EVENT,
	LEGACY,
	ISOLATION,
	MERGE,
	UNJOINED,
	ALLOCATE,
	BREACHES
};

static const struct {
	const char *name;
	CUresult want, end; /* end 0: INVALIDATED */
	bool blocking;
} breaches[BREACHES] = {
	[SYNCHRONIZE] = { .name = "synchronize", .want = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
	[QUERY] = { .name = "query", .want = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
	[CONTEXT] = { .name = "context", .want = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
	[EVENT] = { .name = "event", .want = CUDA_ERROR_CAPTURED_EVENT },
	[LEGACY] = { .name = "legacy stream",
		     .want = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
		     .blocking = true },
	[ISOLATION] = { .name = "isolation", .want = CUDA_ERROR_STREAM_CAPTURE_ISOLATION },
	[MERGE] = { .name = "merge", .want = CUDA_ERROR_STREAM_CAPTURE_MERGE },
	[UNJOINED] = { .name = "unjoined",
		       .want = CUDA_SUCCESS,
		       .end = CUDA_ERROR_STREAM_CAPTURE_UNJOINED },
	[ALLOCATE] = { .name = "allocate", .want = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
};

static CUresult commit_breach(enum breach breach, CUstream stream, CUstream other, CUevent event,
			      CUdeviceptr mem)
{
	CUdeviceptr va;

	switch (breach) {
	case SYNCHRONIZE:
		return gpu->cuStreamSynchronize(stream);
	case QUERY:
		return gpu->cuStreamQuery(stream);
	case CONTEXT:
		return gpu->cuCtxSynchronize();
	case EVENT:
		ok(gpu->cuEventRecord(event, stream));
		return gpu->cuEventQuery(event);
	case LEGACY:
		return gpu->cuMemsetD32Async(mem, 1, 1, CU_STREAM_LEGACY);
	case ISOLATION:
		ok(gpu->cuEventRecord(event, other));
		return gpu->cuStreamWaitEvent(stream, event, 0);
	case MERGE:
		begin(other);
		ok(gpu->cuMemsetD32Async(mem, 1, 1, other));
		ok(gpu->cuEventRecord(event, other));
		return gpu->cuStreamWaitEvent(stream, event, 0);
	case UNJOINED:
		ok(gpu->cuEventRecord(event, stream));
		ok(gpu->cuStreamWaitEvent(other, event, 0));
		return gpu->cuMemsetD32Async(mem + 64, 1, 1, other);
	case ALLOCATE:
		return gpu->cuMemAlloc(&va, PAGE);
	case BREACHES:
		break;
	}
	return CUDA_SUCCESS;
}

/*
 * One that a driver allows, or calls by another name, is told; on the software GPU each has its
 * name.
 */
static void check_breach(enum breach i, const char *when, CUresult res, CUresult want)
{
	char fact[96];

	snprintf(fact, sizeof(fact), "capture.%s.%s", breaches[i].name, when);
	conf_fact_result(fact, res);
	if (conf.software && res != want)
		fail_msg("%s: %s: %s", breaches[i].name, when, mm_gpu_strerror(gpu, res));
}

static void end_breach(enum breach i, const char *when, CUstream stream, CUresult want)
{
	CUgraph graph = NULL;

	check_breach(i, when, gpu->cuStreamEndCapture(stream, &graph), want);
	check(!graph || !conf.software);
	if (graph)
		ok(gpu->cuGraphDestroy(graph));
	check(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void test_rules(void **state)
{
	CUdeviceptr mem = conf_take(conf.granule);
	CUstream other = conf_stream(), stream;
	CUevent event;

	(void)state;
	for (enum breach i = 0; i < BREACHES; i++) {
		ok(gpu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		ok(gpu->cuStreamCreate(&stream, breaches[i].blocking ? CU_STREAM_DEFAULT
								     : CU_STREAM_NON_BLOCKING));
		begin(stream);
		ok(gpu->cuMemsetD32Async(mem, 1, 1, stream));
		check_breach(i, "call", commit_breach(i, stream, other, event, mem),
			     breaches[i].want);
		if (i != UNJOINED)
			check_breach(i, "then", gpu->cuMemsetD32Async(mem, 1, 1, stream),
				     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		end_breach(i, "end", stream,
			   breaches[i].end ? breaches[i].end
					   : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		if (i == MERGE)
			end_breach(i, "other's end", other, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		/* Both streams work as before. */
		ok(gpu->cuStreamSynchronize(stream));
		ok(gpu->cuStreamSynchronize(other));
		ok(gpu->cuEventDestroy(event));
		ok(gpu->cuStreamDestroy(stream));
	}
}

static void test_misuse(void **state)
{
	CUstream stream = conf_stream(), other = conf_stream();
	CUdeviceptr mem = conf_take(conf.granule);
	CUevent event;
	CUgraph graph;
	CUresult res;

	(void)state;
	ok(gpu->cuEventCreate(&event, 0));
	check(gpu->cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
	check(gpu->cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED) !=
	      CUDA_SUCCESS);
	res = gpu->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL);
	conf_fact_result("capture.external_event_outside", res);
	check(res || !conf.software);
	begin(stream);
	check(gpu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
	ok(gpu->cuEventRecord(event, stream));
	ok(gpu->cuStreamWaitEvent(other, event, 0));
	expect(gpu->cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	gpu->cuStreamEndCapture(stream, &graph);
	check(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
	check(status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE);
	ok(gpu->cuMemsetD32Async(mem, 1, 1, stream));
	ok(gpu->cuStreamSynchronize(stream));
}

/* Memory is made, mapped, used and taken away again. */
static CUresult map_beside(void)
{
	const CUmemAccessDesc rw = { conf.prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	CUresult res = gpu->cuMemCreate(&h, conf.granule, &conf.prop, 0);

	if (!res)
		res = gpu->cuMemAddressReserve(&va, conf.granule, 0, 0, 0);
	if (!res)
		res = gpu->cuMemMap(va, conf.granule, 0, h, 0);
	if (!res)
		res = gpu->cuMemSetAccess(va, conf.granule, &rw, 1);
	if (!res)
		res = gpu->cuMemUnmap(va, conf.granule);
	return res;
}

/* Another thread does something while one captures. */
struct beside {
	CUstreamCaptureMode mode;  /* of the capture */
	CUstreamCaptureMode other; /* of the thread */
	enum { END, ALLOC, DEALLOC, MAP } act;
	CUstream stream;
	CUdeviceptr mem;
	CUresult res, end; /* of the act; of the capture's end by its owner */
};

static void *act_beside(void *arg)
{
	struct beside *b = arg;
	CUgraph graph;

	gpu->cuCtxSetCurrent(conf.ctx);
	if (gpu->cuThreadExchangeStreamCaptureMode)
		gpu->cuThreadExchangeStreamCaptureMode(&b->other);
	switch (b->act) {
	case END:
		b->res = gpu->cuStreamEndCapture(b->stream, &graph);
		break;
	case ALLOC:
		b->res = gpu->cuMemAlloc(&b->mem, PAGE);
		break;
	case DEALLOC:
		b->res = gpu->cuMemFree(b->mem);
		break;
	case MAP:
		b->res = map_beside();
		break;
	}
	return NULL;
}

static void capture_beside(struct beside *b, const char *name)
{
	CUdeviceptr mem = conf_take(conf.granule);
	char fact[64];
	CUgraph graph;
	pthread_t thread;

	b->stream = conf_stream();
	if (b->act == DEALLOC)
		ok(gpu->cuMemAlloc(&b->mem, PAGE));
	ok(gpu->cuStreamBeginCapture(b->stream, b->mode));
	ok(gpu->cuMemsetD32Async(mem, 1, 1, b->stream));
	assert_int_equal(pthread_create(&thread, NULL, act_beside, b), 0);
	pthread_join(thread, NULL);
	b->end = gpu->cuStreamEndCapture(b->stream, &graph);
	snprintf(fact, sizeof(fact), "capture.%s", name);
	conf_fact_result(fact, b->res);
	snprintf(fact, sizeof(fact), "capture.%s.end", name);
	conf_fact_result(fact, b->end);
	if (!b->end)
		ok(gpu->cuGraphDestroy(graph));
	if ((b->act == ALLOC && !b->res) || (b->act == DEALLOC && b->res))
		ok(gpu->cuMemFree(b->mem));
	/* However it ended, the stream works as before. */
	check(status_of(b->stream) == CU_STREAM_CAPTURE_STATUS_NONE);
	ok(gpu->cuMemsetD32Async(mem, 1, 1, b->stream));
	ok(gpu->cuStreamSynchronize(b->stream));
	ok(gpu->cuStreamDestroy(b->stream));
	conf_give(mem, conf.granule);
}

#define LOCAL   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

/* Captured with THREAD_LOCAL, as mmserve does: others map and allocate as they like. */
static void test_beside_thread_local(void **state)
{
	struct beside map = { .mode = LOCAL, .other = GLOBAL, .act = MAP },
		      alloc = { .mode = LOCAL, .other = GLOBAL, .act = ALLOC };
	struct beside dealloc = { .mode = LOCAL, .other = GLOBAL, .act = DEALLOC };

	(void)state;
	capture_beside(&map, "local.map");
	capture_beside(&alloc, "local.alloc");
	capture_beside(&dealloc, "local.free");
	check(!map.res && !map.end && !alloc.res && !alloc.end);
	check(!conf.software || (!dealloc.res && !dealloc.end));
}

/* Another thread cannot end what this one captures, but a driver may let it spoil it. */
static void test_wrong_thread(void **state)
{
	struct beside b = { .mode = LOCAL, .other = GLOBAL, .act = END };

	(void)state;
	capture_beside(&b, "wrong_thread");
	check(b.res == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	check(!conf.software || b.end == CUDA_ERROR_ILLEGAL_STATE);
}

/*
 * Captured with GLOBAL, as PyTorch does: whether another thread may allocate and map, with the mode
 * that threads have and with RELAXED, which this project's threads take.
 */
static void test_beside_global(void **state)
{
	struct beside map = { .mode = GLOBAL, .other = GLOBAL, .act = MAP },
		      alloc = { .mode = GLOBAL, .other = GLOBAL, .act = ALLOC };
	struct beside relaxed = { .mode = GLOBAL, .other = RELAXED, .act = MAP },
		      other = { .mode = GLOBAL, .other = RELAXED, .act = ALLOC };

	(void)state;
	capture_beside(&alloc, "global.alloc");
	check(!conf.software || (alloc.res == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
				 alloc.end == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
	capture_beside(&map, "global.map");
	check(!conf.software || (!map.res && !map.end));
	if (!gpu->cuThreadExchangeStreamCaptureMode)
		conf_skip("no cuThreadExchangeStreamCaptureMode()");
	capture_beside(&other, "global.alloc_relaxed");
	check(!conf.software || (!other.res && !other.end));
	capture_beside(&relaxed, "global.map_relaxed");
	check(!relaxed.res && !relaxed.end);
}

/* ---- Events ---- */

static void test_external_events(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstream stream = conf_stream(), other = conf_stream();
	CUevent from, to;
	CUgraphExec exec;
	CUresult res;
	float ms;

	(void)state;
	ok(gpu->cuEventCreate(&from, 0));
	ok(gpu->cuEventCreate(&to, 0));
	begin(stream);
	ok(gpu->cuEventRecordWithFlags(from, stream, CU_EVENT_RECORD_EXTERNAL));
	ok(gpu->cuStreamWaitValue32(stream, va, 1, CU_STREAM_WAIT_VALUE_EQ));
	ok(gpu->cuEventRecordWithFlags(to, stream, CU_EVENT_RECORD_EXTERNAL));
	ok(gpu->cuStreamWriteValue32(stream, va, 0, 0));
	exec = finish(stream, NULL);
	for (int i = 0; i < 3; i++) {
		ok(gpu->cuGraphLaunch(exec, stream));
		ok(gpu->cuStreamWaitEvent(other, from, 0));
		ok(gpu->cuStreamSynchronize(other));
		conf_nap_ms(20);
		/* A driver may not count a launch as a recording before it comes to it. */
		res = gpu->cuEventQuery(to);
		conf_fact_result(i ? "graph.event_in_flight" : "graph.event_in_flight.first", res);
		check(res == CUDA_ERROR_NOT_READY || !conf.software);
		store(line(page, 0), 1);
		ok(gpu->cuEventSynchronize(to));
		ok(gpu->cuStreamSynchronize(stream));
		ok(gpu->cuEventElapsedTime(&ms, from, to));
		check(ms > 10 && ms < 600000);
		check(load(line(page, 0)) == 0);
	}
	ok(gpu->cuGraphExecDestroy(exec));
}

/* ---- Gates ---- */

/* @to may be host memory. */
static void capture_gate(CUstream stream, CUdeviceptr gate, CUdeviceptr to, CUdeviceptr from)
{
	ok(gpu->cuStreamWaitValue64(stream, gate, MAY_RUN, CU_STREAM_WAIT_VALUE_AND));
	ok(gpu->cuMemcpyAsync(to, from, 4, stream));
	ok(gpu->cuStreamWriteValue32(stream, gate, (cuuint32_t)DONE, 0));
}

static int gate_keeper(int sock)
{
	struct gate_keeper k;
	uint64_t total = 0;

	gate_keeper_begin(&k, sock);
	while (total < (uint64_t)gate_rounds() * GATE_LAYERS) {
		for (unsigned int l = 0; l < GATE_LAYERS; l++)
			total += gate_keeper_serve(&k, l);
		ok(gpu->cuStreamSynchronize(k.stream));
	}
	return 0;
}

/* One graph, launched for each round: no layer runs early, twice or on old bytes. */
static void test_gates(void **state)
{
	enum { BATCH = 50 };
	struct conf_peer peer = conf_spawn("gate_keeper");
	CUmemGenericAllocationHandle h = conf_create(conf.granule);
	CUdeviceptr mem = conf_reserve(conf.granule), va, log_va;
	CUstream stream = conf_stream();
	CUgraphExec exec;
	uint32_t *log;
	void *page;
	int fd;

	(void)state;
	conf_map(mem, conf.granule, h, RW);
	page = conf_shared(PAGE, &fd);
	va = conf_register(page, PAGE, 0);
	log = conf_shared(PAGE, NULL);
	log_va = conf_register(log, PAGE, 0);
	gate_keeper_start(&peer, page, fd, h);
	begin(stream);
	for (unsigned int l = 0; l < GATE_LAYERS; l++)
		capture_gate(stream, va + l * LINE, log_va + l * LINE, mem + l * LINE);
	exec = finish(stream, NULL);
	for (uint32_t round = 1; round <= gate_rounds(); round++) {
		ok(gpu->cuGraphLaunch(exec, stream));
		if (round % BATCH)
			continue;
		ok(gpu->cuStreamSynchronize(stream));
		for (unsigned int l = 0; l < GATE_LAYERS; l++)
			if (log[l * 16] != round)
				fail_msg("round %u, layer %u: ran on %u", round, l, log[l * 16]);
	}
	conf_finish(&peer);
	ok(gpu->cuGraphExecDestroy(exec));
}

/* A resident layer never waits, launch after launch; one store of ABORT frees a whole graph. */
static void test_gate_constants(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0), mem = conf_take(conf.granule);
	CUstream stream = conf_stream();
	CUgraphExec exec;

	(void)state;
	begin(stream);
	for (int i = 0; i < 50; i++)
		capture_gate(stream, va, mem + 4, mem);
	exec = finish(stream, NULL);
	store(line(page, 0), RESIDENT | EMPTY);
	for (int i = 0; i < 20; i++)
		run(exec, stream);
	check(load(line(page, 0)) == (RESIDENT | DONE));
	store(line(page, 0), EMPTY);
	ok(gpu->cuGraphLaunch(exec, stream));
	ok(gpu->cuGraphLaunch(exec, stream));
	conf_nap_ms(3);
	expect(gpu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	store(line(page, 0), ABORT | EMPTY);
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 0)) == (ABORT | DONE));
	ok(gpu->cuGraphExecDestroy(exec));
}

static CUgraphNode last_node(CUstream stream)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *nodes;
	size_t n = 0;

	ok(gpu->cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &n));
	check(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1);
	return nodes[0];
}

static CUstreamBatchMemOpParams write_of(CUdeviceptr va, uint64_t value)
{
	CUstreamBatchMemOpParams op = { 0 };

	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op.writeValue.address = va;
	op.writeValue.value64 = value;
	return op;
}

/*
 * The constants of an exec can be changed between two launches; what is queued keeps the old ones.
 */
static void test_set_params(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstreamBatchMemOpParams op = write_of(va + LINE, 5);
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { conf.ctx, 1, &op, 0 };
	CUstream stream = conf_stream();
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	(void)state;
	begin(stream);
	ok(gpu->cuStreamWaitValue32(stream, va, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ok(gpu->cuStreamWriteValue64(stream, va + LINE, 4, 0));
	node = last_node(stream);
	exec = finish(stream, &graph);
	ok(gpu->cuGraphLaunch(exec, stream));
	ok(gpu->cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
	store(line(page, 0), 1);
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 1)) == 4);
	for (uint64_t i = 5; i < 20; i++) {
		op = write_of(va + LINE, i);
		ok(gpu->cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
		run(exec, stream);
		check(load(line(page, 1)) == i);
	}
	params.count = 0;
	if (conf.software)
		check(gpu->cuGraphExecBatchMemOpNodeSetParams(exec, node, &params) != CUDA_SUCCESS);
	ok(gpu->cuGraphDestroy(graph));
	ok(gpu->cuGraphExecDestroy(exec));
}

/* A graph made node by node: a wait, and two writes behind it in one batch. */
static void test_batch_nodes(void **state)
{
	void *page = conf_shared(PAGE, NULL);
	CUdeviceptr va = conf_register(page, PAGE, 0);
	CUstreamBatchMemOpParams ops[2] = { write_of(va + LINE, 5), write_of(va + 2 * LINE, 6) };
	CUstreamBatchMemOpParams wait = { 0 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS first = { conf.ctx, 1, &wait, 0 },
				      second = { conf.ctx, 2, ops, 0 };
	CUstream stream = conf_stream();
	CUgraphNode a, b;
	CUgraphExec exec;
	CUgraph graph;

	(void)state;
	wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	wait.waitValue.address = va;
	wait.waitValue.value64 = MAY_RUN;
	wait.waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	ok(gpu->cuGraphCreate(&graph, 0));
	ok(gpu->cuGraphAddBatchMemOpNode(&a, graph, NULL, 0, &first));
	ok(gpu->cuGraphAddBatchMemOpNode(&b, graph, &a, 1, &second));
	check(has_type(graph, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, 2));
	ok(gpu->cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(gpu->cuGraphDestroy(graph));
	ok(gpu->cuGraphUpload(exec, stream));
	ok(gpu->cuGraphLaunch(exec, stream));
	conf_nap_ms(3);
	check(load(line(page, 1)) == 0 && load(line(page, 2)) == 0);
	store(line(page, 0), RESIDENT);
	ok(gpu->cuStreamSynchronize(stream));
	check(load(line(page, 1)) == 5 && load(line(page, 2)) == 6);
	ok(gpu->cuGraphExecDestroy(exec));
}

static int set_up(void **state)
{
	conf_set_up(state);
	if (!gpu->cuStreamBeginCapture || !gpu->cuGraphLaunch || !gpu->cuStreamGetCaptureInfo)
		conf_skip("the driver has no graphs");
	return 0;
}

#define T(name) cmocka_unit_test_setup(name, set_up)
static const struct CMUnitTest tests[] = {
	T(test_replay),          T(test_kernel),
	T(test_remap),           T(test_order),
	T(test_fork_and_join),   T(test_rules),
	T(test_misuse),          T(test_beside_thread_local),
	T(test_wrong_thread),    T(test_beside_global),
	T(test_external_events), T(test_gate_constants),
	T(test_gates),           T(test_set_params),
	T(test_batch_nodes),
};

static const struct conf_role roles[] = { { "gate_keeper", gate_keeper }, { NULL, NULL } };

CONF_MAIN("graph", tests, roles)
