/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mm/gpu.h"

static const struct open_case {
	const char *name;
	const char *driver; /* $NAME: value of the variable NAME */
	int want;
	const char *message; /* a part of the message */
} open_cases[] = {
	{ "a word", "hardware", -ENOENT, "give software, cuda, or the path" },
	{ "no file", "/nonexistent/libcuda.so", -ENOENT, "/nonexistent/libcuda.so" },
	{ "no library", "/etc/passwd", -ENOENT, "/etc/passwd" },
	{ "no driver", "$MM_TEST_KERNELS", -ENOSYS, "no cuGetProcAddress_v2" },
	{ "empty driver", "$MM_TEST_NO_DRIVER", -ENOSYS, "cuInit(2000) cuDriverGetVersion(2020)" },
};

static void test_open_fails(void **state)
{
	struct mm_gpu_api gpu;
	char err[512];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(open_cases); i++) {
		const struct open_case *c = &open_cases[i];
		const char *driver = *c->driver == '$' ? getenv(c->driver + 1) : c->driver;

		assert_non_null(driver);
		memset(&gpu, 0x5a, sizeof(gpu));
		memset(err, 0, sizeof(err));
		if (mm_gpu_open(driver, &gpu, err, sizeof(err)) != c->want ||
		    !strstr(err, c->message))
			fail_msg("%s: '%s'", c->name, err);
		/* Written only on success. */
		assert_int_equal(*(unsigned char *)&gpu, 0x5a);
		assert_int_equal(mm_gpu_open(driver, &gpu, NULL, 0), c->want);
	}
}

static void test_open(void **state)
{
	struct mm_gpu_api gpu = { 0 };
	char err[256] = "";
	void *const *entry;

	(void)state;
	if (mm_gpu_open("software", &gpu, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	/* The software GPU has the optional entries too. */
	for (entry = &gpu.library; entry < (void **)(&gpu + 1); entry++)
		assert_non_null(*entry);
	assert_string_equal(mm_gpu_strerror(&gpu, CUDA_ERROR_OUT_OF_MEMORY),
			    "CUDA_ERROR_OUT_OF_MEMORY");
	assert_string_equal(mm_gpu_strerror(&gpu, (CUresult)77777), "unknown CUDA error");
	mm_gpu_close(&gpu);
	assert_null(gpu.library);
	assert_null(gpu.cuInit);
	mm_gpu_close(&gpu);
}

static void test_open_named_by_environment(void **state)
{
	const char *lib = getenv("MM_SOFTGPU_LIB");
	mm_cleanup(mm_free_ptr) char *kept = strdup(lib ? lib : "");
	struct mm_gpu_api gpu = { 0 };
	char err[512] = "";

	(void)state;
	setenv("MM_DRIVER", kept, 1);
	assert_int_equal(mm_gpu_open(NULL, &gpu, err, sizeof(err)), 0);
	mm_gpu_close(&gpu);
	setenv("MM_DRIVER", "", 1);
	setenv("MM_SOFTGPU_LIB", "/nonexistent/libmm-softgpu.so", 1);
	assert_int_equal(mm_gpu_open(NULL, &gpu, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "MM_SOFTGPU_LIB"));
	/* This program is in tests/, the library in ../lib. */
	unsetenv("MM_SOFTGPU_LIB");
	unsetenv("MM_DRIVER");
	assert_int_equal(mm_gpu_open(NULL, &gpu, err, sizeof(err)), 0);
	mm_gpu_close(&gpu);
	setenv("MM_SOFTGPU_LIB", kept, 1);
}

static void test_errno(void **state)
{
	static const struct {
		CUresult result;
		int want;
	} cases[] = {
		{ CUDA_SUCCESS, 0 },
		{ CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM },
		{ CUDA_ERROR_INVALID_VALUE, -EINVAL },
		{ CUDA_ERROR_NOT_READY, -EBUSY },
		{ CUDA_ERROR_ILLEGAL_ADDRESS, -EFAULT },
		{ CUDA_ERROR_NO_DEVICE, -ENODEV },
		{ CUDA_ERROR_NOT_SUPPORTED, -EOPNOTSUPP },
		{ CUDA_ERROR_UNKNOWN, -EIO },
		{ (CUresult)31337, -EIO },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		assert_int_equal(mm_gpu_errno(cases[i].result), cases[i].want);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_fails),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_open_named_by_environment),
		cmocka_unit_test(test_errno),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
