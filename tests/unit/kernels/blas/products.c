/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by either backend: the right numbers, in the right places and nowhere else, and the same
 * bits for a row in whatever batch it comes. On the software GPU cuBLAS is libmm-softblas.so.
 */
#include "tests/unit/kernels/blas/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"

static const enum mm_dtype dtypes[] = { MM_DTYPE_F32, MM_DTYPE_F16, MM_DTYPE_BF16 };

/* Significant bits that narrowing leaves of x. */
static double epsilon_of(enum mm_gemm_kind kind, enum mm_dtype dtype)
{
	if (kind == MM_GEMM_KERNEL || dtype == MM_DTYPE_F32)
		return 1e-6;
	return dtype == MM_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

/* @tolerance: of the sum of the products' sizes */
static void check_values(const struct product *p, const uint32_t *y, double tolerance)
{
	for (uint32_t t = 0; t < p->tokens; t++) {
		for (uint32_t o = 0; o < p->outputs; o++) {
			double sum = 0, size = 0;

			for (uint32_t i = 0; i < p->k; i++) {
				const double part =
					(double)p->x[(size_t)t * p->k + i] *
					rig_weight(p->w, (size_t)o * p->k + i, p->dtype);

				sum += part;
				size += fabs(part);
			}
			assert_true(fabs(sum - (double)rig_row(p, y, t)[o]) <= tolerance * size);
		}
	}
}

/* Beside the columns of the product nothing is written, nor behind the rows that it may have. */
static void check_guards(const struct product *p, const uint32_t *y)
{
	const uint32_t rows = MM_MAX(p->tokens, p->y_rows);

	for (uint32_t t = 0; t <= rows; t++) {
		for (uint32_t c = 0; c < p->y_stride; c++) {
			if (t < rows && c >= p->column && c < p->column + p->outputs)
				continue;
			assert_int_equal(y[(size_t)t * p->y_stride + c], RIG_GUARD);
		}
	}
}

static void check_product(struct mm_gemm *gemm, enum mm_gemm_kind kind, struct product p,
			  bool whole)
{
	float *x = rig_floats((size_t)p.tokens * p.k, whole);
	void *w = rig_weights((size_t)p.outputs * p.k, p.dtype, whole);
	uint32_t *y;

	p.x = x;
	p.w = w;
	for (int with_room = 0; with_room < 2; with_room++) {
		p.y_rows = with_room ? mm_gemm_room(gemm, p.tokens) : 0;
		y = rig_multiply(gemm, &p);
		check_values(&p, y, whole ? 0 : epsilon_of(kind, p.dtype));
		check_guards(&p, y);
		free(y);
	}
	free(x);
	free(w);
}

static void check_backend(enum mm_gemm_kind kind, bool fast)
{
	static const struct product shapes[] = {
		{ .tokens = 1, .outputs = 1, .k = 1, .y_stride = 1 },
		{ .tokens = 1, .outputs = 24, .k = 64, .y_stride = 24 },
		{ .tokens = 3, .outputs = 7, .k = 50, .y_stride = 19, .column = 5 },
		{ .tokens = 64, .outputs = 8, .k = 32, .y_stride = 8 },
		{ .tokens = 65, .outputs = 5, .k = 33, .y_stride = 12, .column = 7 },
		{ .tokens = 130, .outputs = 16, .k = 100, .y_stride = 40, .column = 8 },
	};
	struct mm_gemm *gemm = rig_open(kind, fast, 40);

	for (size_t d = 0; d < MM_ARRAY_SIZE(dtypes); d++) {
		for (size_t i = 0; i < MM_ARRAY_SIZE(shapes); i++) {
			struct product p = shapes[i];

			p.dtype = dtypes[d];
			check_product(gemm, kind, p, true);
			check_product(gemm, kind, p, false);
		}
	}
	mm_gemm_close(gemm);
}

static void test_kernel(void **unused)
{
	(void)unused;
	check_backend(MM_GEMM_KERNEL, false);
}

static void test_cublas(void **unused)
{
	(void)unused;
	check_backend(MM_GEMM_CUBLAS, false);
}

static void test_cublas_fast(void **unused)
{
	(void)unused;
	check_backend(MM_GEMM_CUBLAS, true);
}

/* ---- batches ---- */

#define TOKENS 150u

/* Rows whose bits differ from those of @whole when the batch is cut before row @cut. */
static uint32_t count_differing(struct mm_gemm *gemm, const struct product *whole,
				const uint32_t *y, uint32_t cut)
{
	uint32_t differing = 0;

	for (int half = 0; half < 2; half++) {
		const uint32_t first = half ? cut : 0;
		struct product p = *whole;
		uint32_t *part;

		p.tokens = half ? whole->tokens - cut : cut;
		p.x = whole->x + (size_t)first * p.k;
		part = rig_multiply(gemm, &p);
		for (uint32_t t = 0; t < p.tokens; t++)
			differing += memcmp(rig_row(&p, part, t), rig_row(whole, y, first + t),
					    p.outputs * sizeof(float)) != 0;
		free(part);
	}
	return differing;
}

/* The rows in reverse, so that each stands elsewhere and among others. */
static uint32_t count_moved(struct mm_gemm *gemm, const struct product *whole, const uint32_t *y)
{
	const size_t row = whole->k * sizeof(float);
	float *x = malloc(whole->tokens * row);
	struct product p = *whole;
	uint32_t differing = 0, *moved;

	assert_non_null(x);
	for (uint32_t t = 0; t < p.tokens; t++)
		memcpy(x + (size_t)t * p.k, whole->x + (size_t)(p.tokens - 1 - t) * p.k, row);
	p.x = x;
	moved = rig_multiply(gemm, &p);
	for (uint32_t t = 0; t < p.tokens; t++)
		differing += memcmp(rig_row(&p, moved, t), rig_row(whole, y, p.tokens - 1 - t),
				    p.outputs * sizeof(float)) != 0;
	free(moved);
	free(x);
	return differing;
}

static uint32_t count_batches(enum mm_gemm_kind kind, bool fast, enum mm_dtype dtype)
{
	static const uint32_t cuts[] = { 1, 7, 63, 64, 65, 128, 149 };
	struct mm_gemm *gemm = rig_open(kind, fast, 40);
	float *x = rig_floats((size_t)TOKENS * 600, false);
	void *w = rig_weights((size_t)40 * 600, dtype, false);
	const struct product whole = { .tokens = TOKENS,
				       .outputs = 40,
				       .k = 600,
				       .dtype = dtype,
				       .y_stride = 40,
				       .x = x,
				       .w = w };
	uint32_t *y = rig_multiply(gemm, &whole), differing = count_moved(gemm, &whole, y);

	for (size_t i = 0; i < MM_ARRAY_SIZE(cuts); i++)
		differing += count_differing(gemm, &whole, y, cuts[i]);
	mm_gemm_close(gemm);
	free(y);
	free(x);
	free(w);
	return differing;
}

static void test_same_bits_in_every_batch(void **unused)
{
	(void)unused;
	for (size_t d = 0; d < MM_ARRAY_SIZE(dtypes); d++) {
		assert_int_equal(count_batches(MM_GEMM_KERNEL, false, dtypes[d]), 0);
		assert_int_equal(count_batches(MM_GEMM_CUBLAS, false, dtypes[d]), 0);
	}
}

/* That the test before means something; a device may choose one algorithm for all that it asks. */
static void test_fast_bits_depend_on_the_batch(void **unused)
{
	uint32_t differing = 0;

	(void)unused;
	for (size_t d = 0; d < MM_ARRAY_SIZE(dtypes); d++)
		differing += count_batches(MM_GEMM_CUBLAS, true, dtypes[d]);
	if (rig.software)
		assert_true(differing > 0);
	print_message("fast: %u rows differ between batches\n", differing);
}

/* With room behind y, the last product is written in place: the same bits as through scratch. */
static void test_same_bits_with_room(void **unused)
{
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, 48);
	float *x = rig_floats((size_t)70 * 600, false);
	void *w = rig_weights((size_t)40 * 600, MM_DTYPE_F16, false);
	struct product p = { .tokens = 70,
			     .outputs = 40,
			     .k = 600,
			     .dtype = MM_DTYPE_F16,
			     .column = 3,
			     .y_stride = 48,
			     .x = x,
			     .w = w };
	uint32_t *without = rig_multiply(gemm, &p), *with;

	(void)unused;
	p.y_rows = mm_gemm_room(gemm, p.tokens);
	assert_int_equal(p.y_rows, 2 * MM_GEMM_ROWS);
	with = rig_multiply(gemm, &p);
	assert_memory_equal(with, without, (size_t)70 * 48 * 4);
	mm_gemm_close(gemm);
	free(with);
	free(without);
	free(x);
	free(w);
}

/* ---- what x holds ---- */

/* Rows that were padded: products of zeros, whatever was in scratch before. */
static void check_padding(const struct product *p, const uint32_t *y)
{
	for (uint32_t t = p->tokens; t < p->y_rows; t++)
		for (uint32_t o = 0; o < p->outputs; o++)
			assert_true(rig_row(p, y, t)[o] == 0.0f);
}

/* A row that is lost loses no other one, neither of its batch nor of a later one in its place. */
static void test_a_lost_row_is_lost_alone(void **unused)
{
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, 40);

	(void)unused;
	for (size_t d = 0; d < MM_ARRAY_SIZE(dtypes); d++) {
		float *x = rig_floats((size_t)70 * 64, true);
		void *w = rig_weights((size_t)8 * 64, dtypes[d], true);
		struct product p = { .tokens = 70,
				     .outputs = 8,
				     .k = 64,
				     .dtype = dtypes[d],
				     .y_stride = 8,
				     .x = x,
				     .w = w };
		uint32_t *good = rig_multiply(gemm, &p), *bad, *after;

		x[66 * 64 + 5] = NAN;
		bad = rig_multiply(gemm, &p);
		for (uint32_t t = 0; t < 70; t++)
			if (t != 66)
				assert_memory_equal(rig_row(&p, bad, t), rig_row(&p, good, t), 32);
		assert_true(isnan(rig_row(&p, bad, 66)[0]));
		p.tokens = 2;
		p.y_rows = mm_gemm_room(gemm, p.tokens);
		after = rig_multiply(gemm, &p);
		check_padding(&p, after);
		assert_memory_equal(rig_row(&p, after, 0), rig_row(&p, good, 0), 64);
		free(good);
		free(bad);
		free(after);
		free(x);
		free(w);
	}
	mm_gemm_close(gemm);
}

/*
 * Above F16's largest number x is infinite there, and what it is part of with it; BF16 reaches it.
 */
static void test_overflow_is_seen(void **unused)
{
	const float x[] = { 70000, 1, 60000, 1 };
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, 40);
	uint16_t f16[] = { 0x3c00, 0x3c00 }, bf16[] = { 0x3f80, 0x3f80 }; /* 1, 1 */
	struct product p = { .tokens = 2,
			     .outputs = 1,
			     .k = 2,
			     .dtype = MM_DTYPE_F16,
			     .y_stride = 1,
			     .x = x,
			     .w = f16 };
	uint32_t *y = rig_multiply(gemm, &p);

	(void)unused;
	assert_true(isinf(rig_row(&p, y, 0)[0]));
	assert_true(rig_row(&p, y, 1)[0] == 60001.0f);
	free(y);
	p.dtype = MM_DTYPE_BF16;
	p.w = bf16;
	y = rig_multiply(gemm, &p);
	assert_true(fabsf(rig_row(&p, y, 0)[0] - 70000) <= 70000 * 0x1p-8f);
	free(y);
	mm_gemm_close(gemm);
}

/* ---- streams and limits ---- */

/* Work on another stream does not wait for the one before. Nothing is freed while one waits. */
static void test_another_stream(void **unused)
{
	const uint32_t words[2] = { 0, RIG_GUARD };
	const float x = 3, w = 2;
	const CUdeviceptr flag = rig_upload(words, sizeof(words)), y_va = flag + 4;
	const struct mm_gemm_args a = { .x_va = rig_upload(&x, sizeof(x)),
					.w_va = rig_upload(&w, sizeof(w)),
					.y_va = y_va,
					.tokens = 1,
					.outputs = 1,
					.k = 1,
					.dtype = MM_DTYPE_F32,
					.y_stride = 1 };
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, 40);
	CUstream other;
	float y;

	(void)unused;
	assert_int_equal(rig.gpu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), 0);
	assert_int_equal(rig.gpu.cuStreamSynchronize(rig.stream), 0);
	rig_write(flag, words, sizeof(words));
	rig.gpu.cuStreamWaitValue32(rig.stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ);
	mm_gemm_multiply(gemm, &a, other);
	rig.gpu.cuStreamSynchronize(other);
	rig.gpu.cuMemcpyDtoHAsync(&y, y_va, sizeof(y), other);
	rig.gpu.cuStreamWriteValue32(other, flag, 1, 0);
	assert_int_equal(rig.gpu.cuStreamSynchronize(other), 0);
	assert_int_equal(rig.gpu.cuStreamSynchronize(rig.stream), 0);
	assert_true(y == 6.0f);
	mm_gemm_close(gemm);
	rig.gpu.cuStreamDestroy(other);
	rig.gpu.cuMemFree(flag);
	rig.gpu.cuMemFree(a.x_va);
	rig.gpu.cuMemFree(a.w_va);
}

/* ---- graphs ---- */

/* Captures a multiplication into a graph. */
static CUgraphExec multiply_capture(struct mm_gemm *gemm, const struct mm_gemm_args *a)
{
	const struct mm_gpu_api *gpu = &rig.gpu;
	CUgraphExec exec;
	CUgraph graph;

	assert_int_equal(gpu->cuStreamBeginCapture(rig.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
			 0);
	assert_int_equal(mm_gemm_multiply(gemm, a, rig.stream), 0);
	assert_int_equal(gpu->cuStreamEndCapture(rig.stream, &graph), 0);
	assert_int_equal(gpu->cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
	gpu->cuGraphDestroy(graph);
	return exec;
}

/* Captured once, replayed with another x each time: the bits that enqueuing gives. */
static void check_captured(enum mm_dtype dtype, bool with_room)
{
	enum { ROUNDS = 3, ROWS = 70, K = 600, OUTPUTS = 40 };
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, OUTPUTS);
	void *w = rig_weights((size_t)OUTPUTS * K, dtype, false);
	struct product p = { .tokens = ROWS,
			     .outputs = OUTPUTS,
			     .k = K,
			     .dtype = dtype,
			     .y_stride = OUTPUTS,
			     .w = w };
	const size_t x_bytes = (size_t)ROWS * K * 4, y_bytes = (size_t)ROWS * OUTPUTS * 4;
	const size_t y_room = (size_t)2 * MM_GEMM_ROWS * OUTPUTS * 4;
	float *x = rig_floats((size_t)ROWS * K, false), *y = malloc(y_room);
	struct mm_gemm_args a = { .tokens = ROWS,
				  .outputs = OUTPUTS,
				  .k = K,
				  .dtype = dtype,
				  .y_stride = OUTPUTS,
				  .y_rows = with_room ? 2 * MM_GEMM_ROWS : 0 };
	CUgraphExec exec;

	assert_non_null(y);
	p.x = x;
	free(rig_multiply(gemm, &p)); /* the library's code is loaded */
	memset(y, 0, y_room);
	a.x_va = rig_upload(x, x_bytes);
	a.w_va = rig_upload(w, (size_t)OUTPUTS * K * mm_dtype_bytes(dtype));
	a.y_va = rig_upload(y, y_room);
	exec = multiply_capture(gemm, &a);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t *want;

		free(x);
		p.x = x = rig_floats((size_t)ROWS * K, false);
		want = rig_multiply(gemm, &p);
		rig_write(a.x_va, x, x_bytes);
		assert_int_equal(rig.gpu.cuGraphLaunch(exec, rig.stream), 0);
		assert_int_equal(rig.gpu.cuStreamSynchronize(rig.stream), 0);
		assert_int_equal(rig.gpu.cuMemcpyDtoH(y, a.y_va, y_bytes), 0);
		assert_memory_equal(y, want, y_bytes);
		free(want);
	}
	rig.gpu.cuGraphExecDestroy(exec);
	mm_gemm_close(gemm);
	rig.gpu.cuMemFree(a.x_va);
	rig.gpu.cuMemFree(a.w_va);
	rig.gpu.cuMemFree(a.y_va);
	free(x);
	free(y);
	free(w);
}

static void test_captured(void **unused)
{
	(void)unused;
	if (!rig.gpu.cuStreamBeginCapture || !rig.gpu.cuGraphInstantiateWithFlags)
		skip();
	for (size_t d = 0; d < MM_ARRAY_SIZE(dtypes); d++)
		for (int with_room = 0; with_room < 2; with_room++)
			check_captured(dtypes[d], with_room);
}

static void test_limits(void **unused)
{
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, 40);
	const struct mm_gemm_args good = { .x_va = 4096,
					   .w_va = 4096,
					   .y_va = 4096,
					   .tokens = 2,
					   .outputs = 8,
					   .k = 8,
					   .dtype = MM_DTYPE_F16,
					   .y_stride = 8 };
	struct mm_gemm_args a = good;

	(void)unused;
	a.tokens = 201;
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), CUDA_ERROR_INVALID_VALUE);
	a = good;
	a.k = 601;
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), CUDA_ERROR_INVALID_VALUE);
	a = good;
	a.dtype = 77;
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), CUDA_ERROR_INVALID_VALUE);
	a = good;
	a.y_stride = 7;
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), CUDA_ERROR_INVALID_VALUE);
	a = good;
	a.y_rows = 1;
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), CUDA_ERROR_INVALID_VALUE);
	a = good;
	a.tokens = 0;
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), 0);
	assert_int_equal(rig.gpu.cuStreamSynchronize(rig.stream), 0);
	a = good;
	a.dtype = MM_DTYPE_F32;
	a.y_stride = 41; /* and no room in y for a whole product */
	assert_int_equal(mm_gemm_multiply(gemm, &a, rig.stream), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(rig.gpu.cuStreamSynchronize(rig.stream), 0);
	mm_gemm_close(gemm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_cublas),
		cmocka_unit_test(test_cublas_fast),
		cmocka_unit_test(test_same_bits_in_every_batch),
		cmocka_unit_test(test_fast_bits_depend_on_the_batch),
		cmocka_unit_test(test_same_bits_with_room),
		cmocka_unit_test(test_a_lost_row_is_lost_alone),
		cmocka_unit_test(test_overflow_is_seen),
		cmocka_unit_test(test_another_stream),
		cmocka_unit_test(test_captured),
		cmocka_unit_test(test_limits),
	};
	const int r = rig_start();

	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
