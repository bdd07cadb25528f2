/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures, graphs and their launches in any order, by one thread and by several at once: no call
 * crashes, none is mistaken for another, nothing hangs, and all memory comes back.
 */
#include "libclient/base/random.h"
#include "tests/conformance/conf.h"

#include <pthread.h>
#include <stdlib.h>

#define gpu (&conf.gpu)

enum { SLOTS = 6, STEPS = 6000, THREADS = 4 };

/* The objects that one thread uses; a slot may hold a handle that was destroyed, on purpose. */
struct world {
	uint64_t seed;
	CUstream streams[SLOTS];
	CUevent events[SLOTS];
	CUgraph graphs[SLOTS];
	CUgraphExec execs[SLOTS];
	CUgraphNode nodes[SLOTS];
	CUdeviceptr mem;
	unsigned int launched;
};

static unsigned int random_draw(struct world *w, unsigned int n)
{
	return (unsigned int)mm_random_below(&w->seed, n);
}

static void CUDA_CB do_nothing(void *arg)
{
	(void)arg;
}

static void put_in(struct world *w, CUstream stream)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { conf.ctx, 1, NULL, 0 };
	CUstreamBatchMemOpParams op = { 0 };
	CUevent event = w->events[random_draw(w, SLOTS)];
	CUgraphNode *node = &w->nodes[random_draw(w, SLOTS)];
	CUgraph graph;

	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op.writeValue.address = w->mem + 8 * (CUdeviceptr)random_draw(w, 8);
	params.paramArray = &op;
	switch (random_draw(w, 10)) {
	case 0:
		gpu->cuMemsetD32Async(w->mem, random_draw(w, 100), 16, stream);
		break;
	case 1:
		gpu->cuMemcpyDtoDAsync(w->mem, w->mem + 64, 32, stream);
		break;
	case 2:
		gpu->cuStreamBatchMemOp(stream, 1, &op, 0);
		break;
	case 3:
		gpu->cuLaunchHostFunc(stream, do_nothing, NULL);
		break;
	case 4:
		gpu->cuEventRecord(event, stream);
		break;
	case 5:
		gpu->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL);
		break;
	case 6:
		gpu->cuStreamWaitEvent(stream, event, random_draw(w, 2));
		break;
	case 7:
		graph = w->graphs[random_draw(w, SLOTS)];
		gpu->cuGraphAddBatchMemOpNode(node, graph, node, random_draw(w, 2), &params);
		break;
	case 8:
		gpu->cuGraphExecBatchMemOpNodeSetParams(w->execs[random_draw(w, SLOTS)], *node,
							&params);
		break;
	default:
		gpu->cuEventQuery(event);
		break;
	}
}

static void world_query(struct world *w, CUstream stream)
{
	CUgraphNode nodes[4];
	CUstreamCaptureStatus status;
	const CUgraphNode *ahead;
	CUgraphNodeType type;
	size_t n = MM_ARRAY_SIZE(nodes);
	CUgraph graph;

	if (!gpu->cuGraphGetNodes(w->graphs[random_draw(w, SLOTS)], nodes, &n))
		for (size_t i = 0; i < n; i++)
			w->nodes[random_draw(w, SLOTS)] = nodes[i];
	gpu->cuGraphNodeGetType(w->nodes[random_draw(w, SLOTS)], &type);
	gpu->cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &ahead, NULL, &n);
}

static void slot_renew(struct world *w, unsigned int i)
{
	switch (random_draw(w, 3)) {
	case 0:
		gpu->cuStreamDestroy(w->streams[i]);
		assert_int_equal(gpu->cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING), 0);
		break;
	case 1:
		gpu->cuEventDestroy(w->events[i]);
		assert_int_equal(gpu->cuEventCreate(&w->events[i], 0), 0);
		break;
	default:
		gpu->cuGraphDestroy(w->graphs[i]);
		gpu->cuGraphCreate(&w->graphs[i], 0);
		break;
	}
}

static void world_step(struct world *w)
{
	CUstream stream = w->streams[random_draw(w, SLOTS)];
	unsigned int i = random_draw(w, SLOTS);

	switch (random_draw(w, 12)) {
	case 0:
		gpu->cuStreamBeginCapture(stream, (CUstreamCaptureMode)random_draw(w, 3));
		break;
	case 1:
		gpu->cuStreamEndCapture(stream, &w->graphs[i]);
		break;
	case 2:
		gpu->cuGraphInstantiateWithFlags(&w->execs[i], w->graphs[random_draw(w, SLOTS)], 0);
		break;
	case 3:
	case 4:
		w->launched += gpu->cuGraphLaunch(w->execs[i], stream) == CUDA_SUCCESS;
		break;
	case 5:
		if (!random_draw(w, 4))
			gpu->cuGraphExecDestroy(w->execs[i]);
		break;
	case 6:
		if (!random_draw(w, 8))
			slot_renew(w, i);
		break;
	case 7:
		world_query(w, stream);
		break;
	case 8:
		if (!random_draw(w, 8))
			gpu->cuStreamSynchronize(stream);
		break;
	default:
		put_in(w, stream);
		break;
	}
}

/*
 * Whatever was left half done ends; every handle is given back once, and is refused the second
 * time.
 */
static void world_clear(struct world *w)
{
	for (unsigned int i = 0; i < SLOTS; i++) {
		gpu->cuStreamDestroy(w->streams[i]);
		gpu->cuEventDestroy(w->events[i]);
		gpu->cuGraphDestroy(w->graphs[i]);
		gpu->cuGraphExecDestroy(w->execs[i]);
		assert_int_not_equal(gpu->cuGraphDestroy(w->graphs[i]), CUDA_SUCCESS);
		assert_int_not_equal(gpu->cuGraphExecDestroy(w->execs[i]), CUDA_SUCCESS);
	}
}

static void world_play(struct world *w, unsigned int steps)
{
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	for (unsigned int i = 0; i < SLOTS; i++) {
		ok(gpu->cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING));
		ok(gpu->cuEventCreate(&w->events[i], 0));
	}
	for (unsigned int i = 0; i < steps; i++)
		world_step(w);
	world_clear(w);
}

static CUdeviceptr device_page(void)
{
	CUdeviceptr va = conf_reserve(conf.granule);
	CUmemGenericAllocationHandle h = conf_create(conf.granule);

	conf_map(va, conf.granule, h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(gpu->cuMemRelease(h));
	return va;
}

static void test_any_order(void **state)
{
	CUdeviceptr mem = device_page();
	unsigned int launched = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct world w = { .seed = seed, .mem = mem };

		world_play(&w, STEPS);
		launched += w.launched;
	}
	check(launched > 0);
	ok(gpu->cuCtxSynchronize());
}

static void *play_alone(void *arg)
{
	world_play(arg, STEPS / 2);
	return NULL;
}

/* Their captures meet by their modes only; what one destroys, another may just have got as new. */
static void test_threads(void **state)
{
	struct world worlds[THREADS];
	pthread_t threads[THREADS];
	CUdeviceptr mem = device_page();

	(void)state;
	for (unsigned int i = 0; i < THREADS; i++) {
		worlds[i] = (struct world){ .seed = 100 + i, .mem = mem };
		assert_int_equal(pthread_create(&threads[i], NULL, play_alone, &worlds[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(gpu->cuCtxSynchronize());
}

/* One exec, launched and changed by all at once. */
static CUgraphExec shared_exec;
static CUgraphNode shared_node;
static CUdeviceptr shared_mem;

static void *launch_shared(void *arg)
{
	CUstreamBatchMemOpParams op = { 0 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { conf.ctx, 1, &op, 0 };
	CUstream stream;

	(void)arg;
	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op.writeValue.address = shared_mem;
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	stream = conf_stream();
	for (unsigned int i = 0; i < 300; i++) {
		op.writeValue.value64 = i;
		ok(gpu->cuGraphExecBatchMemOpNodeSetParams(shared_exec, shared_node, &params));
		ok(gpu->cuGraphLaunch(shared_exec, stream));
	}
	ok(gpu->cuStreamSynchronize(stream));
	return NULL;
}

static void test_shared_exec(void **state)
{
	CUstreamBatchMemOpParams op = { 0 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { conf.ctx, 1, &op, 0 };
	pthread_t threads[THREADS];
	uint64_t seen;
	CUgraph graph;

	(void)state;
	shared_mem = device_page();
	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op.writeValue.address = shared_mem;
	op.writeValue.value64 = 1000;
	ok(gpu->cuGraphCreate(&graph, 0));
	ok(gpu->cuGraphAddBatchMemOpNode(&shared_node, graph, NULL, 0, &params));
	ok(gpu->cuGraphInstantiateWithFlags(&shared_exec, graph, 0));
	for (unsigned int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, launch_shared, NULL), 0);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(gpu->cuMemcpyDtoH(&seen, shared_mem, sizeof(seen)));
	check(seen == 299);
	ok(gpu->cuGraphDestroy(graph));
	ok(gpu->cuGraphExecDestroy(shared_exec));
}

static int set_up(void **state)
{
	(void)state;
	if (!conf.ctx)
		conf_context();
	return 0;
}

#define T(name) cmocka_unit_test_setup(name, set_up)
static const struct CMUnitTest tests[] = { T(test_any_order), T(test_threads),
					   T(test_shared_exec) };

CONF_MAIN("graphs", tests, NULL)
