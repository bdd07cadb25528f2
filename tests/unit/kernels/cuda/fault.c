/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated kernels on the software GPU: launched on streams, and left by faults. */
#include "kernels/args/args.h"
#include "kernels/launch/launch.h"
#include "tests/conformance/conf.h"

#include <stdlib.h>

#define gpu (&conf.gpu)

enum { TOKENS = 3, HIDDEN = 70 };

static CUfunction function_find(enum mm_kernel kernel)
{
	CUmodule module;
	CUfunction f;

	ok(gpu->cuModuleLoad(&module, getenv("MM_KERNELS_EMULATED")));
	ok(gpu->cuModuleGetFunction(&f, module, mm_kernel_name(kernel)));
	return f;
}

static void norm_launch(enum mm_kernel kernel, void *args, CUstream stream)
{
	void *params[] = { args };
	struct mm_launch_shape s;

	mm_launch_shape(kernel, args, &s);
	ok(gpu->cuLaunchKernel(function_find(kernel), s.grid[0], s.grid[1], s.grid[2], s.block[0],
			       s.block[1], s.block[2], s.shared_bytes, stream, params, NULL));
}

/* RMSNorm has barriers: its threads are on stacks of their own where they touch memory. */
static struct mm_rmsnorm_args norm_args(CUdeviceptr x, CUdeviceptr gain, CUdeviceptr out)
{
	return (struct mm_rmsnorm_args){
		.x_va = x,
		.gain_va = gain,
		.out_va = out,
		.tokens = TOKENS,
		.hidden = HIDDEN,
		.dtype = MM_DTYPE_F32,
		.eps = 1e-5f,
	};
}

static void norm_run(void)
{
	float x[TOKENS * HIDDEN], gain[HIDDEN];
	struct mm_rmsnorm_args a;
	CUdeviceptr va;

	for (int i = 0; i < TOKENS * HIDDEN; i++)
		x[i] = i % 2 ? 3.0f : -3.0f;
	for (int i = 0; i < HIDDEN; i++)
		gain[i] = 2.0f;
	ok(gpu->cuMemAlloc(&va, sizeof(x) + sizeof(gain)));
	ok(gpu->cuMemcpyHtoD(va, x, sizeof(x)));
	ok(gpu->cuMemcpyHtoD(va + sizeof(x), gain, sizeof(gain)));
	a = norm_args(va, va + sizeof(x), va);
	norm_launch(MM_KERNEL_RMSNORM, &a, NULL);
	ok(gpu->cuMemcpyDtoH(x, va, sizeof(x)));
	for (int i = 0; i < TOKENS * HIDDEN; i++)
		check(x[i] > 0 ? x[i] > 1.99f && x[i] < 2.01f : x[i] < -1.99f && x[i] > -2.01f);
	ok(gpu->cuMemFree(va));
}

static void test_launch(void **state)
{
	(void)state;
	conf_context();
	norm_run();
}

/*
 * Three times: a fault before, at and behind a barrier loses the context each time, and the
 * thread's stacks and those of others are as good as new for the next one.
 */
static int run_faulty(int sock)
{
	CUdeviceptr bad, good;

	(void)sock;
	for (int round = 0; round < 3; round++) {
		struct mm_rmsnorm_args a;

		conf_context();
		norm_run();
		bad = conf_reserve(conf.granule);
		ok(gpu->cuMemAlloc(&good, conf.granule));
		a = norm_args(round == 0 ? bad : good, round == 1 ? bad : good,
			      round == 2 ? bad : good);
		norm_launch(MM_KERNEL_RMSNORM, &a, NULL);
		expect(gpu->cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
		ok(gpu->cuDevicePrimaryCtxReset(0));
	}
	conf_context();
	norm_run();
	return 0;
}

static void test_fault(void **state)
{
	struct conf_peer peer = conf_spawn("faulty");

	(void)state;
	assert_int_equal(conf_join(&peer), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_launch),
	cmocka_unit_test(test_fault),
};

static const struct conf_role roles[] = {
	{ "faulty", run_faulty },
	{ NULL, NULL },
};

CONF_MAIN("fault", tests, roles)
