/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over paged KV, for one instruction set. The softmax takes the context in tiles of
 * SCORES positions that are aligned to position 0, with a running maximum, a running sum, and a
 * running weighted sum of values. So a row's order over the context is the same whether its prompt
 * came whole, in chunks, or again after a preemption.
 */
#include <string.h>

#include "kernels/host/exp.h"
#include "kernels/host/isa.h"
#include "kernels/host/lanes.h"

#define SCORES 64u

struct head {
	const struct mm_paged_attention_args *a;
	const uint32_t *table;
	const float *q;
	uint32_t kv_offset; /* offset of this head's KV head in a row */
	enum mm_dtype dtype;
	float max;
	float sum;
	float acc[MM_HEAD_DIM_MAX];
};

struct tile { /* a tile of the context */
	uint32_t n;
	uint64_t rows[SCORES]; /* offsets of the positions' rows, from k_va and from v_va */
	float scores[SCORES];
};

MM_INLINE void tile_rows(const struct head *h, uint32_t first, struct tile *t)
{
	const struct mm_kv_layout *kv = &h->a->kv;
	const uint32_t element = mm_dtype_bytes(h->dtype);
	uint32_t block = first / kv->block_tokens, row = first % kv->block_tokens;

	for (uint32_t i = 0; i < t->n; i++) {
		t->rows[i] = (uint64_t)h->table[block] * MM_KV_UNIT_BYTES +
			     ((uint64_t)row * kv->kv_dim + h->kv_offset) * element;
		if (++row == kv->block_tokens) {
			row = 0;
			block++;
		}
	}
}

/* Return: @n elements at @va as floats: in place, or widened into @room. */
MM_INLINE const float *row_as_floats(uint64_t va, uint32_t n, enum mm_dtype dtype, float *room)
{
	const char *p = mm_at(va);

	if (dtype == MM_DTYPE_F32)
		return (const float *)(const void *)p;
	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t rest = n - i < MM_GEMM_LANES ? n - i : MM_GEMM_LANES;
		const mm_lanes v = mm_lanes_load(p + i * sizeof(uint16_t), rest, dtype);

		memcpy(room + i, &v, sizeof(v));
	}
	return room;
}

/* Keeps eight partial sums: heads are short, and 16 would be mostly padding. */
MM_INLINE float dot_product(const float *q, const float *k, uint32_t n)
{
	mm_lanes8 acc = { 0 }, x, y;
	mm_lanes4 c, d;
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8) {
		memcpy(&x, q + i, sizeof(x));
		memcpy(&y, k + i, sizeof(y));
		acc += x * y;
	}
	for (; i < n; i++)
		acc[i % 8] += q[i] * k[i];
	memcpy(&c, &acc, sizeof(c));
	memcpy(&d, (const char *)&acc + sizeof(c), sizeof(d));
	c += d;
	return (c[0] + c[2]) + (c[1] + c[3]);
}

/* Return: the largest score so far. */
MM_INLINE float tile_scores(const struct head *h, uint32_t dim, struct tile *t)
{
	float room[MM_HEAD_DIM_MAX], max = h->max;

	for (uint32_t i = 0; i < t->n; i++) {
		const float *k = row_as_floats(h->a->kv.k_va + t->rows[i], dim, h->dtype, room);

		t->scores[i] = dot_product(h->q, k, dim) * h->a->scale;
		if (t->scores[i] > max)
			max = t->scores[i];
	}
	return max;
}

MM_INLINE void head_rescale(struct head *h, uint32_t dim, float max)
{
	const float factor = mm_exp(h->max - max);

	h->max = max;
	h->sum *= factor;
	for (uint32_t d = 0; d < dim; d++)
		h->acc[d] *= factor;
}

MM_INLINE void tile_values(struct head *h, uint32_t dim, struct tile *t)
{
	/* Where all scores are -inf, all weights are 0, not the NaN of -inf less -inf. */
	const float base = h->max == -__builtin_inff() ? 0 : h->max;
	mm_lanes8 acc[MM_HEAD_DIM_MAX / 8] = { 0 };
	float room[MM_HEAD_DIM_MAX];

	for (uint32_t i = 0; i < t->n; i++)
		t->scores[i] = mm_exp(t->scores[i] - base);
	memcpy(acc, h->acc, dim * sizeof(float));
	for (uint32_t i = 0; i < t->n; i++) {
		const float *v = row_as_floats(h->a->kv.v_va + t->rows[i], dim, h->dtype, room);
		const float p = t->scores[i];

		h->sum += p;
#pragma GCC unroll 16
		for (uint32_t d = 0; d < dim / 8; d++) {
			mm_lanes8 x;

			memcpy(&x, v + d * 8, sizeof(x));
			acc[d] += p * x;
		}
		for (uint32_t d = dim / 8 * 8; d < dim; d++)
			acc[d / 8][d % 8] += p * v[d];
	}
	memcpy(h->acc, acc, dim * sizeof(float));
}

MM_INLINE void head_attend(struct head *h, uint32_t dim, uint32_t context, float *out)
{
	struct tile t;

	h->max = -__builtin_inff();
	h->sum = 0;
	memset(h->acc, 0, dim * sizeof(float));
	for (uint32_t first = 0; first < context; first += SCORES) {
		float max;

		t.n = context - first < SCORES ? context - first : SCORES;
		tile_rows(h, first, &t);
		max = tile_scores(h, dim, &t);
		if (max > h->max)
			head_rescale(h, dim, max);
		tile_values(h, dim, &t);
	}
	for (uint32_t d = 0; d < dim; d++)
		out[d] = h->acc[d] / h->sum;
}

/*
 * Passes the common sizes as constants, so that their loops are unrolled; the order of sums is the
 * same.
 */
static void head_attend_any(struct head *h, uint32_t context, float *out)
{
	switch (h->a->head_dim) {
	case 32:
		head_attend(h, 32, context, out);
		break;
	case 64:
		head_attend(h, 64, context, out);
		break;
	case 128:
		head_attend(h, 128, context, out);
		break;
	default:
		head_attend(h, h->a->head_dim, context, out);
		break;
	}
}

void MM_ISA_NAME(mm_isa_attention)(const struct mm_paged_attention_args *a)
{
	const uint32_t group = a->heads / a->kv_heads;
	const uint32_t *positions = mm_at(a->kv.positions_va), *seqs = mm_at(a->kv.seqs_va);
	const uint64_t row = (uint64_t)a->heads * a->head_dim;
	struct head h;

	h.a = a;
	h.dtype = a->kv.dtype;
	for (uint32_t t = 0; t < a->kv.tokens; t++) {
		h.table = (const uint32_t *)mm_at(a->kv.tables_va) +
			  (uint64_t)seqs[t] * a->kv.table_stride;
		for (uint32_t i = 0; i < a->heads; i++) {
			const uint64_t head = (uint64_t)i * a->head_dim;
			float *out = (float *)mm_at(a->out_va) + t * row + head;

			h.q = (const float *)mm_at(a->q_va) + (uint64_t)t * a->q_stride + head;
			h.kv_offset = i / group * a->head_dim;
			head_attend_any(&h, positions[t] + 1, out);
		}
	}
}
