/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors for a cuBLAS that is missing or does not fit; and the arguments that libmm-softblas.so
 * refuses.
 */
#include "tests/unit/kernels/blas/rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/blas/cublas.h"
#include "libclient/base/base.h"

/* Opens with another library, or other options, and expects a refusal that says @what. */
static void open_refused(const char *library, const struct mm_gemm_opts *opts, int want,
			 const char *what)
{
	char *named = strdup(getenv("MM_CUBLAS_LIB"));
	struct mm_gemm *gemm = NULL;
	char err[300] = "";

	assert_non_null(named);
	if (library)
		setenv("MM_CUBLAS_LIB", library, 1);
	assert_int_equal(mm_gemm_open(&rig.gpu, opts, &gemm, err, sizeof(err)), want);
	setenv("MM_CUBLAS_LIB", named, 1);
	free(named);
	assert_null(gemm);
	if (!strstr(err, what) || strchr(err, '\n'))
		fail_msg("'%s' does not say '%s' in one line", err, what);
}

static struct mm_gemm_opts gemm_options(void)
{
	return (struct mm_gemm_opts){ .kind = MM_GEMM_CUBLAS,
				      .module = rig.module,
				      .max_tokens = 10,
				      .max_k = 10,
				      .workspace_bytes = 4096 };
}

static void test_libraries_that_will_not_do(void **unused)
{
	const struct mm_gemm_opts good = gemm_options();

	(void)unused;
	open_refused("/nonexistent/libcublas.so", &good, -ENOENT, "MM_CUBLAS_LIB: ");
	open_refused(getenv("MM_SOFTGPU_LIB"), &good, -ENOSYS,
		     "cuBLAS: the library has no cublasCreate_v2; version 12 or later is needed");
	open_refused(getenv("MM_OLD_CUBLAS"), &good, -ENOSYS,
		     "cuBLAS: version 11.11 is too old; 12 or later is needed");
}

static void test_options_that_will_not_do(void **unused)
{
	struct mm_gemm_opts o = gemm_options();

	(void)unused;
	o.rows = 100;
	open_refused(NULL, &o, -EINVAL, "rows must be a multiple of 64");
	o = gemm_options();
	o.max_tokens = 0;
	open_refused(NULL, &o, -EINVAL, "sizes above 0");
	o = gemm_options();
	o.kind = 7;
	open_refused(NULL, &o, -EINVAL, "no such backend");
	o = gemm_options();
	o.workspace_bytes = (size_t)1 << 50;
	open_refused(NULL, &o, -ENOMEM,
		     "device memory for matrix products: CUDA_ERROR_OUT_OF_MEMORY");
	o = gemm_options();
	assert_int_equal(rig.gpu.cuModuleLoad(&o.module, getenv("MM_CUBLAS_LIB")), 0);
	open_refused(NULL, &o, -ENOENT, "mm_narrow: CUDA_ERROR_NOT_FOUND");
	o.kind = MM_GEMM_KERNEL;
	open_refused(NULL, &o, -ENOENT, "mm_gemm: CUDA_ERROR_NOT_FOUND");
	rig.gpu.cuModuleUnload(o.module);
}

static void test_description(void **unused)
{
	struct mm_gemm *gemm = rig_open(MM_GEMM_CUBLAS, false, 0);

	(void)unused;
	assert_string_equal(mm_gemm_describe(gemm), "cublas 13.0.0, deterministic");
	mm_gemm_close(gemm);
	gemm = rig_open(MM_GEMM_KERNEL, false, 0);
	assert_string_equal(mm_gemm_describe(gemm), "kernel");
	assert_int_equal(mm_gemm_room(gemm, 3), 3);
	mm_gemm_close(gemm);
	mm_gemm_close(NULL);
}

/* ---- libmm-softblas.so ---- */

struct call { /* of cublasGemmEx: a good one, to be spoilt */
	cublasHandle_t handle;
	cublasOperation_t op_a, op_b;
	int m, n, k, lda, ldb, ldc;
	const float *alpha, *beta;
	CUdeviceptr a, b, c;
	cudaDataType a_type, b_type, c_type;
	cublasComputeType_t compute;
};

static cublasStatus_t call(const struct mm_cublas *lib, const struct call *c)
{
	return lib->cublasGemmEx(c->handle, c->op_a, c->op_b, c->m, c->n, c->k, c->alpha,
				 (const void *)(uintptr_t)c->a, c->a_type, c->lda,
				 (const void *)(uintptr_t)c->b, c->b_type, c->ldb, c->beta,
				 (void *)(uintptr_t)c->c, c->c_type, c->ldc, c->compute,
				 CUBLAS_GEMM_DEFAULT);
}

#define SPOILT(status, field, value)                          \
	do {                                                  \
		struct call bad = good;                       \
                                                              \
		bad.field = (value);                          \
		assert_int_equal(call(&lib, &bad), (status)); \
	} while (0)

/* A is 3 by 4, B 4 by 2, each stored with more rows than it needs. */
static void test_arguments(void **unused)
{
	const float one = 1, zero = 0, room[64] = { 0 };
	struct mm_cublas lib;
	char err[300] = "";
	struct call good = { .op_a = CUBLAS_OP_N,
			     .op_b = CUBLAS_OP_N,
			     .m = 3,
			     .n = 2,
			     .k = 4,
			     .lda = 3,
			     .ldb = 4,
			     .ldc = 3,
			     .alpha = &one,
			     .beta = &zero,
			     .a = rig_upload(room, sizeof(room)),
			     .b = rig_upload(room, sizeof(room)),
			     .c = rig_upload(room, sizeof(room)),
			     .compute = CUBLAS_COMPUTE_32F };

	(void)unused;
	if (mm_cublas_load(&lib, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(lib.cublasCreate_v2(&good.handle), 0);
	assert_int_equal(call(&lib, &good), CUBLAS_STATUS_SUCCESS);
	SPOILT(CUBLAS_STATUS_NOT_INITIALIZED, handle, NULL);
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, op_a, (cublasOperation_t)9);
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, m, -1);
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, lda, 2);
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, op_a, CUBLAS_OP_T); /* lda must be 4 then */
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, ldb, 3);
	SPOILT(CUBLAS_STATUS_SUCCESS, op_b, CUBLAS_OP_T); /* 2 by 4, stored with 4 rows */
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, ldc, 2);
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, alpha, NULL);
	SPOILT(CUBLAS_STATUS_INVALID_VALUE, a, good.a + 2);
	SPOILT(CUBLAS_STATUS_NOT_SUPPORTED, a_type, CUDA_R_16F);
	SPOILT(CUBLAS_STATUS_NOT_SUPPORTED, c_type, CUDA_R_16F);
	SPOILT(CUBLAS_STATUS_NOT_SUPPORTED, compute, (cublasComputeType_t)64);
	SPOILT(CUBLAS_STATUS_SUCCESS, m, 0);
	assert_int_equal(lib.cublasSetWorkspace_v2(good.handle, (void *)(uintptr_t)(good.a + 8), 8),
			 CUBLAS_STATUS_INVALID_VALUE);
	assert_int_equal(lib.cublasSetMathMode(good.handle, (cublasMath_t)3),
			 CUBLAS_STATUS_INVALID_VALUE);
	assert_int_equal(rig.gpu.cuCtxSynchronize(), 0);
	assert_int_equal(lib.cublasDestroy_v2(good.handle), 0);
	assert_string_equal(lib.cublasGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED),
			    "CUBLAS_STATUS_NOT_SUPPORTED");
	rig.gpu.cuMemFree(good.a);
	rig.gpu.cuMemFree(good.b);
	rig.gpu.cuMemFree(good.c);
}

/* Element (i, j) of a column-major matrix that may be stored transposed. */
static float matrix_element(const float *at, int ld, cublasOperation_t op, int i, int j)
{
	return op == CUBLAS_OP_N ? at[j * ld + i] : at[i * ld + j];
}

/* All four ways to store A and B, and a C that is added to. */
static void test_operations(void **unused)
{
	enum { M = 5, N = 3, K = 21, LD = 23 };
	const float two = 2, three = 3;
	float *a = rig_floats(LD * LD, true), *b = rig_floats(LD * LD, true);
	float *c = rig_floats(LD * N, true), *result = rig_floats(LD * N, true);
	struct mm_cublas lib;
	struct call g = { .m = M,
			  .n = N,
			  .k = K,
			  .lda = LD,
			  .ldb = LD,
			  .ldc = LD,
			  .alpha = &two,
			  .beta = &three,
			  .a = rig_upload(a, LD * LD * 4),
			  .b = rig_upload(b, LD * LD * 4),
			  .c = rig_upload(c, LD * N * 4),
			  .compute = CUBLAS_COMPUTE_32F_PEDANTIC };

	(void)unused;
	assert_int_equal(mm_cublas_load(&lib, NULL, 0), 0);
	assert_int_equal(lib.cublasCreate_v2(&g.handle), 0);
	for (int ops = 0; ops < 4; ops++) {
		g.op_a = ops & 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
		g.op_b = ops & 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
		rig_write(g.c, c, LD * N * 4);
		assert_int_equal(call(&lib, &g), 0);
		assert_int_equal(rig.gpu.cuCtxSynchronize(), 0);
		rig.gpu.cuMemcpyDtoH(result, g.c, LD * N * 4);
		for (int j = 0; j < N; j++) {
			for (int i = 0; i < LD; i++) {
				float want = c[j * LD + i] * (i < M ? three : 1);

				for (int k = 0; i < M && k < K; k++)
					want += two * matrix_element(a, LD, g.op_a, i, k) *
						matrix_element(b, LD, g.op_b, k, j);
				assert_true(result[j * LD + i] == want);
			}
		}
	}
	lib.cublasDestroy_v2(g.handle);
	rig.gpu.cuMemFree(g.a);
	rig.gpu.cuMemFree(g.b);
	rig.gpu.cuMemFree(g.c);
	free(a);
	free(b);
	free(c);
	free(result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libraries_that_will_not_do),
		cmocka_unit_test(test_options_that_will_not_do),
		cmocka_unit_test(test_description),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_operations),
	};
	int r;

	unsetenv("MM_DRIVER"); /* of the software GPU's library */
	r = rig_start();
	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
