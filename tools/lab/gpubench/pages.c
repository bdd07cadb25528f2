/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages - costs that depend on the size of pages: streaming, plan changes, bandwidth of kernels
 *
 * Concept:   Each size gets an mmd of its own. Kernels read memory in pages of that size, in order
 *            (one array is added to another) and at random (rows are gathered). The reference is
 *            the same kernel on memory of cuMemAlloc().
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/stream.h"

#define ROW_FLOATS    1024u /* size of a gathered row */
#define LOAD_LAUNCHES 4u
#define SAMPLES       64u /* rows that are compared */

struct pages {
	struct mm_gpu_streaming s;
	struct mm_gpu_range rows, out; /* for gathering: indices of rows, and the destination */
	uint32_t *row;                 /* the indices */
	uint32_t n_rows;
	uint64_t page_bytes;
	struct mm_gpu_load load[2]; /* [0] memory in pages; [1] memory of one allocation */
	struct mm_gpu_engine engine;
};
static_assert(offsetof(struct pages, s) == 0, "what mm_gpu_streaming_h2d expects");

static const struct mm_gpu_param pages_params[] = {
	MM_GPU_PARAM("page", struct pages, page_bytes),
	{ 0 },
};

/* ---- kernels ---- */

enum reading_value { IN_ORDER, AT_RANDOM = 2 }; /* and behind each that of one allocation */

static int in_order_read(void *state, uint32_t which, double *value)
{
	struct pages *p = state;

	return mm_gpu_load_time(&p->load[which], LOAD_LAUNCHES, &value[IN_ORDER + which]);
}

static int rows_gather(void *state, uint32_t which, double *value)
{
	struct pages *p = state;
	const struct mm_gather_args args = { .rows_va = p->rows.va,
					     .x_va = p->load[which].x.va,
					     .out_va = p->out.va,
					     .n = p->n_rows,
					     .hidden = ROW_FLOATS };
	int r = mm_gpu_time_begin(&p->s.bed.dev);

	if (!r)
		r = mm_gpu_launch(&p->s.bed.module, MM_KERNEL_GATHER, &args);
	return r ? r : mm_gpu_time_end(&p->s.bed.dev, &value[AT_RANDOM + which]);
}

/* Compares some rows that were gathered with those that they were copied from. */
static int rows_check(void *state, uint32_t which)
{
	struct pages *p = state;
	const struct mm_gpu_dev *dev = &p->s.bed.dev;
	const uint64_t bytes = ROW_FLOATS * sizeof(float);
	float want[ROW_FLOATS], have[ROW_FLOATS];
	int r = 0;

	for (uint32_t i = 0; !r && i < MM_MIN(SAMPLES, p->n_rows); i++) {
		const uint32_t at = p->n_rows - 1 - i;

		r = MM_GPU_CALL(dev, cuMemcpyDtoH, want, p->load[which].x.va + p->row[at] * bytes,
				bytes);
		if (!r)
			r = MM_GPU_CALL(dev, cuMemcpyDtoH, have, p->out.va + at * bytes, bytes);
		if (!r && memcmp(want, have, bytes) != 0)
			r = mm_gpu_fail(dev->bench, -EBADMSG, "a wrong result: row %u", at);
	}
	return r;
}

static int reading_prepare(void *state, const uint32_t *at)
{
	struct pages *p = state;
	const uint64_t bytes = p->s.bed.dev.bench->sizes.buffer_bytes;
	int r = mm_gpu_load_open(&p->load[0], &p->s.bed.module, bytes, p->page_bytes);

	(void)at;
	return r ? r : mm_gpu_load_open(&p->load[1], &p->s.bed.module, bytes, 0);
}

static void reading_finish(void *state)
{
	struct pages *p = state;

	mm_gpu_load_close(&p->load[0]);
	mm_gpu_load_close(&p->load[1]);
}

/* A load reads two elements and writes one, for each element of an array. */
static double in_order_work(const void *state)
{
	const struct pages *p = state;

	return 3 * (double)p->load[0].x.bytes;
}

static double in_order_reference_work(const void *state)
{
	const struct pages *p = state;

	return 3 * (double)p->load[1].x.bytes;
}

static double gather_work(const void *state)
{
	const struct pages *p = state;

	return 2.0 * p->n_rows * ROW_FLOATS * sizeof(float);
}

static const struct mm_gpu_side reading_sides[] = {
	{ "an array in pages", 0, .run = in_order_read },
	{ "an array in one allocation", 1, .run = in_order_read },
	{ "rows in pages", 0, .run = rows_gather, .check = rows_check },
	{ "rows in one allocation", 1, .run = rows_gather, .check = rows_check },
};

static const struct mm_gpu_row reading_rows[] = {
	{ "read_in_order", "one array added to another, in memory of pages", MM_GPU_BYTES_PER_S,
	  IN_ORDER, .work = in_order_work, .reference = IN_ORDER + 1,
	  .reference_work = in_order_reference_work,
	  .reference_name = "the same in memory of cuMemAlloc()" },
	{ "read_at_random", "rows gathered from memory of pages", MM_GPU_BYTES_PER_S, AT_RANDOM,
	  .work = gather_work, .reference = AT_RANDOM + 1,
	  .reference_name = "the same in memory of cuMemAlloc()" },
};

static const struct mm_gpu_measurement pages_reading = {
	.name = "reading",
	MM_GPU_STATEMENT(reading_sides, reading_rows),
	.prepare = reading_prepare,
	.finish = reading_finish,
	.params = pages_params,
};

/* ---- plans ---- */

enum changes_value { AWAY, BACK };

/* Changes the plan, and takes the time during which no step could begin. */
static int plan_change(void *state, uint32_t which, double *value)
{
	struct pages *p = state;
	struct mm_gpu_tenant *t = &p->s.tenant;
	struct mm_client_info before = { .size = sizeof(before) };
	struct mm_client_info after = { .size = sizeof(after) };
	struct mm_plan_set set;
	int r = mm_client_info(t->client, &before);

	if (!r)
		r = mm_gpu_tenant_plan(t, which == AWAY ? t->layers / 2 : 0, 2, &set);
	if (!r)
		r = mm_client_info(t->client, &after);
	if (!r)
		value[which] = 1e-9 * (double)(after.plan_held_ns - before.plan_held_ns);
	return r;
}

/* Runs a step, so that the cycling layers have been in their slots. */
static int layers_visit(void *state, uint32_t which)
{
	struct pages *p = state;
	double step_s;

	(void)which;
	return mm_gpu_engine_step(&p->engine, &step_s);
}

/* The tenant stays, for what is streamed. */
static int changes_prepare(void *state, const uint32_t *at)
{
	struct pages *p = state;
	int r = mm_gpu_tenant_start(&p->s.tenant, &p->s.bed.dev, p->page_bytes);

	(void)at;
	return r ? r : mm_gpu_engine_open(&p->engine, &p->s.tenant);
}

static void changes_finish(void *state)
{
	struct pages *p = state;

	mm_gpu_engine_close(&p->engine);
}

static const struct mm_gpu_side changes_sides[] = {
	{ "layers away", AWAY, .run = plan_change },
	{ "layers back", BACK, .reset = layers_visit, .run = plan_change },
};

static const struct mm_gpu_row changes_rows[] = {
	{ "plan_away", "no step could begin while half of the layers went away", MM_GPU_SECONDS,
	  .figure = AWAY },
	{ "plan_back", "no step could begin while they came back", MM_GPU_SECONDS, .figure = BACK },
};

static const struct mm_gpu_measurement pages_changes = {
	.name = "plan changes",
	MM_GPU_STATEMENT(changes_sides, changes_rows),
	.prepare = changes_prepare,
	.finish = changes_finish,
	.params = pages_params,
};

/* ---- the group ---- */

static uint32_t pages_points(const void *state)
{
	const struct pages *p = state;

	return p->s.bed.dev.bench->sizes.n_pages;
}

static int pages_enter(void *state, uint32_t point)
{
	struct pages *p = state;

	p->page_bytes = p->s.bed.dev.bench->sizes.pages[point];
	return 0;
}

static void pages_leave(void *state)
{
	struct pages *p = state;

	mm_gpu_tenant_close(&p->s.tenant);
}

static int pages_open(void *state, struct mm_gpu_bench *bench)
{
	struct pages *p = state;
	int r = mm_gpu_bed_open(&p->s.bed, bench);

	p->n_rows = (uint32_t)(bench->sizes.buffer_bytes / (ROW_FLOATS * sizeof(float)));
	p->row = malloc(p->n_rows * sizeof(*p->row));
	if (!p->row)
		return mm_gpu_fail(bench, -ENOMEM, "out of memory");
	mm_gpu_shuffle(p->row, p->n_rows);
	if (!r)
		r = mm_gpu_range_write(&p->s.bed.dev, p->row, p->n_rows * sizeof(*p->row),
				       &p->rows);
	if (!r)
		r = mm_gpu_range_open(&p->s.bed.dev, bench->sizes.buffer_bytes, 0, &p->out);
	return r ? r : mm_gpu_host_open(&p->s.bed.dev, bench->sizes.copied_bytes / 4, &p->s.host);
}

static void pages_close(void *state)
{
	struct pages *p = state;

	mm_gpu_host_close(&p->s.bed.dev, &p->s.host);
	mm_gpu_range_close(&p->s.bed.dev, &p->rows);
	mm_gpu_range_close(&p->s.bed.dev, &p->out);
	mm_gpu_bed_close(&p->s.bed);
	free(p->row);
}

const struct mm_gpu_group mm_gpu_pages = {
	.name = "pages",
	.what = "streaming, plan changes and reading, by page size",
	.state_bytes = sizeof(struct pages),
	.open = pages_open,
	.close = pages_close,
	.points = pages_points,
	.enter = pages_enter,
	.leave = pages_leave,
	.measurements = (const struct mm_gpu_measurement *const[]){ &pages_reading, &pages_changes,
								    &mm_gpu_streaming_h2d, NULL },
};
