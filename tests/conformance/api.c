/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points, contexts and errors: the calls that a program makes before it does any work. */
#include "libclient/support/cleanup.h"
#include "tests/conformance/conf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define gpu (&conf.gpu)

typedef CUresult(CUDAAPI *proc_address_fn)(const char *symbol, void **pfn, int version,
					   cuuint64_t flags,
					   CUdriverProcAddressQueryResult *status);

static const struct lookup {
	const char *name;
	int version;
	CUdriverProcAddressQueryResult status;
} lookups[] = {
	{ "cuInit", 2000, CU_GET_PROC_ADDRESS_SUCCESS },
	{ "cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_SUCCESS },
	{ "cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_SUCCESS },
	{ "cuMemCreate", 10020, CU_GET_PROC_ADDRESS_SUCCESS },
	{ "cuMemCreate", 10010, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT },
	{ "cuNoSuchFunction", 12000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND },
	{ "cudaMalloc", 12000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND },
};

static void test_get_proc_address(void **state)
{
	CUdriverProcAddressQueryResult status;
	proc_address_fn get;
	CUresult res;
	bool same;
	void *fn;

	(void)state;
	*(void **)&get = dlsym(gpu->library, "cuGetProcAddress_v2");
	check(get != NULL);
	for (size_t i = 0; i < MM_ARRAY_SIZE(lookups); i++) {
		const struct lookup *l = &lookups[i];

		status = (CUdriverProcAddressQueryResult)-1;
		fn = (void *)&status;
		res = get(l->name, &fn, l->version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
		if (res && !conf.software && l->status) {
			/* Some say so at once: kernels/driver/gpu.c takes both for an answer. */
			conf_fact_text("get_proc_address.missing", "%s: %s", l->name,
				       mm_gpu_strerror(gpu, res));
			continue;
		}
		ok(res);
		if (status != l->status || (fn != NULL) != (l->status == 0))
			fail_msg("%s at %d: status %d, %p", l->name, l->version, (int)status, fn);
	}
	/* Versions pick symbols; what a driver gives need not be the exported one. */
	ok(get("cuCtxCreate", &fn, 3020, 0, NULL));
	same = fn == dlsym(gpu->library, "cuCtxCreate_v2");
	ok(get("cuMemGetInfo", &fn, 12000, 0, NULL));
	same &= fn == dlsym(gpu->library, "cuMemGetInfo_v2");
	conf_fact("get_proc_address.gives_exported_symbols", "", same);
	check(same || !conf.software);
}

static void test_error_names(void **state)
{
	const char *name = NULL, *text = NULL;

	(void)state;
	ok(gpu->cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
	ok(gpu->cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	check(strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0 &&
	      strcmp(text, "out of memory") == 0);
	expect(gpu->cuGetErrorName((CUresult)123456, &name), CUDA_ERROR_INVALID_VALUE);
	check(!name);
}

/* In a role: nothing works before cuInit(), and no stream without a context. */
static int run_beginner(int sock)
{
	CUmemGenericAllocationHandle h;
	CUcontext ctx;
	CUstream stream;
	CUdeviceptr va;
	int n;

	(void)sock;
	expect(gpu->cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	expect(gpu->cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_ERROR_NOT_INITIALIZED);
	expect(gpu->cuMemCreate(&h, 1 << 21, &conf.prop, 0), CUDA_ERROR_NOT_INITIALIZED);
	expect(gpu->cuInit(1), CUDA_ERROR_INVALID_VALUE);
	conf_init();
	ok(gpu->cuInit(0));
	ok(gpu->cuDeviceGetCount(&n));
	check(n >= 1);
	expect(gpu->cuDeviceGet(&n, 4096), CUDA_ERROR_INVALID_DEVICE);
	expect(gpu->cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
	expect(gpu->cuMemAlloc(&va, 4096), CUDA_ERROR_INVALID_CONTEXT);
	expect(gpu->cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	return 0;
}

static void test_beginner(void **state)
{
	struct conf_peer peer = conf_spawn("beginner");

	(void)state;
	conf_finish(&peer);
}

/*
 * A forked child gets an error from the driver, and its parent works on. A driver need not behave
 * so well in the child: what happens there is a fact.
 */
static void test_fork(void **state)
{
	CUdeviceptr va;
	int status = -1;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0) {
		/* It may hang on a lock that a thread of its parent held. */
		if (!conf.software)
			alarm(10);
		CUresult res = gpu->cuCtxSynchronize();
		CUresult again = gpu->cuInit(0);

		_exit(res && again ? 0 : 1);
	}
	check(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		conf_fact_text("fork.child", "signal %d", WTERMSIG(status));
	else
		conf_fact_text("fork.child", WEXITSTATUS(status) ? "calls succeed" : "refused");
	check(!conf.software || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
	ok(gpu->cuMemAlloc(&va, 4096));
	ok(gpu->cuMemFree(va));
}

static void *other_thread(void *arg)
{
	CUcontext ctx;

	*(bool *)arg = gpu->cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && !ctx &&
		       gpu->cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT &&
		       gpu->cuCtxSetCurrent(conf.ctx) == CUDA_SUCCESS &&
		       gpu->cuCtxSynchronize() == CUDA_SUCCESS;
	return NULL;
}

/*
 * A current context is current in one thread only; the stack is a stack; the primary context is
 * one.
 */
static void test_contexts(void **state)
{
	CUcontext ctx, again;
	bool fine = false;
	pthread_t thread;
	int active;
	unsigned int flags;

	(void)state;
	check(pthread_create(&thread, NULL, other_thread, &fine) == 0);
	pthread_join(thread, NULL);
	check(fine);
	ok(gpu->cuDevicePrimaryCtxRetain(&again, 0));
	check(again == conf.ctx);
	ok(gpu->cuDevicePrimaryCtxRelease(0));
	if (gpu->cuDevicePrimaryCtxGetState) {
		ok(gpu->cuDevicePrimaryCtxGetState(0, &flags, &active));
		check(active == 1);
	}
	ok(gpu->cuCtxPushCurrent(conf.ctx));
	ok(gpu->cuCtxPopCurrent(&ctx));
	check(ctx == conf.ctx);
	ok(gpu->cuCtxPopCurrent(&ctx));
	ok(gpu->cuCtxGetCurrent(&ctx));
	check(!ctx);
	check(gpu->cuCtxPopCurrent(&ctx) != CUDA_SUCCESS);
	ok(gpu->cuCtxSetCurrent(conf.ctx));
}

static void test_legacy_memory(void **state)
{
	const size_t bytes = 100000;
	mm_cleanup(mm_free_ptr) char *out = malloc(bytes);
	mm_cleanup(mm_free_ptr) char *in = calloc(1, bytes);
	CUdeviceptr a, b;

	(void)state;
	memset(out, 0x5a, bytes);
	ok(gpu->cuMemAlloc(&a, bytes));
	ok(gpu->cuMemAlloc(&b, bytes));
	ok(gpu->cuMemcpyHtoD(a, out, bytes));
	ok(gpu->cuMemcpyDtoD(b, a, bytes));
	ok(gpu->cuMemcpyDtoH(in, b, bytes));
	check(memcmp(in, out, bytes) == 0);
	ok(gpu->cuMemFree(a));
	ok(gpu->cuMemFree(b));
	expect(gpu->cuMemAlloc(&a, 0), CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuMemAlloc(&a, (size_t)1 << 46), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Code for another kind of device, and no code at all. */
static void test_modules(void **state)
{
	static const char rubbish[64] = "this is neither PTX nor ELF";
	CUmodule module;

	(void)state;
	check(gpu->cuModuleLoadData(&module, rubbish) != CUDA_SUCCESS);
	expect(gpu->cuModuleLoad(&module, "/nonexistent/module"), CUDA_ERROR_FILE_NOT_FOUND);
}

#define T(name) cmocka_unit_test_setup(name, conf_set_up)
static const struct CMUnitTest tests[] = {
	T(test_get_proc_address), T(test_error_names),   T(test_beginner), T(test_fork),
	T(test_contexts),         T(test_legacy_memory), T(test_modules),
};

static const struct conf_role roles[] = { { "beginner", run_beginner }, { NULL, NULL } };

CONF_MAIN("api", tests, roles)
