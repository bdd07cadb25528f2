/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paged attention, the CUDA kernel emulated: against sums in double precision and against the host
 * twin; and that a token's bits are the same however its sequence is cut into launches, tiles and
 * splits.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/random.h"
#include "kernels/args/args.h"
#include "kernels/emulate/emulate.h"
#include "kernels/host/narrow.h"
#include "kernels/launch/launch.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEQS       3u
#define TOKENS_MAX 96u /* of a launch */
#define GUARD      64u /* floats before and behind what is written */
#define GUARD_BITS 0x7fedcba9u

/* Both twins sum in F32, of terms that are at most 1: a context of 300 is far from this. */
#define TOLERANCE 2e-6

struct shape {
	uint32_t heads, kv_heads, dim;
	uint32_t block_tokens;
	enum mm_dtype dtype;
	uint32_t split_tokens;
	uint32_t contexts[SEQS];
	uint32_t gap; /* bytes by which KV is off its alignment */
};

static const struct shape shapes[] = {
	{ 4, 4, 64, 16, MM_DTYPE_F16, 32, { 70, 33, 1 }, 0 },
	{ 4, 2, 128, 16, MM_DTYPE_BF16, 32, { 40, 64, 2 }, 0 },
	{ 4, 1, 80, 16, MM_DTYPE_F16, 48, { 97, 48, 5 }, 0 },
	{ 7, 1, 64, 5, MM_DTYPE_F16, 32, { 65, 31, 7 }, 0 },
	{ 8, 1, 128, 16, MM_DTYPE_F16, 64, { 66, 17, 3 }, 0 },
	{ 3, 1, 256, 16, MM_DTYPE_BF16, 32, { 50, 32, 4 }, 0 },
	{ 5, 1, 200, 3, MM_DTYPE_F16, 16, { 20, 16, 4 }, 0 }, /* more heads than a block takes */
	{ 10, 1, 24, 16, MM_DTYPE_F32, 32, { 40, 9, 1 }, 0 }, /* and again */
	{ 2, 2, 72, 7, MM_DTYPE_F32, 32, { 37, 64, 3 }, 0 },
	{ 6,
	  2,
	  20,
	  4,
	  MM_DTYPE_F32,
	  16,
	  { 35, 16, 2 },
	  0 }, /* in no pieces of 16 bytes, from here on */
	{ 2, 1, 7, 3, MM_DTYPE_F16, 16, { 34, 5, 1 }, 0 },
	{ 2, 1, 64, 16, MM_DTYPE_BF16, 32, { 40, 33, 1 }, 2 },
	{ 2, 1, 64, 16, MM_DTYPE_F16, MM_ATTENTION_SPLIT_TOKENS, { 300, 257, 256 }, 0 },
};

static const struct mm_host_kernel *host, *emulated;
static void (*set_order)(uint64_t order);
static uint64_t rng_state;

struct world {
	const struct shape *s;
	uint32_t longest, table_stride;
	char *arena; /* keys of all blocks, then their values */
	size_t arena_bytes;
	uint64_t k_va, v_va;
	uint32_t *tables;
	float *q;       /* [SEQS][longest][heads * dim + 3] */
	float *k, *v;   /* [SEQS][longest][kv_dim], as KV holds them */
	uint32_t *want; /* [SEQS][longest][heads * dim]: bits of what each token got at first */
	double scale;
};

struct batch { /* a launch */
	uint32_t n;
	uint32_t seqs[TOKENS_MAX], positions[TOKENS_MAX];
	uint32_t splits;
};

static uint32_t rng(void)
{
	return (uint32_t)(mm_random_next(&rng_state) >> 32);
}

static float uniform(void)
{
	return (float)((double)rng() / 2147483648.0 - 1.0);
}

static void *room(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

	assert_non_null(p);
	memset(p, 0xff, (bytes + 63) / 64 * 64); /* as floats of any size: NaN */
	return p;
}

static uint64_t va(const void *p)
{
	return (uintptr_t)p;
}

static float narrowed(float x, enum mm_dtype dtype, void *to)
{
	uint16_t h;

	if (dtype == MM_DTYPE_F32) {
		memcpy(to, &x, sizeof(x));
		return x;
	}
	h = dtype == MM_DTYPE_F16 ? mm_narrow_f16(x) : mm_narrow_bf16(x);
	memcpy(to, &h, sizeof(h));
	if (dtype == MM_DTYPE_BF16) {
		const uint32_t bits = (uint32_t)h << 16;

		memcpy(&x, &bits, sizeof(x));
		return x;
	}
	x = ldexpf((float)(h & 0x3ff) + (h >> 10 & 31 ? 1024.0f : 0),
		   (h >> 10 & 31 ? h >> 10 & 31 : 1) - 25);
	return h & 0x8000 ? -x : x;
}

static uint32_t kv_dim(const struct shape *s)
{
	return s->kv_heads * s->dim;
}

/* Keys and values of one token, in KV and as floats. */
static void fill_token(struct world *w, uint32_t seq, uint32_t position)
{
	const struct shape *s = w->s;
	const uint32_t unit = w->tables[seq * w->table_stride + position / s->block_tokens];
	const size_t element = mm_dtype_bytes(s->dtype);
	const size_t at = (size_t)unit * MM_KV_UNIT_BYTES +
			  (size_t)(position % s->block_tokens) * kv_dim(s) * element;
	const size_t row = ((size_t)seq * w->longest + position) * kv_dim(s);

	for (uint32_t i = 0; i < kv_dim(s); i++) {
		w->k[row + i] = narrowed(uniform(), s->dtype,
					 (char *)(uintptr_t)w->k_va + at + i * element);
		w->v[row + i] = narrowed(uniform(), s->dtype,
					 (char *)(uintptr_t)w->v_va + at + i * element);
	}
}

/* Blocks in any order; what is no token's is NaN, what is no block's is no address. */
static void fill_tables(struct world *w)
{
	const struct shape *s = w->s;
	const uint32_t n = SEQS * w->table_stride;
	const uint32_t units =
		(uint32_t)((s->block_tokens * kv_dim(s) * mm_dtype_bytes(s->dtype) + 63) / 64);

	w->tables = room(n * sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
		w->tables[i] = i * units;
	for (uint32_t i = n - 1; i; i--) {
		const uint32_t other = rng() % (i + 1), was = w->tables[i];

		w->tables[i] = w->tables[other];
		w->tables[other] = was;
	}
	for (uint32_t seq = 0; seq < SEQS; seq++)
		for (uint32_t i = (s->contexts[seq] - 1) / s->block_tokens + 1; i < w->table_stride;
		     i++)
			w->tables[seq * w->table_stride + i] = UINT32_MAX;
	w->arena_bytes = (size_t)n * units * MM_KV_UNIT_BYTES + 64;
}

static uint32_t q_stride(const struct shape *s)
{
	return s->heads * s->dim + 3;
}

static void world_init(struct world *w, const struct shape *s)
{
	size_t rows;

	rng_state = 12345;
	*w = (struct world){ .s = s, .scale = 3.0 / sqrt(s->dim) };
	for (uint32_t i = 0; i < SEQS; i++)
		w->longest = s->contexts[i] > w->longest ? s->contexts[i] : w->longest;
	rows = (size_t)SEQS * w->longest;
	w->table_stride = (w->longest - 1) / s->block_tokens + 2;
	fill_tables(w);
	w->arena = room(2 * w->arena_bytes);
	w->k_va = va(w->arena) + s->gap;
	w->v_va = w->k_va + w->arena_bytes / 64 * 64;
	w->q = room(rows * q_stride(s) * sizeof(float));
	for (size_t i = 0; i < rows * q_stride(s); i++)
		w->q[i] = uniform();
	w->k = room(rows * kv_dim(s) * sizeof(float));
	w->v = room(rows * kv_dim(s) * sizeof(float));
	w->want = room(rows * s->heads * s->dim * sizeof(float));
	for (uint32_t seq = 0; seq < SEQS; seq++)
		for (uint32_t i = 0; i < s->contexts[seq]; i++)
			fill_token(w, seq, i);
}

static void world_done(struct world *w)
{
	free(w->arena);
	free(w->tables);
	free(w->q);
	free(w->k);
	free(w->v);
	free(w->want);
}

static const struct mm_host_kernel *module_kernel(const char *variable, void **ret_library)
{
	const char *path = getenv(variable);
	const struct mm_host_kernel *k;

	assert_non_null(path);
	*ret_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*ret_library)
		fail_msg("%s", dlerror());
	k = dlsym(*ret_library, MM_HOST_KERNELS_SYMBOL);
	assert_non_null(k);
	while (k->name && strcmp(k->name, mm_kernel_name(MM_KERNEL_ATTENTION)) != 0)
		k++;
	assert_non_null(k->name);
	return k;
}

static void check_guard(const float *p, size_t n)
{
	uint32_t bits;

	for (size_t i = 0; i < n; i++) {
		memcpy(&bits, p + i, sizeof(bits));
		assert_int_equal(bits, GUARD_BITS);
	}
}

static float *guarded(size_t floats)
{
	const uint32_t bits = GUARD_BITS;
	float *p = room((floats + 2 * GUARD) * sizeof(float));

	for (size_t i = 0; i < floats + 2 * GUARD; i++)
		memcpy(p + i, &bits, sizeof(bits));
	return p;
}

/*
 * Return: the outputs, behind GUARD floats that nobody touched, as those after them; to be freed.
 */
static float *run(const struct world *w, const struct mm_host_kernel *kernel, const struct batch *b)
{
	const struct shape *s = w->s;
	const size_t n_out = (size_t)b->n * s->heads * s->dim;
	const size_t n_partial =
		mm_attention_partial_bytes(b->n, s->heads, s->dim, b->splits) / sizeof(float);
	float *out = guarded(n_out), *partial = guarded(n_partial);
	float *q = room((size_t)b->n * q_stride(s) * sizeof(float));
	uint32_t *counters = calloc((size_t)b->n * s->heads + 1, sizeof(*counters));
	struct mm_paged_attention_args a = { .kv = { .k_va = w->k_va,
						     .v_va = w->v_va,
						     .tables_va = va(w->tables),
						     .seqs_va = va(b->seqs),
						     .positions_va = va(b->positions),
						     .table_stride = w->table_stride,
						     .block_tokens = s->block_tokens,
						     .kv_dim = kv_dim(s),
						     .tokens = b->n,
						     .dtype = s->dtype },
					     .q_va = va(q),
					     .out_va = va(out + GUARD),
					     .partial_va = va(partial + GUARD),
					     .counters_va = va(counters),
					     .heads = s->heads,
					     .kv_heads = s->kv_heads,
					     .head_dim = s->dim,
					     .scale = (float)w->scale,
					     .q_stride = q_stride(s),
					     .split_tokens = s->split_tokens,
					     .splits = b->splits };
	void *const args[] = { &a };
	struct mm_launch_shape shape;
	struct mm_host_launch launch;

	assert_non_null(counters);
	for (uint32_t t = 0; t < b->n; t++)
		memcpy(q + (size_t)t * q_stride(s),
		       w->q + ((size_t)b->seqs[t] * w->longest + b->positions[t]) * q_stride(s),
		       q_stride(s) * sizeof(float));
	mm_launch_shape(MM_KERNEL_ATTENTION, &a, &shape);
	memcpy(launch.grid, shape.grid, sizeof(launch.grid));
	memcpy(launch.block, shape.block, sizeof(launch.block));
	launch.shared_bytes = shape.shared_bytes;
	kernel->fn(&launch, args);
	check_guard(out, GUARD);
	check_guard(out + GUARD + n_out, GUARD);
	check_guard(partial, GUARD);
	check_guard(partial + GUARD + n_partial, GUARD);
	for (size_t i = 0; i <= (size_t)b->n * s->heads; i++)
		assert_int_equal(counters[i], 0);
	free(partial);
	free(counters);
	free(q);
	return out;
}

static void reference(const struct world *w, uint32_t seq, uint32_t position, uint32_t head,
		      double *out)
{
	const struct shape *s = w->s;
	const uint32_t kv_head = head / (s->heads / s->kv_heads), dim = s->dim;
	const size_t first = (size_t)seq * w->longest;
	const float *q = w->q + (first + position) * q_stride(s) + head * dim;
	double scores[512], max = -INFINITY, sum = 0;

	assert_true(position < 512);
	for (uint32_t i = 0; i <= position; i++) {
		const float *k = w->k + (first + i) * kv_dim(s) + kv_head * dim;

		scores[i] = 0;
		for (uint32_t d = 0; d < dim; d++)
			scores[i] += (double)q[d] * (double)k[d];
		scores[i] *= (double)(float)w->scale;
		max = fmax(max, scores[i]);
	}
	memset(out, 0, dim * sizeof(*out));
	for (uint32_t i = 0; i <= position; i++) {
		const float *v = w->v + (first + i) * kv_dim(s) + kv_head * dim;

		sum += exp(scores[i] - max);
		for (uint32_t d = 0; d < dim; d++)
			out[d] += exp(scores[i] - max) * (double)v[d];
	}
	for (uint32_t d = 0; d < dim; d++)
		out[d] /= sum;
}

static size_t token_floats(const struct world *w)
{
	return (size_t)w->s->heads * w->s->dim;
}

/* Whether all tokens of the launch get what they got when they were alone. */
static void check_same(const struct world *w, const struct batch *b)
{
	float *out = run(w, emulated, b);

	for (uint32_t t = 0; t < b->n; t++)
		assert_memory_equal(out + GUARD + t * token_floats(w),
				    w->want + ((size_t)b->seqs[t] * w->longest + b->positions[t]) *
						      token_floats(w),
				    token_floats(w) * sizeof(float));
	free(out);
}

static void add(struct batch *b, uint32_t seq, uint32_t position)
{
	assert_true(b->n < TOKENS_MAX);
	b->seqs[b->n] = seq;
	b->positions[b->n++] = position;
}

static uint32_t all_splits(const struct world *w)
{
	return mm_attention_splits(w->longest, w->s->split_tokens);
}

/* Each token of the last ones of each sequence alone: right, and what all else is compared with. */
static void alone(struct world *w, uint32_t seq, uint32_t position)
{
	struct batch b = { .splits = all_splits(w) };
	double want[MM_HEAD_DIM_MAX];
	float *out, *twin;

	add(&b, seq, position);
	out = run(w, emulated, &b);
	twin = run(w, host, &b);
	for (uint32_t head = 0; head < w->s->heads; head++) {
		reference(w, seq, position, head, want);
		for (uint32_t d = 0; d < w->s->dim; d++) {
			const double got = (double)out[GUARD + head * w->s->dim + d];

			assert_true(fabs(got - want[d]) < TOLERANCE);
			assert_true(fabs(got - (double)twin[GUARD + head * w->s->dim + d]) <
				    2 * TOLERANCE);
		}
	}
	memcpy(w->want + ((size_t)seq * w->longest + position) * token_floats(w), out + GUARD,
	       token_floats(w) * sizeof(float));
	free(out);
	free(twin);
}

/* The last tokens of a sequence that the cases below take. */
static uint32_t first_of(const struct world *w, uint32_t seq)
{
	const uint32_t n = w->s->contexts[seq], most = n > 200 ? 9 : 19;

	return n > most ? n - most : 0;
}

/* Chunks of @chunk tokens, the sequences one after the other in each launch. */
static void check_chunks(const struct world *w, uint32_t chunk, uint32_t splits)
{
	uint32_t done[SEQS], left = 1;

	for (uint32_t seq = 0; seq < SEQS; seq++)
		done[seq] = first_of(w, seq);
	while (left) {
		struct batch b = { .splits = splits };

		left = 0;
		for (uint32_t seq = 0; seq < SEQS; seq++) {
			for (uint32_t i = 0; i < chunk && done[seq] < w->s->contexts[seq]; i++)
				add(&b, seq, done[seq]++);
			left += w->s->contexts[seq] - done[seq];
		}
		check_same(w, &b);
	}
}

/* The order of launches is none that a prompt has: neighbours that are not neighbours. */
static void check_scattered(const struct world *w)
{
	struct batch b = { .splits = all_splits(w) };

	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t seq = 0; seq < SEQS; seq++)
			if (first_of(w, seq) + i < w->s->contexts[seq])
				add(&b, seq, w->s->contexts[seq] - 1 - i);
	check_same(w, &b);
}

/*
 * Tokens of other sequences whose positions go on where the last one's ended, and of one that leave
 * some out.
 */
static void check_adjoining(struct world *w)
{
	const uint32_t *contexts = w->s->contexts;
	const uint32_t end = contexts[0] < contexts[1] ? contexts[0] : contexts[1];

	/* At least one of these is in the middle of a tile, whatever that has room for. */
	for (uint32_t at = end - 4; at < end - 1; at++) {
		struct batch b = { .splits = 1 }, gap = { .splits = 1 };

		for (uint32_t i = 0; i < 3; i++) {
			add(&b, i % 2, at - 1 + i);
			alone(w, i % 2, at - 1 + i);
		}
		add(&gap, 0, at - 1);
		add(&gap, 0, at + 1);
		set_order(MM_EMULATE_FORWARD);
		check_same(w, &b);
		set_order(MM_EMULATE_REVERSE);
		check_same(w, &b);
		check_same(w, &gap);
	}
}

static void check_shape(const struct shape *s)
{
	struct world w;

	world_init(&w, s);
	set_order(MM_EMULATE_FORWARD);
	for (uint32_t seq = 0; seq < SEQS; seq++)
		for (uint32_t i = first_of(&w, seq); i < s->contexts[seq]; i++)
			alone(&w, seq, i);
	check_chunks(&w, 1, 1);
	set_order(MM_EMULATE_REVERSE);
	check_chunks(&w, 19, 1);
	set_order(4711);
	check_chunks(&w, 5, all_splits(&w) + 1);
	check_scattered(&w);
	check_adjoining(&w);
	world_done(&w);
}

static void test_shapes(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(shapes); i++)
		check_shape(&shapes[i]);
}

/*
 * The first tokens too, for whom a tile holds keys that they must not see: those of an infinite
 * value.
 */
static void test_later_tokens_are_not_seen(void **state)
{
	const struct shape s = { 2, 2, 64, 16, MM_DTYPE_F16, 32, { 6, 35, 1 }, 0 };
	const uint16_t infinite = 0x7c00;
	struct batch b = { .splits = 1 };
	struct world w;
	float *before, *after;

	(void)state;
	world_init(&w, &s);
	for (uint32_t i = 0; i < 6; i++)
		add(&b, 0, i);
	for (uint32_t i = 28; i < 35; i++)
		add(&b, 1, i);
	before = run(&w, emulated, &b);
	for (uint32_t seq = 0; seq < 2; seq++) {
		const uint32_t last = s.contexts[seq] - 1;
		const uint32_t unit = w.tables[seq * w.table_stride + last / s.block_tokens];
		const uint64_t at =
			(uint64_t)unit * MM_KV_UNIT_BYTES +
			(uint64_t)(last % s.block_tokens) * kv_dim(&s) * sizeof(infinite);

		memcpy((char *)(uintptr_t)(w.v_va + at), &infinite, sizeof(infinite));
		memcpy((char *)(uintptr_t)(w.k_va + at), &infinite, sizeof(infinite));
	}
	after = run(&w, emulated, &b);
	assert_memory_equal(before + GUARD, after + GUARD, 5 * token_floats(&w) * sizeof(float));
	assert_memory_equal(before + GUARD + 6 * token_floats(&w),
			    after + GUARD + 6 * token_floats(&w),
			    6 * token_floats(&w) * sizeof(float));
	assert_true(!isfinite(after[GUARD + 5 * token_floats(&w)]));
	assert_true(!isfinite(after[GUARD + 12 * token_floats(&w)]));
	free(before);
	free(after);
	world_done(&w);
}

/*
 * Keys @first .. @end - 1 of sequence 0 get a score of -inf from every head, whose query is
 * positive there.
 */
static void hide_keys(struct world *w, uint32_t first, uint32_t end)
{
	const struct shape *s = w->s;
	const uint16_t infinite = 0xfc00;

	for (uint32_t i = first; i < end; i++) {
		const uint64_t at = (uint64_t)w->tables[i / s->block_tokens] * MM_KV_UNIT_BYTES +
				    (uint64_t)(i % s->block_tokens) * kv_dim(s) * sizeof(infinite);

		memcpy((char *)(uintptr_t)(w->k_va + at), &infinite, sizeof(infinite));
		w->k[(size_t)i * kv_dim(s)] = -INFINITY;
	}
	for (uint32_t head = 0; head < s->heads; head++) {
		float *q = w->q + (size_t)(s->contexts[0] - 1) * q_stride(s) + head * s->dim;

		*q = fabsf(*q) + 1;
	}
}

static void check_hidden(const struct world *w, const struct mm_host_kernel *kernel,
			 uint32_t splits, bool seen)
{
	struct batch b = { .splits = splits };
	double want[MM_HEAD_DIM_MAX];
	float *out;

	add(&b, 0, w->s->contexts[0] - 1);
	out = run(w, kernel, &b);
	for (uint32_t head = 0; head < w->s->heads; head++) {
		const float *got = out + GUARD + head * w->s->dim;

		reference(w, 0, w->s->contexts[0] - 1, head, want);
		for (uint32_t d = 0; d < w->s->dim; d++)
			assert_true(seen ? fabs((double)got[d] - want[d]) < TOLERANCE
					 : isnan(got[d]));
	}
	free(out);
}

/*
 * Any of the splits' scores are all -inf: they weigh nothing. All are: there is nothing to weigh.
 */
static void test_scores_of_minus_infinity(void **state)
{
	const struct shape s = { 2, 1, 64, 16, MM_DTYPE_F16, 32, { 70, 1, 1 }, 0 };

	(void)state;
	for (uint32_t hidden = 1; hidden < 8; hidden++) {
		struct world w;

		world_init(&w, &s);
		for (uint32_t split = 0; split < 3; split++)
			if (hidden >> split & 1)
				hide_keys(&w, split * 32, split == 2 ? 70 : split * 32 + 32);
		check_hidden(&w, host, 1, hidden != 7);
		check_hidden(&w, emulated, 1, hidden != 7);
		check_hidden(&w, emulated, all_splits(&w), hidden != 7);
		world_done(&w);
	}
}

static int open_modules(void **state)
{
	void *library;

	(void)state;
	host = module_kernel("MM_KERNELS", &library);
	emulated = module_kernel("MM_KERNELS_EMULATED", &library);
	set_order = (void (*)(uint64_t))dlsym(library, "mm_emulate_order");
	assert_non_null(set_order);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_later_tokens_are_not_seen),
		cmocka_unit_test(test_scores_of_minus_infinity),
	};

	return cmocka_run_group_tests(tests, open_modules, NULL);
}
