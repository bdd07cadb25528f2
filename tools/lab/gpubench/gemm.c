/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm - matrix products of published models against what memory and arithmetic allow
 *
 * Concept:   The ceilings are measured alternately with each figure: bandwidth by a copy within the
 *            device, arithmetic by a large square product. A product takes at least the longer of
 *            two times: the bytes of weights, x and y by the bandwidth, and its operations by the
 *            rate of arithmetic. Launches cycle through several copies of the weights, which
 *            together exceed the device's caches. `fixed` is the cost of equal bits in every batch:
 *            products of a constant number of rows, against one product of the batch's size;
 *            `fixed_wide` has twice as many rows.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/groups.h"

#define PRODUCTS_MIN 4u
#define COPIES_MAX   32u
#define SQUARE       8192u
#define RESULTS_MAX  65536u /* numbers that are compared */
#define TOLERANCE    0.02
#define REHEARSED    128u /* size of the square product in a rehearsal */

struct gemm_matrix {
	const char *model, *name;
	uint32_t outputs, k;
};

static const struct gemm_matrix published[] = {
	{ "OPT-13B", "qkv", 15360, 5120 },        { "OPT-13B", "o", 5120, 5120 },
	{ "OPT-13B", "up", 20480, 5120 },         { "OPT-13B", "down", 5120, 20480 },
	{ "OPT-30B", "qkv", 21504, 7168 },        { "OPT-30B", "o", 7168, 7168 },
	{ "OPT-30B", "up", 28672, 7168 },         { "OPT-30B", "down", 7168, 28672 },
	{ "Llama-3-8B", "qkv", 6144, 4096 },      { "Llama-3-8B", "o", 4096, 4096 },
	{ "Llama-3-8B", "gate_up", 28672, 4096 }, { "Llama-3-8B", "down", 4096, 14336 },
	{ "Llama-3-8B", "head", 128256, 4096 },
};
static const struct gemm_matrix rehearsed[] = {
	{ "rehearsal", "up", 200, 64 },
	{ "rehearsal", "down", 64, 200 },
};
static const uint32_t batches[] = { 1, 8, 16, 64, 128, 256, 2048 };
static const uint32_t few_batches[] = { 1, 64, 2048 };
static const uint32_t rehearsed_batches[] = { 1, 70 };

/* The first values of a case are by way. */
enum gemm_way { FAST, FIXED, WIDE, KERNEL, WAYS };

enum gemm_value { BOUND = WAYS };

static const uint32_t product_rows[WAYS] = { [FIXED] = MM_GEMM_ROWS, [WIDE] = 2 * MM_GEMM_ROWS };

struct gemm {
	struct mm_gpu_bed bed;
	struct mm_gemm *by[WAYS];
	struct mm_gpu_range x, w, y, copied;
	const struct gemm_matrix *matrices;
	const uint32_t *batch;
	uint32_t n_matrices, n_batches, square;
	double bandwidth, rate; /* the ceilings, as last measured */
	/* of a case */
	struct gemm_matrix matrix;
	uint32_t rows, copies;
	float *results; /* of the fast product; some of them */
	/* of a launch */
	enum gemm_way way;
	struct mm_gemm_args args;
};

static bool shapes_are_tiny(const struct gemm *g)
{
	return g->bed.dev.bench->rehearsal && !g->bed.dev.bench->timed;
}

/* ---- products ---- */

static struct mm_gemm_args args_of(const struct gemm *g, const struct gemm_matrix *m, uint32_t rows)
{
	return (struct mm_gemm_args){ .x_va = g->x.va,
				      .w_va = g->w.va,
				      .y_va = g->y.va,
				      .tokens = rows,
				      .outputs = m->outputs,
				      .k = m->k,
				      .dtype = MM_DTYPE_F16,
				      .y_stride = m->outputs,
				      .y_rows = mm_gemm_room(g->by[WIDE], rows) };
}

static int gemm_enqueue(void *state, uint32_t i)
{
	struct gemm *g = state;
	struct mm_gemm_args a = g->args;

	a.w_va += i % g->copies * ((uint64_t)a.outputs * a.k * 2);
	return mm_gpu_call(&g->bed.dev, mm_gemm_multiply(g->by[g->way], &a, g->bed.dev.stream),
			   "a matrix product");
}

/* Times products with @copies copies of the weights, one after the other. */
static int time_products(struct gemm *g, enum gemm_way way, const struct gemm_matrix *m,
			 uint32_t rows, uint32_t copies, double *ret_s)
{
	g->way = way;
	g->args = args_of(g, m, rows);
	g->copies = copies;
	return mm_gpu_time_calls(&g->bed.dev, gemm_enqueue, g, MM_MAX(copies, PRODUCTS_MIN), ret_s);
}

static double bytes_of(const struct gemm_matrix *m, uint32_t rows)
{
	return 2.0 * m->outputs * m->k + 4.0 * rows * m->k + 4.0 * rows * m->outputs;
}

static double operations_of(const struct gemm_matrix *m, uint32_t rows)
{
	return 2.0 * rows * m->outputs * m->k;
}

/* ---- the sides ---- */

static int ceilings_run(void *state, uint32_t which, double *value)
{
	struct gemm *g = state;
	const struct gemm_matrix square = { "", "", g->square, g->square };
	const uint64_t half = g->copied.bytes / 2;
	double took_s = 0;
	int r = mm_gpu_time_copy(&g->bed.dev, g->copied.va, half, &took_s);

	if (r)
		return r;
	g->bandwidth = 2 * (double)half / took_s;
	r = time_products(g, FAST, &square, g->square, 1, &took_s);
	g->rate = 2 * (double)g->square * g->square * g->square / took_s;
	value[which] = MM_MAX(bytes_of(&g->matrix, g->rows) / g->bandwidth,
			      operations_of(&g->matrix, g->rows) / g->rate);
	return r;
}

static int products_run(void *state, uint32_t which, double *value)
{
	struct gemm *g = state;
	const uint64_t bytes = (uint64_t)g->matrix.outputs * g->matrix.k * 2;
	const uint32_t copies = (uint32_t)MM_MIN(MM_MAX(g->w.bytes / bytes, 1u), COPIES_MAX);

	if (which == KERNEL && g->rows != 1)
		return MM_E_EMPTY;
	return time_products(g, which, &g->matrix, g->rows, copies, &value[which]);
}

static uint64_t results_checked(const struct gemm *g)
{
	return MM_MIN((uint64_t)g->rows * g->matrix.outputs, RESULTS_MAX);
}

/*
 * Multiplies once more with the first copy of the weights, and compares with the fast product. Sums
 * of other orders differ by less than @TOLERANCE; another product differs by about 1.4.
 */
static int products_check(void *state, uint32_t which)
{
	struct gemm *g = state;
	struct mm_gpu_dev *dev = &g->bed.dev;
	const uint64_t n = results_checked(g);
	mm_cleanup(mm_free_ptr) float *have = malloc(n * sizeof(*have));
	double off = 0, all = 0;
	int r = mm_gpu_poison(dev, g->y.va, n);

	if (!have)
		return mm_gpu_fail(dev->bench, -ENOMEM, "out of memory");
	if (!r)
		r = gemm_enqueue(g, 0);
	if (!r)
		r = mm_gpu_call(dev, dev->gpu.cuStreamSynchronize(dev->stream), "a product");
	if (!r)
		r = mm_gpu_check_numbers(dev, g->y.va, n);
	if (!r)
		r = MM_GPU_CALL(dev, cuMemcpyDtoH, which == FAST ? g->results : have, g->y.va,
				n * sizeof(*have));
	for (uint64_t i = 0; !r && which != FAST && i < n; i++) {
		const double want = (double)g->results[i];

		off += ((double)have[i] - want) * ((double)have[i] - want);
		all += want * want;
	}
	if (!r && sqrt(off) > TOLERANCE * sqrt(all))
		r = mm_gpu_fail(dev->bench, -EBADMSG, "a wrong result: it is off by %.3g of it",
				sqrt(off / all));
	return r;
}

/* ---- the statement ---- */

static const struct mm_gpu_param gemm_params[] = {
	MM_GPU_PARAM("model", struct gemm, matrix.model),
	MM_GPU_PARAM("matrix", struct gemm, matrix.name),
	MM_GPU_PARAM("rows", struct gemm, rows),
	{ 0 },
};

static json_t *gemm_more(const void *state, const struct mm_gpu_row *row,
			 const struct mm_summary *values)
{
	const struct gemm *g = state;
	const double median = values[row->figure].median;

	return json_pack("{s:i,s:i,s:f,s:f,s:f,s:f}", "outputs", (int)g->matrix.outputs, "k",
			 (int)g->matrix.k, "bytes_per_s", bytes_of(&g->matrix, g->rows) / median,
			 "flops", operations_of(&g->matrix, g->rows) / median, "copy_bytes_per_s",
			 g->bandwidth, "square_flops", g->rate);
}

static const struct mm_gpu_side gemm_sides[] = {
	{ "the ceilings", BOUND, .run = ceilings_run },
	{ "cuBLAS", FAST, .run = products_run, .check = products_check },
	{ "cuBLAS of a constant size", FIXED, .run = products_run, .check = products_check },
	{ "cuBLAS of a larger constant size", WIDE, .run = products_run, .check = products_check },
	{ "the kernel", KERNEL, .run = products_run, .check = products_check },
};

static const struct mm_gpu_row gemm_rows[] = {
	{ "product", "a matrix product by cuBLAS at the batch's size", MM_GPU_SECONDS, FAST,
	  .reference = BOUND,
	  .reference_name =
		  "the longer of its bytes by a copy's rate, its operations by a square's",
	  .computed = gemm_more },
	{ "fixed", "the same by products of always 64 rows", MM_GPU_SECONDS, FIXED,
	  .reference = FAST, .reference_name = "one product of the batch's size",
	  .computed = gemm_more },
	{ "fixed_wide", "the same by products of always 128 rows", MM_GPU_SECONDS, WIDE,
	  .reference = FAST, .reference_name = "one product of the batch's size",
	  .computed = gemm_more },
	{ "kernel", "the same of one row by our own kernel", MM_GPU_SECONDS, KERNEL,
	  .reference = FAST, .reference_name = "the same by cuBLAS", .computed = gemm_more },
};

static void gemm_sweep(const void *state, uint32_t *ret_sizes)
{
	const struct gemm *g = state;

	ret_sizes[0] = g->n_matrices;
	ret_sizes[1] = g->n_batches;
}

static int gemm_prepare(void *state, const uint32_t *at)
{
	struct gemm *g = state;

	g->matrix = g->matrices[at[0]];
	g->rows = g->batch[at[1]];
	return 0;
}

static const struct mm_gpu_measurement gemm_products = {
	.name = "product",
	MM_GPU_STATEMENT(gemm_sides, gemm_rows),
	.warm_up = 1,
	.sweep = gemm_sweep,
	.prepare = gemm_prepare,
	.params = gemm_params,
};

/* ---- what is multiplied ---- */

static void shapes_choose(struct gemm *g)
{
	const bool quick = g->bed.dev.bench->opts.quick;

	g->square = shapes_are_tiny(g) ? REHEARSED : SQUARE;
	g->matrices = shapes_are_tiny(g) ? rehearsed : published;
	g->n_matrices = shapes_are_tiny(g) ? MM_ARRAY_SIZE(rehearsed) : MM_ARRAY_SIZE(published);
	g->batch = shapes_are_tiny(g) ? rehearsed_batches : quick ? few_batches : batches;
	g->n_batches = shapes_are_tiny(g) ? MM_ARRAY_SIZE(rehearsed_batches)
		       : quick            ? MM_ARRAY_SIZE(few_batches)
					  : MM_ARRAY_SIZE(batches);
}

struct extent { /* sizes that hold the largest product */
	uint64_t rows, k, x, y, w;
};

static void extent_grow(struct extent *e, uint64_t rows, uint64_t outputs, uint64_t k)
{
	e->rows = MM_MAX(e->rows, rows);
	e->k = MM_MAX(e->k, k);
	e->x = MM_MAX(e->x, rows * k);
	e->y = MM_MAX(e->y, mm_round_up(rows, product_rows[WIDE]) * outputs);
	e->w = MM_MAX(e->w, outputs * k);
}

static int open_backends(struct gemm *g, const struct extent *e)
{
	static const char *const names[] = { "cuBLAS", "cuBLAS", "cuBLAS", "kernel" };
	struct mm_gpu_bench *b = g->bed.dev.bench;
	char err[256] = "";
	int r = 0;

	for (enum gemm_way way = 0; !r && way < WAYS; way++) {
		const struct mm_gemm_opts opts = {
			.kind = way == KERNEL ? MM_GEMM_KERNEL : MM_GEMM_CUBLAS,
			.module = g->bed.module.module,
			.fast = way == FAST,
			.rows = product_rows[way],
			.max_tokens = (uint32_t)e->rows,
			.max_k = (uint32_t)e->k,
		};

		r = mm_gemm_open(&g->bed.dev.gpu, &opts, &g->by[way], err, sizeof(err));
		if (r)
			mm_gpu_fail(b, r, "%s: %s", names[way], err);
	}
	if (r == -ENOENT) /* the library is not installed */
		return -EOPNOTSUPP;
	if (!r)
		mm_gpu_progress(b, "%s", mm_gemm_describe(g->by[FAST]));
	return r;
}

static int open_matrices(struct gemm *g)
{
	const uint64_t least = g->bed.dev.bench->sizes.buffer_bytes;
	struct extent e = { 0 };
	int r;

	extent_grow(&e, g->square, g->square, g->square);
	for (uint32_t m = 0; m < g->n_matrices; m++)
		extent_grow(&e, g->batch[g->n_batches - 1], g->matrices[m].outputs,
			    g->matrices[m].k);
	r = open_backends(g, &e);
	if (!r)
		r = mm_gpu_range_open(&g->bed.dev, e.x * 4, 0, &g->x);
	if (!r)
		r = mm_gpu_range_open(&g->bed.dev, MM_MAX(e.w * 2, least), 0, &g->w);
	if (!r)
		r = mm_gpu_range_open(&g->bed.dev, e.y * 4, 0, &g->y);
	if (!r)
		r = mm_gpu_range_open(&g->bed.dev, 2 * least, 0, &g->copied);
	if (!r)
		r = mm_gpu_randomize(&g->bed.dev, g->x.va, g->x.bytes, true);
	if (!r)
		r = mm_gpu_randomize(&g->bed.dev, g->w.va, g->w.bytes, true);
	return r ? r : mm_gpu_randomize(&g->bed.dev, g->copied.va, g->copied.bytes, false);
}

/* Names the software GPU's cuBLAS, which is in the folder of the programs. */
static int name_library(const struct mm_gpu_bench *b)
{
	static const char *const places[] = { "../lib", MM_BIN_TO_LIB };
	char path[PATH_MAX + 64];

	if (!b->rehearsal)
		return 0;
	for (size_t i = 0; i < MM_ARRAY_SIZE(places); i++) {
		snprintf(path, sizeof(path), "%s/%s/libmm-softblas.so", b->bin_dir, places[i]);
		if (access(path, R_OK) == 0)
			return setenv("MM_CUBLAS_LIB", path, 0) ? -errno : 0;
	}
	return 0;
}

static int gemm_open(void *state, struct mm_gpu_bench *bench)
{
	struct gemm *g = state;
	int r = name_library(bench);

	if (!r)
		r = mm_gpu_bed_open(&g->bed, bench);
	if (r)
		return r;
	g->results = malloc(RESULTS_MAX * sizeof(*g->results));
	if (!g->results)
		return mm_gpu_fail(bench, -ENOMEM, "out of memory");
	shapes_choose(g);
	return open_matrices(g);
}

static void gemm_close(void *state)
{
	struct gemm *g = state;

	for (enum gemm_way way = 0; way < WAYS; way++)
		mm_gemm_close(g->by[way]);
	mm_gpu_range_close(&g->bed.dev, &g->x);
	mm_gpu_range_close(&g->bed.dev, &g->w);
	mm_gpu_range_close(&g->bed.dev, &g->y);
	mm_gpu_range_close(&g->bed.dev, &g->copied);
	mm_gpu_bed_close(&g->bed);
	free(g->results);
}

const struct mm_gpu_group mm_gpu_gemm = {
	.name = "gemm",
	.what = "matrix products, against bandwidth and arithmetic",
	.state_bytes = sizeof(struct gemm),
	.open = gemm_open,
	.close = gemm_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &gemm_products, NULL },
};
