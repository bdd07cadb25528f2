/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels - bandwidth of the kernels that are bound by memory
 *
 * Concept:   Kernels work on rows of activations, which together are larger than the device's
 *            caches. The figure is the least number of bytes (each input read once, each output
 *            written once) by the time of a launch. The reference is a copy within the device, read
 *            and written bytes counted, measured alternately.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/groups.h"

#define BLOCK_TOKENS 16u
#define LAUNCHES     3u
#define HEAD_DIM_MAX 128u

struct rows_words { /* constants in device memory that kernels read */
	uint64_t parts[2];
	double frequencies[HEAD_DIM_MAX / 2];
};

struct rows {
	struct mm_gpu_bed bed;
	struct mm_gpu_range x, y, z; /* f32 [rows][hidden] each */
	struct mm_gpu_range words;   /* ids, positions, zeros, table, results */
	uint32_t rows, hidden, head_dim, vocab;
	CUdeviceptr ids, positions, zeros, table, results;
	uint32_t kernel; /* of a case; index */
};

union args {
	struct mm_embed_args embed;
	struct mm_rmsnorm_args rmsnorm;
	struct mm_layernorm_args layernorm;
	struct mm_bias_add_args bias_add;
	struct mm_rope_args rope;
	struct mm_kv_write_args kv_write;
	struct mm_swiglu_args swiglu;
	struct mm_relu_args relu;
	struct mm_add_args add;
	struct mm_narrow_args narrow;
	struct mm_argmax_args argmax;
	struct mm_checksum_args checksum;
	struct mm_fill_args fill;
	struct mm_kv_move_args kv_move;
};

/* ---- arguments ---- */

static void make_embed(const struct rows *k, union args *a)
{
	a->embed = (struct mm_embed_args){ .ids_va = k->ids,
					   .table_va = k->y.va,
					   .out_va = k->x.va,
					   .tokens = k->rows,
					   .hidden = k->hidden,
					   .dtype = MM_DTYPE_F16 };
}

static void make_rmsnorm(const struct rows *k, union args *a)
{
	a->rmsnorm = (struct mm_rmsnorm_args){ .x_va = k->x.va,
					       .gain_va = k->y.va,
					       .out_va = k->z.va,
					       .tokens = k->rows,
					       .hidden = k->hidden,
					       .dtype = MM_DTYPE_F16,
					       .eps = 1e-5f };
}

static void make_layernorm(const struct rows *k, union args *a)
{
	a->layernorm = (struct mm_layernorm_args){ .x_va = k->x.va,
						   .gain_va = k->y.va,
						   .bias_va = k->y.va + 4 * (uint64_t)k->hidden,
						   .out_va = k->z.va,
						   .tokens = k->rows,
						   .hidden = k->hidden,
						   .dtype = MM_DTYPE_F16,
						   .bias_dtype = MM_DTYPE_F16,
						   .eps = 1e-5f };
}

static void make_bias_add(const struct rows *k, union args *a)
{
	a->bias_add = (struct mm_bias_add_args){ .x_va = k->x.va,
						 .bias_va = k->y.va,
						 .rows = k->rows,
						 .n = k->hidden,
						 .stride = k->hidden,
						 .dtype = MM_DTYPE_F16 };
}

static void make_rope(const struct rows *k, union args *a)
{
	a->rope = (struct mm_rope_args){ .x_va = k->x.va,
					 .positions_va = k->positions,
					 .frequencies_va = k->words.va +
							   offsetof(struct rows_words, frequencies),
					 .tokens = k->rows,
					 .heads = k->hidden / k->head_dim,
					 .head_dim = k->head_dim,
					 .stride = k->hidden };
}

/* Keys and values are as wide as a row, and all belong to one sequence. */
static void make_kv_write(const struct rows *k, union args *a)
{
	const uint64_t part = (uint64_t)BLOCK_TOKENS * k->hidden * 2;

	a->kv_write = (struct mm_kv_write_args){ .kv = { .k_va = k->z.va,
							 .v_va = k->z.va + part,
							 .tables_va = k->table,
							 .seqs_va = k->zeros,
							 .positions_va = k->positions,
							 .table_stride = k->rows / BLOCK_TOKENS,
							 .block_tokens = BLOCK_TOKENS,
							 .kv_dim = k->hidden,
							 .tokens = k->rows,
							 .dtype = MM_DTYPE_F16 },
						 .k_va = k->x.va,
						 .v_va = k->y.va,
						 .stride = k->hidden };
}

static void make_swiglu(const struct rows *k, union args *a)
{
	a->swiglu = (struct mm_swiglu_args){ .gate_va = k->x.va,
					     .up_va = k->x.va + 2 * (uint64_t)k->hidden,
					     .out_va = k->z.va,
					     .rows = k->rows,
					     .n = k->hidden / 2,
					     .stride = k->hidden };
}

static void make_relu(const struct rows *k, union args *a)
{
	a->relu = (struct mm_relu_args){ .x_va = k->x.va, .n = (uint64_t)k->rows * k->hidden };
}

static void make_add(const struct rows *k, union args *a)
{
	a->add = (struct mm_add_args){ .x_va = k->x.va,
				       .y_va = k->y.va,
				       .n = (uint64_t)k->rows * k->hidden };
}

static void make_narrow(const struct rows *k, union args *a)
{
	a->narrow = (struct mm_narrow_args){ .x_va = k->x.va,
					     .out_va = k->z.va,
					     .rows = k->rows,
					     .padded_rows = k->rows,
					     .n = k->hidden,
					     .stride = k->hidden,
					     .dtype = MM_DTYPE_F16 };
}

static void make_argmax(const struct rows *k, union args *a)
{
	a->argmax = (struct mm_argmax_args){
		.x_va = k->x.va, .out_va = k->results, .rows = k->rows, .n = k->hidden
	};
}

static void make_checksum(const struct rows *k, union args *a)
{
	a->checksum = (struct mm_checksum_args){ .data_va = k->x.va,
						 .length_bytes = 4 * (uint64_t)k->rows * k->hidden,
						 .out_va = k->results };
}

static void make_fill(const struct rows *k, union args *a)
{
	a->fill = (struct mm_fill_args){ .va = k->z.va,
					 .n = (uint64_t)k->rows * k->hidden / 2,
					 .pattern = UINT64_C(0x0123456789abcdef) };
}

/* y is the arena, x the dense buffer. */
static void make_kv_move(const struct rows *k, union args *a)
{
	a->kv_move = (struct mm_kv_move_args){ .parts_va = k->words.va,
					       .table_va = k->table,
					       .staging_va = k->x.va,
					       .part_bytes = (uint64_t)BLOCK_TOKENS * k->hidden * 2,
					       .blocks = k->rows / BLOCK_TOKENS,
					       .parts = 2 };
}

/*
 * Bytes for each of rows * hidden elements. Kernels that overwrite the random numbers with others
 * come last.
 */
static const struct {
	const char *name;
	enum mm_kernel kernel;
	void (*make)(const struct rows *k, union args *ret);
	double bytes;
} kernels[] = {
	{ "rmsnorm", MM_KERNEL_RMSNORM, make_rmsnorm, 8 },
	{ "layernorm", MM_KERNEL_LAYERNORM, make_layernorm, 8 },
	{ "rope", MM_KERNEL_ROPE, make_rope, 8 },
	{ "swiglu", MM_KERNEL_SWIGLU, make_swiglu, 6 },
	{ "narrow", MM_KERNEL_NARROW, make_narrow, 6 },
	{ "argmax", MM_KERNEL_ARGMAX, make_argmax, 4 },
	{ "checksum", MM_KERNEL_CHECKSUM, make_checksum, 4 },
	{ "kv_write", MM_KERNEL_KV_WRITE, make_kv_write, 12 },
	{ "kv_gather", MM_KERNEL_KV_GATHER, make_kv_move, 8 },
	{ "kv_scatter", MM_KERNEL_KV_SCATTER, make_kv_move, 8 },
	{ "embed", MM_KERNEL_EMBED, make_embed, 6 },
	{ "bias_add", MM_KERNEL_BIAS_ADD, make_bias_add, 8 },
	{ "add", MM_KERNEL_ADD, make_add, 12 },
	{ "fill", MM_KERNEL_FILL, make_fill, 4 },
	{ "relu", MM_KERNEL_RELU, make_relu, 8 },
};

/* ---- the statement ---- */

enum rows_value { LAUNCH, COPY };

static int row_kernel_enqueue(void *state, uint32_t i)
{
	struct rows *k = state;
	union args args;

	(void)i;
	memset(&args, 0, sizeof(args));
	kernels[k->kernel].make(k, &args);
	return mm_gpu_launch(&k->bed.module, kernels[k->kernel].kernel, &args);
}

static int kernels_run(void *state, uint32_t which, double *value)
{
	struct rows *k = state;

	return mm_gpu_time_calls(&k->bed.dev, row_kernel_enqueue, k, LAUNCHES, &value[which]);
}

/* Copies within z, which no kernel reads, so that the inputs of kernels stay random. */
static int rows_copy(void *state, uint32_t which, double *value)
{
	struct rows *k = state;

	return mm_gpu_time_copy(&k->bed.dev, k->z.va, k->z.bytes / 2, &value[which]);
}

static double kernel_work(const void *state)
{
	const struct rows *k = state;

	return kernels[k->kernel].bytes * k->rows * k->hidden;
}

static double rows_copy_work(const void *state)
{
	const struct rows *k = state;

	return 2 * (double)(k->z.bytes / 2);
}

static const char *kernel_case_name(const void *state)
{
	const struct rows *k = state;

	return kernels[k->kernel].name;
}

static const struct mm_gpu_param rows_params[] = {
	MM_GPU_PARAM("rows", struct rows, rows),
	MM_GPU_PARAM("hidden", struct rows, hidden),
	{ 0 },
};

static void rows_sweep(const void *state, uint32_t *ret_sizes)
{
	(void)state;
	ret_sizes[0] = MM_ARRAY_SIZE(kernels);
}

static int kernel_choose(void *state, const uint32_t *at)
{
	struct rows *k = state;

	k->kernel = at[0];
	return 0;
}

static const struct mm_gpu_side rows_sides[] = {
	{ "the kernel", LAUNCH, .run = kernels_run },
	{ "a copy", COPY, .run = rows_copy },
};

static const struct mm_gpu_row rows_rows[] = {
	{ "KERNEL", "each kernel that is bound by memory: every input and output once",
	  MM_GPU_BYTES_PER_S, LAUNCH, .work = kernel_work, .reference = COPY,
	  .reference_work = rows_copy_work,
	  .reference_name = "a copy within the device, read and written bytes" },
};

static const struct mm_gpu_measurement rows_kernels = {
	.name = "kernel",
	MM_GPU_STATEMENT(rows_sides, rows_rows),
	.warm_up = 1,
	.case_name = kernel_case_name,
	.sweep = rows_sweep,
	.prepare = kernel_choose,
	.params = rows_params,
};

/* ---- what there is ---- */

static void fill_words(const struct rows *k, struct rows_words *head, uint32_t *ids)
{
	uint32_t *positions = ids + k->rows, *zeros = positions + k->rows;
	uint32_t *table = zeros + k->rows;
	const uint32_t part = BLOCK_TOKENS * k->hidden * 2, blocks = k->rows / BLOCK_TOKENS;

	head->parts[0] = k->y.va;
	head->parts[1] = k->y.va + part;
	for (uint32_t i = 0; i < k->head_dim / 2; i++)
		head->frequencies[i] = pow(10000, -2.0 * i / k->head_dim);
	for (uint32_t i = 0; i < k->rows; i++) {
		ids[i] = i * UINT32_C(2654435761) % k->vocab;
		positions[i] = i;
		zeros[i] = 0;
	}
	/* The table is in reverse order, so that no block is where it would be without a table. */
	for (uint32_t i = 0; i < blocks; i++)
		table[i] = (blocks - 1 - i) * (2 * part / MM_KV_UNIT_BYTES);
}

static int rows_make_words(struct rows *k)
{
	const uint64_t n = 3 * (uint64_t)k->rows + k->rows / BLOCK_TOKENS;
	const uint64_t bytes = sizeof(struct rows_words) + n * sizeof(uint32_t);
	mm_cleanup(mm_free_ptr) struct rows_words *words = calloc(1, bytes);
	int r;

	if (!words)
		return mm_gpu_fail(k->bed.dev.bench, -ENOMEM, "out of memory");
	/* A result of checksum has 64 bits; one of argmax uses half of that. */
	r = mm_gpu_range_open(&k->bed.dev, mm_round_up(bytes, 8) + 8 * (uint64_t)k->rows, 0,
			      &k->words);
	if (r)
		return r;
	fill_words(k, words, (uint32_t *)(words + 1));
	k->ids = k->words.va + sizeof(struct rows_words);
	k->positions = k->ids + 4 * (uint64_t)k->rows;
	k->zeros = k->positions + 4 * (uint64_t)k->rows;
	k->table = k->zeros + 4 * (uint64_t)k->rows;
	k->results = k->words.va + mm_round_up(bytes, 8);
	return mm_gpu_write(&k->bed.dev, k->words.va, words, bytes);
}

static int rows_open(void *state, struct mm_gpu_bench *bench)
{
	struct rows *k = state;
	struct mm_gpu_range *const ranges[] = { &k->x, &k->y, &k->z };
	const uint64_t bytes = bench->sizes.buffer_bytes;
	int r = mm_gpu_bed_open(&k->bed, bench);

	k->hidden = bench->sizes.row_hidden;
	k->head_dim = MM_MIN(HEAD_DIM_MAX, k->hidden / 4);
	k->rows = (uint32_t)(bytes / (4 * (uint64_t)k->hidden)) / BLOCK_TOKENS * BLOCK_TOKENS;
	k->vocab = 2 * k->rows; /* the embedding table has 16 bits per element */
	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(ranges); i++) {
		r = mm_gpu_range_open(&k->bed.dev, bytes, 0, ranges[i]);
		if (!r)
			r = mm_gpu_randomize(&k->bed.dev, ranges[i]->va, bytes, true);
	}
	return r ? r : rows_make_words(k);
}

static void rows_close(void *state)
{
	struct rows *k = state;

	mm_gpu_range_close(&k->bed.dev, &k->x);
	mm_gpu_range_close(&k->bed.dev, &k->y);
	mm_gpu_range_close(&k->bed.dev, &k->z);
	mm_gpu_range_close(&k->bed.dev, &k->words);
	mm_gpu_bed_close(&k->bed);
}

const struct mm_gpu_group mm_gpu_kernels = {
	.name = "kernels",
	.what = "kernels that are bound by memory, against the bandwidth of a copy",
	.state_bytes = sizeof(struct rows),
	.open = rows_open,
	.close = rows_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &rows_kernels, NULL },
};
