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
#include "tools/lab/gpubench/groups.h"

#define BLOCK_TOKENS  16u
#define KV_BYTES      2u /* size of an element: F16 */
#define SETS_MAX      64u
#define LAUNCHES_MIN  4u
#define CHECKED_BYTES (UINT64_C(64) << 20)

struct attention_shape {
	const char *name;
	uint32_t heads, kv_heads, head_dim;
};

static const struct attention_shape real_shapes[] = { { "OPT-13B", 40, 40, 128 },
						      { "Llama-3-8B", 32, 8, 128 } };
static const struct attention_shape small_shape = { "small", 4, 2, 16 };
static const uint32_t attention_contexts[] = { 512, 2048, 8192, 32768 };
static const uint32_t attention_batches[] = { 1, 4, 16, 64, 256 };

enum attention_value { LAUNCH, COPY };

struct attention {
	struct mm_gpu_bed bed;
	struct mm_gpu_range arena; /* keys and values */
	struct mm_gpu_range q, out, partial, counters,
		words; /* words: tables, owners and positions */
	struct attention_shape shape;
	uint32_t context, batch, sets, stride;
	bool prefill;
};

/* Are sizes those of a rehearsal? */
static bool attention_is_small(const struct attention *a)
{
	return a->bed.dev.bench->rehearsal && !a->bed.dev.bench->timed;
}

static uint64_t part_bytes(const struct attention *a)
{
	return (uint64_t)BLOCK_TOKENS * a->shape.kv_heads * a->shape.head_dim * KV_BYTES;
}

/* Bytes of the keys and values that one launch reads. */
static uint64_t kv_bytes(const struct attention *a)
{
	return (uint64_t)a->context * a->batch * a->shape.kv_heads * a->shape.head_dim * 2 *
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

	if (!words)
		return mm_gpu_fail(a->bed.dev.bench, -ENOMEM, "out of memory");
	mm_gpu_shuffle(words, n_tables);
	for (uint32_t i = 0; i < n_tables; i++)
		words[i] *= (uint32_t)(2 * part_bytes(a) / MM_KV_UNIT_BYTES);
	for (uint32_t i = 0; i < n; i++) {
		words[n_tables + i] = a->prefill ? 0 : i;
		words[n_tables + n + i] = a->prefill ? i : a->context - 1;
	}
	return mm_gpu_range_write(&a->bed.dev, words, bytes, &a->words);
}

static uint32_t splits_per_table(const struct attention *a)
{
	return a->prefill ? 1 : mm_attention_splits(a->context, MM_ATTENTION_SPLIT_TOKENS);
}

static int attention_make_rows(struct attention *a)
{
	const uint64_t n = tokens_total(a), heads = a->shape.heads, dim = a->shape.head_dim;
	const uint64_t partial = mm_attention_partial_bytes((uint32_t)n, (uint32_t)heads,
							    (uint32_t)dim, splits_per_table(a));
	const uint64_t row_bytes = n * heads * dim * sizeof(float);
	int r = mm_gpu_range_open(&a->bed.dev, row_bytes, 0, &a->q);

	if (!r)
		r = mm_gpu_randomize(&a->bed.dev, a->q.va, row_bytes, true);
	if (!r)
		r = mm_gpu_range_open(&a->bed.dev, row_bytes, 0, &a->out);
	if (!r)
		r = mm_gpu_poison(&a->bed.dev, a->out.va, row_bytes / sizeof(float));
	if (!r && partial)
		r = mm_gpu_range_open(&a->bed.dev, partial, 0, &a->partial);
	if (!r)
		r = mm_gpu_range_open(&a->bed.dev, n * heads * sizeof(uint32_t), 0, &a->counters);
	if (!r)
		r = MM_GPU_CALL(&a->bed.dev, cuMemsetD32Async, a->counters.va, 0, n * heads,
				a->bed.dev.stream);
	return r;
}

static int attention_launch(void *state, uint32_t i)
{
	struct attention *a = state;
	const uint32_t set = i % a->sets;
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
			.kv_dim = a->shape.kv_heads * a->shape.head_dim,
			.tokens = n,
			.dtype = MM_DTYPE_F16 },
		.q_va = a->q.va,
		.out_va = a->out.va,
		.partial_va = a->partial.va,
		.counters_va = a->counters.va,
		.heads = a->shape.heads,
		.kv_heads = a->shape.kv_heads,
		.head_dim = a->shape.head_dim,
		.scale = 1.0f / sqrtf((float)a->shape.head_dim),
		.q_stride = a->shape.heads * a->shape.head_dim,
		.split_tokens = MM_ATTENTION_SPLIT_TOKENS,
		.splits = splits_per_table(a),
	};

	return mm_gpu_launch(&a->bed.module, MM_KERNEL_ATTENTION, &args);
}

/* ---- the sides ---- */

static int launches_run(void *state, uint32_t which, double *value)
{
	struct attention *a = state;
	const uint32_t n = MM_MAX(a->sets, a->prefill ? 1 : LAUNCHES_MIN);

	return mm_gpu_time_calls(&a->bed.dev, attention_launch, a, n, &value[which]);
}

static int launches_check(void *state, uint32_t which)
{
	struct attention *a = state;

	(void)which;
	return mm_gpu_check_numbers(&a->bed.dev, a->out.va, a->out.bytes / sizeof(float));
}

static uint64_t copied_half(const struct attention *a)
{
	return MM_MIN(a->arena.bytes / 2, a->bed.dev.bench->sizes.buffer_bytes);
}

/* Copies within the arena. */
static int arena_copy(void *state, uint32_t which, double *value)
{
	struct attention *a = state;

	return mm_gpu_time_copy(&a->bed.dev, a->arena.va, copied_half(a), &value[which]);
}

/* Bytes of a launch: keys, values, queries and results, each once. For prefill: its operations. */
static double set_work(const void *state)
{
	const struct attention *a = state;
	const double values = (double)tokens_total(a) * a->shape.heads * a->shape.head_dim;

	if (a->prefill)
		return 2 * values * (a->context + 1.0);
	return (double)kv_bytes(a) + 2 * sizeof(float) * values;
}

static double arena_work(const void *state)
{
	return 2 * (double)copied_half(state);
}

static bool fills_device(const void *state)
{
	return kv_bytes(state) >= CHECKED_BYTES;
}

static const struct mm_gpu_param attention_params[] = {
	MM_GPU_PARAM("shape", struct attention, shape.name),
	MM_GPU_PARAM("context", struct attention, context),
	MM_GPU_PARAM("batch", struct attention, batch),
	{ 0 },
};

/* ---- cases ---- */

static int case_prepare(struct attention *a, uint32_t context, uint32_t batch, bool prefill)
{
	int r;

	a->context = context;
	a->batch = batch;
	a->prefill = prefill;
	a->stride = (uint32_t)mm_div_up(context, BLOCK_TOKENS);
	if (held_bytes(a) > a->arena.bytes)
		return MM_E_EMPTY;
	a->sets =
		(uint32_t)MM_MIN(a->bed.dev.bench->sizes.buffer_bytes / kv_bytes(a), SETS_MAX - 1) +
		1;
	a->sets = (uint32_t)MM_MIN(a->sets, a->arena.bytes / held_bytes(a));
	r = attention_make_words(a);
	return r ? r : attention_make_rows(a);
}

static void decode_sweep(const void *state, uint32_t *ret_sizes)
{
	if (attention_is_small(state))
		return;
	ret_sizes[0] = MM_ARRAY_SIZE(attention_contexts);
	ret_sizes[1] = MM_ARRAY_SIZE(attention_batches);
}

static int decode_case_prepare(void *state, const uint32_t *at)
{
	struct attention *a = state;

	if (attention_is_small(a))
		return case_prepare(a, 40, 3, false);
	if (a->bed.dev.bench->opts.quick && (at[0] % 2 == 0 || at[1] % 2))
		return MM_E_EMPTY;
	return case_prepare(a, attention_contexts[at[0]], attention_batches[at[1]], false);
}

static int prefill_prepare(void *state, const uint32_t *at)
{
	struct attention *a = state;

	(void)at;
	return case_prepare(a, attention_is_small(a) ? 40 : 2048, 1, true);
}

static void attention_finish(void *state)
{
	struct attention *a = state;
	struct mm_gpu_range *const ranges[] = { &a->q, &a->out, &a->partial, &a->counters,
						&a->words };

	for (size_t i = 0; i < MM_ARRAY_SIZE(ranges); i++)
		mm_gpu_range_close(&a->bed.dev, ranges[i]);
}

/* ---- the statements ---- */

/* Prefill has only the first one. */
static const struct mm_gpu_side attention_sides[] = {
	{ "attention", LAUNCH, .run = launches_run, .check = launches_check },
	{ "a copy", COPY, .run = arena_copy },
};

static const struct mm_gpu_row decode_rows[] = {
	{ "decode", "paged attention: keys, values, queries and results, each once",
	  MM_GPU_BYTES_PER_S, LAUNCH, .work = set_work, .reference = COPY,
	  .reference_work = arena_work,
	  .reference_name = "a copy within the device, read and written bytes",
	  .goal = { MM_GOAL_AT_LEAST, 0.8 }, .has_goal = fills_device },
};

static const struct mm_gpu_row prefill_rows[] = {
	{ "prefill", "paged attention of a whole prompt", MM_GPU_FLOP_PER_S, LAUNCH,
	  .work = set_work },
};

static const struct mm_gpu_measurement attention_decode = {
	.name = "decode",
	MM_GPU_STATEMENT(attention_sides, decode_rows),
	.warm_up = 1,
	.sweep = decode_sweep,
	.prepare = decode_case_prepare,
	.finish = attention_finish,
	.params = attention_params,
};

static const struct mm_gpu_measurement attention_prefill = {
	.name = "prefill",
	.sides = attention_sides,
	.n_sides = 1,
	.rows = prefill_rows,
	.n_rows = MM_ARRAY_SIZE(prefill_rows),
	.warm_up = 1,
	.prepare = prefill_prepare,
	.finish = attention_finish,
	.params = attention_params,
};

/* ---- the group: its points are shapes ---- */

static uint32_t attention_points(const void *state)
{
	return attention_is_small(state) ? 1 : MM_ARRAY_SIZE(real_shapes);
}

static int attention_enter(void *state, uint32_t point)
{
	struct attention *a = state;

	a->shape = attention_is_small(a) ? small_shape : real_shapes[point];
	return 0;
}

static int attention_open(void *state, struct mm_gpu_bench *bench)
{
	struct attention *a = state;
	int r = mm_gpu_bed_open(&a->bed, bench);

	if (!r)
		r = mm_gpu_range_open(&a->bed.dev, bench->sizes.arena_bytes, 0, &a->arena);
	return r ? r : mm_gpu_randomize(&a->bed.dev, a->arena.va, a->arena.bytes, true);
}

static void attention_close(void *state)
{
	struct attention *a = state;

	mm_gpu_range_close(&a->bed.dev, &a->arena);
	mm_gpu_bed_close(&a->bed);
}

const struct mm_gpu_group mm_gpu_attention = {
	.name = "attention",
	.what = "paged attention, against the bandwidth of a copy",
	.state_bytes = sizeof(struct attention),
	.open = attention_open,
	.close = attention_close,
	.points = attention_points,
	.enter = attention_enter,
	.measurements = (const struct mm_gpu_measurement *const[]){ &attention_decode,
								    &attention_prefill, NULL },
};
