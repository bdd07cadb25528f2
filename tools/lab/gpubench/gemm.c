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
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/parts.h"

#define PRODUCTS_MIN 4u
#define COPIES_MAX   32u
#define SQUARE       8192u
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

enum gemm_way { FAST, FIXED, WIDE, KERNEL, WAYS };

static const uint32_t product_rows[WAYS] = { [FIXED] = MM_GEMM_ROWS, [WIDE] = 2 * MM_GEMM_ROWS };

struct gemm {
	struct mm_gpu_dev dev;
	struct mm_gpu_module module;
	struct mm_gemm *by[WAYS];
	struct mm_gpu_range x, w, y, copied;
	const struct gemm_matrix *matrices;
	const uint32_t *batch;
	uint32_t n_matrices, n_batches, square, copies;
	struct mm_series took[WAYS], bound; /* seconds */
	double bandwidth, rate;             /* the ceilings, as last measured */
};

static bool shapes_are_tiny(const struct gemm *g)
{
	return g->dev.bench->rehearsal && !g->dev.bench->timed;
}

/* ---- one measurement ---- */

static int gemm_multiply(struct gemm *g, enum gemm_way way, const struct mm_gemm_args *a)
{
	return mm_gpu_call(&g->dev, mm_gemm_multiply(g->by[way], a, g->dev.stream),
			   "a matrix product");
}

/* Times products with @copies copies of the weights, one after the other. */
static int time_products(struct gemm *g, enum gemm_way way, const struct mm_gemm_args *of,
			 uint32_t copies, double *ret_s)
{
	const uint64_t bytes = (uint64_t)of->outputs * of->k * 2;
	const uint32_t n = MM_MAX(copies, PRODUCTS_MIN);
	struct mm_gemm_args a = *of;
	int r = mm_gpu_time_begin(&g->dev);

	for (uint32_t i = 0; !r && i < n; i++) {
		a.w_va = of->w_va + i % copies * bytes;
		r = gemm_multiply(g, way, &a);
	}
	if (!r)
		r = mm_gpu_time_end(&g->dev, ret_s);
	*ret_s /= n;
	return r;
}

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

static int measure_ceilings(struct gemm *g)
{
	const struct gemm_matrix square = { "", "", g->square, g->square };
	const struct mm_gemm_args a = args_of(g, &square, g->square);
	const uint64_t half = g->copied.bytes / 2;
	double took_s = 0;
	int r = mm_gpu_time_copy(&g->dev, g->copied.va, half, &took_s);

	if (r)
		return r;
	g->bandwidth = 2 * (double)half / took_s;
	r = time_products(g, FAST, &a, 1, &took_s);
	g->rate = 2 * (double)g->square * g->square * g->square / took_s;
	return r;
}

static double bytes_of(const struct gemm_matrix *m, uint32_t rows)
{
	return 2.0 * m->outputs * m->k + 4.0 * rows * m->k + 4.0 * rows * m->outputs;
}

static double operations_of(const struct gemm_matrix *m, uint32_t rows)
{
	return 2.0 * rows * m->outputs * m->k;
}

static int gemm_measure(struct gemm *g, const struct gemm_matrix *m, uint32_t rows, bool counts)
{
	const struct mm_gemm_args a = args_of(g, m, rows);
	double took_s[WAYS] = { 0 };
	int r = measure_ceilings(g);

	for (enum gemm_way way = 0; !r && way < WAYS; way++)
		if (way != KERNEL || rows == 1)
			r = time_products(g, way, &a, g->copies, &took_s[way]);
	if (r || !counts)
		return r;
	mm_series_add(&g->bound,
		      MM_MAX(bytes_of(m, rows) / g->bandwidth, operations_of(m, rows) / g->rate));
	for (enum gemm_way way = 0; way < WAYS; way++)
		if (took_s[way] > 0)
			mm_series_add(&g->took[way], took_s[way]);
	return 0;
}

/* ---- telling ---- */

static int way_report(struct gemm *g, const char *name, const struct gemm_matrix *m, uint32_t rows,
		      enum gemm_way way, const struct mm_series *reference,
		      const char *reference_name)
{
	const double median = mm_series_summary(&g->took[way]).median;
	const struct mm_gpu_result result = {
		.name = name,
		.unit = "s",
		.figure = &g->took[way],
		.reference = reference,
		.reference_name = reference_name,
		.params = json_pack("{s:s,s:s,s:i}", "model", m->model, "matrix", m->name, "rows",
				    (int)rows),
		.more = json_pack("{s:i,s:i,s:f,s:f,s:f,s:f}", "outputs", (int)m->outputs, "k",
				  (int)m->k, "bytes_per_s", bytes_of(m, rows) / median, "flops",
				  operations_of(m, rows) / median, "copy_bytes_per_s", g->bandwidth,
				  "square_flops", g->rate),
	};

	return mm_gpu_result(g->dev.bench, &result);
}

static int gemm_report(struct gemm *g, const struct gemm_matrix *m, uint32_t rows)
{
	int r = way_report(
		g, "product", m, rows, FAST, &g->bound,
		"the longer of its bytes by a copy's rate, its operations by a square's");

	if (!r)
		r = way_report(g, "fixed", m, rows, FIXED, &g->took[FAST],
			       "one product of the batch's size");
	if (!r)
		r = way_report(g, "fixed_wide", m, rows, WIDE, &g->took[FAST],
			       "one product of the batch's size");
	if (!r && g->took[KERNEL].n)
		r = way_report(g, "kernel", m, rows, KERNEL, &g->took[FAST], "the same by cuBLAS");
	for (enum gemm_way way = 0; way < WAYS; way++)
		mm_series_done(&g->took[way]);
	mm_series_done(&g->bound);
	return r;
}

/* ---- what is multiplied ---- */

static int measure_matrix(struct gemm *g, const struct gemm_matrix *m)
{
	const uint64_t bytes = (uint64_t)m->outputs * m->k * 2;
	int r = 0;

	g->copies = (uint32_t)MM_MIN(MM_MAX(g->w.bytes / bytes, 1u), COPIES_MAX);
	for (uint32_t i = 0; !r && i < g->n_batches; i++) {
		mm_gpu_progress(g->dev.bench, "%s %s, %u rows", m->model, m->name, g->batch[i]);
		for (uint32_t n = 0; !r && n <= g->dev.bench->sizes.repeat; n++)
			r = gemm_measure(g, m, g->batch[i], n > 0);
		if (!r)
			r = gemm_report(g, m, g->batch[i]);
	}
	return r;
}

static void shapes_choose(struct gemm *g)
{
	const bool quick = g->dev.bench->opts.quick;

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
	struct mm_gpu_bench *b = g->dev.bench;
	char err[256] = "";
	int r = 0;

	for (enum gemm_way way = 0; !r && way < WAYS; way++) {
		const struct mm_gemm_opts opts = {
			.kind = way == KERNEL ? MM_GEMM_KERNEL : MM_GEMM_CUBLAS,
			.module = g->module.module,
			.fast = way == FAST,
			.rows = product_rows[way],
			.max_tokens = (uint32_t)e->rows,
			.max_k = (uint32_t)e->k,
		};

		r = mm_gemm_open(&g->dev.gpu, &opts, &g->by[way], err, sizeof(err));
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
	const uint64_t least = g->dev.bench->sizes.buffer_bytes;
	struct extent e = { 0 };
	int r;

	extent_grow(&e, g->square, g->square, g->square);
	for (uint32_t m = 0; m < g->n_matrices; m++)
		extent_grow(&e, g->batch[g->n_batches - 1], g->matrices[m].outputs,
			    g->matrices[m].k);
	r = open_backends(g, &e);
	if (!r)
		r = mm_gpu_range_open(&g->dev, e.x * 4, 0, &g->x);
	if (!r)
		r = mm_gpu_range_open(&g->dev, MM_MAX(e.w * 2, least), 0, &g->w);
	if (!r)
		r = mm_gpu_range_open(&g->dev, e.y * 4, 0, &g->y);
	if (!r)
		r = mm_gpu_range_open(&g->dev, 2 * least, 0, &g->copied);
	if (!r)
		r = mm_gpu_randomize(&g->dev, g->x.va, g->x.bytes, true);
	if (!r)
		r = mm_gpu_randomize(&g->dev, g->w.va, g->w.bytes, true);
	return r ? r : mm_gpu_randomize(&g->dev, g->copied.va, g->copied.bytes, false);
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

int mm_gpu_gemm_run(struct mm_gpu_bench *bench)
{
	struct gemm g = { 0 };
	int r = name_library(bench);

	if (!r)
		r = mm_gpu_dev_open(&g.dev, bench);
	if (!r)
		r = mm_gpu_module_open(&g.module, &g.dev);
	if (!r) {
		shapes_choose(&g);
		r = open_matrices(&g);
	}
	for (uint32_t m = 0; !r && m < g.n_matrices; m++)
		r = measure_matrix(&g, &g.matrices[m]);
	for (enum gemm_way way = 0; way < WAYS; way++)
		mm_gemm_close(g.by[way]);
	mm_gpu_range_close(&g.dev, &g.x);
	mm_gpu_range_close(&g.dev, &g.w);
	mm_gpu_range_close(&g.dev, &g.y);
	mm_gpu_range_close(&g.dev, &g.copied);
	mm_gpu_module_close(&g.module);
	mm_gpu_dev_close(&g.dev);
	return r;
}
