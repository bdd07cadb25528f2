/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that goes with its context, and that stays; freeing without a context, or under another.
 */
#include "tests/conformance/conf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define gpu    (&conf.gpu)
#define ROUNDS 5
#define LARGE  ((size_t)24 << 20) /* not even three times into the device's 64 MiB */

static CUresult(CUDAAPI *create)(CUcontext *ctx, unsigned int flags, CUdevice device);
static CUresult(CUDAAPI *destroy)(CUcontext ctx);

static CUcontext create_context(void)
{
	CUcontext ctx;

	ok(create(&ctx, 0, 0));
	return ctx;
}

static int set_up(void **state)
{
	*(void **)&create = dlsym(gpu->library, "cuCtxCreate_v2");
	*(void **)&destroy = dlsym(gpu->library, "cuCtxDestroy_v2");
	return create && destroy ? conf_set_up(state) : -1;
}

/* ---- What goes ---- */

static void destroy_current(void)
{
	CUcontext ctx;

	ok(gpu->cuCtxGetCurrent(&ctx));
	ok(destroy(ctx));
	ok(gpu->cuCtxSetCurrent(NULL));
}

static void reset_primary(void)
{
	ok(gpu->cuDevicePrimaryCtxReset(0));
	ok(gpu->cuCtxSetCurrent(NULL));
}

static void release_primary(void)
{
	ok(gpu->cuDevicePrimaryCtxRelease(0));
	ok(gpu->cuCtxSetCurrent(NULL));
}

static void make_current(bool primary)
{
	CUcontext ctx;

	if (!primary) {
		create_context();
		return;
	}
	ok(gpu->cuDevicePrimaryCtxRetain(&ctx, 0));
	ok(gpu->cuCtxSetCurrent(ctx));
}

static void use_up(bool primary, void (*end)(void))
{
	CUdeviceptr va[2];

	for (int i = 0; i < ROUNDS; i++) {
		make_current(primary);
		ok(gpu->cuMemAlloc(&va[0], LARGE));
		ok(gpu->cuMemAlloc(&va[1], LARGE));
		ok(gpu->cuMemsetD8Async(va[1], 1, LARGE, NULL));
		end();
	}
	make_current(true);
	expect(gpu->cuMemFree(va[0]), CUDA_ERROR_INVALID_VALUE);
	check(conf_free_bytes() == (size_t)64 << 20);
}

static void test_destroyed(void **state)
{
	(void)state;
	use_up(false, destroy_current);
}

static void test_reset(void **state)
{
	(void)state;
	reset_primary();
	use_up(true, reset_primary);
}

static void test_released(void **state)
{
	(void)state;
	release_primary();
	use_up(true, release_primary);
}

/*
 * It is one handle for good. A reset forgets a fault, and not who retained it; reset or released,
 * it cannot be used until it is retained.
 */
static void test_primary_is_one(void **state)
{
	CUdeviceptr va, nowhere = conf_reserve(conf.granule);
	CUcontext again;

	(void)state;
	ok(gpu->cuMemsetD8Async(nowhere, 1, 1, NULL));
	expect(gpu->cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	for (int i = 0; i < ROUNDS; i++) {
		ok(gpu->cuDevicePrimaryCtxReset(0));
		expect(gpu->cuMemAlloc(&va, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		ok(gpu->cuDevicePrimaryCtxRetain(&again, 0));
		check(again == conf.ctx);
		ok(gpu->cuMemAlloc(&va, LARGE));
		ok(gpu->cuMemsetD8Async(va, 1, LARGE, NULL));
		ok(gpu->cuMemsetD8Async(va, 1, LARGE, CU_STREAM_PER_THREAD));
	}
	for (int i = 0; i < ROUNDS + 1; i++)
		ok(gpu->cuDevicePrimaryCtxRelease(0));
	expect(gpu->cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	expect(gpu->cuMemAlloc(&va, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(gpu->cuDevicePrimaryCtxRetain(&again, 0));
	check(again == conf.ctx);
	check(conf_free_bytes() == (size_t)64 << 20);
	ok(gpu->cuMemAddressFree(nowhere, conf.granule));
}

struct things {
	CUdeviceptr va;
	void *host, *page;
	CUevent event;
	CUstream stream;
	CUmodule module;
};

static struct things make_things(void)
{
	struct things t = { .page = conf_shared(4096, NULL) };

	ok(gpu->cuMemAlloc(&t.va, 4096));
	ok(gpu->cuMemHostAlloc(&t.host, 4096, 0));
	ok(gpu->cuMemHostRegister(t.page, 4096, 0));
	ok(gpu->cuEventCreate(&t.event, 0));
	ok(gpu->cuStreamCreate(&t.stream, 0));
	ok(gpu->cuModuleLoad(&t.module, getenv("MM_TEST_KERNELS")));
	return t;
}

/* Their handles mean nothing any more; the host's own page is only not registered. */
static void test_handles_of_destroyed(void **state)
{
	CUcontext ctx = create_context();
	struct things t = make_things();
	CUfunction f;

	(void)state;
	ok(gpu->cuModuleGetFunction(&f, t.module, "saxpy"));
	ok(gpu->cuEventRecord(t.event, t.stream));
	ok(destroy(ctx));
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	expect(gpu->cuMemFree(t.va), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuMemFreeHost(t.host), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuMemHostUnregister(t.page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	expect(gpu->cuEventDestroy(t.event), CUDA_ERROR_INVALID_HANDLE);
	expect(gpu->cuStreamDestroy(t.stream), CUDA_ERROR_INVALID_HANDLE);
	expect(gpu->cuModuleUnload(t.module), CUDA_ERROR_INVALID_HANDLE);
	expect(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
	       CUDA_ERROR_INVALID_HANDLE);
	ok(gpu->cuMemHostRegister(t.page, 4096, 0));
	ok(gpu->cuMemHostUnregister(t.page));
	munmap(t.page, 4096);
}

/* Memory of cuMemCreate() is no context's; nor does one context's end touch what is another's. */
static void test_what_stays(void **state)
{
	struct things other = make_things();
	CUdeviceptr va;
	uint32_t seen = 0;
	CUcontext ctx;

	(void)state;
	ctx = create_context();
	va = conf_take(conf.granule);
	ok(gpu->cuMemsetD32Async(va, 7, 1, NULL));
	ok(gpu->cuMemsetD32Async(other.va, 8, 1, NULL));
	ok(gpu->cuCtxSynchronize());
	ok(destroy(ctx));
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	conf_read(&seen, va, sizeof(seen));
	check(seen == 7);
	conf_read(&seen, other.va, sizeof(seen));
	check(seen == 8);
	conf_give(va, conf.granule);
	memset(other.host, 1, 4096);
	ok(gpu->cuMemFree(other.va));
	ok(gpu->cuMemFreeHost(other.host));
	ok(gpu->cuMemHostUnregister(other.page));
	ok(gpu->cuEventDestroy(other.event));
	ok(gpu->cuStreamDestroy(other.stream));
	ok(gpu->cuModuleUnload(other.module));
	munmap(other.page, 4096);
}

/* ---- Freeing elsewhere ---- */

static void free_things(const struct things *t)
{
	ok(gpu->cuMemFree(t->va));
	ok(gpu->cuMemFreeHost(t->host));
	ok(gpu->cuMemHostUnregister(t->page));
	ok(gpu->cuEventDestroy(t->event));
	ok(gpu->cuStreamDestroy(t->stream));
	ok(gpu->cuModuleUnload(t->module));
	munmap(t->page, 4096);
}

static void test_free_without_context(void **state)
{
	struct things t = make_things();
	int local;

	(void)state;
	ok(gpu->cuCtxSetCurrent(NULL));
	free_things(&t);
	ok(gpu->cuMemFree(0));
	/* For memory that is nobody's a context is asked for first. */
	expect(gpu->cuMemFree(t.va), CUDA_ERROR_INVALID_CONTEXT);
	expect(gpu->cuMemFreeHost(&local), CUDA_ERROR_INVALID_CONTEXT);
	expect(gpu->cuMemHostUnregister(&local), CUDA_ERROR_INVALID_CONTEXT);
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	check(conf_free_bytes() == (size_t)64 << 20);
}

static void CUDA_CB take_time(void *arg)
{
	conf_nap_ms(50);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

/* The work of the memory's own context is waited for. */
static void test_free_in_another_context(void **state)
{
	struct things t = make_things();
	int done = 0;
	CUcontext ctx;

	(void)state;
	ok(gpu->cuLaunchHostFunc(t.stream, take_time, &done));
	ctx = create_context();
	ok(gpu->cuMemFree(t.va));
	check(__atomic_load_n(&done, __ATOMIC_ACQUIRE) == 1);
	t.va = 0;
	free_things(&t);
	ok(destroy(ctx));
}

/* The fault is the other context's: what it has stays until it ends. */
static void test_free_in_faulted_context(void **state)
{
	struct things mine = make_things(), theirs;
	CUdeviceptr nowhere = conf_reserve(conf.granule);
	CUcontext ctx;

	(void)state;
	ctx = create_context();
	theirs = make_things();
	ok(gpu->cuMemsetD8Async(nowhere, 1, 1, NULL));
	expect(gpu->cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	expect(gpu->cuMemFree(theirs.va), CUDA_ERROR_LAUNCH_FAILED);
	expect(gpu->cuMemFreeHost(theirs.host), CUDA_ERROR_LAUNCH_FAILED);
	expect(gpu->cuMemHostUnregister(theirs.page), CUDA_ERROR_LAUNCH_FAILED);
	free_things(&mine);
	ok(destroy(ctx));
	ok(gpu->cuCtxSetCurrent(conf.ctx));
	check(conf_free_bytes() == (size_t)64 << 20);
	munmap(theirs.page, 4096);
	ok(gpu->cuMemAddressFree(nowhere, conf.granule));
}

/* Only where it began can a registration be ended. */
static void test_unregister_inside(void **state)
{
	char *page = conf_shared(8192, NULL);

	(void)state;
	ok(gpu->cuMemHostRegister(page, 8192, 0));
	expect(gpu->cuMemHostUnregister(page + 1), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuMemHostUnregister(page + 4096), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuMemHostUnregister(page + 8191), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuMemHostUnregister(page + 8192), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ok(gpu->cuMemHostUnregister(page));
	expect(gpu->cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	munmap(page, 8192);
}

/* ---- While others use it ---- */

static void *take_all(void *arg)
{
	CUdeviceptr va;
	void *host;

	if (gpu->cuCtxSetCurrent(arg))
		return NULL;
	while (gpu->cuMemAlloc(&va, 4096) == CUDA_SUCCESS)
		if (gpu->cuMemHostAlloc(&host, 4096, 0))
			break;
	return NULL;
}

/* Nothing is lost between an allocation and the end of its context. */
static void test_destroyed_meanwhile(void **state)
{
	pthread_t threads[2];
	CUcontext ctx;

	(void)state;
	for (int i = 0; i < 50; i++) {
		ctx = create_context();
		for (int k = 0; k < 2; k++)
			check(pthread_create(&threads[k], NULL, take_all, ctx) == 0);
		conf_nap_ms((unsigned int)i % 3);
		ok(destroy(ctx));
		for (int k = 0; k < 2; k++)
			pthread_join(threads[k], NULL);
		ok(gpu->cuCtxSetCurrent(conf.ctx));
		check(conf_free_bytes() == (size_t)64 << 20);
	}
}

#define T(name) cmocka_unit_test_setup(name, set_up)
static const struct CMUnitTest tests[] = {
	T(test_destroyed),
	T(test_reset),
	T(test_released),
	T(test_primary_is_one),
	T(test_handles_of_destroyed),
	T(test_what_stays),
	T(test_free_without_context),
	T(test_free_in_another_context),
	T(test_free_in_faulted_context),
	T(test_unregister_inside),
	T(test_destroyed_meanwhile),
};

CONF_MAIN("contexts", tests, NULL)
