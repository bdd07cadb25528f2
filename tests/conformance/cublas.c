/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the assumption of the deterministic matrix products (kernels/blas/backend.h), which a BLAS
 * does not promise: in a product of a fixed shape a row gets the same bits in any place, whatever
 * the other rows are. With cuBLAS itself at the shapes of real models, with the software one at
 * small shapes.
 */
#include "libclient/support/cleanup.h"
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/blas/backend.h"
#include "kernels/blas/cublas.h"

#define gpu (&conf.gpu)

#define ROWS      MM_GEMM_ROWS
#define WORKSPACE ((size_t)32 << 20)

struct shape {
	uint32_t outputs, k;
};

static struct mm_cublas lib;
static cublasHandle_t handle;

/* All that a product of one shape and type needs. */
struct product {
	struct shape shape;
	cudaDataType type;
	size_t element;
	CUdeviceptr x, w, y;
	unsigned char *host_x;
	uint32_t *host_y;
};

static void product_need(cublasStatus_t status, const char *what)
{
	if (status)
		fail_msg("%s: %s", what, lib.cublasGetStatusString(status));
}

/* Numbers of either sign and of several sizes, so that sums depend on their order. */
static void fill_random(unsigned char *to, size_t n, const struct product *p, unsigned int *seed)
{
	const unsigned int shift = p->type == CUDA_R_16F ? 10 : 7;
	const unsigned int most = p->type == CUDA_R_16F ? 14 : 126; /* below 1 */

	for (size_t i = 0; i < n; i++) {
		const unsigned int random = (unsigned int)rand_r(seed);
		const float value = (float)random / (float)RAND_MAX - 0.5f;
		const uint16_t half =
			(uint16_t)((random & 1) << 15 | (most - (random >> 1 & 7)) << shift |
				   (random >> 4 & ((1u << shift) - 1)));

		if (p->type == CUDA_R_32F)
			memcpy(to + 4 * i, &value, 4);
		else
			memcpy(to + 2 * i, &half, 2);
	}
}

/* A large matrix is one stretch over and over: its length has nothing in common with a row's. */
static void fill_weights(unsigned char *to, size_t n, const struct product *p)
{
	const size_t stretch = MM_MIN(n, (size_t)1000003);
	unsigned int seed = 1;

	fill_random(to, stretch, p, &seed);
	for (size_t at = stretch; at < n; at += stretch)
		memcpy(to + at * p->element, to, MM_MIN(stretch, n - at) * p->element);
}

static struct product product_make(struct shape shape, cudaDataType type)
{
	struct product p = { .shape = shape, .type = type, .element = type == CUDA_R_32F ? 4 : 2 };
	const size_t x_bytes = ROWS * shape.k * p.element, n = (size_t)shape.outputs * shape.k;
	mm_cleanup(mm_free_ptr) unsigned char *w = malloc(n * p.element);

	p.host_x = malloc(x_bytes);
	p.host_y = calloc((size_t)ROWS * shape.outputs, 4);
	check(w && p.host_x && p.host_y);
	ok(gpu->cuMemAlloc(&p.x, x_bytes));
	ok(gpu->cuMemAlloc(&p.w, n * p.element));
	ok(gpu->cuMemAlloc(&p.y, (size_t)ROWS * shape.outputs * 4));
	fill_weights(w, n, &p);
	ok(gpu->cuMemcpyHtoD(p.w, w, n * p.element));
	ok(gpu->cuCtxSynchronize());
	return p;
}

static void free_product(struct product *p)
{
	ok(gpu->cuMemFree(p->x));
	ok(gpu->cuMemFree(p->w));
	ok(gpu->cuMemFree(p->y));
	free(p->host_x);
	free(p->host_y);
}

static unsigned char *row_of(const struct product *p, uint32_t row)
{
	return p->host_x + (size_t)row * p->shape.k * p->element;
}

/* y of the first @rows rows, in host_y. The calls are the backend's. */
static void product_multiply(const struct product *p, uint32_t rows)
{
	const cublasComputeType_t compute =
		p->type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
	const int outputs = (int)p->shape.outputs, k = (int)p->shape.k;
	const float one = 1, zero = 0;

	ok(gpu->cuMemcpyHtoD(p->x, p->host_x, rows * (size_t)p->shape.k * p->element));
	product_need(lib.cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, outputs, (int)rows, k, &one,
				      (const void *)(uintptr_t)p->w, p->type, k,
				      (const void *)(uintptr_t)p->x, p->type, k, &zero,
				      (void *)(uintptr_t)p->y, CUDA_R_32F, outputs, compute,
				      CUBLAS_GEMM_DEFAULT),
		     "cublasGemmEx");
	ok(gpu->cuCtxSynchronize());
	ok(gpu->cuMemcpyDtoH(p->host_y, p->y, (size_t)rows * p->shape.outputs * 4));
}

static bool is_row(const struct product *p, uint32_t row, const uint32_t *want)
{
	return memcmp(p->host_y + (size_t)row * p->shape.outputs, want,
		      (size_t)p->shape.outputs * 4) == 0;
}

/* How many of the places in a product gave the row other bits than the first did. */
static unsigned int count_moved(const struct product *p, const uint32_t *want, uint32_t step,
				unsigned int *seed)
{
	mm_cleanup(mm_free_ptr) unsigned char *row = malloc(p->shape.k * p->element);
	unsigned int moved = 0;

	check(row);
	memcpy(row, row_of(p, 0), p->shape.k * p->element);
	for (uint32_t place = 0; place < ROWS; place += step) {
		fill_random(p->host_x, (size_t)ROWS * p->shape.k, p, seed);
		memcpy(row_of(p, place), row, p->shape.k * p->element);
		product_multiply(p, ROWS);
		moved += !is_row(p, place, want);
	}
	return moved;
}

static void check_shape(const struct shape shape, cudaDataType type, const char *type_name)
{
	struct product p = product_make(shape, type);
	mm_cleanup(mm_free_ptr) uint32_t *want = malloc((size_t)shape.outputs * 4);
	unsigned int seed = 7, alike = 0, moved = 0;
	char name[96];

	check(want);
	fill_random(p.host_x, shape.k, &p, &seed);
	for (uint32_t row = 1; row < ROWS; row++)
		memcpy(row_of(&p, row), row_of(&p, 0), shape.k * p.element);
	product_multiply(&p, ROWS);
	memcpy(want, p.host_y, (size_t)shape.outputs * 4);
	for (uint32_t row = 1; row < ROWS; row++)
		moved += !is_row(&p, row, want);
	/* Products of other sizes may differ, and most do: that is why there is one size. */
	for (uint32_t rows = 1; rows < ROWS; rows *= 2) {
		product_multiply(&p, rows);
		alike += is_row(&p, 0, want);
	}
	moved += count_moved(&p, want, conf.software ? 1 : 7, &seed);
	snprintf(name, sizeof(name), "cublas.%s.%ux%u.moved", type_name, shape.outputs, shape.k);
	conf_fact(name, "places with other bits", moved);
	snprintf(name, sizeof(name), "cublas.%s.%ux%u.sizes_alike", type_name, shape.outputs,
		 shape.k);
	conf_fact(name, "of 6", alike);
	free_product(&p);
	if (moved)
		fail_msg("%s %u x %u: %u places gave other bits", type_name, shape.outputs, shape.k,
			 moved);
}

static void check_shapes(cudaDataType type, const char *name)
{
	static const struct shape small[] = { { 48, 64 }, { 100, 136 }, { 8, 256 } };
	static const struct shape real[] = { { 4096, 4096 },  { 1024, 4096 },  { 14336, 4096 },
					     { 4096, 14336 }, { 5120, 5120 },  { 20480, 5120 },
					     { 5120, 20480 }, { 50272, 5120 }, { 7168, 7168 },
					     { 64, 64 },      { 768, 768 },    { 6144, 4096 } };
	const struct shape *shapes = conf.software ? small : real;
	const size_t n = conf.software ? MM_ARRAY_SIZE(small) : MM_ARRAY_SIZE(real);

	for (size_t i = 0; i < n; i++)
		check_shape(shapes[i], type, name);
}

static int set_up(void **state)
{
	static const int mode =
		(int)CUBLAS_DEFAULT_MATH | (int)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
	CUdeviceptr workspace;
	char err[256];

	(void)state;
	/* Loading all kernels of cuBLAS at once would take long. */
	setenv("CUDA_MODULE_LOADING", "LAZY", 0);
	conf_context();
	if (conf.software)
		setenv("MM_CUBLAS_LIB", CONF_SOFTBLAS, 1);
	if (mm_cublas_load(&lib, err, sizeof(err)) < 0)
		return 0; /* the test says so */
	product_need(lib.cublasCreate_v2(&handle), "cublasCreate");
	product_need(lib.cublasSetMathMode(handle, (cublasMath_t)mode), "cublasSetMathMode");
	ok(gpu->cuMemAlloc(&workspace, WORKSPACE));
	product_need(lib.cublasSetWorkspace_v2(handle, (void *)(uintptr_t)workspace, WORKSPACE),
		     "cublasSetWorkspace");
	return 0;
}

static void test_library(void **state)
{
	int version = 0;

	(void)state;
	if (!handle)
		conf_skip("no cuBLAS here");
	product_need(lib.cublasGetVersion_v2(handle, &version), "cublasGetVersion");
	conf_fact("cublas.version", "", version);
}

static void test_f16(void **state)
{
	(void)state;
	if (!handle)
		conf_skip("no cuBLAS here");
	check_shapes(CUDA_R_16F, "f16");
}

static void test_bf16(void **state)
{
	(void)state;
	if (!handle)
		conf_skip("no cuBLAS here");
	check_shapes(CUDA_R_16BF, "bf16");
}

static void test_f32(void **state)
{
	(void)state;
	if (!handle)
		conf_skip("no cuBLAS here");
	check_shapes(CUDA_R_32F, "f32");
}

#define T(name) cmocka_unit_test_setup(name, set_up)
static const struct CMUnitTest tests[] = { T(test_library), T(test_f16), T(test_bf16),
					   T(test_f32) };

CONF_MAIN("cublas", tests, NULL)
