/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs that are captured in mode GLOBAL, as PyTorch does, while the client maps and unmaps memory
 * in other threads, on a driver that counts these calls among those that may be unsafe.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"

#define CHUNK_PAGES 2

static struct mm_gpu_api soft;
static CUcontext context; /* the calling thread may have none */

/* The software GPU counts allocating among the unsafe calls, and the calls of the VMM not. */
static CUresult unsafe(void)
{
	CUdeviceptr va;
	CUresult res = soft.cuCtxPushCurrent(context);

	if (!res)
		res = soft.cuMemAlloc(&va, 1);
	if (!res)
		res = soft.cuMemFree(va);
	soft.cuCtxPopCurrent(&(CUcontext){ NULL });
	return res;
}

static CUresult strict_import(CUmemGenericAllocationHandle *handle, void *fd,
			      CUmemAllocationHandleType type)
{
	CUresult res = unsafe();

	return res ? res : soft.cuMemImportFromShareableHandle(handle, fd, type);
}

static CUresult strict_map(CUdeviceptr va, size_t bytes, size_t offset,
			   CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult res = unsafe();

	return res ? res : soft.cuMemMap(va, bytes, offset, handle, flags);
}

static CUresult strict_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc, size_t n)
{
	CUresult res = unsafe();

	return res ? res : soft.cuMemSetAccess(va, bytes, desc, n);
}

static CUresult strict_unmap(CUdeviceptr va, size_t bytes)
{
	CUresult res = unsafe();

	return res ? res : soft.cuMemUnmap(va, bytes);
}

static CUresult strict_reserve(CUdeviceptr *va, size_t bytes, size_t alignment, CUdeviceptr at,
			       unsigned long long flags)
{
	CUresult res = unsafe();

	return res ? res : soft.cuMemAddressReserve(va, bytes, alignment, at, flags);
}

static int strict_setup(void **state)
{
	static struct mm_gpu_api strict;
	struct fixture *f = calloc(1, sizeof(*f));
	struct mm_client_opts opts;

	assert_non_null(f);
	f->peer = peer_start();
	soft = strict = f->peer->gpu;
	assert_int_equal(soft.cuDevicePrimaryCtxRetain(&context, f->peer->device), 0);
	strict.cuMemImportFromShareableHandle = strict_import;
	strict.cuMemMap = strict_map;
	strict.cuMemSetAccess = strict_access;
	strict.cuMemUnmap = strict_unmap;
	strict.cuMemAddressReserve = strict_reserve;
	opts = peer_client_opts(f->peer);
	opts.gpu = &strict;
	assert_int_equal(mm_client_open(&opts, &f->client, NULL, 0), 0);
	peer_await_connection(f->peer);
	assert_int_equal(soft.cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING), 0);
	*state = f;
	return 0;
}

static void chunk_grant(struct fixture *f, uint32_t chunk, uint32_t first_page)
{
	uint32_t ids[CHUNK_PAGES];

	for (uint32_t i = 0; i < CHUNK_PAGES; i++) {
		ids[i] = first_page + i;
		peer_map(f->peer, MM_MAP_KV_BASE + chunk * CHUNK_PAGES + i, ids[i] + 1);
	}
	peer_pages(f->peer, ids, CHUNK_PAGES);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { chunk } });
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 1);
}

static int arena_open(struct fixture *f, struct mm_kv **ret_kv)
{
	const struct mm_kv_opts opts = {
		.size = sizeof(opts),
		.chunk_bytes = CHUNK_PAGES * PEER_PAGE_BYTES,
		.chunks_max = 4,
		.share_chunks = 1,
	};

	return mm_kv_open(f->client, &opts, ret_kv);
}

static int call_release(struct call *call)
{
	return mm_kv_release(call->kv, 0);
}

static int call_open(struct call *call)
{
	return arena_open(call->f, &call->kv);
}

static CUgraph capture_end(struct fixture *f)
{
	CUgraph graph = NULL;

	assert_int_equal(soft.cuStreamEndCapture(f->stream, &graph), 0);
	assert_non_null(graph);
	return graph;
}

/* Memory comes and goes while a graph is captured, and the graph holds what was captured. */
static void test_memory_moves_while_others_capture(void **state)
{
	struct fixture *f = *state;
	struct call open = { 0 }, release = { 0 };
	CUgraphExec exec;
	CUgraph graph;
	uint32_t word = 0;
	CUdeviceptr va;

	assert_int_equal(soft.cuMemAlloc(&va, sizeof(word)), 0);
	assert_int_equal(soft.cuStreamBeginCapture(f->stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	call_start(&open, f, call_open);
	peer_expect(f->peer, MM_OP_KV_DECLARE);
	assert_int_equal(call_join(&open), 0);
	chunk_grant(f, 0, 8);
	assert_int_equal(soft.cuMemsetD32Async(va, 77, 1, f->stream), 0);
	release.kv = open.kv;
	call_start(&release, f, call_release);
	assert_int_equal(call_join(&release), 0);
	chunk_grant(f, 1, 12);
	graph = capture_end(f);
	assert_int_equal(soft.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
	assert_int_equal(soft.cuGraphLaunch(exec, f->stream), 0);
	assert_int_equal(soft.cuStreamSynchronize(f->stream), 0);
	assert_int_equal(soft.cuMemcpyDtoH(&word, va, sizeof(word)), 0);
	assert_int_equal(word, 77);
	assert_int_equal(soft.cuGraphExecDestroy(exec), 0);
	assert_int_equal(soft.cuGraphDestroy(graph), 0);
	assert_int_equal(soft.cuMemFree(va), 0);
}

/* The thread that captures may release memory itself, and has its own mode afterwards. */
static void test_who_captures_may_release(void **state)
{
	struct fixture *f = *state;
	struct call open = { 0 };
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

	call_start(&open, f, call_open);
	peer_expect(f->peer, MM_OP_KV_DECLARE);
	assert_int_equal(call_join(&open), 0);
	chunk_grant(f, 0, 8);
	assert_int_equal(soft.cuThreadExchangeStreamCaptureMode(&mode), 0);
	assert_int_equal(soft.cuStreamBeginCapture(f->stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(mm_kv_release(open.kv, 0), 0);
	assert_int_equal(soft.cuGraphDestroy(capture_end(f)), 0);
	mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	assert_int_equal(soft.cuThreadExchangeStreamCaptureMode(&mode), 0);
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static int strict_teardown(void **state)
{
	const struct fixture *f = *state;

	assert_int_equal(soft.cuDevicePrimaryCtxRelease(f->peer->device), 0);
	return fixture_teardown(state);
}

#define STRICT(fn) cmocka_unit_test_setup_teardown(fn, strict_setup, strict_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STRICT(test_memory_moves_while_others_capture),
		STRICT(test_who_captures_may_release),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
