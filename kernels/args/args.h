/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args - the arguments of each kernel
 *
 * Concept:    every kernel takes one struct by value, the same for its host and its CUDA form, and
 *             is found by name in a module ("mm_" and the struct's noun: mm_rope takes
 *             mm_rope_args). Matrices are row-major and dense unless a stride is named; strides
 *             count elements.
 * Ownership:  addresses are device addresses of the caller; a kernel keeps nothing.
 * Invariants: **batch-invariant**: what a kernel writes for one row depends on that row's inputs
 *             only, in one fixed order of operations, whatever else is in the launch. So a
 *             sequence's tokens depend neither on its neighbours nor on how its prompt was cut into
 *             chunks. Activations are F32; weights and KV are any enum mm_dtype, widened exactly.
 *             What is written to KV is rounded to nearest, ties to even, once.
 * Limits:     MM_HEAD_DIM_MAX elements a head. Kernels check nothing: the engine checks arguments
 *             once, also that there is at least one row (kernels/launch/launch.h).
 * Threading:  read-only while a launch uses them.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#include "mm/abi.h"

#define MM_HEAD_DIM_MAX 256u

static inline uint32_t mm_dtype_bytes(enum mm_dtype dtype)
{
	return dtype == MM_DTYPE_F32 ? 4 : 2;
}

/* out[t] = table[ids[t]] */
struct mm_embed_args {
	uint64_t ids_va;   /* u32 [tokens] */
	uint64_t table_va; /* dtype [vocab][hidden] */
	uint64_t out_va;   /* f32 [tokens][hidden] */
	uint32_t tokens;
	uint32_t hidden;
	uint32_t dtype;
	uint32_t reserved;
};

/* x[t] += table[positions[t] + offset] */
struct mm_position_embed_args {
	uint64_t positions_va; /* u32 [tokens] */
	uint64_t table_va;     /* dtype [...][hidden] */
	uint64_t x_va;         /* f32 [tokens][hidden] */
	uint32_t tokens;
	uint32_t hidden;
	uint32_t dtype;
	uint32_t offset;
};

/* out[i] = x[rows[i]] */
struct mm_gather_args {
	uint64_t rows_va; /* u32 [n] */
	uint64_t x_va;    /* f32 [...][hidden] */
	uint64_t out_va;  /* f32 [n][hidden] */
	uint32_t n;
	uint32_t hidden;
};

/* out[t] = gain * x[t] / sqrt(mean(x[t]^2) + eps); out may be x */
struct mm_rmsnorm_args {
	uint64_t x_va;
	uint64_t gain_va; /* dtype [hidden] */
	uint64_t out_va;
	uint32_t tokens;
	uint32_t hidden;
	uint32_t dtype;
	float eps;
};

/* out[t] = gain * (x[t] - mean(x[t])) / sqrt(variance(x[t]) + eps) + bias; out may be x */
struct mm_layernorm_args {
	uint64_t x_va;
	uint64_t gain_va; /* dtype [hidden] */
	uint64_t bias_va; /* bias_dtype [hidden] */
	uint64_t out_va;
	uint32_t tokens;
	uint32_t hidden;
	uint32_t dtype;
	uint32_t bias_dtype;
	float eps;
	uint32_t reserved;
};

/* x[r][i] += bias[i], i < n */
struct mm_bias_add_args {
	uint64_t x_va;    /* f32 [rows][stride] */
	uint64_t bias_va; /* dtype [n] */
	uint32_t rows;
	uint32_t n;
	uint32_t stride;
	uint32_t dtype;
};

/*
 * Rotates, in place, the two halves of each head (HF's pairing, not adjacent pairs): elements i and
 * i + head_dim / 2 by an angle of position * frequencies[i].
 */
struct mm_rope_args {
	uint64_t x_va;           /* f32 [tokens][stride], heads * head_dim of it used */
	uint64_t positions_va;   /* u32 [tokens] */
	uint64_t frequencies_va; /* f64 [head_dim / 2] */
	uint32_t tokens;
	uint32_t heads;
	uint32_t head_dim;
	uint32_t stride;
};

/*
 * The place of the KV of one layer, by sequence. A block table lists the beginnings of the blocks
 * of one sequence, in units of MM_KV_UNIT_BYTES. Block i holds block_tokens positions from i *
 * block_tokens on. The keys of position p are at k_va + table[p / block_tokens] units + p %
 * block_tokens rows of kv_dim elements of dtype; its values are at the same place from v_va.
 */
#define MM_KV_UNIT_BYTES 64u

struct mm_kv_layout {
	uint64_t k_va;
	uint64_t v_va;
	uint64_t tables_va;    /* u32 [sequences][table_stride] */
	uint64_t seqs_va;      /* u32 [tokens]: index of the token's table */
	uint64_t positions_va; /* u32 [tokens] */
	uint32_t table_stride;
	uint32_t block_tokens;
	uint32_t kv_dim; /* kv heads * head_dim */
	uint32_t tokens;
	uint32_t dtype;
	uint32_t reserved;
};

struct mm_kv_write_args {
	struct mm_kv_layout kv;
	uint64_t k_va; /* f32 [tokens][stride], kv_dim of it used */
	uint64_t v_va;
	uint32_t stride;
	uint32_t reserved;
};

/*
 * For each token, exact softmax(q . k * scale) . v over positions 0..its own. On a GPU the context
 * is cut into splits, fixed stretches of split_tokens positions from position 0 on, each of which
 * is summed up in itself; the sums are merged in order of the splits. The member splits changes
 * speed, not a bit of the result: where it is 1 one block walks a token's splits one after the
 * other; else it is how many blocks share a token's context, through the scratch, and no context
 * may be longer than splits * split_tokens. The host form needs neither.
 */
struct mm_paged_attention_args {
	struct mm_kv_layout kv;
	uint64_t q_va;       /* f32 [tokens][q_stride], heads * head_dim of it used */
	uint64_t out_va;     /* f32 [tokens][heads][head_dim] */
	uint64_t partial_va; /* f32, of mm_attention_partial_bytes(); uninitialised */
	/* u32 [tokens][heads], zero before and after a launch; one launch at a time uses them. */
	uint64_t counters_va;
	uint32_t heads;
	uint32_t kv_heads;
	uint32_t head_dim;
	float scale;
	uint32_t q_stride;
	uint32_t split_tokens; /* a multiple of 16, at most MM_ATTENTION_SPLIT_TOKENS */
	uint32_t splits;       /* 1: neither partial_va nor counters_va is touched */
	uint32_t reserved;
};

#define MM_ATTENTION_SPLIT_TOKENS 256u

/* Floats of one split of one token and head in the scratch: its sums of values, maximum, sum. */
#define MM_ATTENTION_PARTIAL_FLOATS(head_dim) (((head_dim) + 3) / 4 * 4 + 4)

static inline uint64_t mm_attention_partial_bytes(uint32_t tokens, uint32_t heads,
						  uint32_t head_dim, uint32_t splits)
{
	if (splits <= 1)
		return 0;
	return (uint64_t)tokens * heads * splits * MM_ATTENTION_PARTIAL_FLOATS(head_dim) *
	       sizeof(float);
}

/* How many splits a context has. */
static inline uint32_t mm_attention_splits(uint32_t context, uint32_t split_tokens)
{
	return context ? (context - 1) / split_tokens + 1 : 1;
}

/* out = silu(gate) * up */
struct mm_swiglu_args {
	uint64_t gate_va; /* f32 [rows][stride], n of it used */
	uint64_t up_va;   /* like gate */
	uint64_t out_va;  /* f32 [rows][n] */
	uint32_t rows;
	uint32_t n;
	uint32_t stride;
	uint32_t reserved;
};

/* x = max(x, 0); NaN stays */
struct mm_relu_args {
	uint64_t x_va;
	uint64_t n;
};

/* x += y */
struct mm_add_args {
	uint64_t x_va;
	uint64_t y_va;
	uint64_t n;
};

/*
 * out[r] = x[r] in 16 bits, to nearest, ties to even; values too large become infinite. Rows behind
 * the last, up to padded_rows, become zeros.
 */
struct mm_narrow_args {
	uint64_t x_va;   /* f32 [rows][stride], n of it used */
	uint64_t out_va; /* dtype [padded_rows][n] */
	uint32_t rows;
	uint32_t padded_rows; /* rows or more */
	uint32_t n;
	uint32_t stride;
	uint32_t dtype; /* MM_DTYPE_F16 or MM_DTYPE_BF16 */
	uint32_t reserved;
};

/* out[r] = the lowest index of the largest element; NaN is never the largest. */
struct mm_argmax_args {
	uint64_t x_va;   /* f32 [rows][n] */
	uint64_t out_va; /* u32 [rows] */
	uint32_t rows;
	uint32_t n;
};

/*
 * *out = mm_checksum_bytes() of the range (kernels/host/checksum.h). The caller sets *out to 0
 * before: a device adds the pieces to it, in any order.
 */
struct mm_checksum_args {
	uint64_t data_va;
	uint64_t length_bytes;
	uint64_t out_va; /* u64 */
};

/* word[i] = pattern, i < n */
struct mm_fill_args {
	uint64_t va; /* u64 [n], aligned to 8 bytes */
	uint64_t n;
	uint64_t pattern;
};

/*
 * Copies the parts of scattered KV blocks to (mm_kv_gather) or from (mm_kv_scatter) one dense
 * buffer: part p of block b is at parts[p] + table[b] units of MM_KV_UNIT_BYTES and, in the buffer,
 * at (b * parts + p) * part_bytes. No block may be named twice in a scatter.
 */
struct mm_kv_move_args {
	uint64_t parts_va;   /* u64 [parts]: addresses of the parts of a block at offset 0 */
	uint64_t table_va;   /* u32 [blocks] */
	uint64_t staging_va; /* [blocks][parts][part_bytes] */
	uint64_t part_bytes;
	uint32_t blocks;
	uint32_t parts;
};
/* Each kernel's struct has the kernel's name. */
#define mm_kv_gather_args  mm_kv_move_args
#define mm_kv_scatter_args mm_kv_move_args

static_assert(sizeof(struct mm_kv_layout) == 64, "no padding: the struct crosses compilers");
static_assert(sizeof(struct mm_kv_write_args) == 88, "no padding: the struct crosses compilers");
static_assert(sizeof(struct mm_paged_attention_args) == 128, "no padding: it crosses compilers");
static_assert(sizeof(struct mm_rope_args) == 40, "no padding: the struct crosses compilers");
static_assert(sizeof(struct mm_layernorm_args) == 56, "no padding: the struct crosses compilers");
static_assert(sizeof(struct mm_position_embed_args) == 40, "no padding: it crosses compilers");
static_assert(sizeof(struct mm_narrow_args) == 40, "no padding: the struct crosses compilers");
static_assert(sizeof(struct mm_swiglu_args) == 40, "no padding: the struct crosses compilers");
static_assert(sizeof(struct mm_kv_move_args) == 40, "no padding: the struct crosses compilers");
