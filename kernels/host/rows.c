/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/rows.h"
#include "kernels/host/exp.h"
#include "kernels/host/lanes.h"
#include "kernels/host/narrow.h"
#include "kernels/host/sincos.h"

#include <math.h>
#include <string.h>

/* Widens @n elements from @src into @out. */
static void row_widen(const char *src, enum mm_dtype dtype, uint32_t n, float *out)
{
	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t count = n - i < MM_GEMM_LANES ? n - i : MM_GEMM_LANES;
		const mm_lanes v =
			mm_lanes_load(src + (size_t)i * mm_dtype_bytes(dtype), count, dtype);

		memcpy(out + i, &v, count * sizeof(float));
	}
}

/* Adds @v, widened, to @x. */
static void row_add(float *x, const char *v, enum mm_dtype dtype, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t count = n - i < MM_GEMM_LANES ? n - i : MM_GEMM_LANES;
		const mm_lanes sum =
			mm_lanes_load((const char *)(x + i), count, MM_DTYPE_F32) +
			mm_lanes_load(v + (size_t)i * mm_dtype_bytes(dtype), count, dtype);

		memcpy(x + i, &sum, count * sizeof(float));
	}
}

void mm_rows_embed(const struct mm_embed_args *a)
{
	const size_t row = (size_t)a->hidden * mm_dtype_bytes(a->dtype);
	const uint32_t *ids = mm_at(a->ids_va);
	const char *table = mm_at(a->table_va);
	float *out = mm_at(a->out_va);

	for (uint32_t t = 0; t < a->tokens; t++)
		row_widen(table + ids[t] * row, a->dtype, a->hidden, out + (size_t)t * a->hidden);
}

void mm_rows_position_embed(const struct mm_position_embed_args *a)
{
	const size_t row = (size_t)a->hidden * mm_dtype_bytes(a->dtype);
	const uint32_t *positions = mm_at(a->positions_va);
	const char *table = mm_at(a->table_va);
	float *x = mm_at(a->x_va);

	for (uint32_t t = 0; t < a->tokens; t++)
		row_add(x + (size_t)t * a->hidden, table + (positions[t] + a->offset) * row,
			a->dtype, a->hidden);
}

void mm_rows_gather(const struct mm_gather_args *a)
{
	const uint32_t *rows = mm_at(a->rows_va);
	const float *x = mm_at(a->x_va);
	float *out = mm_at(a->out_va);

	for (uint32_t i = 0; i < a->n; i++)
		memcpy(out + (size_t)i * a->hidden, x + (size_t)rows[i] * a->hidden,
		       a->hidden * sizeof(float));
}

static float sum_of_squares(const float *x, uint32_t n)
{
	mm_lanes acc = { 0 };

	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t count = n - i < MM_GEMM_LANES ? n - i : MM_GEMM_LANES;
		const mm_lanes v = mm_lanes_load((const char *)(x + i), count, MM_DTYPE_F32);

		acc += v * v;
	}
	return mm_lanes_sum(acc);
}

static void rmsnorm_row(const struct mm_rmsnorm_args *a, const float *x, float *out)
{
	const float mean = sum_of_squares(x, a->hidden) / (float)a->hidden;
	const float scale = 1.0f / sqrtf(mean + a->eps);
	const char *gain = mm_at(a->gain_va);

	for (uint32_t i = 0; i < a->hidden; i += MM_GEMM_LANES) {
		const uint32_t left = a->hidden - i;
		const uint32_t count = left < MM_GEMM_LANES ? left : MM_GEMM_LANES;
		const mm_lanes g =
			mm_lanes_load(gain + (size_t)i * mm_dtype_bytes(a->dtype), count, a->dtype);
		const mm_lanes v =
			mm_lanes_load((const char *)(x + i), count, MM_DTYPE_F32) * scale * g;

		memcpy(out + i, &v, count * sizeof(float));
	}
}

void mm_rows_rmsnorm(const struct mm_rmsnorm_args *a)
{
	const float *x = mm_at(a->x_va);
	float *out = mm_at(a->out_va);

	for (uint32_t t = 0; t < a->tokens; t++)
		rmsnorm_row(a, x + (size_t)t * a->hidden, out + (size_t)t * a->hidden);
}

static float sum_of(const float *x, uint32_t n)
{
	mm_lanes acc = { 0 };

	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES)
		acc += mm_lanes_load((const char *)(x + i),
				     n - i < MM_GEMM_LANES ? n - i : MM_GEMM_LANES, MM_DTYPE_F32);
	return mm_lanes_sum(acc);
}

/* Takes the mean in a second pass: a difference of two large sums would lose digits. */
static float sum_of_deviations(const float *x, uint32_t n, float mean)
{
	mm_lanes acc = { 0 };

	for (uint32_t i = 0; i < n; i += MM_GEMM_LANES) {
		const uint32_t count = n - i < MM_GEMM_LANES ? n - i : MM_GEMM_LANES;
		mm_lanes v = mm_lanes_load((const char *)(x + i), count, MM_DTYPE_F32) - mean;

		for (uint32_t lane = count; lane < MM_GEMM_LANES; lane++)
			v[lane] = 0;
		acc += v * v;
	}
	return mm_lanes_sum(acc);
}

static void layernorm_row(const struct mm_layernorm_args *a, const float *x, float *out)
{
	const float mean = sum_of(x, a->hidden) / (float)a->hidden;
	const float variance = sum_of_deviations(x, a->hidden, mean) / (float)a->hidden;
	const float scale = 1.0f / sqrtf(variance + a->eps);
	const char *gain = mm_at(a->gain_va), *bias = mm_at(a->bias_va);

	for (uint32_t i = 0; i < a->hidden; i += MM_GEMM_LANES) {
		const uint32_t left = a->hidden - i;
		const uint32_t count = left < MM_GEMM_LANES ? left : MM_GEMM_LANES;
		const mm_lanes g =
			mm_lanes_load(gain + (size_t)i * mm_dtype_bytes(a->dtype), count, a->dtype);
		const mm_lanes b = mm_lanes_load(bias + (size_t)i * mm_dtype_bytes(a->bias_dtype),
						 count, a->bias_dtype);
		mm_lanes v = mm_lanes_load((const char *)(x + i), count, MM_DTYPE_F32);

		v = (v - mean) * scale * g + b;
		memcpy(out + i, &v, count * sizeof(float));
	}
}

void mm_rows_layernorm(const struct mm_layernorm_args *a)
{
	const float *x = mm_at(a->x_va);
	float *out = mm_at(a->out_va);

	for (uint32_t t = 0; t < a->tokens; t++)
		layernorm_row(a, x + (size_t)t * a->hidden, out + (size_t)t * a->hidden);
}

void mm_rows_bias_add(const struct mm_bias_add_args *a)
{
	float *x = mm_at(a->x_va);

	for (uint32_t r = 0; r < a->rows; r++)
		row_add(x + (size_t)r * a->stride, mm_at(a->bias_va), a->dtype, a->n);
}

static void rotate_row(const struct mm_rope_args *a, float *x, uint32_t position)
{
	const uint32_t half = a->head_dim / 2;
	const double *frequencies = mm_at(a->frequencies_va);

	for (uint32_t i = 0; i < half; i++) {
		float s, c;

		mm_sincos(position * frequencies[i], &s, &c);
		for (uint32_t h = 0; h < a->heads; h++) {
			float *p = x + (size_t)h * a->head_dim + i;
			const float low = p[0], high = p[half];

			p[0] = low * c - high * s;
			p[half] = high * c + low * s;
		}
	}
}

void mm_rows_rope(const struct mm_rope_args *a)
{
	const uint32_t *positions = mm_at(a->positions_va);
	float *x = mm_at(a->x_va);

	for (uint32_t t = 0; t < a->tokens; t++)
		rotate_row(a, x + (size_t)t * a->stride, positions[t]);
}

static void narrow_row(const float *x, uint32_t n, enum mm_dtype dtype, void *out)
{
	uint16_t *narrow = out;

	if (dtype == MM_DTYPE_F32) {
		memcpy(out, x, n * sizeof(*x));
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		narrow[i] = dtype == MM_DTYPE_F16 ? mm_narrow_f16(x[i]) : mm_narrow_bf16(x[i]);
}

void mm_rows_kv_write(const struct mm_kv_write_args *a)
{
	const struct mm_kv_layout *kv = &a->kv;
	const uint32_t *positions = mm_at(kv->positions_va), *seqs = mm_at(kv->seqs_va);
	const float *k = mm_at(a->k_va), *v = mm_at(a->v_va);

	for (uint32_t t = 0; t < kv->tokens; t++) {
		const uint32_t *table =
			(const uint32_t *)mm_at(kv->tables_va) + (size_t)seqs[t] * kv->table_stride;

		narrow_row(k + (size_t)t * a->stride, kv->kv_dim, kv->dtype,
			   mm_kv_row(kv, kv->k_va, table, positions[t]));
		narrow_row(v + (size_t)t * a->stride, kv->kv_dim, kv->dtype,
			   mm_kv_row(kv, kv->v_va, table, positions[t]));
	}
}

void mm_rows_swiglu(const struct mm_swiglu_args *a)
{
	for (uint32_t r = 0; r < a->rows; r++) {
		const float *gate = (const float *)mm_at(a->gate_va) + (size_t)r * a->stride;
		const float *up = (const float *)mm_at(a->up_va) + (size_t)r * a->stride;
		float *out = (float *)mm_at(a->out_va) + (size_t)r * a->n;

		for (uint32_t i = 0; i < a->n; i++)
			out[i] = gate[i] / (1.0f + mm_exp(-gate[i])) * up[i];
	}
}

void mm_rows_relu(const struct mm_relu_args *a)
{
	float *x = mm_at(a->x_va);

	for (uint64_t i = 0; i < a->n; i++)
		x[i] = x[i] < 0 ? 0 : x[i];
}

void mm_rows_add(const struct mm_add_args *a)
{
	float *x = mm_at(a->x_va);
	const float *y = mm_at(a->y_va);

	for (uint64_t i = 0; i < a->n; i++)
		x[i] += y[i];
}

void mm_rows_narrow(const struct mm_narrow_args *a)
{
	const size_t row_bytes = (size_t)a->n * mm_dtype_bytes(a->dtype);
	const float *x = mm_at(a->x_va);
	char *out = mm_at(a->out_va);

	for (uint32_t r = 0; r < a->rows; r++)
		narrow_row(x + (size_t)r * a->stride, a->n, a->dtype, out + r * row_bytes);
	if (a->padded_rows > a->rows)
		memset(out + a->rows * row_bytes, 0, (a->padded_rows - a->rows) * row_bytes);
}

void mm_rows_argmax(const struct mm_argmax_args *a)
{
	const float *x = mm_at(a->x_va);
	uint32_t *out = mm_at(a->out_va);

	for (uint32_t r = 0; r < a->rows; r++, x += a->n) {
		float best = -__builtin_inff();
		uint32_t at = 0;

		for (uint32_t i = 0; i < a->n; i++) {
			if (x[i] > best) {
				best = x[i];
				at = i;
			}
		}
		out[r] = at;
	}
}

void mm_rows_fill(const struct mm_fill_args *a)
{
	uint64_t *words = mm_at(a->va);

	for (uint64_t i = 0; i < a->n; i++)
		words[i] = a->pattern;
}

static char *part_of_block(const struct mm_kv_move_args *a, uint32_t block, uint32_t part)
{
	const uint64_t *parts = mm_at(a->parts_va);
	const uint32_t *table = mm_at(a->table_va);

	return mm_at(parts[part] + (uint64_t)table[block] * MM_KV_UNIT_BYTES);
}

void mm_rows_kv_gather(const struct mm_kv_gather_args *a)
{
	char *staging = mm_at(a->staging_va);

	for (uint32_t b = 0; b < a->blocks; b++)
		for (uint32_t p = 0; p < a->parts; p++, staging += a->part_bytes)
			memcpy(staging, part_of_block(a, b, p), a->part_bytes);
}

void mm_rows_kv_scatter(const struct mm_kv_scatter_args *a)
{
	const char *staging = mm_at(a->staging_va);

	for (uint32_t b = 0; b < a->blocks; b++)
		for (uint32_t p = 0; p < a->parts; p++, staging += a->part_bytes)
			memcpy(part_of_block(a, b, p), staging, a->part_bytes);
}
