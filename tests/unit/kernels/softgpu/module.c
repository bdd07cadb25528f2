/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of host kernels: looked up, launched, faulting. */
#include "tests/conformance/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define gpu (&conf.gpu)

static CUmodule module_load(void)
{
	CUmodule module;

	ok(gpu->cuModuleLoad(&module, getenv("MM_TEST_KERNELS")));
	return module;
}

static CUfunction function_find(CUmodule module, const char *name)
{
	CUfunction f;

	ok(gpu->cuModuleGetFunction(&f, module, name));
	return f;
}

static void test_saxpy(void **state)
{
	enum { N = 10000 };
	static float x[N], y[N];
	CUmodule module = module_load();
	CUfunction f = function_find(module, "saxpy");
	CUstream stream = conf_stream();
	CUdeviceptr dx, dy;
	float a = 3;
	uint32_t n = N;
	void *params[] = { &a, &dx, &dy, &n };

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = (float)i;
		y[i] = 1;
	}
	ok(gpu->cuMemAlloc(&dx, sizeof(x)));
	ok(gpu->cuMemAlloc(&dy, sizeof(y)));
	ok(gpu->cuMemcpyHtoDAsync(dx, x, sizeof(x), stream));
	ok(gpu->cuMemcpyHtoDAsync(dy, y, sizeof(y), stream));
	ok(gpu->cuLaunchKernel(f, 40, 1, 1, 256, 1, 1, 0, stream, params, NULL));
	/* The launch has its own copy of the arguments. */
	a = 1000;
	n = 0;
	ok(gpu->cuModuleUnload(module));
	ok(gpu->cuMemcpyDtoHAsync(y, dy, sizeof(y), stream));
	ok(gpu->cuStreamSynchronize(stream));
	for (int i = 0; i < N; i++)
		assert_true(y[i] == 3 * (float)i + 1);
	ok(gpu->cuMemFree(dx));
	ok(gpu->cuMemFree(dy));
	ok(gpu->cuStreamDestroy(stream));
}

/* Both ways of passing arguments give the same; in a buffer each is aligned to its own size. */
static void test_arguments(void **state)
{
	static const uint32_t want[10] = { 4, 5, 6, 7, 8, 9, 1024, 11, 1234, 77 };
	CUmodule module = module_load();
	CUfunction f = function_find(module, "report");
	unsigned char buffer[32] = { 0 };
	size_t bytes = sizeof(buffer);
	uint8_t small = 11;
	uint16_t medium = 1234;
	char odd[12] = { 0 };
	uint32_t got[10];
	CUdeviceptr out;
	void *params[] = { &small, &medium, odd, &out };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	(void)state;
	odd[11] = 77;
	ok(gpu->cuMemAlloc(&out, sizeof(got)));
	buffer[0] = small;
	memcpy(buffer + 2, &medium, 2);
	memcpy(buffer + 4, odd, sizeof(odd));
	memcpy(buffer + 16, &out, sizeof(out));
	for (int way = 0; way < 2; way++) {
		ok(gpu->cuMemsetD32Async(out, 0, 10, NULL));
		ok(gpu->cuLaunchKernel(f, 4, 5, 6, 7, 8, 9, 1024, NULL, way ? NULL : params,
				       way ? extra : NULL));
		ok(gpu->cuMemcpyDtoH(got, out, sizeof(got)));
		assert_memory_equal(got, want, sizeof(want));
	}
	bytes = 20;
	expect(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
	       CUDA_ERROR_INVALID_VALUE);
	expect(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
	       CUDA_ERROR_INVALID_VALUE);
	ok(gpu->cuMemFree(out));
	ok(gpu->cuModuleUnload(module));
}

static void test_launch_rules(void **state)
{
	static const unsigned int shapes[][7] = {
		{ 0, 1, 1, 1, 1, 1, 0 },     { 1, 1, 1, 0, 1, 1, 0 },
		{ 1, 1, 1, 1025, 1, 1, 0 },  { 1, 1, 1, 64, 64, 1, 0 },
		{ 1, 70000, 1, 1, 1, 1, 0 }, { 1, 1, 1, 1, 1, 1, 1u << 30 },
	};
	CUmodule module = module_load();
	CUfunction f = function_find(module, "nothing"), none;

	(void)state;
	ok(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	for (size_t i = 0; i < MM_ARRAY_SIZE(shapes); i++) {
		const unsigned int *s = shapes[i];

		expect(gpu->cuLaunchKernel(f, s[0], s[1], s[2], s[3], s[4], s[5], s[6], NULL, NULL,
					   NULL),
		       CUDA_ERROR_INVALID_VALUE);
	}
	assert_ptr_equal(function_find(module, "nothing"), f);
	expect(gpu->cuModuleGetFunction(&none, module, "no such kernel"), CUDA_ERROR_NOT_FOUND);
	expect(mm_gpu_kernel(gpu, module, "no such kernel", &none), CUDA_ERROR_NOT_FOUND);
	ok(mm_gpu_kernel(gpu, module, "nothing", &none));
	assert_ptr_equal(none, f);
	ok(gpu->cuModuleUnload(module));
	expect(gpu->cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	expect(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
	       CUDA_ERROR_INVALID_HANDLE);
}

/* One line: which file, which driver, what it answered, what to do. */
static void says_what(const char *path, const CUresult *result)
{
	char err[512];
	CUmodule module;

	assert_int_equal(mm_gpu_load_module(gpu, path, &module, err, sizeof(err)), -ENOEXEC);
	assert_non_null(strstr(err, path));
	assert_non_null(strstr(err, "(CUDA 13.0)"));
	assert_non_null(strstr(err, mm_gpu_strerror(gpu, *result)));
	assert_non_null(strstr(err, "toolkit that is no newer than the driver"));
	assert_null(strchr(err, '\n'));
}

/* Code for a GPU, bytes that are no code, and a library without kernels. */
static void test_wrong_modules(void **state)
{
	static const unsigned char cubin[64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, [18] = 190 };
	static const unsigned char fatbin[64] = { 0x50, 0xed, 0x55, 0xba };
	static const struct {
		const void *image;
		size_t bytes;
		CUresult want;
	} cases[] = {
		{ "//\n.version 8.0\n.target sm_90\n", 30, CUDA_ERROR_NO_BINARY_FOR_GPU },
		{ "\n .version 8.0", 14, CUDA_ERROR_NO_BINARY_FOR_GPU },
		{ cubin, sizeof(cubin), CUDA_ERROR_NO_BINARY_FOR_GPU },
		{ fatbin, sizeof(fatbin), CUDA_ERROR_NO_BINARY_FOR_GPU },
		{ "rubbish", 7, CUDA_ERROR_INVALID_IMAGE },
		{ "", 0, CUDA_ERROR_INVALID_IMAGE },
	};
	char path[] = "/tmp/mm-module-XXXXXX";
	CUmodule module;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		expect(gpu->cuModuleLoadData(&module, cases[i].image), cases[i].want);
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, cases[i].image, cases[i].bytes, 0), cases[i].bytes);
		expect(gpu->cuModuleLoad(&module, path), cases[i].want);
		says_what(path, &cases[i].want);
	}
	expect(gpu->cuModuleLoad(&module, getenv("MM_TEST_NO_DRIVER")), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(mm_gpu_load_module(gpu, "/nonexistent/module", &module, NULL, 0), -ENOENT);
	close(fd);
	unlink(path);
}

/* A kernel's bad access is the context's end and not the process's. */
static int run_faulty(int sock)
{
	CUdeviceptr va;
	void *params[] = { &va };
	CUfunction f;

	(void)sock;
	conf_context();
	f = function_find(module_load(), "store");
	va = conf_reserve(conf.granule);
	conf_map(va, conf.granule, conf_create(conf.granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
	ok(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	expect(gpu->cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	expect(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
	       CUDA_ERROR_ILLEGAL_ADDRESS);
	/* The primary context made anew has no such past. */
	ok(gpu->cuDevicePrimaryCtxReset(0));
	expect(gpu->cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	conf_context();
	conf_access(va, conf.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	f = function_find(module_load(), "store");
	ok(gpu->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	ok(gpu->cuCtxSynchronize());
	return 0;
}

static void test_fault(void **state)
{
	struct conf_peer peer = conf_spawn("faulty");

	(void)state;
	assert_int_equal(conf_join(&peer), 0);
}

/* A fault of the program's own is none of ours: it dies of it, as it would without us. */
static int run_crash(int sock)
{
	(void)sock;
	conf_context();
	ok(gpu->cuCtxSynchronize());
	*(volatile int *)(uintptr_t)conf_reserve(conf.granule) = 1;
	return 0;
}

static void test_own_crash(void **state)
{
	struct conf_peer peer = conf_spawn("crash");
	int status = conf_join(&peer);

	(void)state;
	/* Under a sanitizer its handler runs instead, and exits with a status of its own. */
	assert_true(status != 0);
}

static int set_up(void **state)
{
	(void)state;
	if (!conf.ctx)
		conf_context();
	return 0;
}

#define T(name) cmocka_unit_test_setup(name, set_up)
static const struct CMUnitTest tests[] = {
	T(test_saxpy),         T(test_arguments), T(test_launch_rules),
	T(test_wrong_modules), T(test_fault),     T(test_own_crash),
};

static const struct conf_role roles[] = {
	{ "faulty", run_faulty },
	{ "crash", run_crash },
	{ NULL, NULL },
};

CONF_MAIN("module", tests, roles)
