/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream - how fast mmd streams layers in, while all of them cycle and nothing is computed
 *
 * Concept:   The figure is the bytes of the layers that were streamed in, by device time, over some
 *            steps. The reference is a loop of copies in this process, from populated and
 *            registered memory, of as many bytes in chunks of the same size. It is also measured by
 *            the size of its chunks.
 */
#include "tools/lab/gpubench/stream.h"

#include <errno.h>
#include <inttypes.h>

#include "libclient/base/base.h"

#define FILLED_STEPS 2u /* slots are full before the first steps, which so stream less */
#define ROUNDS_MAX   5u /* of the bare loop by chunk sizes */

enum h2d_value { BY_MMD, BY_COPIES };

static uint64_t h2d_bytes(const struct mm_gpu_streaming *s)
{
	return s->set.m * s->tenant.layer_bytes * s->steps;
}

static int layers_stream(void *state, uint32_t which, double *value)
{
	struct mm_gpu_streaming *s = state;
	double whole_s = 0;
	int r = 0;

	for (uint32_t i = 0; !r && i < s->steps + FILLED_STEPS; i++) {
		double step_s;

		r = mm_gpu_engine_step(&s->engine, &step_s);
		whole_s += i < FILLED_STEPS ? 0 : step_s;
	}
	value[which] = whole_s;
	return r;
}

static int layers_copy(void *state, uint32_t which, double *value)
{
	struct mm_gpu_streaming *s = state;

	return mm_gpu_copy_loop(&s->bed.dev, s->range.va, &s->host, h2d_bytes(s), s->piece_bytes,
				&value[which]);
}

static int bytes_streamed(struct mm_gpu_streaming *s, uint64_t *ret_bytes)
{
	return mm_bench_mmd_status(&s->tenant.mmd, "bytes_streamed", ret_bytes,
				   s->bed.dev.bench->err);
}

static int h2d_prepare(void *state, const uint32_t *at)
{
	struct mm_gpu_streaming *s = state;
	int r = s->tenant.client ? 0 : mm_gpu_tenant_start(&s->tenant, &s->bed.dev, 0);

	(void)at;
	s->steps = s->bed.dev.bench->sizes.steps;
	s->piece_bytes = MM_MIN(s->tenant.page_bytes, s->tenant.chunk_bytes);
	if (!r)
		r = mm_gpu_tenant_plan(&s->tenant, s->tenant.layers - 2, 2, &s->set);
	if (!r)
		r = mm_gpu_range_open(&s->bed.dev, s->host.bytes, 0, &s->range);
	if (!r)
		r = mm_gpu_engine_open(&s->engine, &s->tenant);
	return r ? r : bytes_streamed(s, &s->streamed_bytes);
}

/* Checks by mmd's own account that the steps waited for what they are said to have streamed. */
static int h2d_measured(void *state, struct mm_series *values)
{
	struct mm_gpu_streaming *s = state;
	const uint64_t claimed = values[BY_MMD].n * h2d_bytes(s);
	uint64_t now = 0;
	int r = bytes_streamed(s, &now);

	s->streamed_bytes = now - s->streamed_bytes;
	if (!r && s->streamed_bytes < claimed)
		r = mm_gpu_fail(s->bed.dev.bench, -EBADMSG,
				"a wrong result: mmd has streamed %" PRIu64 " bytes of %" PRIu64,
				s->streamed_bytes, claimed);
	return r;
}

static void h2d_finish(void *state)
{
	struct mm_gpu_streaming *s = state;

	mm_gpu_engine_close(&s->engine);
	mm_gpu_range_close(&s->bed.dev, &s->range);
}

static double h2d_work(const void *state)
{
	return (double)h2d_bytes(state);
}

static const struct mm_gpu_param h2d_params[] = {
	MM_GPU_PARAM("page", struct mm_gpu_streaming, tenant.page_bytes),
	MM_GPU_PARAM("chunk", struct mm_gpu_streaming, piece_bytes),
	{ 0 },
};

static const struct mm_gpu_param h2d_more[] = {
	MM_GPU_PARAM("layer_bytes", struct mm_gpu_streaming, tenant.layer_bytes),
	MM_GPU_PARAM("layers_cycling", struct mm_gpu_streaming, set.m),
	MM_GPU_PARAM("steps", struct mm_gpu_streaming, steps),
	MM_GPU_PARAM("mmd_streamed_bytes", struct mm_gpu_streaming, streamed_bytes),
	{ 0 },
};

static const struct mm_gpu_side h2d_sides[] = {
	{ "steps whose layers cycle", BY_MMD, .run = layers_stream },
	{ "a loop of copies", BY_COPIES, .run = layers_copy },
};

static const struct mm_gpu_row h2d_rows[] = {
	{ "h2d", "layers that mmd streams in while all cycle and nothing is computed",
	  MM_GPU_BYTES_PER_S, BY_MMD, .work = h2d_work, .reference = BY_COPIES,
	  .reference_name = "a bare loop of cuMemcpyHtoDAsync()",
	  .goal = { MM_GOAL_AT_LEAST, 0.97 }, .more = h2d_more },
};

const struct mm_gpu_measurement mm_gpu_streaming_h2d = {
	.name = "h2d",
	MM_GPU_STATEMENT(h2d_sides, h2d_rows),
	.warm_up = 1,
	.prepare = h2d_prepare,
	.measured = h2d_measured,
	.finish = h2d_finish,
	.params = h2d_params,
};

/* ---- the bare loop by the size of its chunks, which are powers of two ---- */

struct stream {
	struct mm_gpu_streaming s;
	uint64_t chunk_bytes;
};

static uint64_t chunk_at(const struct stream *s, uint32_t i)
{
	return MM_MIN(UINT64_C(1) << 20, MM_MIN(UINT64_C(64) << 20, s->s.host.bytes) / 4) << i;
}

static int chunks_copy(void *state, uint32_t which, double *value)
{
	struct stream *s = state;

	return mm_gpu_copy_loop(&s->s.bed.dev, s->s.range.va, &s->s.host, s->s.host.bytes,
				s->chunk_bytes, &value[which]);
}

static void chunks_sweep(const void *state, uint32_t *ret_sizes)
{
	const struct stream *s = state;

	ret_sizes[0] = 0;
	while (chunk_at(s, ret_sizes[0]) <= MM_MIN(UINT64_C(64) << 20, s->s.host.bytes))
		ret_sizes[0]++;
}

static int chunks_prepare(void *state, const uint32_t *at)
{
	struct stream *s = state;

	s->chunk_bytes = chunk_at(s, at[0]);
	return mm_gpu_range_open(&s->s.bed.dev, s->s.host.bytes, 0, &s->s.range);
}

static uint32_t chunks_rounds(const void *state)
{
	const struct stream *s = state;

	return MM_MIN(s->s.bed.dev.bench->sizes.repeat, ROUNDS_MAX);
}

static double chunks_work(const void *state)
{
	const struct stream *s = state;

	return (double)s->s.host.bytes;
}

static const struct mm_gpu_param chunks_params[] = {
	MM_GPU_PARAM("chunk", struct stream, chunk_bytes),
	{ 0 },
};

static const struct mm_gpu_side chunks_sides[] = {
	{ "a loop of copies", BY_COPIES, .run = chunks_copy },
};

static const struct mm_gpu_row chunks_rows[] = {
	{ "bare_copy", "a bare loop of cuMemcpyHtoDAsync(), by the size of its pieces",
	  MM_GPU_BYTES_PER_S, BY_COPIES, .work = chunks_work },
};

static const struct mm_gpu_measurement stream_chunks = {
	.name = "bare_copy",
	MM_GPU_STATEMENT(chunks_sides, chunks_rows),
	.warm_up = 1,
	.rounds = chunks_rounds,
	.sweep = chunks_sweep,
	.prepare = chunks_prepare,
	.finish = h2d_finish,
	.params = chunks_params,
};

/* ---- the group ---- */

static int stream_open(void *state, struct mm_gpu_bench *bench)
{
	struct stream *s = state;
	int r = mm_gpu_dev_open(&s->s.bed.dev, bench);

	if (!r)
		r = mm_gpu_warm_up(&s->s.bed.dev);
	return r ? r : mm_gpu_host_open(&s->s.bed.dev, bench->sizes.copied_bytes / 2, &s->s.host);
}

static void stream_close(void *state)
{
	struct stream *s = state;

	mm_gpu_tenant_close(&s->s.tenant);
	mm_gpu_host_close(&s->s.bed.dev, &s->s.host);
	mm_gpu_dev_close(&s->s.bed.dev);
}

const struct mm_gpu_group mm_gpu_stream = {
	.name = "stream",
	.what = "bringing layers in, against a bare loop of copies",
	.state_bytes = sizeof(struct stream),
	.open = stream_open,
	.close = stream_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &stream_chunks,
								    &mm_gpu_streaming_h2d, NULL },
};
