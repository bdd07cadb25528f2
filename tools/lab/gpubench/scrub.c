/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub - how fast pages are scrubbed the way that mmd's xfer does it
 *
 * Concept:   xfer fills adjacent pages at once, and others one by one, with an event behind each
 *            batch. The references are one large fill, and a copy within the device. Before each
 *            fill the pages hold random bytes; after it they hold zeros.
 */
#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/protocol/xplan.h"
#include "tools/lab/gpubench/device.h"
#include "tools/lab/gpubench/groups.h"

#define SAMPLES      64u
#define SAMPLE_BYTES 4096u

enum scrub_value { COPY, RUNS, APART, FILL };

struct scrub {
	struct mm_gpu_dev dev;
	struct mm_gpu_range range;
	CUevent done;
};

static int pages_dirty(void *state, uint32_t which)
{
	struct scrub *s = state;

	(void)which;
	return mm_gpu_randomize(&s->dev, s->range.va, s->range.bytes, false);
}

static int half_copy(void *state, uint32_t which, double *value)
{
	struct scrub *s = state;

	return mm_gpu_time_copy(&s->dev, s->range.va, s->range.bytes / 2, &value[which]);
}

/* Times fills, with an event behind each batch. */
static int pages_fill(void *state, uint32_t which, double *value)
{
	struct scrub *s = state;
	const uint64_t page = s->range.page_bytes;
	const uint64_t batch = MM_MAX(MM_XSCRUB_BYTES / page, 1) * page;
	const uint64_t fill = which == FILL ? s->range.bytes : which == APART ? page : batch;
	int r = mm_gpu_time_begin(&s->dev);

	for (uint64_t at = 0, n; !r && at < s->range.bytes; at += n) {
		n = MM_MIN(fill, s->range.bytes - at);
		r = MM_GPU_CALL(&s->dev, cuMemsetD32Async, s->range.va + at, 0, n / 4,
				s->dev.stream);
		if (!r && which != FILL && (at + n) % batch == 0)
			r = MM_GPU_CALL(&s->dev, cuEventRecord, s->done, s->dev.stream);
	}
	return r ? r : mm_gpu_time_end(&s->dev, &value[which]);
}

/* Checks samples at equal distances, the last bytes among them. */
static int pages_check(void *state, uint32_t which)
{
	static const char zeros[SAMPLE_BYTES];
	struct scrub *s = state;
	const uint64_t step = (s->range.bytes - SAMPLE_BYTES) / (SAMPLES - 1);
	char bytes[SAMPLE_BYTES];
	int r = 0;

	(void)which;
	for (uint32_t i = 0; !r && i < SAMPLES; i++) {
		const uint64_t at = i + 1 < SAMPLES ? i * step : s->range.bytes - SAMPLE_BYTES;

		r = MM_GPU_CALL(&s->dev, cuMemcpyDtoH, bytes, s->range.va + at, SAMPLE_BYTES);
		if (!r && memcmp(bytes, zeros, SAMPLE_BYTES) != 0)
			r = mm_gpu_fail(s->dev.bench, -EBADMSG, "a wrong result: a page is dirty");
	}
	return r;
}

static double scrubbed_bytes(const void *state)
{
	const struct scrub *s = state;

	return (double)s->range.bytes;
}

static const struct mm_gpu_param scrub_params[] = {
	MM_GPU_PARAM("page", struct scrub, range.page_bytes),
	{ 0 },
};

static const struct mm_gpu_side scrub_sides[] = {
	/* The copy reads one half of the range, and writes the other. */
	{ "a copy", COPY, .reset = pages_dirty, .run = half_copy },
	{ "pages side by side", RUNS, .run = pages_fill, .check = pages_check },
	{ "pages apart", APART, .reset = pages_dirty, .run = pages_fill, .check = pages_check },
	{ "one fill", FILL, .reset = pages_dirty, .run = pages_fill, .check = pages_check },
};

static const struct mm_gpu_row scrub_rows[] = {
	{ "scrub", "cleaning pages that lie side by side, batch by batch", MM_GPU_BYTES_PER_S, RUNS,
	  .work = scrubbed_bytes, .reference = FILL,
	  .reference_name = "one cuMemsetD32Async() over all" },
	{ "scrub_apart", "cleaning pages that lie apart, one by one", MM_GPU_BYTES_PER_S, APART,
	  .work = scrubbed_bytes, .reference = FILL,
	  .reference_name = "one cuMemsetD32Async() over all" },
	{ "scrub_copy", "cleaning pages that lie side by side, batch by batch", MM_GPU_BYTES_PER_S,
	  RUNS, .work = scrubbed_bytes, .reference = COPY,
	  .reference_name = "a copy within the device, read and written bytes" },
};

/* ---- pages of a size ---- */

static int scrub_prepare(void *state, const uint32_t *at)
{
	struct scrub *s = state;
	const struct mm_gpu_sizes *sizes = &s->dev.bench->sizes;

	return mm_gpu_range_open(&s->dev, 2 * sizes->buffer_bytes, sizes->pages[at[0]], &s->range);
}

static void scrub_finish(void *state)
{
	struct scrub *s = state;

	mm_gpu_range_close(&s->dev, &s->range);
}

static void scrub_sweep(const void *state, uint32_t *ret_sizes)
{
	const struct scrub *s = state;

	ret_sizes[0] = s->dev.bench->sizes.n_pages;
}

static int scrub_open(void *state, struct mm_gpu_bench *bench)
{
	struct scrub *s = state;
	int r = mm_gpu_dev_open(&s->dev, bench);

	if (!r)
		r = mm_gpu_warm_up(&s->dev);
	return r ? r : MM_GPU_CALL(&s->dev, cuEventCreate, &s->done, CU_EVENT_DISABLE_TIMING);
}

static void scrub_close(void *state)
{
	struct scrub *s = state;

	if (s->done)
		s->dev.gpu.cuEventDestroy(s->done);
	mm_gpu_dev_close(&s->dev);
}

static const struct mm_gpu_measurement scrub_fills = {
	.name = "fills",
	MM_GPU_STATEMENT(scrub_sides, scrub_rows),
	.warm_up = 1,
	.sweep = scrub_sweep,
	.prepare = scrub_prepare,
	.finish = scrub_finish,
	.params = scrub_params,
};

const struct mm_gpu_group mm_gpu_scrub = {
	.name = "scrub",
	.what = "cleaning pages, against a bare fill and a copy",
	.state_bytes = sizeof(struct scrub),
	.open = scrub_open,
	.close = scrub_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &scrub_fills, NULL },
};
