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
#include "tools/lab/gpubench/parts.h"

#define BLOCK_TOKENS 16u
#define LAUNCHES     3u
#define HEAD_DIM_MAX 128u

struct rows_words { /* constants in device memory that kernels read */
	uint64_t parts[2];
	double frequencies[HEAD_DIM_MAX / 2];
};

struct rows {
	struct mm_gpu_bench *bench;
	struct mm_gpu_dev dev;
	struct mm_gpu_module module;
	struct mm_gpu_range x, y, z; /* f32 [rows][hidden] each */
	struct mm_gpu_range words;   /* ids, positions, zeros, table, results */
	uint32_t rows, hidden, head_dim, vocab;
	CUdeviceptr ids, positions, zeros, table, results;
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

/* ---- measuring ---- */

static int rows_time_launches(struct rows *k, enum mm_kernel kernel, const union args *args,
			      double *ret_s)
{
	double took_s = 0;
	int r = mm_gpu_time_begin(&k->dev);

	for (uint32_t i = 0; !r && i < LAUNCHES; i++)
		r = mm_gpu_launch(&k->module, kernel, args);
	if (!r)
		r = mm_gpu_time_end(&k->dev, &took_s);
	*ret_s = took_s / LAUNCHES;
	return r;
}

/* Times a copy within z, which no kernel reads, so that the inputs of kernels stay random. */
static int rows_time_copy(struct rows *k, double *ret_rate)
{
	const uint64_t half = k->z.bytes / 2;
	double took_s = 0;
	int r = mm_gpu_time_copy(&k->dev, k->z.va, half, &took_s);

	*ret_rate = 2 * (double)half / took_s;
	return r;
}

static int run_kernel(struct rows *k, size_t index)
{
	const double bytes = kernels[index].bytes * k->rows * k->hidden;
	struct mm_series rate = { 0 }, copy = { 0 };
	const struct mm_gpu_result result = {
		.name = kernels[index].name,
		.unit = "bytes_per_s",
		.figure = &rate,
		.reference = &copy,
		.reference_name = "a copy within the device, read and written bytes",
		.params = json_pack("{s:i,s:i}", "rows", (int)k->rows, "hidden", (int)k->hidden),
	};
	union args args;
	int r = 0;

	memset(&args, 0, sizeof(args));
	kernels[index].make(k, &args);
	for (uint32_t i = 0; !r && i <= k->bench->sizes.repeat; i++) {
		double launch_s, copy_rate;

		r = rows_time_launches(k, kernels[index].kernel, &args, &launch_s);
		if (!r)
			r = rows_time_copy(k, &copy_rate);
		if (r || !i)
			continue;
		mm_series_add(&rate, bytes / launch_s);
		mm_series_add(&copy, copy_rate);
	}
	if (!r)
		r = mm_gpu_result(k->bench, &result);
	else
		json_decref(result.params);
	mm_series_done(&rate);
	mm_series_done(&copy);
	return r;
}

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
		return mm_gpu_fail(k->bench, -ENOMEM, "out of memory");
	/* A result of checksum has 64 bits; one of argmax uses half of that. */
	r = mm_gpu_range_open(&k->dev, mm_round_up(bytes, 8) + 8 * (uint64_t)k->rows, 0, &k->words);
	if (r)
		return r;
	fill_words(k, words, (uint32_t *)(words + 1));
	k->ids = k->words.va + sizeof(struct rows_words);
	k->positions = k->ids + 4 * (uint64_t)k->rows;
	k->zeros = k->positions + 4 * (uint64_t)k->rows;
	k->table = k->zeros + 4 * (uint64_t)k->rows;
	k->results = k->words.va + mm_round_up(bytes, 8);
	return mm_gpu_call(&k->dev, k->dev.gpu.cuMemcpyHtoD(k->words.va, words, bytes),
			   "cuMemcpyHtoD");
}

static int rows_prepare(struct rows *k)
{
	struct mm_gpu_range *const ranges[] = { &k->x, &k->y, &k->z };
	const uint64_t bytes = k->bench->sizes.buffer_bytes;
	int r = mm_gpu_dev_open(&k->dev, k->bench);

	k->hidden = k->bench->sizes.row_hidden;
	k->head_dim = MM_MIN(HEAD_DIM_MAX, k->hidden / 4);
	k->rows = (uint32_t)(bytes / (4 * (uint64_t)k->hidden)) / BLOCK_TOKENS * BLOCK_TOKENS;
	k->vocab = 2 * k->rows; /* the embedding table has 16 bits per element */
	if (!r)
		r = mm_gpu_module_open(&k->module, &k->dev);
	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(ranges); i++) {
		r = mm_gpu_range_open(&k->dev, bytes, 0, ranges[i]);
		if (!r)
			r = mm_gpu_randomize(&k->dev, ranges[i]->va, bytes, true);
	}
	return r ? r : rows_make_words(k);
}

int mm_gpu_kernels_run(struct mm_gpu_bench *bench)
{
	struct rows k = { .bench = bench };
	int r = rows_prepare(&k);

	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(kernels); i++) {
		mm_gpu_progress(bench, "%s", kernels[i].name);
		r = run_kernel(&k, i);
		if (r == -EOPNOTSUPP) { /* this kernel is missing; others may be there */
			mm_gpu_progress(bench, "%s", bench->err);
			r = 0;
		}
	}
	mm_gpu_range_close(&k.dev, &k.x);
	mm_gpu_range_close(&k.dev, &k.y);
	mm_gpu_range_close(&k.dev, &k.z);
	mm_gpu_range_close(&k.dev, &k.words);
	mm_gpu_module_close(&k.module);
	mm_gpu_dev_close(&k.dev);
	return r;
}
