/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/launch/launch.h"

#include "kernels/args/args.h"
#include "kernels/args/gemm.h"
#include "kernels/host/checksum.h"

#define GRID_X_MAX INT32_MAX
#define GRID_Y_MAX 65535u

static const char *const kernel_names[MM_KERNEL_COUNT] = {
	[MM_KERNEL_EMBED] = "mm_embed",
	[MM_KERNEL_POSITION_EMBED] = "mm_position_embed",
	[MM_KERNEL_GATHER] = "mm_gather",
	[MM_KERNEL_RMSNORM] = "mm_rmsnorm",
	[MM_KERNEL_LAYERNORM] = "mm_layernorm",
	[MM_KERNEL_BIAS_ADD] = "mm_bias_add",
	[MM_KERNEL_ROPE] = "mm_rope",
	[MM_KERNEL_KV_WRITE] = "mm_kv_write",
	[MM_KERNEL_ATTENTION] = "mm_paged_attention",
	[MM_KERNEL_SWIGLU] = "mm_swiglu",
	[MM_KERNEL_RELU] = "mm_relu",
	[MM_KERNEL_ADD] = "mm_add",
	[MM_KERNEL_GEMM] = "mm_gemm",
	[MM_KERNEL_ARGMAX] = "mm_argmax",
	[MM_KERNEL_CHECKSUM] = "mm_checksum",
	[MM_KERNEL_FILL] = "mm_fill",
	[MM_KERNEL_KV_GATHER] = "mm_kv_gather",
	[MM_KERNEL_KV_SCATTER] = "mm_kv_scatter",
	[MM_KERNEL_NARROW] = "mm_narrow",
};

const char *mm_kernel_name(enum mm_kernel kernel)
{
	return kernel_names[kernel];
}

static uint32_t at_least_one(uint64_t n, uint32_t most)
{
	return n == 0 ? 1 : n > most ? most : (uint32_t)n;
}

static uint64_t piece_count(uint64_t n, uint64_t size)
{
	return n / size + (n % size != 0);
}

static void shape_set(struct mm_launch_shape *s, uint64_t x, uint64_t y, uint64_t z,
		      uint32_t threads)
{
	*s = (struct mm_launch_shape){ { at_least_one(x, GRID_X_MAX), at_least_one(y, GRID_Y_MAX),
					 at_least_one(z, GRID_Y_MAX) },
				       { threads, 1, 1 },
				       0 };
}

/* One block for each row and piece of its columns. */
static void shape_rows(struct mm_launch_shape *s, uint32_t rows, uint32_t columns, uint32_t planes)
{
	shape_set(s, rows, piece_count(columns, MM_ROW_COLUMNS), planes, MM_ROW_THREADS);
}

/* @bytes: length of the range, or of the longer one of two. */
static void shape_flat(struct mm_launch_shape *s, uint64_t bytes)
{
	shape_set(s, piece_count(bytes, MM_FLAT_BYTES), 1, 1, MM_FLAT_THREADS);
}

static void shape_embed(const void *args, struct mm_launch_shape *s)
{
	const struct mm_embed_args *a = args;

	shape_rows(s, a->tokens, a->hidden, 1);
}

static void shape_position_embed(const void *args, struct mm_launch_shape *s)
{
	const struct mm_position_embed_args *a = args;

	shape_rows(s, a->tokens, a->hidden, 1);
}

static void shape_gather(const void *args, struct mm_launch_shape *s)
{
	const struct mm_gather_args *a = args;

	shape_rows(s, a->n, a->hidden, 1);
}

static void shape_rmsnorm(const void *args, struct mm_launch_shape *s)
{
	const struct mm_rmsnorm_args *a = args;

	shape_set(s, a->tokens, 1, 1, MM_NORM_THREADS);
}

static void shape_layernorm(const void *args, struct mm_launch_shape *s)
{
	const struct mm_layernorm_args *a = args;

	shape_set(s, a->tokens, 1, 1, MM_NORM_THREADS);
}

static void shape_bias_add(const void *args, struct mm_launch_shape *s)
{
	const struct mm_bias_add_args *a = args;

	shape_rows(s, a->rows, a->n, 1);
}

static void shape_rope(const void *args, struct mm_launch_shape *s)
{
	const struct mm_rope_args *a = args;
	const uint64_t pairs = (uint64_t)a->heads * (a->head_dim / 2);

	shape_set(s, a->tokens, piece_count(pairs, MM_ROPE_PAIRS), 1, MM_ROW_THREADS);
}

static void shape_kv_write(const void *args, struct mm_launch_shape *s)
{
	const struct mm_kv_write_args *a = args;

	shape_rows(s, a->kv.tokens, a->kv.kv_dim, 2);
}

static void shape_attention(const void *args, struct mm_launch_shape *s)
{
	const struct mm_paged_attention_args *a = args;
	const uint32_t rows = MM_ATTENTION_ROWS(a->head_dim), width = (a->head_dim + 7) / 8 * 8;
	const uint64_t parts = piece_count(a->heads / a->kv_heads, rows);
	const uint32_t scores = MM_ATTENTION_SPLIT_TOKENS;
	const uint32_t sums = MM_ATTENTION_THREADS / 32 * width; /* in the memory of the scores */
	const uint32_t floats =
		16 * MM_ATTENTION_KEY_LANES(a->head_dim) + width + (scores > sums ? scores : sums);

	shape_set(s, a->kv.tokens, a->kv_heads * parts, a->splits, MM_ATTENTION_THREADS);
	s->shared_bytes = rows * floats * (uint32_t)sizeof(float);
}

static void shape_swiglu(const void *args, struct mm_launch_shape *s)
{
	const struct mm_swiglu_args *a = args;

	shape_rows(s, a->rows, a->n, 1);
}

static void shape_relu(const void *args, struct mm_launch_shape *s)
{
	const struct mm_relu_args *a = args;

	shape_flat(s, a->n * sizeof(float));
}

static void shape_add(const void *args, struct mm_launch_shape *s)
{
	const struct mm_add_args *a = args;

	shape_flat(s, a->n * sizeof(float));
}

static void shape_gemm(const void *args, struct mm_launch_shape *s)
{
	const struct mm_gemm_args *a = args;

	shape_set(s, piece_count(a->outputs, MM_GEMM_THREADS),
		  piece_count(a->tokens, MM_GEMM_TOKENS), 1, MM_GEMM_THREADS);
}

static void shape_argmax(const void *args, struct mm_launch_shape *s)
{
	const struct mm_argmax_args *a = args;

	shape_set(s, a->rows, 1, 1, MM_ARGMAX_THREADS);
}

static void shape_checksum(const void *args, struct mm_launch_shape *s)
{
	const struct mm_checksum_args *a = args;

	shape_set(s, piece_count(a->length_bytes, MM_CHECKSUM_PIECE_BYTES * MM_CHECKSUM_PIECES), 1,
		  1, MM_FLAT_THREADS);
}

static void shape_word_fill(const void *args, struct mm_launch_shape *s)
{
	const struct mm_fill_args *a = args;

	shape_flat(s, a->n * sizeof(uint64_t));
}

static void shape_kv_move(const void *args, struct mm_launch_shape *s)
{
	const struct mm_kv_move_args *a = args;

	shape_set(s, a->blocks, a->parts, piece_count(a->part_bytes, MM_FLAT_BYTES),
		  MM_FLAT_THREADS);
}

static void shape_narrow(const void *args, struct mm_launch_shape *s)
{
	const struct mm_narrow_args *a = args;

	shape_rows(s, a->padded_rows, a->n, 1);
}

void mm_launch_shape(enum mm_kernel kernel, const void *args, struct mm_launch_shape *ret)
{
	static void (*const shapes[MM_KERNEL_COUNT])(const void *args,
						     struct mm_launch_shape *s) = {
		[MM_KERNEL_EMBED] = shape_embed,
		[MM_KERNEL_POSITION_EMBED] = shape_position_embed,
		[MM_KERNEL_GATHER] = shape_gather,
		[MM_KERNEL_RMSNORM] = shape_rmsnorm,
		[MM_KERNEL_LAYERNORM] = shape_layernorm,
		[MM_KERNEL_BIAS_ADD] = shape_bias_add,
		[MM_KERNEL_ROPE] = shape_rope,
		[MM_KERNEL_KV_WRITE] = shape_kv_write,
		[MM_KERNEL_ATTENTION] = shape_attention,
		[MM_KERNEL_SWIGLU] = shape_swiglu,
		[MM_KERNEL_RELU] = shape_relu,
		[MM_KERNEL_ADD] = shape_add,
		[MM_KERNEL_GEMM] = shape_gemm,
		[MM_KERNEL_ARGMAX] = shape_argmax,
		[MM_KERNEL_CHECKSUM] = shape_checksum,
		[MM_KERNEL_FILL] = shape_word_fill,
		[MM_KERNEL_KV_GATHER] = shape_kv_move,
		[MM_KERNEL_KV_SCATTER] = shape_kv_move,
		[MM_KERNEL_NARROW] = shape_narrow,
	};

	shapes[kernel](args, ret);
}
