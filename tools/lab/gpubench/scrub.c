/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub - how fast pages are scrubbed the way that mmd's xfer does it
 *
 * Concept:   xfer fills adjacent pages at once, and others one by one, with an event behind each
 *            batch. The references are one large fill, and a copy within the device.
 */
#include "libclient/base/base.h"
#include "libclient/protocol/xplan.h"
#include "tools/lab/gpubench/device.h"
#include "tools/lab/gpubench/parts.h"

struct scrub {
	struct mm_gpu_dev dev;
	struct mm_gpu_range range;
	CUevent done;
	struct mm_series runs, pages, fill, copy; /* bytes per second */
};

/* Times fills of @fill_bytes each, with an event behind each batch. */
static int by_batches(struct scrub *s, uint64_t fill_bytes, uint64_t batch_bytes, double *ret_s)
{
	const struct mm_gpu_api *gpu = &s->dev.gpu;
	int r = mm_gpu_time_begin(&s->dev);

	for (uint64_t at = 0, n; !r && at < s->range.bytes; at += n) {
		n = MM_MIN(fill_bytes, s->range.bytes - at);
		r = mm_gpu_call(&s->dev,
				gpu->cuMemsetD32Async(s->range.va + at, 0, n / 4, s->dev.stream),
				"cuMemsetD32Async");
		if (!r && (at + n) % batch_bytes == 0)
			r = mm_gpu_call(&s->dev, gpu->cuEventRecord(s->done, s->dev.stream),
					"cuEventRecord");
	}
	return r ? r : mm_gpu_time_end(&s->dev, ret_s);
}

static int by_fill(struct scrub *s, double *ret_s)
{
	int r = mm_gpu_time_begin(&s->dev);

	if (!r)
		r = mm_gpu_call(&s->dev,
				s->dev.gpu.cuMemsetD32Async(s->range.va, 0, s->range.bytes / 4,
							    s->dev.stream),
				"cuMemsetD32Async");
	return r ? r : mm_gpu_time_end(&s->dev, ret_s);
}

static int scrub_measure(struct scrub *s, bool counts)
{
	const uint64_t page = s->range.page_bytes;
	const uint64_t batch = MM_MAX(MM_XSCRUB_BYTES / page, 1) * page;
	double runs_s, pages_s, fill_s, copy_s;
	int r = mm_gpu_randomize(&s->dev, s->range.va, s->range.bytes, false);

	if (!r)
		r = mm_gpu_time_copy(&s->dev, s->range.va, s->range.bytes / 2, &copy_s);
	if (!r)
		r = by_batches(s, batch, batch, &runs_s);
	if (!r)
		r = mm_gpu_randomize(&s->dev, s->range.va, s->range.bytes, false);
	if (!r)
		r = by_batches(s, page, batch, &pages_s);
	if (!r)
		r = mm_gpu_randomize(&s->dev, s->range.va, s->range.bytes, false);
	if (!r)
		r = by_fill(s, &fill_s);
	if (r || !counts)
		return r;
	mm_series_add(&s->runs, (double)s->range.bytes / runs_s);
	mm_series_add(&s->pages, (double)s->range.bytes / pages_s);
	mm_series_add(&s->fill, (double)s->range.bytes / fill_s);
	/* The copy reads one half of the range, and writes the other. */
	mm_series_add(&s->copy, (double)s->range.bytes / copy_s);
	return 0;
}

static int scrub_report(struct scrub *s)
{
	const json_int_t page = (json_int_t)s->range.page_bytes;
	const struct {
		const char *name, *reference_name;
		const struct mm_series *figure, *reference;
	} results[] = {
		{ "scrub", "one cuMemsetD32Async() over all", &s->runs, &s->fill },
		{ "scrub_apart", "one cuMemsetD32Async() over all", &s->pages, &s->fill },
		{ "scrub_copy", "a copy within the device, read and written bytes", &s->runs,
		  &s->copy },
	};
	int r = 0;

	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(results); i++) {
		const struct mm_gpu_result result = {
			.name = results[i].name,
			.unit = "bytes_per_s",
			.figure = results[i].figure,
			.reference = results[i].reference,
			.reference_name = results[i].reference_name,
			.params = json_pack("{s:I}", "page", page),
		};

		r = mm_gpu_result(s->dev.bench, &result);
	}
	return r;
}

static int scrub_pages(struct scrub *s, uint64_t page_bytes)
{
	struct mm_gpu_bench *b = s->dev.bench;
	int r = mm_gpu_range_open(&s->dev, 2 * b->sizes.buffer_bytes, page_bytes, &s->range);

	mm_gpu_progress(b, "pages of %llu KiB", (unsigned long long)page_bytes >> 10);
	for (uint32_t i = 0; !r && i <= b->sizes.repeat; i++)
		r = scrub_measure(s, i > 0);
	if (!r)
		r = scrub_report(s);
	mm_gpu_range_close(&s->dev, &s->range);
	mm_series_done(&s->runs);
	mm_series_done(&s->pages);
	mm_series_done(&s->fill);
	mm_series_done(&s->copy);
	return r;
}

int mm_gpu_scrub_run(struct mm_gpu_bench *bench)
{
	struct scrub s = { 0 };
	int r = mm_gpu_dev_open(&s.dev, bench);

	if (!r)
		r = mm_gpu_warm_up(&s.dev);
	if (!r)
		r = mm_gpu_call(&s.dev, s.dev.gpu.cuEventCreate(&s.done, CU_EVENT_DISABLE_TIMING),
				"cuEventCreate");
	for (uint32_t i = 0; !r && i < bench->sizes.n_pages; i++)
		r = scrub_pages(&s, bench->sizes.pages[i]);
	if (s.done)
		s.dev.gpu.cuEventDestroy(s.done);
	mm_gpu_dev_close(&s.dev);
	return r;
}
