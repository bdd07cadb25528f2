/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention - paged attention against the memory that it must read
 *
 * Concept:   Decoding reads each key and value once. The figure is their bytes by the time of a
 *            launch; the reference is a copy within the device, read and written bytes counted,
 *            measured alternately. Blocks are in random order in one arena; launches cycle through
 *            several sets of blocks, which together are larger than the device's caches. A row has
 *            a goal if its keys and values are 64 MiB or more, because less does not fill a device.
 *            Prefill is bound by arithmetic, so its figure is operations by time.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/parts.h"

#define BLOCK_TOKENS   16u
#define KV_BYTES       2u /* size of an element: F16 */
#define SETS_MAX       64u
#define LAUNCHES_MIN   4u
#define CHECKED_BYTES  (UINT64_C(64) << 20)
#define REFERENCE_NAME "a copy within the device, read and written bytes"

struct attention_shape {
	const char *name;
	uint32_t heads, kv_heads, head_dim;
};

struct attention {
	struct mm_gpu_bench *bench;
	struct mm_gpu_dev dev;
	struct mm_gpu_module module;
	struct mm_gpu_range arena; /* keys and values */
	struct mm_gpu_range q, out, partial, counters,
		words; /* words: tables, owners and positions */
	const struct attention_shape *shape;
	uint32_t context, batch, sets, stride;
	bool prefill;
	struct mm_series rate, copy;
};

static uint64_t part_bytes(const struct attention *a)
{
	return (uint64_t)BLOCK_TOKENS * a->shape->kv_heads * a->shape->head_dim * KV_BYTES;
}

/* Bytes of the keys and values that one launch reads. */
static uint64_t kv_bytes(const struct attention *a)
{
	return (uint64_t)a->context * a->batch * a->shape->kv_heads * a->shape->head_dim * 2 *
	       KV_BYTES;
}

/* Bytes of the whole blocks that hold the keys and values of one launch. */
static uint64_t held_bytes(const struct attention *a)
{
	return (uint64_t)a->batch * a->stride * 2 * part_bytes(a);
}

static uint32_t tokens_total(const struct attention *a)
{
	return a->prefill ? a->context : a->batch;
}

/* ---- what a launch reads ---- */

/* Writes the words: tables of all sets; then, for each token, its table's index and position. */
static int attention_make_words(struct attention *a)
{
	const uint32_t n_tables = a->sets * a->batch * a->stride, n = tokens_total(a);
	const uint64_t bytes = ((uint64_t)n_tables + 2 * (uint64_t)n) * sizeof(uint32_t);
	mm_cleanup(mm_free_ptr) uint32_t *words = malloc(bytes);
	int r;

	if (!words)
		return mm_gpu_fail(a->bench, -ENOMEM, "out of memory");
	mm_gpu_shuffle(words, n_tables);
	for (uint32_t i = 0; i < n_tables; i++)
		words[i] *= (uint32_t)(2 * part_bytes(a) / MM_KV_UNIT_BYTES);
	for (uint32_t i = 0; i < n; i++) {
		words[n_tables + i] = a->prefill ? 0 : i;
		words[n_tables + n + i] = a->prefill ? i : a->context - 1;
	}
	r = mm_gpu_range_open(&a->dev, bytes, 0, &a->words);
	return r ? r
		 : mm_gpu_call(&a->dev, a->dev.gpu.cuMemcpyHtoD(a->words.va, words, bytes),
			       "cuMemcpyHtoD");
}

static uint32_t splits_per_table(const struct attention *a)
{
	return a->prefill ? 1 : mm_attention_splits(a->context, MM_ATTENTION_SPLIT_TOKENS);
}

static int attention_make_rows(struct attention *a)
{
	const uint64_t n = tokens_total(a), heads = a->shape->heads, dim = a->shape->head_dim;
	const uint64_t partial = mm_attention_partial_bytes((uint32_t)n, (uint32_t)heads,
							    (uint32_t)dim, splits_per_table(a));
	const uint64_t row_bytes = n * heads * dim * sizeof(float);
	int r = mm_gpu_range_open(&a->dev, row_bytes, 0, &a->q);

	if (!r)
		r = mm_gpu_randomize(&a->dev, a->q.va, row_bytes, true);
	if (!r)
		r = mm_gpu_range_open(&a->dev, row_bytes, 0, &a->out);
	if (!r && partial)
		r = mm_gpu_range_open(&a->dev, partial, 0, &a->partial);
	if (!r)
		r = mm_gpu_range_open(&a->dev, n * heads * sizeof(uint32_t), 0, &a->counters);
	if (!r)
		r = mm_gpu_call(
			&a->dev,
			a->dev.gpu.cuMemsetD32Async(a->counters.va, 0, n * heads, a->dev.stream),
			"cuMemsetD32Async");
	return r;
}

static void drop_rows(struct attention *a)
{
	mm_gpu_range_close(&a->dev, &a->q);
	mm_gpu_range_close(&a->dev, &a->out);
	mm_gpu_range_close(&a->dev, &a->partial);
	mm_gpu_range_close(&a->dev, &a->counters);
	mm_gpu_range_close(&a->dev, &a->words);
	mm_series_done(&a->rate);
	mm_series_done(&a->copy);
}

static int attention_launch(struct attention *a, uint32_t set)
{
	const uint32_t n_tables = a->sets * a->batch * a->stride, n = tokens_total(a);
	const uint64_t tables = a->words.va, seqs = tables + (uint64_t)n_tables * 4;
	const struct mm_paged_attention_args args = {
		.kv = { .k_va = a->arena.va,
			.v_va = a->arena.va + part_bytes(a),
			.tables_va = tables + (uint64_t)set * a->batch * a->stride * 4,
			.seqs_va = seqs,
			.positions_va = seqs + (uint64_t)n * 4,
			.table_stride = a->stride,
			.block_tokens = BLOCK_TOKENS,
			.kv_dim = a->shape->kv_heads * a->shape->head_dim,
			.tokens = n,
			.dtype = MM_DTYPE_F16 },
		.q_va = a->q.va,
		.out_va = a->out.va,
		.partial_va = a->partial.va,
		.counters_va = a->counters.va,
		.heads = a->shape->heads,
		.kv_heads = a->shape->kv_heads,
		.head_dim = a->shape->head_dim,
		.scale = 1.0f / sqrtf((float)a->shape->head_dim),
		.q_stride = a->shape->heads * a->shape->head_dim,
		.split_tokens = MM_ATTENTION_SPLIT_TOKENS,
		.splits = splits_per_table(a),
	};

	return mm_gpu_launch(&a->module, MM_KERNEL_ATTENTION, &args);
}

/* ---- measuring ---- */

static int attention_time_launches(struct attention *a, double *ret_s)
{
	const uint32_t n = MM_MAX(a->sets, a->prefill ? 1 : LAUNCHES_MIN);
	double took_s = 0;
	int r = mm_gpu_time_begin(&a->dev);

	for (uint32_t i = 0; !r && i < n; i++)
		r = attention_launch(a, i % a->sets);
	if (!r)
		r = mm_gpu_time_end(&a->dev, &took_s);
	*ret_s = took_s / n;
	return r;
}

/* Times a copy within the arena, and computes its rate, read and written bytes counted. */
static int attention_time_copy(struct attention *a, double *ret_rate)
{
	const uint64_t half = MM_MIN(a->arena.bytes / 2, a->bench->sizes.buffer_bytes);
	double took_s = 0;
	int r = mm_gpu_time_copy(&a->dev, a->arena.va, half, &took_s);

	*ret_rate = 2 * (double)half / took_s;
	return r;
}

/* Bytes of a launch: keys, values, queries and results, each once. For prefill: its operations. */
static double set_work(const struct attention *a)
{
	const double values = (double)tokens_total(a) * a->shape->heads * a->shape->head_dim;

	if (a->prefill)
		return 2 * values * (a->context + 1.0);
	return (double)kv_bytes(a) + 2 * sizeof(float) * values;
}

static int attention_measure(struct attention *a)
{
	double launch_s, copy;
	int r = 0;

	for (uint32_t i = 0; !r && i <= a->bench->sizes.repeat; i++) {
		r = attention_time_launches(a, &launch_s);
		if (!r && !a->prefill)
			r = attention_time_copy(a, &copy);
		if (!r && i)
			mm_series_add(&a->rate, set_work(a) / launch_s);
		if (!r && i && !a->prefill)
			mm_series_add(&a->copy, copy);
	}
	return r;
}

static int attention_report(struct attention *a)
{
	const bool checked = !a->prefill && kv_bytes(a) >= CHECKED_BYTES;
	const struct mm_gpu_result result = {
		.name = a->prefill ? "prefill" : "decode",
		.unit = a->prefill ? "flop_per_s" : "bytes_per_s",
		.figure = &a->rate,
		.reference = a->prefill ? NULL : &a->copy,
		.reference_name = REFERENCE_NAME,
		.goal = { checked ? MM_GOAL_AT_LEAST : MM_GOAL_NONE, 0.8 },
		.params = json_pack("{s:s,s:i,s:i}", "shape", a->shape->name, "context",
				    (int)a->context, "batch", (int)a->batch),
	};

	return mm_gpu_result(a->bench, &result);
}

static int run_case(struct attention *a, const struct attention_shape *shape, uint32_t context,
		    uint32_t batch, bool prefill)
{
	int r;

	a->shape = shape;
	a->context = context;
	a->batch = batch;
	a->prefill = prefill;
	a->stride = (uint32_t)mm_div_up(context, BLOCK_TOKENS);
	if (held_bytes(a) > a->arena.bytes)
		return 0;
	a->sets = (uint32_t)MM_MIN(a->bench->sizes.buffer_bytes / kv_bytes(a), SETS_MAX - 1) + 1;
	a->sets = (uint32_t)MM_MIN(a->sets, a->arena.bytes / held_bytes(a));
	r = attention_make_words(a);
	if (!r)
		r = attention_make_rows(a);
	if (!r)
		r = attention_measure(a);
	if (!r)
		r = attention_report(a);
	drop_rows(a);
	return r;
}

/* ---- cases ---- */

static int run_shape(struct attention *a, const struct attention_shape *shape)
{
	static const uint32_t contexts[] = { 512, 2048, 8192, 32768 };
	static const uint32_t batches[] = { 1, 4, 16, 64, 256 };
	const bool quick = a->bench->opts.quick;
	int r = 0;

	mm_gpu_progress(a->bench, "%s", shape->name);
	for (size_t c = 0; !r && c < MM_ARRAY_SIZE(contexts); c++)
		for (size_t b = 0; !r && b < MM_ARRAY_SIZE(batches); b++)
			if (!quick || (c % 2 && b % 2 == 0))
				r = run_case(a, shape, contexts[c], batches[b], false);
	return r ? r : run_case(a, shape, 2048, 1, true);
}

static int attention_run(struct attention *a)
{
	static const struct attention_shape real[] = { { "OPT-13B", 40, 40, 128 },
						       { "Llama-3-8B", 32, 8, 128 } };
	static const struct attention_shape small = { "small", 4, 2, 16 };
	int r = 0;

	if (!a->bench->rehearsal || a->bench->timed) {
		for (size_t i = 0; !r && i < MM_ARRAY_SIZE(real); i++)
			r = run_shape(a, &real[i]);
		return r;
	}
	r = run_case(a, &small, 40, 3, false);
	return r ? r : run_case(a, &small, 40, 1, true);
}

int mm_gpu_attention_run(struct mm_gpu_bench *bench)
{
	struct attention a = { .bench = bench };
	int r = mm_gpu_dev_open(&a.dev, bench);

	if (!r)
		r = mm_gpu_module_open(&a.module, &a.dev);
	if (!r)
		r = mm_gpu_range_open(&a.dev, bench->sizes.arena_bytes, 0, &a.arena);
	if (!r)
		r = mm_gpu_randomize(&a.dev, a.arena.va, a.arena.bytes, true);
	if (!r)
		r = attention_run(&a);
	mm_gpu_range_close(&a.dev, &a.arena);
	mm_gpu_module_close(&a.module);
	mm_gpu_dev_close(&a.dev);
	return r;
}
