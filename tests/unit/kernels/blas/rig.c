/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels/blas/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/narrow.h"
#include "libclient/base/base.h"
#include "libclient/base/random.h"

struct rig rig;

static uint64_t state = 7;

static uint32_t random_next(void)
{
	return (uint32_t)(mm_random_next(&state) >> 33);
}

int rig_start(void)
{
	const char *driver = getenv("MM_DRIVER"), *module;
	CUcontext context;
	CUdevice device;
	char err[300];

	rig.software = !driver || !*driver || strcmp(driver, "software") == 0;
	if (mm_gpu_open(driver, &rig.gpu, err, sizeof(err)) || rig.gpu.cuInit(0) ||
	    rig.gpu.cuDeviceGet(&device, 0)) {
		fprintf(stderr, "no device: skipped\n");
		return 77;
	}
	module = getenv(rig.software ? "MM_KERNELS" : "MM_KERNELS_CUDA");
	if (!rig.software)
		unsetenv("MM_CUBLAS_LIB"); /* the test names the software's */
	if (!module || rig.gpu.cuDevicePrimaryCtxRetain(&context, device) ||
	    rig.gpu.cuCtxSetCurrent(context) || rig.gpu.cuModuleLoad(&rig.module, module) ||
	    rig.gpu.cuStreamCreate(&rig.stream, CU_STREAM_NON_BLOCKING)) {
		fprintf(stderr, "the device or its kernels' module cannot be used\n");
		return 1;
	}
	return 0;
}

struct mm_gemm *rig_open(enum mm_gemm_kind kind, bool fast, uint32_t max_y_stride)
{
	const struct mm_gemm_opts opts = { .kind = kind,
					   .module = rig.module,
					   .fast = fast,
					   .max_tokens = 200,
					   .max_k = 600,
					   .max_y_stride = max_y_stride,
					   .workspace_bytes = rig.software ? 4096 : 0 };
	struct mm_gemm *gemm = NULL;
	char err[300] = "";

	if (mm_gemm_open(&rig.gpu, &opts, &gemm, err, sizeof(err)))
		fail_msg("%s", err);
	return gemm;
}

void rig_write(CUdeviceptr va, const void *from, size_t bytes)
{
	assert_int_equal(rig.gpu.cuMemcpyHtoD(va, from, bytes), 0);
	assert_int_equal(rig.gpu.cuStreamSynchronize(NULL), 0);
}

CUdeviceptr rig_upload(const void *from, size_t bytes)
{
	CUdeviceptr va;

	assert_int_equal(rig.gpu.cuMemAlloc(&va, bytes), 0);
	rig_write(va, from, bytes);
	return va;
}

uint32_t *rig_multiply(struct mm_gemm *gemm, const struct product *p)
{
	const size_t words = (size_t)(MM_MAX(p->tokens, p->y_rows) + 1) * p->y_stride;
	uint32_t *y = malloc(words * 4);
	struct mm_gemm_args a = { .tokens = p->tokens,
				  .outputs = p->outputs,
				  .k = p->k,
				  .dtype = p->dtype,
				  .y_stride = p->y_stride,
				  .y_rows = p->y_rows };
	CUdeviceptr y_va;

	assert_non_null(y);
	for (size_t i = 0; i < words; i++)
		y[i] = RIG_GUARD;
	y_va = rig_upload(y, words * 4);
	a.y_va = y_va + p->column * 4ul;
	a.x_va = rig_upload(p->x, (size_t)p->tokens * p->k * 4);
	a.w_va = rig_upload(p->w, (size_t)p->outputs * p->k * mm_dtype_bytes(p->dtype));
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), 0);
	assert_int_equal(rig.gpu.cuStreamSynchronize(rig.stream), 0);
	assert_int_equal(rig.gpu.cuMemcpyDtoH(y, y_va, words * 4), 0);
	rig.gpu.cuMemFree(y_va);
	rig.gpu.cuMemFree(a.x_va);
	rig.gpu.cuMemFree(a.w_va);
	return y;
}

const float *rig_row(const struct product *p, const uint32_t *y, uint32_t row)
{
	return (const float *)(const void *)(y + (size_t)row * p->y_stride + p->column);
}

float *rig_floats(size_t n, bool whole)
{
	float *x = malloc(n * sizeof(*x));

	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = whole ? (float)(random_next() % 9) - 4
			     : (float)(random_next() % 65536) / 32768 - 1;
	return x;
}

void *rig_weights(size_t n, enum mm_dtype dtype, bool whole)
{
	float *wide = rig_floats(n, whole);
	uint16_t *w;

	if (dtype == MM_DTYPE_F32)
		return wide;
	w = malloc(n * sizeof(*w));
	assert_non_null(w);
	for (size_t i = 0; i < n; i++)
		w[i] = dtype == MM_DTYPE_F16 ? mm_narrow_f16(wide[i]) : mm_narrow_bf16(wide[i]);
	free(wide);
	return w;
}

double rig_weight(const void *w, size_t i, enum mm_dtype dtype)
{
	const uint16_t *half = w;
	uint32_t bits;
	float wide;

	if (dtype == MM_DTYPE_F32)
		return (double)((const float *)w)[i];
	if (dtype == MM_DTYPE_F16) {
		const int exponent = half[i] >> 10 & 31, mantissa = half[i] & 1023;
		const double size =
			exponent ? (1024.0 + mantissa) * (double)(1u << exponent) / 33554432
				 : mantissa / 16777216.0;

		return half[i] & 0x8000 ? -size : size;
	}
	bits = (uint32_t)half[i] << 16;
	memcpy(&wide, &bits, sizeof(wide));
	return (double)wide;
}
