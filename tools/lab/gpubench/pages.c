/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages - costs that depend on the size of pages: streaming, plan changes, bandwidth of kernels
 *
 * Concept:   Each size gets an mmd of its own. Kernels read memory in pages of that size, in order
 *            (one array is added to another) and at random (rows are gathered). The reference is
 *            the same kernel on memory of cuMemAlloc().
 */
#include <errno.h>
#include <stdlib.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/parts.h"

#define ROW_FLOATS 1024u /* size of a gathered row */

struct pages {
	struct mm_gpu_bench *bench;
	struct mm_gpu_dev dev;
	struct mm_gpu_module module;
	struct mm_gpu_host host;
	struct mm_gpu_range rows, out; /* for gathering: indices of rows, and the destination */
	uint32_t n_rows;
};

static int pages_report_row(struct pages *p, const char *name, const char *unit,
			    uint64_t page_bytes, const struct mm_series *figure,
			    const struct mm_series *reference)
{
	const struct mm_gpu_result result = {
		.name = name,
		.unit = unit,
		.figure = figure,
		.reference = reference,
		.reference_name = reference ? "the same in memory of cuMemAlloc()" : NULL,
		.params = json_pack("{s:I}", "page", (json_int_t)page_bytes),
	};

	return mm_gpu_result(p->bench, &result);
}

/* ---- kernels ---- */

/* Measures a load, which reads two elements and writes one, for each element of an array. */
static int read_in_order(struct mm_gpu_load *load, struct mm_series *rates)
{
	double launch_s = 0;
	int r = mm_gpu_load_time(load, 4, &launch_s);

	mm_series_add(rates, 3 * (double)load->x.bytes / launch_s);
	return r;
}

static int gather_measure(struct pages *p, const struct mm_gpu_load *load, struct mm_series *rates)
{
	const struct mm_gather_args args = { .rows_va = p->rows.va,
					     .x_va = load->x.va,
					     .out_va = p->out.va,
					     .n = p->n_rows,
					     .hidden = ROW_FLOATS };
	const double bytes = 2.0 * p->n_rows * ROW_FLOATS * sizeof(float);
	double took_s = 0;
	int r = mm_gpu_time_begin(&p->dev);

	if (!r)
		r = mm_gpu_launch(&p->module, MM_KERNEL_GATHER, &args);
	if (!r)
		r = mm_gpu_time_end(&p->dev, &took_s);
	mm_series_add(rates, bytes / took_s);
	return r;
}

/* Writes the indices of all rows, each once, in random order. */
static int gather_make_rows(struct pages *p)
{
	const uint64_t bytes = p->n_rows * sizeof(uint32_t);
	mm_cleanup(mm_free_ptr) uint32_t *rows = malloc(bytes);
	int r = mm_gpu_range_open(&p->dev, bytes, 0, &p->rows);

	if (!r)
		r = mm_gpu_range_open(&p->dev, p->bench->sizes.buffer_bytes, 0, &p->out);
	if (!rows)
		r = mm_gpu_fail(p->bench, -ENOMEM, "out of memory");
	if (r)
		return r;
	mm_gpu_shuffle(rows, p->n_rows);
	return mm_gpu_call(&p->dev, p->dev.gpu.cuMemcpyHtoD(p->rows.va, rows, bytes),
			   "cuMemcpyHtoD");
}

/* Index 0: memory in pages; index 1: memory of one allocation. */
struct reading {
	struct mm_gpu_load load[2];
	struct mm_series in_order[2], random[2];
};

static void reading_done(struct reading *reading)
{
	for (int i = 0; i < 2; i++) {
		mm_gpu_load_close(&reading->load[i]);
		mm_series_done(&reading->in_order[i]);
		mm_series_done(&reading->random[i]);
	}
}

static int measure_reading(struct pages *p, uint64_t page_bytes)
{
	mm_cleanup(reading_done) struct reading g = { 0 };
	const uint64_t bytes = p->bench->sizes.buffer_bytes;
	int r = mm_gpu_load_open(&g.load[0], &p->module, bytes, page_bytes);

	if (!r)
		r = mm_gpu_load_open(&g.load[1], &p->module, bytes, 0);
	for (uint32_t i = 0; !r && i < p->bench->sizes.repeat; i++) {
		for (int k = 0; !r && k < 2; k++)
			r = read_in_order(&g.load[k], &g.in_order[k]);
		for (int k = 0; !r && k < 2; k++)
			r = gather_measure(p, &g.load[k], &g.random[k]);
	}
	if (!r)
		r = pages_report_row(p, "read_in_order", "bytes_per_s", page_bytes, &g.in_order[0],
				     &g.in_order[1]);
	return r ? r
		 : pages_report_row(p, "read_at_random", "bytes_per_s", page_bytes, &g.random[0],
				    &g.random[1]);
}

/* ---- plans ---- */

/* Changes the plan, and adds to @held the time during which no step could begin. */
static int plan_change_measure(struct mm_gpu_tenant *t, uint32_t alpha, struct mm_series *held)
{
	struct mm_client_info before, after;
	struct mm_plan_set set;
	int r = mm_client_info(t->client, &before);

	if (!r)
		r = mm_gpu_tenant_plan(t, alpha, 2, &set);
	if (!r)
		r = mm_client_info(t->client, &after);
	if (!r)
		mm_series_add(held, 1e-9 * (double)(after.plan_held_ns - before.plan_held_ns));
	return r;
}

static int measure_changes(struct pages *p, struct mm_gpu_tenant *t)
{
	struct mm_series away = { 0 }, back = { 0 };
	struct mm_gpu_engine engine;
	double step_s;
	int r = mm_gpu_engine_open(&engine, t);

	for (uint32_t i = 0; !r && i < p->bench->sizes.repeat; i++) {
		r = plan_change_measure(t, t->layers / 2, &away);
		/* A step first, so that the cycling layers have been in their slots. */
		if (!r)
			r = mm_gpu_engine_step(&engine, &step_s);
		if (!r)
			r = plan_change_measure(t, 0, &back);
	}
	if (!r)
		r = pages_report_row(p, "plan_away", "s", t->page_bytes, &away, NULL);
	if (!r)
		r = pages_report_row(p, "plan_back", "s", t->page_bytes, &back, NULL);
	mm_gpu_engine_close(&engine);
	mm_series_done(&away);
	mm_series_done(&back);
	return r;
}

static int measure_daemon(struct pages *p, uint64_t page_bytes)
{
	struct mm_gpu_tenant tenant = { 0 };
	int r = mm_gpu_tenant_open(&tenant, &p->dev, &p->dev.gpu, page_bytes,
				   mm_gpu_tenant_pool(p->bench));

	if (!r)
		r = mm_gpu_tenant_load(&tenant);
	if (!r)
		r = measure_changes(p, &tenant);
	if (!r)
		r = mm_gpu_stream_pages(&tenant, &p->host);
	mm_gpu_tenant_close(&tenant);
	return r;
}

int mm_gpu_pages_run(struct mm_gpu_bench *bench)
{
	struct pages p = { .bench = bench,
			   .n_rows = (uint32_t)(bench->sizes.buffer_bytes /
						(ROW_FLOATS * sizeof(float))) };
	int r = mm_gpu_dev_open(&p.dev, bench);

	if (!r)
		r = mm_gpu_module_open(&p.module, &p.dev);
	if (!r)
		r = gather_make_rows(&p);
	if (!r)
		r = mm_gpu_host_open(&p.dev, bench->sizes.copied_bytes / 4, &p.host);
	for (uint32_t i = 0; !r && i < bench->sizes.n_pages; i++) {
		mm_gpu_progress(bench, "pages of %llu KiB",
				(unsigned long long)bench->sizes.pages[i] >> 10);
		r = measure_reading(&p, bench->sizes.pages[i]);
		if (!r)
			r = measure_daemon(&p, bench->sizes.pages[i]);
	}
	mm_gpu_host_close(&p.dev, &p.host);
	mm_gpu_range_close(&p.dev, &p.rows);
	mm_gpu_range_close(&p.dev, &p.out);
	mm_gpu_module_close(&p.module);
	mm_gpu_dev_close(&p.dev);
	return r;
}
