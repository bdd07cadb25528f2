/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream - how fast mmd streams layers in, while all of them cycle and nothing is computed
 *
 * Concept:   The figure is the bytes of the layers that were streamed in, by device time, over some
 *            steps. The reference is a loop of copies in this process, from populated and
 *            registered memory, of as many bytes in chunks of the same size.
 */
#include <errno.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/parts.h"

struct stream {
	struct mm_gpu_bench *bench;
	struct mm_gpu_tenant *tenant;
	struct mm_gpu_engine engine;
	const struct mm_gpu_host *host;
	struct mm_gpu_range range; /* destination of the bare loop's copies */
	struct mm_plan_set set;
	struct mm_series figure, bare;
	uint64_t piece_bytes; /* size of each of mmd's copies */
};

static int by_mmd(struct stream *s, bool counts)
{
	const uint32_t steps = s->bench->sizes.steps;
	const double bytes = (double)s->set.m * (double)s->tenant->layer_bytes * steps;
	double whole_s = 0;
	int r = 0;

	/* The first two steps do not count: the slots are full before them, so less is streamed. */
	for (uint32_t i = 0; !r && i < steps + 2; i++) {
		double step_s;

		r = mm_gpu_engine_step(&s->engine, &step_s);
		whole_s += i < 2 ? 0 : step_s;
	}
	if (!r && counts)
		mm_series_add(&s->figure, bytes / whole_s);
	return r;
}

static int copies_measure(struct stream *s, bool counts)
{
	const uint64_t bytes = s->set.m * s->tenant->layer_bytes * s->bench->sizes.steps;
	double took_s = 0;
	int r = mm_gpu_copy_loop(s->tenant->dev, s->range.va, s->host, bytes, s->piece_bytes,
				 &took_s);

	if (!r && counts)
		mm_series_add(&s->bare, (double)bytes / took_s);
	return r;
}

static int stream_report(struct stream *s, uint64_t streamed_bytes)
{
	const struct mm_gpu_result result = {
		.name = "h2d",
		.unit = "bytes_per_s",
		.figure = &s->figure,
		.reference = &s->bare,
		.reference_name = "a bare loop of cuMemcpyHtoDAsync()",
		.goal = { MM_GOAL_AT_LEAST, 0.97 },
		.params = json_pack("{s:I,s:I}", "page", (json_int_t)s->tenant->page_bytes, "chunk",
				    (json_int_t)s->piece_bytes),
		.more = json_pack("{s:I,s:i,s:i,s:I}", "layer_bytes",
				  (json_int_t)s->tenant->layer_bytes, "layers_cycling",
				  (int)s->set.m, "steps", (int)s->bench->sizes.steps,
				  "mmd_streamed_bytes", (json_int_t)streamed_bytes),
	};

	return mm_gpu_result(s->bench, &result);
}

static int stream_measure(struct stream *s)
{
	struct mm_bench_mmd *mmd = &s->tenant->mmd;
	uint64_t before = 0, after = 0;
	int r = mm_bench_mmd_status(mmd, "bytes_streamed", &before, s->bench->err);

	for (uint32_t i = 0; !r && i <= s->bench->sizes.repeat; i++) {
		r = by_mmd(s, i > 0);
		if (!r)
			r = copies_measure(s, i > 0);
	}
	if (!r)
		r = mm_bench_mmd_status(mmd, "bytes_streamed", &after, s->bench->err);
	return r ? r : stream_report(s, after - before);
}

int mm_gpu_stream_pages(struct mm_gpu_tenant *tenant, const struct mm_gpu_host *host)
{
	struct stream s = { .bench = tenant->dev->bench,
			    .tenant = tenant,
			    .host = host,
			    .piece_bytes = MM_MIN(tenant->page_bytes, tenant->chunk_bytes) };
	int r = mm_gpu_tenant_plan(tenant, tenant->layers - 2, 2, &s.set);

	if (!r)
		r = mm_gpu_range_open(tenant->dev, host->bytes, 0, &s.range);
	if (!r)
		r = mm_gpu_engine_open(&s.engine, tenant);
	if (!r)
		r = stream_measure(&s);
	mm_gpu_engine_close(&s.engine);
	mm_gpu_range_close(tenant->dev, &s.range);
	mm_series_done(&s.figure);
	mm_series_done(&s.bare);
	return r;
}

/* Measures the link's rate with chunks of each size. */
static int by_chunks(struct mm_gpu_dev *dev, const struct mm_gpu_host *host)
{
	const uint64_t most = MM_MIN(UINT64_C(64) << 20, host->bytes);
	struct mm_gpu_range range;
	int r = mm_gpu_range_open(dev, host->bytes, 0, &range);

	for (uint64_t chunk = MM_MIN(UINT64_C(1) << 20, most / 4); !r && chunk <= most;
	     chunk *= 2) {
		struct mm_series figure = { 0 };
		const struct mm_gpu_result result = {
			.name = "bare_copy",
			.unit = "bytes_per_s",
			.figure = &figure,
			.params = json_pack("{s:I}", "chunk", (json_int_t)chunk),
		};

		for (uint32_t i = 0; !r && i <= MM_MIN(dev->bench->sizes.repeat, 5u); i++) {
			double took_s = 0;

			r = mm_gpu_copy_loop(dev, range.va, host, host->bytes, chunk, &took_s);
			if (!r && i)
				mm_series_add(&figure, (double)host->bytes / took_s);
		}
		if (!r)
			r = mm_gpu_result(dev->bench, &result);
		else
			json_decref(result.params);
		mm_series_done(&figure);
	}
	mm_gpu_range_close(dev, &range);
	return r;
}

int mm_gpu_stream_run(struct mm_gpu_bench *bench)
{
	struct mm_gpu_tenant tenant = { 0 };
	struct mm_gpu_host host = { 0 };
	struct mm_gpu_dev dev;
	int r = mm_gpu_dev_open(&dev, bench);

	if (!r)
		r = mm_gpu_warm_up(&dev);
	if (!r)
		r = mm_gpu_host_open(&dev, bench->sizes.copied_bytes / 2, &host);
	if (!r)
		r = by_chunks(&dev, &host);
	if (!r)
		r = mm_gpu_tenant_open(&tenant, &dev, &dev.gpu, 0, mm_gpu_tenant_pool(bench));
	if (!r)
		r = mm_gpu_tenant_load(&tenant);
	if (!r)
		r = mm_gpu_stream_pages(&tenant, &host);
	mm_gpu_tenant_close(&tenant);
	mm_gpu_host_close(&dev, &host);
	mm_gpu_dev_close(&dev);
	return r;
}
