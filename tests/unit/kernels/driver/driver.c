/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drivers that cannot be used, played by a fake library (fake_driver.c): each gives a useful
 * sentence.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "mm/gpu.h"

static const char *const variables[] = { "FAKE_VERSION", "FAKE_VERSION_RESULT", "FAKE_LACKS",
					 "FAKE_INIT" };

static const struct driver_case {
	const char *name;
	const char *variable, *value;
	int want;            /* result of mm_gpu_open() */
	const char *said[3]; /* parts of the message */
} open_cases[] = {
	{ "old", "FAKE_VERSION", "12020", -ENOSYS, { "CUDA 12.2", "12.4 or later", "update" } },
	{ "stub", "FAKE_VERSION_RESULT", "34", -ENOSYS, { "stub", "LD_LIBRARY_PATH" } },
	{ "one missing",
	  "FAKE_LACKS",
	  "cuMemCreate",
	  -ENOSYS,
	  { "CUDA 13.0", "cuMemCreate(10020)" } },
	{ "all that is missing",
	  "FAKE_LACKS",
	  "cuInit,cuMemHostRegister,cuLaunchKernel",
	  -ENOSYS,
	  { "cuInit(2000)", "cuMemHostRegister(6050)", "cuLaunchKernel(4000)" } },
	{ "an optional one missing", "FAKE_LACKS", "cuStreamBatchMemOp,cuMemHostAlloc", 0, { "" } },
	{ "the oldest that does", "FAKE_VERSION", "12040", 0, { "" } },
};

static const struct {
	const char *init;
	int want;
	const char *said[3];
} init_cases[] = {
	{ "100", -ENODEV, { "nvidia-smi", "CUDA_VISIBLE_DEVICES", "(100)" } },
	{ "46", -ENODEV, { "compute mode" } },
	{ "802", -ENODEV, { "fabric", "CUDA_ERROR_SYSTEM_NOT_READY", "CUDA 13.0" } },
	{ "803", -EIO, { "reboot" } },
	{ "804", -EIO, { "compat" } },
	{ "805", -EIO, { "MPS" } },
	{ "807", -ENODEV, { "MPS" } },
	{ "304", -EIO, { "/dev/nvidiactl" } },
	{ "999", -EIO, { "dmesg", "nvidia-smi" } },
};

static int environment_clear(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	return 0;
}

static void text_contains(const char *what, const char *text, const char *const *parts, size_t n)
{
	for (size_t i = 0; i < n && parts[i]; i++)
		if (!strstr(text, parts[i]))
			fail_msg("%s: no '%s' in '%s'", what, parts[i], text);
	assert_null(strchr(text, '\n'));
}

static void test_open(void **state)
{
	const char *fake = getenv("MM_TEST_FAKE_DRIVER");

	assert_non_null(fake);
	for (size_t i = 0; i < MM_ARRAY_SIZE(open_cases); i++) {
		const struct driver_case *c = &open_cases[i];
		struct mm_gpu_api gpu = { 0 };
		char err[512] = "";

		environment_clear(state);
		setenv(c->variable, c->value, 1);
		if (mm_gpu_open(fake, &gpu, err, sizeof(err)) != c->want)
			fail_msg("%s: '%s'", c->name, err);
		text_contains(c->name, err, c->said, MM_ARRAY_SIZE(c->said));
		assert_false(mm_gpu_is_software(&gpu));
		mm_gpu_close(&gpu);
	}
}

/* The line is complete however many entries are missing and however small the buffer is. */
static void test_nothing_there(void **state)
{
	struct mm_gpu_api gpu;
	char err[1024] = "";
	char *all = NULL;
	size_t bytes;
	FILE *list = open_memstream(&all, &bytes);

	(void)state;
#define NAME(need, name, version, params) fputs(#name ",", list);
	MM_GPU_ENTRIES(NAME)
#undef NAME
	fclose(list);
	setenv("FAKE_LACKS", all, 1);
	assert_int_equal(mm_gpu_open(getenv("MM_TEST_FAKE_DRIVER"), &gpu, err, sizeof(err)),
			 -ENOSYS);
	assert_non_null(strstr(err, "and more"));
	assert_int_equal(mm_gpu_open(getenv("MM_TEST_FAKE_DRIVER"), &gpu, err, 40), -ENOSYS);
	assert_int_equal(strlen(err), 39);
	free(all);
}

static void test_init(void **state)
{
	struct mm_gpu_api gpu = { 0 };
	char err[512];

	(void)state;
	assert_int_equal(mm_gpu_open(getenv("MM_TEST_FAKE_DRIVER"), &gpu, err, sizeof(err)), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(init_cases); i++) {
		setenv("FAKE_INIT", init_cases[i].init, 1);
		assert_int_equal(mm_gpu_init(&gpu, err, sizeof(err)), init_cases[i].want);
		text_contains(init_cases[i].init, err, init_cases[i].said,
			      MM_ARRAY_SIZE(init_cases[i].said));
	}
	setenv("FAKE_INIT", "0", 1);
	assert_int_equal(mm_gpu_init(&gpu, NULL, 0), 0);
	mm_gpu_close(&gpu);
}

/* The stub of the toolkit, if one is installed. */
static void test_real_stub(void **state)
{
	const char *stub = getenv("MM_TEST_STUB_DRIVER");
	struct mm_gpu_api gpu;
	char err[512] = "";

	(void)state;
	if (!stub || !*stub)
		skip();
	assert_int_equal(mm_gpu_open(stub, &gpu, err, sizeof(err)), -ENOSYS);
	if (!strstr(err, "the toolkit's stub"))
		fail_msg("%s", err);
}

static void test_software(void **state)
{
	struct mm_gpu_api gpu = { 0 };
	char err[512] = "";

	(void)state;
	if (mm_gpu_open("software", &gpu, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	assert_true(mm_gpu_is_software(&gpu));
	setenv("MM_SOFTGPU_MEMORY", "much", 1);
	assert_int_equal(mm_gpu_init(&gpu, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "stderr"));
	unsetenv("MM_SOFTGPU_MEMORY");
	mm_gpu_close(&gpu);
	assert_false(mm_gpu_is_software(&gpu));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_open, environment_clear),
		cmocka_unit_test_setup(test_nothing_there, environment_clear),
		cmocka_unit_test_setup(test_init, environment_clear),
		cmocka_unit_test_setup(test_real_stub, environment_clear),
		cmocka_unit_test_setup(test_software, environment_clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
