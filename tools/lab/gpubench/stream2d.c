/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream2d - how fast the units of cold blocks come in, which are rows with gaps between them
 *
 * Concept:   In host memory a block's units follow each other, in the window the entries of a
 *            class do: a layer's transfer is a copy of rows that are one unit wide. The figure is
 *            the rate of such copies, in one call, and in as many as xfer makes of it. The
 *            reference is one linear copy of as many bytes. The window consists of pages, whose
 *            borders rows and calls cross.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/lab/gpubench/device.h"
#include "tools/lab/gpubench/groups.h"

#define UNIT_LAYERS 40u /* as many as OPT-13B has */
#define UNIT_PASSES 8u  /* layers that follow each other in one measurement */
#define ROUNDS_MIN  9u
#define DIRTY       0xa5

enum units_value { LINEAR, ROWS, PIECES, LANES, LINEAR_CALL, ROWS_CALL };

struct units {
	struct mm_gpu_dev dev;
	CUstream out_stream;
	CUevent out_done;
	struct mm_gpu_host swap, out_host;
	struct mm_gpu_range window, out; /* of a case */
	uint64_t unit_bytes, moved_bytes;
	uint32_t layers, classes, entries, piece_rows;
};

/* ---- copies ---- */

static int units_copy_linear(struct units *u, uint32_t pass)
{
	return MM_GPU_CALL(&u->dev, cuMemcpyHtoDAsync, u->window.va,
			   u->swap.base + pass * u->moved_bytes, u->moved_bytes, u->dev.stream);
}

static int units_copy_rows(struct units *u, uint32_t layer, uint32_t first, uint32_t n)
{
	const uint64_t block = u->layers * u->unit_bytes, stride = u->classes * u->unit_bytes;
	const uint64_t offset = layer * u->unit_bytes;
	const CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = u->swap.base + first * block + offset,
		.srcPitch = block,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = u->window.va + first * stride + offset,
		.dstPitch = stride,
		.WidthInBytes = u->unit_bytes,
		.Height = n,
	};

	return MM_GPU_CALL(&u->dev, cuMemcpy2DAsync, &copy, u->dev.stream);
}

static int units_copy_pieces(struct units *u, uint32_t layer)
{
	int r = 0;

	for (uint32_t at = 0; !r && at < u->entries; at += u->piece_rows)
		r = units_copy_rows(u, layer, at, MM_MIN(u->piece_rows, u->entries - at));
	return r;
}

static int units_enqueue(struct units *u, uint32_t which, uint32_t pass)
{
	int r;

	if (which == LINEAR)
		return units_copy_linear(u, pass);
	if (which == PIECES)
		return units_copy_pieces(u, pass);
	r = units_copy_rows(u, pass, 0, u->entries);
	if (!r && which == LANES)
		r = MM_GPU_CALL(&u->dev, cuMemcpyDtoHAsync, u->out_host.base, u->out.va,
				u->moved_bytes, u->out_stream);
	return r;
}

/* ---- sides ---- */

/* The other stream begins with the measured one, which ends when both have. */
static int lanes_fork(struct units *u)
{
	return MM_GPU_CALL(&u->dev, cuStreamWaitEvent, u->out_stream, u->dev.from, 0);
}

static int lanes_join(struct units *u)
{
	int r = MM_GPU_CALL(&u->dev, cuEventRecord, u->out_done, u->out_stream);

	return r ? r : MM_GPU_CALL(&u->dev, cuStreamWaitEvent, u->dev.stream, u->out_done, 0);
}

static int units_stream(void *state, uint32_t which, double *value)
{
	struct units *u = state;
	uint64_t since_ns;
	double call_s;
	int r = mm_gpu_time_begin(&u->dev);

	if (!r && which == LANES)
		r = lanes_fork(u);
	since_ns = mm_now_ns();
	for (uint32_t i = 0; !r && i < UNIT_PASSES; i++)
		r = units_enqueue(u, which, i);
	call_s = (double)(mm_now_ns() - since_ns) / (double)MM_NS_PER_S / UNIT_PASSES;
	if (!r && which == LANES)
		r = lanes_join(u);
	if (!r)
		r = mm_gpu_time_end(&u->dev, &value[which]);
	value[which] /= UNIT_PASSES;
	if (which == LINEAR || which == ROWS)
		value[which == LINEAR ? LINEAR_CALL : ROWS_CALL] = call_s;
	return r;
}

static int window_dirty(void *state, uint32_t which)
{
	struct units *u = state;
	int r = MM_GPU_CALL(&u->dev, cuMemsetD8Async, u->window.va, DIRTY, u->window.bytes,
			    u->dev.stream);

	if (which == LANES)
		memset(u->out_host.base, DIRTY, u->dev.bench->timed ? 0 : u->moved_bytes);
	return r ? r
		 : mm_gpu_call(&u->dev, u->dev.gpu.cuStreamSynchronize(u->dev.stream), "a fill");
}

/* Checks what the last pass left. */
static int units_check(void *state, uint32_t which)
{
	struct units *u = state;
	const uint64_t layer = UNIT_PASSES - 1, unit = u->unit_bytes;
	mm_cleanup(mm_free_ptr) char *seen = malloc(unit);
	int r = seen ? 0 : mm_gpu_fail(u->dev.bench, -ENOMEM, "out of memory");

	for (uint64_t e = 0; !r && e < u->entries; e++) {
		const bool linear = which == LINEAR;
		const uint64_t to = linear ? e : u->classes * e + layer;
		const uint64_t from = linear ? layer * u->entries + e : u->layers * e + layer;

		r = MM_GPU_CALL(&u->dev, cuMemcpyDtoH, seen, u->window.va + to * unit, unit);
		if (!r && memcmp(seen, u->swap.base + from * unit, unit) != 0)
			r = mm_gpu_fail(u->dev.bench, -EBADMSG,
					"a wrong result: row %" PRIu64 " of %" PRIu32, e,
					u->entries);
	}
	if (!r && which == LANES && memcmp(u->out_host.base, u->swap.base, u->moved_bytes) != 0)
		r = mm_gpu_fail(u->dev.bench, -EBADMSG, "a wrong result: what came out");
	return r;
}

/* ---- the statement ---- */

static double units_work(const void *state)
{
	const struct units *u = state;

	return (double)u->moved_bytes;
}

static double lanes_work(const void *state)
{
	return 2 * units_work(state);
}

/* Fewer rounds say too little of a goal of 5 %, unless somebody asks for fewer. */
static uint32_t units_rounds(const void *state)
{
	const struct mm_gpu_bench *bench = ((const struct units *)state)->dev.bench;
	const uint32_t n = bench->sizes.repeat;

	return bench->rehearsal || bench->opts.repeat ? n : MM_MAX(n, ROUNDS_MIN);
}

static const struct mm_gpu_param units_params[] = {
	MM_GPU_PARAM("row", struct units, unit_bytes),
	{ 0 },
};

static const struct mm_gpu_param units_more[] = {
	MM_GPU_PARAM("moved_bytes", struct units, moved_bytes),
	MM_GPU_PARAM("rows", struct units, entries),
	MM_GPU_PARAM("rows_of_a_piece", struct units, piece_rows),
	MM_GPU_PARAM("layers", struct units, layers),
	MM_GPU_PARAM("classes", struct units, classes),
	{ 0 },
};

static const struct mm_gpu_side units_sides[] = {
	{ "one linear copy", LINEAR, .run = units_stream, .check = units_check,
	  .reset = window_dirty },
	{ "rows in one call", ROWS, .run = units_stream, .check = units_check,
	  .reset = window_dirty },
	{ "rows in pieces", PIECES, .run = units_stream, .check = units_check,
	  .reset = window_dirty },
	{ "both directions", LANES, .run = units_stream, .check = units_check,
	  .reset = window_dirty },
};

#define LINEAR_NAME "one linear copy of as many bytes"

static const struct mm_gpu_row units_rows[] = {
	{ "rows", "units of one layer of all cold blocks, by one call", MM_GPU_BYTES_PER_S, ROWS,
	  .work = units_work, .reference = LINEAR, .reference_name = LINEAR_NAME,
	  .goal = { MM_GOAL_AT_LEAST, 0.95 }, .more = units_more },
	{ "pieces", "the same, by as many calls as xfer makes", MM_GPU_BYTES_PER_S, PIECES,
	  .work = units_work, .reference = LINEAR, .reference_name = LINEAR_NAME,
	  .goal = { MM_GOAL_AT_LEAST, 0.95 }, .more = units_more },
	{ "lanes", "units in, by one call, and as many bytes out: the sum", MM_GPU_BYTES_PER_S,
	  LANES, .work = lanes_work, .reference = ROWS, .reference_work = units_work,
	  .reference_name = "the units alone", .more = units_more },
	{ "call", "what the call takes of the host", MM_GPU_SECONDS, ROWS_CALL,
	  .reference = LINEAR_CALL, .reference_name = "the call for the linear copy",
	  .more = units_more },
};

/* ---- what there is ---- */

static void units_sweep(const void *state, uint32_t *ret_sizes)
{
	(void)state;
	ret_sizes[0] = MM_GPU_ROWS;
}

/* Cuts as xfer does: at the most that a copy of rows has, and at registrations. */
static void units_choose(struct units *u, const struct mm_gpu_sizes *sizes, uint32_t at)
{
	uint64_t block, part = sizes->swap_bytes / MM_GPU_SWAP_PARTS;

	u->unit_bytes = sizes->row_bytes[at];
	block = u->layers * u->unit_bytes;
	u->entries = (uint32_t)(sizes->swap_bytes / block);
	u->moved_bytes = u->entries * u->unit_bytes;
	u->piece_rows = (uint32_t)MM_MIN(part / block, MM_COLD_ROWS_BYTES / u->unit_bytes);
	u->piece_rows = MM_MAX(u->piece_rows, 1u);
}

static int units_prepare(void *state, const uint32_t *at)
{
	struct units *u = state;
	const struct mm_gpu_sizes *sizes = &u->dev.bench->sizes;
	uint64_t window;
	int r;

	units_choose(u, sizes, at[0]);
	window = mm_cold_window_bytes(u->classes, u->layers, u->unit_bytes, u->entries);
	r = mm_gpu_range_open(&u->dev, window, sizes->pages[0], &u->window);
	if (!r)
		r = mm_gpu_range_open(&u->dev, u->moved_bytes, 0, &u->out);
	return r ? r : mm_gpu_write(&u->dev, u->out.va, u->swap.base, u->moved_bytes);
}

static void units_finish(void *state)
{
	struct units *u = state;

	mm_gpu_range_close(&u->dev, &u->window);
	mm_gpu_range_close(&u->dev, &u->out);
}

static int units_open(void *state, struct mm_gpu_bench *bench)
{
	struct units *u = state;
	const uint64_t bytes = bench->sizes.swap_bytes;
	int r = mm_gpu_dev_open(&u->dev, bench);

	u->layers = UNIT_LAYERS;
	u->classes = mm_cold_layer_classes(UNIT_LAYERS);
	if (!r)
		r = mm_gpu_warm_up(&u->dev);
	if (!r)
		r = MM_GPU_CALL(&u->dev, cuStreamCreate, &u->out_stream, CU_STREAM_NON_BLOCKING);
	if (!r)
		r = MM_GPU_CALL(&u->dev, cuEventCreate, &u->out_done, CU_EVENT_DISABLE_TIMING);
	if (!r)
		r = mm_gpu_host_open(&u->dev, bytes, &u->swap);
	return r ? r : mm_gpu_host_open(&u->dev, bytes / UNIT_LAYERS, &u->out_host);
}

static void units_close(void *state)
{
	struct units *u = state;

	if (!u->dev.gpu.library)
		return;
	mm_gpu_host_close(&u->dev, &u->swap);
	mm_gpu_host_close(&u->dev, &u->out_host);
	if (u->out_done)
		u->dev.gpu.cuEventDestroy(u->out_done);
	if (u->out_stream)
		u->dev.gpu.cuStreamDestroy(u->out_stream);
	mm_gpu_dev_close(&u->dev);
}

static const struct mm_gpu_measurement units_copies = {
	.name = "units",
	MM_GPU_STATEMENT(units_sides, units_rows),
	.warm_up = 1,
	.rounds = units_rounds,
	.alternates = true,
	.sweep = units_sweep,
	.prepare = units_prepare,
	.finish = units_finish,
	.params = units_params,
};

const struct mm_gpu_group mm_gpu_stream2d = {
	.name = "stream2d",
	.what = "streaming cold blocks: rows with gaps between them, against a linear copy",
	.state_bytes = sizeof(struct units),
	.open = units_open,
	.close = units_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &units_copies, NULL },
};
