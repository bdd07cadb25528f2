/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/cost.h"

struct mm_cost mm_costs_embed(const struct mm_embed_args *a)
{
	return mm_cost_embed(a->tokens, a->hidden, mm_dtype_bytes(a->dtype), 0);
}

struct mm_cost mm_costs_position_embed(const struct mm_position_embed_args *a)
{
	return mm_cost_embed(a->tokens, a->hidden, mm_dtype_bytes(a->dtype), 1);
}

struct mm_cost mm_costs_gather(const struct mm_gather_args *a)
{
	return mm_cost_gather(a->n, a->hidden);
}

struct mm_cost mm_costs_rmsnorm(const struct mm_rmsnorm_args *a)
{
	return mm_cost_rmsnorm(a->tokens, a->hidden, mm_dtype_bytes(a->dtype));
}

struct mm_cost mm_costs_layernorm(const struct mm_layernorm_args *a)
{
	return mm_cost_layernorm(a->tokens, a->hidden,
				 mm_dtype_bytes(a->dtype) + mm_dtype_bytes(a->bias_dtype));
}

struct mm_cost mm_costs_bias_add(const struct mm_bias_add_args *a)
{
	return mm_cost_bias_add(a->rows, a->n, mm_dtype_bytes(a->dtype));
}

struct mm_cost mm_costs_rope(const struct mm_rope_args *a)
{
	return mm_cost_rope(a->tokens, (double)a->heads * a->head_dim);
}

struct mm_cost mm_costs_kv_write(const struct mm_kv_write_args *a)
{
	return mm_cost_kv_write(a->kv.tokens, a->kv.kv_dim, mm_dtype_bytes(a->kv.dtype));
}

/* Consecutive tokens of one sequence are a chunk: its queries read the KV together. */
struct mm_cost mm_costs_paged_attention(const struct mm_paged_attention_args *a)
{
	const uint32_t *positions = (const uint32_t *)(uintptr_t)a->kv.positions_va;
	const uint32_t *seqs = (const uint32_t *)(uintptr_t)a->kv.seqs_va;
	double context = 0, pairs = 0;
	uint32_t n;

	for (uint32_t t = 0; t < a->kv.tokens; t += n) {
		n = 1;
		while (t + n < a->kv.tokens && seqs[t + n] == seqs[t] &&
		       positions[t + n] == positions[t] + n)
			n++;
		context += (double)mm_cost_context(positions[t], n);
		pairs += (double)mm_cost_pairs(positions[t], n);
	}
	return mm_cost_attention(a->kv.tokens, context, pairs, (double)a->heads * a->head_dim,
				 a->kv.kv_dim, mm_dtype_bytes(a->kv.dtype));
}

struct mm_cost mm_costs_swiglu(const struct mm_swiglu_args *a)
{
	return mm_cost_swiglu(a->rows, a->n);
}

struct mm_cost mm_costs_relu(const struct mm_relu_args *a)
{
	return mm_cost_relu((double)a->n);
}

struct mm_cost mm_costs_add(const struct mm_add_args *a)
{
	return mm_cost_add((double)a->n);
}

struct mm_cost mm_costs_gemm(const struct mm_gemm_args *a)
{
	return mm_cost_gemm(a->tokens, a->outputs, a->k, mm_dtype_bytes(a->dtype));
}

struct mm_cost mm_costs_narrow(const struct mm_narrow_args *a)
{
	const double in = (double)a->rows * a->n, out = (double)a->padded_rows * a->n;

	return (struct mm_cost){ .bytes = in * sizeof(float) + out * mm_dtype_bytes(a->dtype) };
}

struct mm_cost mm_costs_argmax(const struct mm_argmax_args *a)
{
	return mm_cost_argmax(a->rows, a->n);
}

struct mm_cost mm_costs_checksum(const struct mm_checksum_args *a)
{
	return (struct mm_cost){ .bytes = (double)a->length_bytes };
}

struct mm_cost mm_costs_fill(const struct mm_fill_args *a)
{
	return (struct mm_cost){ .bytes = (double)a->n * sizeof(uint64_t) };
}

/* Each byte is read and written, and each part of a block reads the block's offset. */
struct mm_cost mm_costs_kv_gather(const struct mm_kv_gather_args *a)
{
	return (struct mm_cost){ .bytes = (double)a->blocks * a->parts *
					  (2 * (double)a->part_bytes + MM_COST_INDEX_BYTES) };
}

struct mm_cost mm_costs_kv_scatter(const struct mm_kv_scatter_args *a)
{
	return mm_costs_kv_gather(a);
}
