/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads on one driver: for TSan, and for what only breaks when several do it. */
#include "tests/conformance/conf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define gpu (&conf.gpu)

enum { THREADS = 6, ROUNDS = 200 };

static bool failed; /* atomic; assertions are for the main thread */

static void must_succeed(CUresult res)
{
	if (res)
		__atomic_store_n(&failed, true, __ATOMIC_RELAXED);
}

static void threads_run(void *(*fn)(void *), void *arg)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fn, arg), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_false(__atomic_load_n(&failed, __ATOMIC_RELAXED));
}

/* Handles, ranges, mappings. */
static void *map_and_unmap(void *arg)
{
	const CUmemAccessDesc rw = { conf.prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h, again;
	uint32_t seen = 0;
	CUdeviceptr va;

	(void)arg;
	must_succeed(gpu->cuCtxSetCurrent(conf.ctx));
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		must_succeed(gpu->cuMemCreate(&h, conf.granule, &conf.prop, 0));
		must_succeed(gpu->cuMemAddressReserve(&va, 2 * conf.granule, 0, 0, 0));
		must_succeed(gpu->cuMemMap(va, conf.granule, 0, h, 0));
		must_succeed(gpu->cuMemMap(va + conf.granule, conf.granule, 0, h, 0));
		must_succeed(gpu->cuMemSetAccess(va, 2 * conf.granule, &rw, 1));
		must_succeed(gpu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)va));
		must_succeed(gpu->cuMemsetD32Async(va, i, 4, CU_STREAM_PER_THREAD));
		must_succeed(
			gpu->cuMemcpyDtoHAsync(&seen, va + conf.granule, 4, CU_STREAM_PER_THREAD));
		if (seen != i)
			must_succeed(CUDA_ERROR_UNKNOWN);
		must_succeed(gpu->cuMemUnmap(va, 2 * conf.granule));
		must_succeed(gpu->cuMemRelease(h));
		must_succeed(gpu->cuMemRelease(again));
		must_succeed(gpu->cuMemAddressFree(va, 2 * conf.granule));
	}
	return NULL;
}

static void test_memory(void **state)
{
	size_t before = conf_free_bytes();

	(void)state;
	threads_run(map_and_unmap, NULL);
	assert_int_equal(conf_free_bytes(), before);
}

struct shared {
	CUstream stream;
	CUevent event;
	CUdeviceptr va, flag;
};

/* One stream, one event, and the default stream, all at once. */
static void *submit_work(void *arg)
{
	const struct shared *s = arg;
	CUstream own;
	CUresult res;

	must_succeed(gpu->cuCtxSetCurrent(conf.ctx));
	must_succeed(gpu->cuStreamCreate(&own, CU_STREAM_DEFAULT));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		must_succeed(gpu->cuMemsetD32Async(s->va, i, 16, s->stream));
		must_succeed(gpu->cuEventRecord(s->event, s->stream));
		must_succeed(gpu->cuStreamWaitEvent(own, s->event, 0));
		must_succeed(gpu->cuMemsetD32Async(s->va + 64, i, 16, own));
		if (i % 16 == 0)
			must_succeed(gpu->cuMemsetD32Async(s->va + 128, i, 16, NULL));
		must_succeed(gpu->cuStreamWriteValue32(own, s->flag, i, 0));
		res = gpu->cuEventQuery(s->event);
		if (res != CUDA_ERROR_NOT_READY)
			must_succeed(res);
	}
	must_succeed(gpu->cuStreamSynchronize(own));
	must_succeed(gpu->cuEventSynchronize(s->event));
	must_succeed(gpu->cuStreamDestroy(own));
	must_succeed(gpu->cuCtxSynchronize());
	return NULL;
}

static void test_streams(void **state)
{
	void *page = conf_shared(4096, NULL);
	struct shared s = { .stream = conf_stream() };

	(void)state;
	s.flag = conf_register(page, 4096, 0);
	ok(gpu->cuEventCreate(&s.event, 0));
	ok(gpu->cuMemAlloc(&s.va, 4096));
	threads_run(submit_work, &s);
	ok(gpu->cuEventDestroy(s.event));
	ok(gpu->cuStreamDestroy(s.stream));
	ok(gpu->cuMemFree(s.va));
	ok(gpu->cuMemHostUnregister(page));
	munmap(page, 4096);
}

/* A stream destroyed with work in it does that work; a context takes its streams with it. */
static void *come_and_go(void *arg)
{
	typedef CUresult(CUDAAPI * create_fn)(CUcontext *, unsigned int, CUdevice);
	typedef CUresult(CUDAAPI * destroy_fn)(CUcontext);
	void *const *fns = arg;
	create_fn create;
	destroy_fn destroy;
	CUcontext ctx;
	CUstream stream;
	CUdeviceptr va;

	memcpy(&create, &fns[0], sizeof(create));
	memcpy(&destroy, &fns[1], sizeof(destroy));
	for (int i = 0; i < ROUNDS / 10; i++) {
		must_succeed(create(&ctx, 0, 0));
		must_succeed(gpu->cuMemAlloc(&va, 4096));
		for (int k = 0; k < 4; k++) {
			must_succeed(gpu->cuStreamCreate(&stream, CU_STREAM_DEFAULT));
			must_succeed(gpu->cuMemsetD32Async(va, 1, 16, stream));
			if (k % 2)
				must_succeed(gpu->cuStreamDestroy(stream));
		}
		must_succeed(gpu->cuMemsetD32Async(va, 2, 16, NULL));
		must_succeed(gpu->cuMemFree(va));
		must_succeed(destroy(ctx));
	}
	return NULL;
}

static void test_contexts(void **state)
{
	typedef CUresult(CUDAAPI * proc_address_fn)(const char *, void **, int, cuuint64_t,
						    CUdriverProcAddressQueryResult *);
	CUdriverProcAddressQueryResult status;
	proc_address_fn get;
	void *fns[2];

	(void)state;
	*(void **)&get = dlsym(gpu->library, "cuGetProcAddress_v2");
	ok(get("cuCtxCreate", &fns[0], 3020, 0, &status));
	ok(get("cuCtxDestroy", &fns[1], 4000, 0, &status));
	threads_run(come_and_go, fns);
}

static int set_up(void **state)
{
	(void)state;
	if (!conf.ctx)
		conf_context();
	return 0;
}

#define T(name) cmocka_unit_test_setup(name, set_up)
static const struct CMUnitTest tests[] = { T(test_memory), T(test_streams), T(test_contexts) };

CONF_MAIN("threads", tests, NULL)
