/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over paged KV: the same blocks for prefill and decode, see Documentation/kernels.md.
 *
 * A block takes a tile: up to MM_ATTENTION_ROWS query rows that share one KV head, the heads of one
 * token or of some that follow each other in a sequence. It takes the tile's context split by
 * split. Within a split: a score for each row and key; per row the largest, the exponentials, their
 * sum; then the weighted sum of values. A row's result depends neither on the tile nor on the
 * grid:
 *
 *  - a score is summed up by key_lanes lanes, lane l taking the pieces of eight elements l and
 *    l + key_lanes in order, and the lanes are added by halves;
 *  - the exponentials of key k belong to class k % ATTN_CLASSES, whose sum is taken in order of
 *    keys, and the classes are added in order;
 *  - the value of key k belongs to stream k % streams, each taken in order of keys; the streams of
 *    a warp are added by halves, the warps by pairs;
 *  - splits are merged in order.
 *
 * Keys beyond a row's own position are left out, not weighted with zero: they may hold anything.
 */
#include "kernels/cuda/device.h"
#include "kernels/host/exp.h"

#define ATTN_THREADS      MM_ATTENTION_THREADS
#define ATTN_WARPS        (ATTN_THREADS / MM_WARP_THREADS)
#define ATTN_ROWS         8u /* the most rows of a tile */
#define ATTN_CLASSES      16u
#define ATTN_PIECE        8u /* elements that a lane loads at once: 16 bytes of a half */
#define ATTN_KEYS         4u /* keys that a lane scores at once */
#define ATTN_LANE_PIECES  2u /* pieces of a key in a lane */
#define ATTN_SPLIT_TOKENS MM_ATTENTION_SPLIT_TOKENS

/*
 * How KV is read: in pieces of 16 bytes, or, where these are not aligned, element by element.
 */
enum attn_kv { ATTN_F32 = MM_DTYPE_F32, ATTN_F16, ATTN_BF16, ATTN_PLAIN };

struct attn_piece { /* as loaded: four words of halves, or eight of F32 */
	uint32_t w[ATTN_PIECE];
};

struct attn_rows {                 /* per row of the tile, in shared memory */
	uint32_t limit[ATTN_ROWS]; /* keys of the split at hand that the row sees */
	float max[ATTN_ROWS];      /* largest score of the split */
	float sum[ATTN_ROWS];
	float all_max[ATTN_ROWS]; /* largest score of the splits so far */
	float all_sum[ATTN_ROWS];
	float old_factor[ATTN_ROWS];
	float new_factor[ATTN_ROWS];
	float class_max[ATTN_CLASSES * ATTN_ROWS];
	float class_sum[ATTN_CLASSES * ATTN_ROWS];
	uint64_t key_offset[ATTN_SPLIT_TOKENS]; /* of each key's row in k and in v */
	uint32_t arrived;
};

struct attn_block {
	uint32_t token;  /* the tile's first token */
	uint32_t tokens; /* tokens of the tile */
	uint32_t kv_head;
	uint32_t head;     /* first of the query heads */
	uint32_t heads;    /* query heads of each token */
	uint32_t rows;     /* tokens * heads */
	uint32_t stride;   /* rows per key in score: 1, 4 or 8 */
	uint32_t position; /* position of the first token */
	uint32_t splits;   /* splits of the last token's context */
	uint32_t first;    /* first position of the split at hand */
	uint32_t keys;     /* keys of the split that any row sees */
	uint32_t pieces;   /* pieces of a head */
	uint32_t width;    /* pieces * ATTN_PIECE */
	uint32_t key_lanes;
	enum attn_kv kind;
	struct attn_rows *r;
	float *q;     /* [ATTN_ROWS][2 halves of a piece][2 * key_lanes pieces][4] */
	float *state; /* [ATTN_ROWS][width] */
	float *score; /* [ATTN_SPLIT_TOKENS][stride]; the values' sums of warps, [ATTN_WARPS][stride][width], lie there too */
};

MM_DEVICE uint32_t attn_lane(void)
{
	return threadIdx.x % MM_WARP_THREADS;
}

MM_DEVICE uint32_t attn_warp(void)
{
	return threadIdx.x / MM_WARP_THREADS;
}

MM_DEVICE float4 attn_four(const float *x)
{
	float4 v;

	v.x = x[0];
	v.y = x[1];
	v.z = x[2];
	v.w = x[3];
	return v;
}

MM_DEVICE uint32_t attn_at_most(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* ---- the tile ---- */

/*
 * A tile ends before each position that is a multiple of the tokens that it has room for (1, 2, 4
 * or 8): so its place in a run of tokens is fixed, and it lies in one split. Return: the tokens of
 * the tile that begins with @token; 0: none does.
 */
MM_DEVICE uint32_t attn_tile_tokens(const struct mm_kv_layout *kv, uint32_t token, uint32_t room,
				    uint32_t *ret_position)
{
	const uint32_t *positions = MM_AT(const uint32_t, kv->positions_va);
	const uint32_t *seqs = MM_AT(const uint32_t, kv->seqs_va);
	const uint32_t position = positions[token], seq = seqs[token];
	const uint32_t at = token + attn_lane();
	uint32_t follows, n;

	*ret_position = position;
	if (room == 1)
		return 1;
	if (position % room && token && seqs[token - 1] == seq &&
	    positions[token - 1] + 1 == position)
		return 0;
	follows = __ballot_sync(MM_WARP_ALL, attn_lane() < room && at < kv->tokens &&
						     seqs[at] == seq &&
						     positions[at] == position + attn_lane());
	n = (uint32_t)__ffs((int)~follows) - 1;
	return attn_at_most(n, room - position % room);
}

MM_DEVICE enum attn_kv attn_kv(const struct mm_paged_attention_args *a)
{
	const uint64_t element = a->kv.dtype == MM_DTYPE_F32 ? 4 : 2;
	const uint64_t row = a->kv.kv_dim * element;

	if (a->head_dim % ATTN_PIECE || (a->kv.k_va | a->kv.v_va | row) % 16)
		return ATTN_PLAIN;
	return (enum attn_kv)a->kv.dtype;
}

/* Return: 0: no tile begins with this block's token. */
MM_DEVICE int attn_block_init(const struct mm_paged_attention_args *a, struct attn_block *b)
{
	const uint32_t group = a->heads / a->kv_heads, rows_max = MM_ATTENTION_ROWS(a->head_dim);
	const uint32_t parts = (group + rows_max - 1) / rows_max;
	const uint32_t from = blockIdx.y % parts * rows_max;

	/* The longest contexts of a prompt come first. */
	b->token = a->kv.tokens - 1 - blockIdx.x;
	b->kv_head = blockIdx.y / parts;
	b->head = b->kv_head * group + from;
	b->heads = attn_at_most(group - from, rows_max);
	b->tokens = attn_tile_tokens(&a->kv, b->token, rows_max / b->heads, &b->position);
	b->rows = b->tokens * b->heads;
	b->stride = b->rows == 1 ? 1 : b->rows <= 4 ? 4 : 8;
	b->splits = b->tokens ? (b->position + b->tokens - 1) / a->split_tokens + 1 : 0;
	b->pieces = (a->head_dim + ATTN_PIECE - 1) / ATTN_PIECE;
	b->width = b->pieces * ATTN_PIECE;
	b->key_lanes = MM_ATTENTION_KEY_LANES(a->head_dim);
	b->kind = attn_kv(a);
	return b->tokens != 0;
}

MM_DEVICE uint32_t attn_row_token(const struct attn_block *b, uint32_t row)
{
	return row / b->heads;
}

MM_DEVICE uint64_t attn_row_head(const struct attn_block *b,
				 const struct mm_paged_attention_args *a, uint32_t row)
{
	return (uint64_t)(b->token + attn_row_token(b, row)) * a->heads + b->head + row % b->heads;
}

/* Queries are stored by halves of pieces, so that neighbouring lanes read neighbouring 16 bytes. */
MM_DEVICE void attn_load_queries(const struct mm_paged_attention_args *a,
				 const struct attn_block *b)
{
	const uint32_t half = 2 * b->key_lanes * 4, room = 2 * half;

	for (uint32_t row = 0; row < b->rows; row++) {
		const float *q = MM_AT(const float, a->q_va) +
				 (uint64_t)(b->token + attn_row_token(b, row)) * a->q_stride +
				 (uint64_t)(b->head + row % b->heads) * a->head_dim;

		for (uint32_t i = threadIdx.x; i < room; i += ATTN_THREADS) {
			const uint32_t to = i / 4 % 2 * half + i / ATTN_PIECE * 4 + i % 4;

			b->q[row * room + to] = i < a->head_dim ? q[i] : 0;
		}
	}
}

/* ---- KV ---- */

MM_DEVICE void attn_split_init(const struct mm_paged_attention_args *a, struct attn_block *b,
			       uint32_t split)
{
	const struct mm_kv_layout *kv = &a->kv;
	const uint32_t seq = MM_AT(const uint32_t, kv->seqs_va)[b->token];
	const uint32_t *table =
		MM_AT(const uint32_t, kv->tables_va) + (uint64_t)seq * kv->table_stride;
	const uint32_t element = kv->dtype == MM_DTYPE_F32 ? 4 : 2;
	const uint64_t head = (uint64_t)b->kv_head * a->head_dim;

	b->first = split * a->split_tokens;
	b->keys = attn_at_most(b->position + b->tokens - b->first, a->split_tokens);
	for (uint32_t i = threadIdx.x; i < b->keys; i += ATTN_THREADS) {
		const uint32_t position = b->first + i;
		const uint64_t row = position % kv->block_tokens;

		b->r->key_offset[i] =
			(uint64_t)table[position / kv->block_tokens] * MM_KV_UNIT_BYTES +
			(row * kv->kv_dim + head) * element;
	}
	if (threadIdx.x < ATTN_ROWS) {
		const uint32_t context = b->position + attn_row_token(b, threadIdx.x) + 1;

		b->r->limit[threadIdx.x] = attn_at_most(context - b->first, b->keys);
	}
}

MM_DEVICE float attn_load_element(uint32_t dtype, const char *row, uint32_t i)
{
	if (dtype == MM_DTYPE_F32)
		return ((const float *)row)[i];
	if (dtype == MM_DTYPE_F16)
		return mm_widen_f16(((const uint16_t *)row)[i]);
	return mm_widen_bf16(((const uint16_t *)row)[i]);
}

MM_DEVICE void attn_words_from(uint32_t *w, const char *p)
{
	const uint4 v = mm_load_const((const uint4 *)p);

	w[0] = v.x;
	w[1] = v.y;
	w[2] = v.z;
	w[3] = v.w;
}

MM_DEVICE struct attn_piece attn_load_piece(const struct mm_paged_attention_args *a,
					    enum attn_kv kind, const char *row, uint32_t index)
{
	struct attn_piece p;

	if (kind == ATTN_PLAIN) {
		MM_UNROLL(8)
		for (uint32_t i = 0; i < ATTN_PIECE; i++) {
			const uint32_t at = index * ATTN_PIECE + i;

			p.w[i] = at < a->head_dim
					 ? __float_as_uint(attn_load_element(a->kv.dtype, row, at))
					 : 0;
		}
		return p;
	}
	if (kind == ATTN_F32) {
		attn_words_from(p.w, row + index * 32);
		attn_words_from(p.w + 4, row + index * 32 + 16);
		return p;
	}
	attn_words_from(p.w, row + index * 16);
	return p;
}

MM_DEVICE struct attn_piece attn_no_piece(void)
{
	struct attn_piece p;

	MM_UNROLL(8)
	for (uint32_t i = 0; i < ATTN_PIECE; i++)
		p.w[i] = 0;
	return p;
}

MM_DEVICE void attn_widen_piece(enum attn_kv kind, const struct attn_piece *p, float *x)
{
	MM_UNROLL(8)
	for (uint32_t i = 0; i < ATTN_PIECE; i++) {
		if (kind == ATTN_F16)
			x[i] = mm_widen_f16((uint16_t)(p->w[i / 2] >> i % 2 * 16));
		else if (kind == ATTN_BF16)
			x[i] = __uint_as_float(i % 2 ? p->w[i / 2] & 0xffff0000u
						     : p->w[i / 2] << 16);
		else
			x[i] = __uint_as_float(p->w[i]);
	}
}

/* ---- scores ---- */

/*
 * Adds four partial sums over the key_lanes lanes that have them. After two steps each lane keeps
 * one of the four; the rest is added by halves. Return: the sum of key *ret_key of the four.
 */
MM_DEVICE float attn_add_lanes(const float *s, uint32_t l, uint32_t key_lanes, uint32_t *ret_key)
{
	const uint32_t high = key_lanes / 2, low = key_lanes / 4;
	const int upper = (l & high) != 0, odd = (l & low) != 0;
	const float give0 = upper ? s[0] : s[2], give1 = upper ? s[1] : s[3];
	const float keep0 = upper ? s[2] : s[0], keep1 = upper ? s[3] : s[1];
	const float two0 = keep0 + __shfl_xor_sync(MM_WARP_ALL, give0, high);
	const float two1 = keep1 + __shfl_xor_sync(MM_WARP_ALL, give1, high);
	const float give = odd ? two0 : two1, keep = odd ? two1 : two0;
	float sum = keep + __shfl_xor_sync(MM_WARP_ALL, give, low);

	for (uint32_t step = low / 2; step; step /= 2)
		sum += __shfl_xor_sync(MM_WARP_ALL, sum, step);
	*ret_key = (upper ? 2u : 0u) + (odd ? 1u : 0u);
	return sum;
}

/*
 * Computes the scores of the ATTN_KEYS keys of each group of lanes; this lane has ATTN_LANE_PIECES
 * pieces of them.
 */
MM_DEVICE void attn_score_rows(const struct mm_paged_attention_args *a, const struct attn_block *b,
			       const float (*x)[ATTN_LANE_PIECES * ATTN_PIECE], uint32_t l,
			       uint32_t key, uint32_t key_step)
{
	const uint32_t half = 2 * b->key_lanes * 4;

	for (uint32_t row = 0; row < b->rows; row++) {
		const float *q = b->q + row * 2 * half + l * 4;
		float s[ATTN_KEYS] = { 0, 0, 0, 0 }, sum;
		uint32_t nth;

		MM_UNROLL(4)
		for (uint32_t j = 0; j < 2 * ATTN_LANE_PIECES; j++) {
			const float4 v =
				*(const float4 *)(q + j % 2 * half + j / 2 * b->key_lanes * 4);

			MM_UNROLL(4)
			for (uint32_t i = 0; i < ATTN_KEYS; i++) {
				s[i] = fmaf(v.x, x[i][j * 4], s[i]);
				s[i] = fmaf(v.y, x[i][j * 4 + 1], s[i]);
				s[i] = fmaf(v.z, x[i][j * 4 + 2], s[i]);
				s[i] = fmaf(v.w, x[i][j * 4 + 3], s[i]);
			}
		}
		sum = attn_add_lanes(s, l, b->key_lanes, &nth);
		if (l % (b->key_lanes / 4) == 0 && key + nth * key_step < b->r->limit[row])
			b->score[(key + nth * key_step) * b->stride + row] = sum * a->scale;
	}
}

MM_DEVICE void attn_score_keys(const struct mm_paged_attention_args *a, const struct attn_block *b,
			       enum attn_kv kind)
{
	const uint32_t groups = MM_WARP_THREADS / b->key_lanes, step = groups * ATTN_KEYS;
	const uint32_t l = attn_lane() % b->key_lanes, group = attn_lane() / b->key_lanes;
	const char *k = MM_AT(const char, a->kv.k_va);

	for (uint32_t first = attn_warp() * step; first < b->keys; first += ATTN_WARPS * step) {
		struct attn_piece raw[ATTN_KEYS][ATTN_LANE_PIECES];
		float x[ATTN_KEYS][ATTN_LANE_PIECES * ATTN_PIECE];

		MM_UNROLL(4)
		for (uint32_t i = 0; i < ATTN_KEYS; i++) {
			const uint32_t key = first + i * groups + group;

			MM_UNROLL(2)
			for (uint32_t j = 0; j < ATTN_LANE_PIECES; j++) {
				const uint32_t index = j * b->key_lanes + l;

				raw[i][j] = attn_no_piece();
				if (key < b->keys && index < b->pieces)
					raw[i][j] = attn_load_piece(
						a, kind, k + b->r->key_offset[key], index);
			}
		}
		MM_UNROLL(8)
		for (uint32_t i = 0; i < ATTN_KEYS * ATTN_LANE_PIECES; i++)
			attn_widen_piece(
				kind, &raw[i / ATTN_LANE_PIECES][i % ATTN_LANE_PIECES],
				&x[i / ATTN_LANE_PIECES][i % ATTN_LANE_PIECES * ATTN_PIECE]);
		/* without this, a compiler widens BF16 again for each row */
		MM_UNROLL(64)
		for (uint32_t i = 0; i < ATTN_KEYS * ATTN_LANE_PIECES * ATTN_PIECE; i++)
			MM_KEEP(x[i / (ATTN_LANE_PIECES * ATTN_PIECE)]
				 [i % (ATTN_LANE_PIECES * ATTN_PIECE)]);
		attn_score_rows(a, b, x, l, first + group, groups);
	}
}

/*
 * Where the largest score is -inf, so are all: then the base is 0 and their weights are zero, not
 * the NaN of -inf less -inf.
 */
MM_DEVICE float attn_base(float max)
{
	return max == -__builtin_inff() ? 0 : max;
}

/* Replaces scores by exponentials less the row's largest score; with barriers around. */
MM_DEVICE void attn_exponentials(const struct attn_block *b)
{
	const uint32_t row = threadIdx.x % b->stride, nth = threadIdx.x / b->stride;
	const int mine = nth < ATTN_CLASSES && row < b->rows;
	const uint32_t limit = mine ? b->r->limit[row] : 0;
	float max = -__builtin_inff(), sum = 0;

	__syncthreads();
	for (uint32_t key = nth; key < limit; key += ATTN_CLASSES)
		max = fmaxf(max, b->score[key * b->stride + row]);
	if (mine)
		b->r->class_max[nth * ATTN_ROWS + row] = max;
	__syncthreads();
	if (mine) {
		for (uint32_t i = 0; i < ATTN_CLASSES; i++)
			max = fmaxf(max, b->r->class_max[i * ATTN_ROWS + row]);
		if (nth == 0)
			b->r->max[row] = max;
	}
	max = attn_base(max);
	for (uint32_t key = nth; key < limit; key += ATTN_CLASSES) {
		const float p = mm_exp(b->score[key * b->stride + row] - max);

		b->score[key * b->stride + row] = p;
		sum += p;
	}
	if (mine)
		b->r->class_sum[nth * ATTN_ROWS + row] = sum;
	__syncthreads();
	if (threadIdx.x < b->rows) {
		sum = b->r->class_sum[threadIdx.x];
		for (uint32_t i = 1; i < ATTN_CLASSES; i++)
			sum += b->r->class_sum[i * ATTN_ROWS + threadIdx.x];
		b->r->sum[threadIdx.x] = sum;
	}
}

/* ---- values ---- */

struct attn_streams { /* keys' values by lanes: neighbours take the pieces of one key */
	uint32_t lanes;
	uint32_t piece;
	uint32_t n;
	uint32_t mine;
};

/* Return: how many values a lane loads at once: as many as the sums leave registers for. */
MM_DEVICE uint32_t attn_values_ahead(enum attn_kv kind, uint32_t stride)
{
	const uint32_t halves = stride == 8 ? 4 : 8;

	return kind == ATTN_F16 || kind == ATTN_BF16 ? halves : halves / 2;
}

#define ATTN_AHEAD_MAX 8u

MM_DEVICE void attn_load_values(const struct mm_paged_attention_args *a, const struct attn_block *b,
				enum attn_kv kind, uint32_t ahead, const struct attn_streams *s,
				uint32_t first, struct attn_piece *raw)
{
	const char *v = MM_AT(const char, a->kv.v_va);

	MM_UNROLL(8)
	for (uint32_t i = 0; i < ATTN_AHEAD_MAX; i++) {
		const uint32_t key = first + i * s->n + s->mine;

		if (i >= ahead)
			break;
		raw[i] = attn_no_piece();
		if (key < b->keys && s->piece < b->pieces)
			raw[i] = attn_load_piece(a, kind, v + b->r->key_offset[key], s->piece);
	}
}

/* Does sums += weight * value for each row; where not all rows see the key, for those that do. */
MM_DEVICE void attn_weigh(const struct attn_block *b, enum attn_kv kind, uint32_t stride, int all,
			  uint32_t key, const struct attn_piece *raw, float (*sums)[ATTN_PIECE])
{
	const float *weights = b->score + key * stride;
	float x[ATTN_PIECE], w[ATTN_ROWS];

	attn_widen_piece(kind, raw, x);
	MM_UNROLL(2)
	for (uint32_t row = 0; row < ATTN_ROWS; row += 4) {
		if (row >= stride)
			break;
		if (stride == 1) {
			w[0] = weights[0];
		} else {
			const float4 v = *(const float4 *)(weights + row);

			w[row] = v.x;
			w[row + 1] = v.y;
			w[row + 2] = v.z;
			w[row + 3] = v.w;
		}
	}
	MM_UNROLL(8)
	for (uint32_t row = 0; row < ATTN_ROWS; row++) {
		if (row >= stride)
			break;
		if (!all && key >= b->r->limit[row])
			continue;
		MM_UNROLL(8)
		for (uint32_t i = 0; i < ATTN_PIECE; i++)
			sums[row][i] = fmaf(w[row], x[i], sums[row][i]);
	}
}

/* Adds the warp's streams by halves and stores them in shared memory; between barriers. */
MM_DEVICE void attn_store_sums(const struct attn_block *b, uint32_t stride,
			       const struct attn_streams *s, float (*sums)[ATTN_PIECE])
{
	for (uint32_t step = MM_WARP_THREADS / 2; step >= s->lanes; step /= 2) {
		MM_UNROLL(64)
		for (uint32_t i = 0; i < ATTN_ROWS * ATTN_PIECE; i++) {
			if (i >= stride * ATTN_PIECE)
				break;
			sums[i / ATTN_PIECE][i % ATTN_PIECE] += __shfl_xor_sync(
				MM_WARP_ALL, sums[i / ATTN_PIECE][i % ATTN_PIECE], step);
		}
	}
	__syncthreads();
	if (attn_lane() >= s->lanes || s->piece >= b->pieces)
		return;
	MM_UNROLL(8)
	for (uint32_t row = 0; row < ATTN_ROWS; row++) {
		float *to =
			b->score + (attn_warp() * stride + row) * b->width + s->piece * ATTN_PIECE;

		if (row >= stride)
			break;
		*(float4 *)to = attn_four(sums[row]);
		*(float4 *)(to + 4) = attn_four(sums[row] + 4);
	}
}

/* After the scores: computes the exponentials, and the sums of values weighted with them. */
MM_DEVICE void attn_add_values(const struct mm_paged_attention_args *a, const struct attn_block *b,
			       enum attn_kv kind, uint32_t stride)
{
	const uint32_t ahead = attn_values_ahead(kind, stride);
	const uint32_t lanes = 2 * b->key_lanes, per_warp = MM_WARP_THREADS / lanes;
	const struct attn_streams s = { lanes, attn_lane() % lanes, ATTN_WARPS * per_warp,
					attn_warp() * per_warp + attn_lane() / lanes };
	struct attn_piece raw[ATTN_AHEAD_MAX];
	float sums[ATTN_ROWS][ATTN_PIECE];

	MM_UNROLL(64)
	for (uint32_t i = 0; i < ATTN_ROWS * ATTN_PIECE; i++)
		sums[i / ATTN_PIECE][i % ATTN_PIECE] = 0;
	attn_load_values(a, b, kind, ahead, &s, 0, raw); /* loaded during the exponentials */
	attn_exponentials(b);
	for (uint32_t first = 0;;) {
		const uint32_t next = first + ahead * s.n;
		const int all = next <= b->r->limit[0]; /* row 0 sees the fewest keys */

		MM_UNROLL(8)
		for (uint32_t i = 0; i < ATTN_AHEAD_MAX; i++) {
			const uint32_t key = first + i * s.n + s.mine;

			if (i >= ahead)
				break;
			if (all)
				attn_weigh(b, kind, stride, 1, key, &raw[i], sums);
			else if (key < b->keys)
				attn_weigh(b, kind, stride, 0, key, &raw[i], sums);
		}
		first = next;
		if (first >= b->keys)
			break;
		attn_load_values(a, b, kind, ahead, &s, first, raw);
	}
	attn_store_sums(b, stride, &s, sums);
}

MM_DEVICE void attn_take_split(const struct mm_paged_attention_args *a, const struct attn_block *b,
			       enum attn_kv kind)
{
	attn_score_keys(a, b, kind);
	if (b->stride == 1)
		attn_add_values(a, b, kind, 1);
	else if (b->stride == 4)
		attn_add_values(a, b, kind, 4);
	else
		attn_add_values(a, b, kind, 8);
}

/* ---- splits ---- */

MM_DEVICE float attn_split_sum(const struct attn_block *b, uint32_t row, uint32_t i)
{
	const float *at = b->score + row * b->width + i;
	const uint32_t warp_room = b->stride * b->width;

	return (at[0] + at[warp_room]) + (at[2 * warp_room] + at[3 * warp_room]);
}

/* Return: the factor from a sum with maximum @max to one with @all; 0 for no weights. */
MM_DEVICE float attn_factor(float max, float all)
{
	return mm_exp(max - attn_base(all));
}

/* Adds a split to the block's state. */
MM_DEVICE void attn_fold(const struct attn_block *b, int is_first)
{
	struct attn_rows *r = b->r;
	const uint32_t row = threadIdx.x;

	if (row < b->rows && is_first) {
		r->all_max[row] = r->max[row];
		r->all_sum[row] = r->sum[row];
	} else if (row < b->rows) {
		const float all = fmaxf(r->all_max[row], r->max[row]);

		r->old_factor[row] = attn_factor(r->all_max[row], all);
		r->new_factor[row] = attn_factor(r->max[row], all);
		r->all_max[row] = all;
		r->all_sum[row] =
			fmaf(r->all_sum[row], r->old_factor[row], r->sum[row] * r->new_factor[row]);
	}
	__syncthreads();
	for (uint32_t nth = 0; nth < b->rows; nth++) {
		float *state = b->state + nth * b->width;

		for (uint32_t i = threadIdx.x; i < b->width; i += ATTN_THREADS) {
			const float sum = attn_split_sum(b, nth, i);

			state[i] = is_first ? sum
					    : fmaf(state[i], r->old_factor[nth],
						   sum * r->new_factor[nth]);
		}
	}
}

MM_DEVICE float *attn_output(const struct mm_paged_attention_args *a, const struct attn_block *b,
			     uint32_t row)
{
	return MM_AT(float, a->out_va) + attn_row_head(b, a, row) * a->head_dim;
}

/* A thread reads only the state that it folded itself, except for the sums. */
MM_DEVICE void attn_write_state(const struct mm_paged_attention_args *a, const struct attn_block *b)
{
	for (uint32_t row = 0; row < b->rows; row++)
		for (uint32_t i = threadIdx.x; i < a->head_dim; i += ATTN_THREADS)
			attn_output(a, b, row)[i] =
				b->state[row * b->width + i] / b->r->all_sum[row];
}

/*
 * Return: where the scratch has a row's sums of a split; its last four floats have max and sum.
 */
MM_DEVICE float *attn_partial(const struct mm_paged_attention_args *a, const struct attn_block *b,
			      uint32_t row, uint32_t split)
{
	return MM_AT(float, a->partial_va) + (attn_row_head(b, a, row) * a->splits + split) *
						     MM_ATTENTION_PARTIAL_FLOATS(a->head_dim);
}

MM_DEVICE void attn_store_partial(const struct mm_paged_attention_args *a,
				  const struct attn_block *b, uint32_t split)
{
	for (uint32_t row = 0; row < b->rows; row++) {
		float *to = attn_partial(a, b, row, split);

		for (uint32_t i = threadIdx.x; i < a->head_dim; i += ATTN_THREADS)
			to[i] = attn_split_sum(b, row, i);
		if (threadIdx.x == 0) {
			to += MM_ATTENTION_PARTIAL_FLOATS(a->head_dim) - 4;
			to[0] = b->r->max[row];
			to[1] = b->r->sum[row];
		}
	}
}

/*
 * Return: whether all other blocks of the tile have stored theirs; then the counter is zero again.
 */
MM_DEVICE int attn_is_last(const struct mm_paged_attention_args *a, const struct attn_block *b)
{
	uint32_t *counter = MM_AT(uint32_t, a->counters_va) + attn_row_head(b, a, 0);

	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		b->r->arrived = atomicAdd(counter, 1u) + 1;
		if (b->r->arrived == b->splits)
			*counter = 0;
	}
	__syncthreads();
	__threadfence();
	return b->r->arrived == b->splits;
}

/* Merges a row's splits by the operations of attn_fold() and attn_write_state(). */
MM_DEVICE void attn_merge_row(const struct mm_paged_attention_args *a, const struct attn_block *b,
			      uint32_t row, uint32_t i)
{
	const uint32_t floats = MM_ATTENTION_PARTIAL_FLOATS(a->head_dim);
	const float *from = attn_partial(a, b, row, 0);
	float max = mm_load_fresh(from + floats - 4);
	float sum = mm_load_fresh(from + floats - 3);
	float value = mm_load_fresh(from + i);

	MM_UNROLL(4)
	for (uint32_t split = 1; split < b->splits; split++) {
		float new_max, new_sum, new_value, all, old_factor, new_factor;

		from = attn_partial(a, b, row, split);
		new_max = mm_load_fresh(from + floats - 4);
		new_sum = mm_load_fresh(from + floats - 3);
		new_value = mm_load_fresh(from + i);
		all = fmaxf(max, new_max);
		old_factor = attn_factor(max, all);
		new_factor = attn_factor(new_max, all);
		sum = fmaf(sum, old_factor, new_sum * new_factor);
		value = fmaf(value, old_factor, new_value * new_factor);
		max = all;
	}
	attn_output(a, b, row)[i] = value / sum;
}

MM_DEVICE void attn_merge(const struct mm_paged_attention_args *a, const struct attn_block *b)
{
	for (uint32_t row = 0; row < b->rows; row++)
		for (uint32_t i = threadIdx.x; i < a->head_dim; i += ATTN_THREADS)
			attn_merge_row(a, b, row, i);
}

MM_DEVICE void attn_lay_out(struct attn_block *b, struct attn_rows *r, float *room)
{
	b->r = r;
	b->q = room;
	b->state = b->q + MM_ATTENTION_ROWS(b->width) * 4 * ATTN_PIECE / 2 * b->key_lanes;
	b->score = b->state + MM_ATTENTION_ROWS(b->width) * b->width;
}

MM_KERNEL_RESIDENT(paged_attention, MM_ATTENTION_THREADS, 4)
{
	MM_SHARED(struct attn_rows, r);
	MM_SHARED_DYNAMIC(float, room);
	const int alone = a.splits <= 1;
	uint32_t split = alone ? 0 : blockIdx.z, end;
	struct attn_block b;

	if (!attn_block_init(&a, &b) || split >= b.splits)
		return;
	attn_lay_out(&b, r, room);
	attn_load_queries(&a, &b);
	end = alone ? b.splits : split + 1;
	for (; split < end; split++) {
		attn_split_init(&a, &b, split);
		__syncthreads();
		switch (b.kind) {
		case ATTN_F32:
			attn_take_split(&a, &b, ATTN_F32);
			break;
		case ATTN_F16:
			attn_take_split(&a, &b, ATTN_F16);
			break;
		case ATTN_BF16:
			attn_take_split(&a, &b, ATTN_BF16);
			break;
		case ATTN_PLAIN:
			attn_take_split(&a, &b, ATTN_PLAIN);
			break;
		}
		__syncthreads();
		if (alone || b.splits == 1)
			attn_fold(&b, split == 0);
		else
			attn_store_partial(&a, &b, split);
	}
	if (alone || b.splits == 1)
		attn_write_state(&a, &b);
	else if (attn_is_last(&a, &b))
		attn_merge(&a, &b);
}
