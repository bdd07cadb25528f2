/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares host kernels with straightforward double arithmetic, and with each other: every
 * instruction set, batch size and cut of a prompt must give the same bits.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "kernels/host/checksum.h"
#include "kernels/host/exp.h"
#include "kernels/host/isa.h"
#include "kernels/host/narrow.h"
#include "kernels/host/rows.h"
#include "kernels/host/sincos.h"
#include "libclient/base/base.h"

#include <math.h>
#include <string.h>

static uint64_t rng_state = 42;

static uint32_t random_next(void)
{
	rng_state = rng_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(rng_state >> 32);
}

static float random_uniform(void)
{
	return (float)((double)random_next() / 2147483648.0 - 1.0);
}

static float *random_floats(size_t n)
{
	float *x = calloc(n, sizeof(*x));

	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = random_uniform();
	return x;
}

static uint64_t va_of(const void *p)
{
	return (uintptr_t)p;
}

/* Return: the value of 16 bits, computed from their fields in double. */
static double half_value(uint16_t h, enum mm_dtype dtype)
{
	const int mantissa_bits = dtype == MM_DTYPE_F16 ? 10 : 7;
	const int bias = dtype == MM_DTYPE_F16 ? 15 : 127;
	const int exponent = (h & 0x7fff) >> mantissa_bits;
	const int mantissa = h & ((1 << mantissa_bits) - 1);
	const double sign = h & 0x8000 ? -1.0 : 1.0;

	if (!exponent)
		return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
	return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static double weight_at(const void *w, size_t i, enum mm_dtype dtype)
{
	if (dtype == MM_DTYPE_F32)
		return ((const float *)w)[i];
	return half_value(((const uint16_t *)w)[i], dtype);
}

/* Makes random finite elements; those of 16 bits have random fields, subnormals included. */
static void *random_weights(size_t n, enum mm_dtype dtype)
{
	uint16_t *w;

	if (dtype == MM_DTYPE_F32)
		return random_floats(n);
	w = calloc(n, sizeof(*w));
	assert_non_null(w);
	for (size_t i = 0; i < n; i++) {
		if (dtype == MM_DTYPE_F16)
			w[i] = (uint16_t)(random_next() & 0xbfff);
		else
			w[i] = (uint16_t)((random_next() & 0x83ff) | 0x3c00);
	}
	return w;
}

static void check_gemm(uint32_t tokens, uint32_t outputs, uint32_t k, enum mm_dtype dtype)
{
	float *x = random_floats((size_t)tokens * k), *y = random_floats((size_t)tokens * outputs);
	float *same = random_floats((size_t)tokens * outputs);
	void *w = random_weights((size_t)outputs * k, dtype);
	struct mm_gemm_args a = { va_of(x), va_of(w), va_of(y), tokens, outputs,
				  k,        dtype,    outputs,  0 };
	const struct mm_isa *isa;

	mm_isa_nth(0)->gemm(&a);
	for (uint32_t t = 0; t < tokens; t++) {
		for (uint32_t o = 0; o < outputs; o++) {
			double sum = 0, size = 0;

			for (uint32_t i = 0; i < k; i++) {
				const double p =
					(double)x[t * k + i] * weight_at(w, o * k + i, dtype);

				sum += p;
				size += fabs(p);
			}
			assert_true(fabs(sum - (double)y[t * outputs + o]) <= 1e-6 * size + 1e-30);
		}
	}
	for (unsigned int n = 0; (isa = mm_isa_nth(n)); n++) {
		a.y_va = va_of(same);
		a.x_va = va_of(x);
		a.tokens = tokens;
		memset(same, 0xff, (size_t)tokens * outputs * sizeof(float));
		isa->gemm(&a);
		assert_memory_equal(same, y, (size_t)tokens * outputs * sizeof(float));
		a.tokens = 1;
		for (uint32_t t = 0; t < tokens; t++) {
			a.x_va = va_of(x + (size_t)t * k);
			isa->gemm(&a);
			assert_memory_equal(same, y + (size_t)t * outputs, outputs * sizeof(float));
		}
	}
	free(x);
	free(y);
	free(same);
	free(w);
}

static void test_gemm(void **state)
{
	static const struct {
		uint32_t tokens, outputs, k;
	} cases[] = { { 1, 1, 1 },  { 1, 5, 16 },  { 2, 4, 17 },   { 3, 7, 31 },
		      { 4, 8, 64 }, { 5, 13, 48 }, { 7, 33, 172 }, { 9, 64, 100 } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		for (enum mm_dtype e = MM_DTYPE_F32; e <= MM_DTYPE_BF16; e++)
			check_gemm(cases[i].tokens, cases[i].outputs, cases[i].k, e);
}

/* For every finite 16-bit pattern and every variant, w * 1 must be w. */
static void test_widen_is_exact(void **state)
{
	const struct mm_isa *isa;
	const float one = 1.0f;

	(void)state;
	for (unsigned int n = 0; (isa = mm_isa_nth(n)); n++) {
		for (uint32_t bits = 0; bits < 0x10000; bits++) {
			for (enum mm_dtype e = MM_DTYPE_F16; e <= MM_DTYPE_BF16; e++) {
				const uint32_t mask = e == MM_DTYPE_F16 ? 0x7c00 : 0x7f80;
				const uint16_t w = (uint16_t)bits;
				float y = 0;
				struct mm_gemm_args a = { va_of(&one), va_of(&w), va_of(&y), 1, 1,
							  1,           e,         1,         0 };

				if ((bits & mask) == mask)
					continue;
				isa->gemm(&a);
				assert_true((double)y == half_value(w, e));
			}
		}
	}
}

static void test_exp(void **state)
{
	(void)state;
	for (float x = -86.9f; x < 88.0f; x += 0.0137f)
		assert_true(fabs((double)mm_exp(x) / exp((double)x) - 1) < 3e-7);
	assert_true(mm_exp(0) == 1.0f);
	assert_true(mm_exp(-1000) == 0.0f && mm_exp(-INFINITY) == 0.0f);
	assert_true(isinf(mm_exp(1000)) && isnan(mm_exp(NAN)));
}

/* The error may be half a unit of a float's last place, and the C library's own rounding. */
static void test_sincos(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 20000; i++) {
		const double angle = i < 10000 ? i * 0.01 : (double)random_next() * (i % 7 + 1) / 7;
		float s, c;

		mm_sincos(angle, &s, &c);
		assert_true(fabs((double)s - sin(angle)) < 3.1e-8);
		assert_true(fabs((double)c - cos(angle)) < 3.1e-8);
	}
}

static void test_rmsnorm(void **state)
{
	const uint32_t hidden = 83, tokens = 3;
	float *x = random_floats(tokens * hidden), *gain = random_floats(hidden),
	      *out = random_floats(tokens * hidden);
	struct mm_rmsnorm_args a = { va_of(x), va_of(gain),  va_of(out), tokens,
				     hidden,   MM_DTYPE_F32, 1e-5f };

	(void)state;
	mm_rows_rmsnorm(&a);
	for (uint32_t t = 0; t < tokens; t++) {
		double square = 0;

		for (uint32_t i = 0; i < hidden; i++)
			square += (double)x[t * hidden + i] * (double)x[t * hidden + i];
		for (uint32_t i = 0; i < hidden; i++) {
			const double want = (double)x[t * hidden + i] * (double)gain[i] /
					    sqrt(square / hidden + 1e-5);

			assert_true(fabs(want - (double)out[t * hidden + i]) < 1e-5);
		}
	}
	free(x);
	free(gain);
	free(out);
}

static void check_layernorm(uint32_t hidden, enum mm_dtype gain_dtype, enum mm_dtype bias_dtype)
{
	const uint32_t tokens = 5;
	float *x = random_floats(tokens * hidden), *out = random_floats(tokens * hidden),
	      *one = random_floats(hidden);
	void *gain = random_weights(hidden, gain_dtype), *bias = random_weights(hidden, bias_dtype);
	struct mm_layernorm_args a = { va_of(x), va_of(gain), va_of(bias), va_of(out), tokens,
				       hidden,   gain_dtype,  bias_dtype,  1e-5f,      0 };

	for (uint32_t i = 0; i < tokens * hidden; i++)
		x[i] += (float)(i / hidden) * 10; /* the mean is large, the deviations small */
	mm_rows_layernorm(&a);
	for (uint32_t t = 0; t < tokens; t++) {
		double mean = 0, square = 0;

		for (uint32_t i = 0; i < hidden; i++)
			mean += (double)x[t * hidden + i] / hidden;
		for (uint32_t i = 0; i < hidden; i++)
			square += pow((double)x[t * hidden + i] - mean, 2);
		for (uint32_t i = 0; i < hidden; i++) {
			const double g = weight_at(gain, i, gain_dtype),
				     b = weight_at(bias, i, bias_dtype);
			const double want = ((double)x[t * hidden + i] - mean) /
						    sqrt(square / hidden + 1e-5) * g +
					    b;

			assert_true(fabs(want - (double)out[t * hidden + i]) <
				    4e-5 * (fabs(g) + fabs(b) + 1e-6));
		}
		a.x_va = va_of(x + t * hidden);
		a.out_va = va_of(one);
		a.tokens = 1;
		mm_rows_layernorm(&a);
		assert_memory_equal(one, out + t * hidden, hidden * sizeof(float));
	}
	a.x_va = a.out_va = va_of(x);
	a.tokens = tokens;
	mm_rows_layernorm(&a);
	assert_memory_equal(x, out, tokens * hidden * sizeof(float)); /* in place */
	free(x);
	free(out);
	free(one);
	free(gain);
	free(bias);
}

static void test_layernorm(void **state)
{
	(void)state;
	for (enum mm_dtype e = MM_DTYPE_F32; e <= MM_DTYPE_BF16; e++) {
		check_layernorm(2, e, MM_DTYPE_F32);
		check_layernorm(64, e, e);
		check_layernorm(83, MM_DTYPE_F32, e);
	}
}

/* Biases and learned positions are exact in any dtype, and nothing beside them changes. */
static void test_added_rows(void **state)
{
	enum { ROWS = 3, N = 21, STRIDE = 30, OFFSET = 2 };
	const uint32_t positions[ROWS] = { 4, 0, 4 };

	(void)state;
	for (enum mm_dtype e = MM_DTYPE_F32; e <= MM_DTYPE_BF16; e++) {
		float *x = random_floats(ROWS * STRIDE), before[ROWS * STRIDE];
		void *bias = random_weights(N, e), *table = random_weights(7 * STRIDE, e);
		struct mm_bias_add_args a = { va_of(x), va_of(bias), ROWS, N, STRIDE, e };
		struct mm_position_embed_args p = {
			va_of(positions), va_of(table), va_of(x), ROWS, STRIDE, e, OFFSET
		};

		memcpy(before, x, sizeof(before));
		mm_rows_bias_add(&a);
		for (uint32_t i = 0; i < ROWS * STRIDE; i++) {
			const uint32_t c = i % STRIDE;

			assert_true(x[i] ==
				    (c < N ? before[i] + (float)weight_at(bias, c, e) : before[i]));
		}
		memcpy(x, before, sizeof(before));
		mm_rows_position_embed(&p);
		for (uint32_t i = 0; i < ROWS * STRIDE; i++) {
			const uint32_t row = positions[i / STRIDE] + OFFSET;

			assert_true(x[i] ==
				    before[i] +
					    (float)weight_at(table, row * STRIDE + i % STRIDE, e));
		}
		free(x);
		free(bias);
		free(table);
	}
}

/* One product of adjacent matrices has the same bits as the products of each. */
static void test_gemm_into_columns(void **state)
{
	enum { TOKENS = 5, K = 37, FIRST = 9, SECOND = 6, ALL = FIRST + SECOND };

	(void)state;
	for (enum mm_dtype e = MM_DTYPE_F32; e <= MM_DTYPE_BF16; e++) {
		float *x = random_floats(TOKENS * K), one[TOKENS * ALL], two[TOKENS * ALL];
		char *w = random_weights(ALL * K, e);
		struct mm_gemm_args a = {
			va_of(x), va_of(w), va_of(one), TOKENS, ALL, K, e, ALL, 0
		};
		const struct mm_isa *isa;

		for (unsigned int n = 0; (isa = mm_isa_nth(n)); n++) {
			a.w_va = va_of(w);
			a.y_va = va_of(one);
			a.outputs = ALL;
			isa->gemm(&a);
			a.y_va = va_of(two);
			a.outputs = FIRST;
			isa->gemm(&a);
			a.w_va = va_of(w + FIRST * K * mm_dtype_bytes(e));
			a.y_va = va_of(two + FIRST);
			a.outputs = SECOND;
			isa->gemm(&a);
			assert_memory_equal(one, two, sizeof(one));
		}
		free(x);
		free(w);
	}
}

static void test_rope(void **state)
{
	const uint32_t heads = 3, dim = 8, positions[] = { 0, 1, 500 };
	float *x = random_floats(3 * heads * dim), before[3 * 3 * 8];
	double frequencies[4];
	struct mm_rope_args a = { va_of(x), va_of(positions), va_of(frequencies), 3, heads,
				  dim,      heads * dim };

	(void)state;
	for (uint32_t i = 0; i < dim / 2; i++)
		frequencies[i] = pow(10000.0, -2.0 * i / dim);
	memcpy(before, x, sizeof(before));
	mm_rows_rope(&a);
	for (uint32_t i = 0; i < 3 * heads * dim; i++) {
		const uint32_t d = i % dim, pair = d % (dim / 2);
		const double angle = positions[i / (heads * dim)] * pow(10000.0, -2.0 * pair / dim);
		const uint32_t low = i - d + pair;
		const double p = (double)before[low], q = (double)before[low + dim / 2];
		const double want = d < dim / 2 ? p * cos(angle) - q * sin(angle)
						: q * cos(angle) + p * sin(angle);

		assert_true(fabs(want - (double)x[i]) < 1e-6);
	}
	free(x);
}

/* A paged KV of one layer whose blocks are in a shuffled order. */
struct paged {
	struct mm_kv_layout kv;
	float *arena;
	uint32_t table[160];
};

#define BLOCKS 151u

static void paged_init(struct paged *p, uint32_t block_tokens, uint32_t kv_dim, enum mm_dtype dtype)
{
	const uint64_t half = (uint64_t)block_tokens * kv_dim * mm_dtype_bytes(dtype);
	const uint64_t block = mm_round_up(2 * half, MM_KV_UNIT_BYTES);

	p->arena = random_floats(BLOCKS * block / sizeof(float));
	p->kv = (struct mm_kv_layout){ .k_va = va_of(p->arena),
				       .v_va = va_of(p->arena) + half,
				       .tables_va = va_of(p->table),
				       .table_stride = 160,
				       .block_tokens = block_tokens,
				       .kv_dim = kv_dim,
				       .dtype = dtype };
	for (uint32_t i = 0; i < BLOCKS; i++)
		p->table[i] = (i * 17 + 3) % BLOCKS * (uint32_t)(block / MM_KV_UNIT_BYTES);
}

static void paged_fill(struct paged *p, const float *k, const float *v, uint32_t n)
{
	uint32_t positions[256], seqs[256] = { 0 };
	struct mm_kv_write_args a = { p->kv, va_of(k), va_of(v), p->kv.kv_dim, 0 };

	for (uint32_t i = 0; i < n; i++)
		positions[i] = i;
	a.kv.positions_va = va_of(positions);
	a.kv.seqs_va = va_of(seqs);
	a.kv.tokens = n;
	mm_rows_kv_write(&a);
}

static void reference_attention(const float *q, const float *k, const float *v, uint32_t context,
				uint32_t kv_dim, uint32_t dim, double scale, double *out)
{
	double scores[256], max = -1e300, sum = 0;

	for (uint32_t i = 0; i < context; i++) {
		scores[i] = 0;
		for (uint32_t d = 0; d < dim; d++)
			scores[i] += (double)q[d] * (double)k[i * kv_dim + d];
		scores[i] *= scale;
		max = fmax(max, scores[i]);
	}
	memset(out, 0, dim * sizeof(*out));
	for (uint32_t i = 0; i < context; i++) {
		sum += exp(scores[i] - max);
		for (uint32_t d = 0; d < dim; d++)
			out[d] += exp(scores[i] - max) * (double)v[i * kv_dim + d];
	}
	for (uint32_t d = 0; d < dim; d++)
		out[d] /= sum;
}

/* Return: the value of @x after it was written to KV of @dtype and read again. */
static void round_all(float *x, size_t n, enum mm_dtype dtype)
{
	for (size_t i = 0; i < n; i++) {
		const float was = x[i];

		if (dtype == MM_DTYPE_F16)
			x[i] = (float)half_value(mm_narrow_f16(x[i]), dtype);
		else if (dtype == MM_DTYPE_BF16)
			x[i] = (float)half_value(mm_narrow_bf16(x[i]), dtype);
		assert_true(fabsf(x[i] - was) <= (dtype == MM_DTYPE_F16 ? 0x1p-11f : 0x1p-8f));
	}
}

static void check_attention(uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t block_tokens,
			    enum mm_dtype dtype)
{
	static const uint32_t contexts[] = { 1, 2, 63, 64, 65, 128, 150 };
	const uint32_t kv_dim = kv_heads * dim, n = MM_ARRAY_SIZE(contexts), longest = 150;
	float *q = random_floats(n * heads * dim), *k = random_floats(longest * kv_dim);
	float *v = random_floats(longest * kv_dim), *out = random_floats(n * heads * dim);
	float *again = random_floats(n * heads * dim);
	uint32_t positions[MM_ARRAY_SIZE(contexts)], seqs[MM_ARRAY_SIZE(contexts)] = { 0 };
	struct paged p;
	struct mm_paged_attention_args a;
	const struct mm_isa *isa;
	double want[MM_HEAD_DIM_MAX];

	paged_init(&p, block_tokens, kv_dim, dtype);
	paged_fill(&p, k, v, longest);
	round_all(k, longest * kv_dim, dtype);
	round_all(v, longest * kv_dim, dtype);
	for (uint32_t i = 0; i < n; i++)
		positions[i] = contexts[i] - 1;
	p.kv.positions_va = va_of(positions);
	p.kv.seqs_va = va_of(seqs);
	p.kv.tokens = n;
	a = (struct mm_paged_attention_args){ .kv = p.kv,
					      .q_va = va_of(q),
					      .out_va = va_of(out),
					      .heads = heads,
					      .kv_heads = kv_heads,
					      .head_dim = dim,
					      .scale = 3.0f / sqrtf((float)dim),
					      .q_stride = heads * dim,
					      .split_tokens = MM_ATTENTION_SPLIT_TOKENS,
					      .splits = 1 };
	mm_isa_nth(0)->attention(&a);
	for (uint32_t i = 0; i < n * heads; i++) {
		const uint32_t offset = i % heads / (heads / kv_heads) * dim;

		reference_attention(q + i * dim, k + offset, v + offset, contexts[i / heads],
				    kv_dim, dim, (double)a.scale, want);
		for (uint32_t d = 0; d < dim; d++)
			assert_true(fabs(want[d] - (double)out[i * dim + d]) < 2e-6);
	}
	for (unsigned int i = 0; (isa = mm_isa_nth(i)); i++) {
		a.out_va = va_of(again);
		isa->attention(&a);
		assert_memory_equal(again, out, n * heads * dim * sizeof(float));
	}
	free(q);
	free(k);
	free(v);
	free(out);
	free(again);
	free(p.arena);
}

/*
 * All 16-bit values are kept. A value between two of them is rounded to the nearer one, in the
 * middle to the even one.
 */
static void check_narrow(enum mm_dtype dtype, uint16_t infinity, uint16_t (*narrow)(float))
{
	for (uint32_t h = 0; h < infinity; h++) {
		const float low = (float)half_value((uint16_t)h, dtype);
		const float high =
			(float)half_value((uint16_t)(h + 1), dtype); /* 2^16 for infinity */
		const float middle = low + (high - low) / 2;
		const uint32_t even = h + (h & 1);

		for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
			const float s = sign ? -1 : 1;

			assert_int_equal(narrow(s * low), sign | h);
			if (dtype == MM_DTYPE_BF16 && h == infinity - 1u)
				continue; /* high is beyond float */
			assert_int_equal(narrow(s * middle), sign | even);
			assert_int_equal(narrow(s * nextafterf(middle, low)), sign | h);
			assert_int_equal(narrow(s * nextafterf(middle, high)), sign | (h + 1));
		}
	}
	assert_int_equal(narrow(__builtin_inff()), infinity);
	assert_true((narrow(__builtin_nanf("")) & 0x7fff) > infinity);
	assert_true((narrow(-__builtin_nanf("1")) & 0x7fff) > infinity);
}

static uint16_t narrow_f16(float value)
{
	return mm_narrow_f16(value);
}

static uint16_t narrow_bf16(float value)
{
	return mm_narrow_bf16(value);
}

static void test_narrow(void **state)
{
	(void)state;
	check_narrow(MM_DTYPE_F16, 0x7c00, narrow_f16);
	check_narrow(MM_DTYPE_BF16, 0x7f80, narrow_bf16);
}

/* Rows of a wider matrix are narrowed, padded with zeros, and nothing behind them changes. */
static void check_narrow_rows(enum mm_dtype dtype)
{
	enum { ROWS = 3, PADDED = 5, N = 7, STRIDE = 11 };
	float *x = random_floats((size_t)ROWS * STRIDE);
	uint16_t out[PADDED * N + 1];
	const struct mm_narrow_args a = { va_of(x), va_of(out), ROWS, PADDED, N, STRIDE, dtype, 0 };

	memset(out, 0xee, sizeof(out));
	mm_rows_narrow(&a);
	for (uint32_t r = 0; r < PADDED; r++) {
		for (uint32_t i = 0; i < N; i++) {
			const float from = r < ROWS ? x[r * STRIDE + i] : 0;
			const uint16_t want =
				dtype == MM_DTYPE_F16 ? mm_narrow_f16(from) : mm_narrow_bf16(from);

			assert_int_equal(out[r * N + i], want);
		}
	}
	assert_int_equal(out[PADDED * N], 0xeeee);
	free(x);
}

static void test_narrow_rows(void **state)
{
	(void)state;
	check_narrow_rows(MM_DTYPE_F16);
	check_narrow_rows(MM_DTYPE_BF16);
}

static void test_attention(void **state)
{
	(void)state;
	for (enum mm_dtype dtype = MM_DTYPE_F32; dtype <= MM_DTYPE_BF16; dtype++) {
		check_attention(4, 4, 16, 16, dtype);
		check_attention(8, 4, 8, 4, dtype);
		check_attention(6, 2, 20, 5, dtype);
		check_attention(3, 1, 7, 3, dtype);
		check_attention(4, 2, 32, 16, dtype);
		check_attention(2, 2, 64, 7, dtype);
		check_attention(2, 1, 128, 1, dtype);
		check_attention(2, 1, MM_HEAD_DIM_MAX, 16, dtype);
	}
}

static void test_small_rows(void **state)
{
	float gate[] = { -2, 0, 1, 30 }, up[] = { 1, 2, 3, 4 }, x[] = { 1, 2 }, y[] = { 10, 20 };
	const float table[] = { 0, 1, 2, 3, 4, 5 };
	const uint32_t ids[] = { 2, 0 };
	float out[4];
	struct mm_swiglu_args swiglu = { va_of(gate), va_of(up), va_of(gate), 1, 4, 4, 0 };
	float relu_x[] = { -1, 0, 2, -INFINITY, NAN };
	struct mm_relu_args relu = { va_of(relu_x), MM_ARRAY_SIZE(relu_x) };
	struct mm_add_args add = { va_of(x), va_of(y), 2 };
	struct mm_embed_args embed = {
		va_of(ids), va_of(table), va_of(out), 2, 2, MM_DTYPE_F32, 0
	};
	struct mm_gather_args gather = { va_of(ids), va_of(table), va_of(out), 2, 2 };

	(void)state;
	mm_rows_swiglu(&swiglu);
	assert_true(fabs((double)gate[0] - -2 / (1 + exp(2.0))) < 1e-6 && gate[1] == 0.0f);
	assert_true(fabs((double)gate[2] - 3 / (1 + exp(-1.0))) < 1e-6 && gate[3] == 120.0f);
	mm_rows_relu(&relu);
	assert_true(relu_x[0] == 0.0f && relu_x[1] == 0.0f && relu_x[2] == 2.0f);
	assert_true(relu_x[3] == 0.0f && isnan(relu_x[4]));
	mm_rows_add(&add);
	assert_true(x[0] == 11.0f && x[1] == 22.0f);
	mm_rows_embed(&embed);
	assert_true(out[0] == 4.0f && out[1] == 5.0f && out[2] == 0.0f && out[3] == 1.0f);
	memset(out, 0, sizeof(out));
	mm_rows_gather(&gather);
	assert_true(out[0] == 4.0f && out[1] == 5.0f && out[2] == 0.0f && out[3] == 1.0f);
}

static void test_argmax(void **state)
{
	const float x[] = { 1, 7, 7, 0, NAN, -1, -5, -1, -INFINITY, NAN, -INFINITY, NAN };
	uint32_t out[3];
	struct mm_argmax_args a = { va_of(x), va_of(out), 3, 4 };

	(void)state;
	mm_rows_argmax(&a);
	assert_int_equal(out[0], 1);
	assert_int_equal(out[1], 1);
	assert_int_equal(out[2], 0);
}

static void test_checksum(void **state)
{
	const size_t n = 3 * MM_CHECKSUM_PIECE_BYTES + 77;
	uint8_t *bytes = calloc(1, n);
	uint64_t sum;

	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)random_next();
	sum = mm_checksum_bytes(bytes, n);
	for (size_t i = 0; i < n; i += 97) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_true(mm_checksum_bytes(bytes, n) != sum);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_true(mm_checksum_bytes(bytes, n) == sum);
	assert_true(mm_checksum_bytes(bytes, n - 1) != sum);
	memmove(bytes, bytes + MM_CHECKSUM_PIECE_BYTES, MM_CHECKSUM_PIECE_BYTES);
	assert_true(mm_checksum_bytes(bytes, n) != sum);
	memset(bytes, 0, n);
	assert_true(mm_checksum_bytes(bytes, 64) != mm_checksum_bytes(bytes, 128));
	assert_true(mm_checksum_bytes(bytes, 0) != mm_checksum_bytes(bytes, 1));
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gemm),        cmocka_unit_test(test_widen_is_exact),
		cmocka_unit_test(test_exp),         cmocka_unit_test(test_sincos),
		cmocka_unit_test(test_rmsnorm),     cmocka_unit_test(test_layernorm),
		cmocka_unit_test(test_added_rows),  cmocka_unit_test(test_gemm_into_columns),
		cmocka_unit_test(test_rope),        cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_narrow_rows), cmocka_unit_test(test_attention),
		cmocka_unit_test(test_small_rows),  cmocka_unit_test(test_argmax),
		cmocka_unit_test(test_checksum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
