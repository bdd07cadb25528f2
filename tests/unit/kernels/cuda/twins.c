/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each CUDA kernel, compiled for the host, against its host twin: the same bits, and nothing else
 * touched, for odd sizes, strides and addresses, in any order of threads; and a row alone gives
 * what it gives among others.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "tests/unit/kernels/cuda/world.h"

#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define ROUNDS 4 /* each thread of a block is one of TSan's */
#else
#define ROUNDS 24
#endif

#define AT(type, field) offsetof(struct mm_##type##_args, field)

/* Sizes at which something ends: a vector, a warp, a block, a block's share of the columns. */
static uint32_t some_columns(struct world *w)
{
	static const uint32_t ends[] = { 1,  2,  3,   4,   5,   15,  16,   17,   31,   33,  64,
					 83, 96, 127, 128, 257, 500, 1000, 1023, 1024, 1030 };

	return ends[world_below(w, MM_ARRAY_SIZE(ends))];
}

static enum mm_dtype some_dtype(struct world *w)
{
	return MM_DTYPE_F32 + world_below(w, 3);
}

/* Runs @round with worlds of its own. */
static void rounds(void (*round)(struct world *w))
{
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct world w;

		world_init(&w, i * 1000003 + 17);
		round(&w);
		world_done(&w);
	}
}

static void embed(struct world *w)
{
	const uint32_t tokens = 1 + world_below(w, 5), hidden = some_columns(w);
	const enum mm_dtype dtype = some_dtype(w);
	struct mm_embed_args a = {
		.ids_va = world_words(w, tokens, 7),
		.table_va = world_elements(w, 7ul * hidden, dtype),
		.out_va = world_floats(w, (size_t)tokens * hidden),
		.tokens = tokens,
		.hidden = hidden,
		.dtype = dtype,
	};
	const struct world_launch l = WORLD_LAUNCH(MM_KERNEL_EMBED, a, AT(embed, ids_va),
						   AT(embed, table_va), AT(embed, out_va));

	world_compare(w, &l);
}

static void position_embed(struct world *w)
{
	const uint32_t tokens = 1 + world_below(w, 5), hidden = some_columns(w);
	const enum mm_dtype dtype = some_dtype(w);
	struct mm_position_embed_args a = {
		.positions_va = world_words(w, tokens, 7),
		.table_va = world_elements(w, 9ul * hidden, dtype),
		.x_va = world_floats(w, (size_t)tokens * hidden),
		.tokens = tokens,
		.hidden = hidden,
		.dtype = dtype,
		.offset = 2,
	};
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_POSITION_EMBED, a, AT(position_embed, positions_va),
			     AT(position_embed, table_va), AT(position_embed, x_va));

	world_compare(w, &l);
}

static void gather(struct world *w)
{
	const uint32_t n = 1 + world_below(w, 5), hidden = some_columns(w);
	struct mm_gather_args a = { .rows_va = world_words(w, n, 6),
				    .x_va = world_floats(w, 6ul * hidden),
				    .out_va = world_floats(w, (size_t)n * hidden),
				    .n = n,
				    .hidden = hidden };
	const struct world_launch l = WORLD_LAUNCH(MM_KERNEL_GATHER, a, AT(gather, rows_va),
						   AT(gather, x_va), AT(gather, out_va));

	world_compare(w, &l);
}

/*
 * Each row of @l alone: @rows_at is where their number is in the arguments, @row_bytes that of x
 * and out.
 */
static void check_rows_alone(struct world *w, const struct world_launch *l, size_t rows_at,
			     uint64_t x, size_t x_row, uint64_t out, size_t out_row, uint32_t rows,
			     size_t x_va_at, size_t out_va_at)
{
	const uint32_t one = 1;

	for (uint32_t r = 0; r < rows; r++) {
		struct world_launch alone = *l;
		const uint64_t x_at = x + r * x_row, out_at = out + r * out_row;

		memcpy(alone.args + rows_at, &one, sizeof(one));
		memcpy(alone.args + x_va_at, &x_at, sizeof(x_at));
		memcpy(alone.args + out_va_at, &out_at, sizeof(out_at));
		world_restart(w);
		world_run(w, &alone);
		assert_memory_equal(w->device + out_at, w->host + out_at, out_row);
	}
}

static void rmsnorm(struct world *w)
{
	static const uint32_t large[] = { 4095, 4096, 4097, 9001 };
	const uint32_t tokens = 1 + world_below(w, 4);
	const uint32_t hidden = world_below(w, 4) ? some_columns(w) : large[world_below(w, 4)];
	const enum mm_dtype dtype = some_dtype(w);
	const size_t row = hidden * sizeof(float);
	struct mm_rmsnorm_args a = {
		.x_va = world_floats(w, (size_t)tokens * hidden),
		.gain_va = world_elements(w, hidden, dtype),
		.out_va = world_floats(w, (size_t)tokens * hidden),
		.tokens = tokens,
		.hidden = hidden,
		.dtype = dtype,
		.eps = 1e-5f,
	};
	struct world_launch l;

	if (world_below(w, 3) == 0)
		a.out_va = a.x_va;
	l = WORLD_LAUNCH(MM_KERNEL_RMSNORM, a, AT(rmsnorm, x_va), AT(rmsnorm, gain_va),
			 AT(rmsnorm, out_va));
	world_compare(w, &l);
	check_rows_alone(w, &l, AT(rmsnorm, tokens), a.x_va, row, a.out_va, row, tokens,
			 AT(rmsnorm, x_va), AT(rmsnorm, out_va));
}

static void layernorm(struct world *w)
{
	const uint32_t tokens = 1 + world_below(w, 4);
	const uint32_t hidden = world_below(w, 4) ? some_columns(w) : 4100;
	const enum mm_dtype dtype = some_dtype(w), bias_dtype = some_dtype(w);
	const size_t row = hidden * sizeof(float);
	struct mm_layernorm_args a = {
		.x_va = world_floats(w, (size_t)tokens * hidden),
		.gain_va = world_elements(w, hidden, dtype),
		.bias_va = world_elements(w, hidden, bias_dtype),
		.out_va = world_floats(w, (size_t)tokens * hidden),
		.tokens = tokens,
		.hidden = hidden,
		.dtype = dtype,
		.bias_dtype = bias_dtype,
		.eps = 1e-5f,
	};
	struct world_launch l;

	if (world_below(w, 3) == 0)
		a.out_va = a.x_va;
	l = WORLD_LAUNCH(MM_KERNEL_LAYERNORM, a, AT(layernorm, x_va), AT(layernorm, gain_va),
			 AT(layernorm, bias_va), AT(layernorm, out_va));
	world_compare(w, &l);
	check_rows_alone(w, &l, AT(layernorm, tokens), a.x_va, row, a.out_va, row, tokens,
			 AT(layernorm, x_va), AT(layernorm, out_va));
}

static void bias_add(struct world *w)
{
	const uint32_t rows = 1 + world_below(w, 5), n = some_columns(w);
	const uint32_t stride = n + world_below(w, 9);
	const enum mm_dtype dtype = some_dtype(w);
	struct mm_bias_add_args a = { .x_va = world_floats(w, (size_t)rows * stride),
				      .bias_va = world_elements(w, n, dtype),
				      .rows = rows,
				      .n = n,
				      .stride = stride,
				      .dtype = dtype };
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_BIAS_ADD, a, AT(bias_add, x_va), AT(bias_add, bias_va));

	world_compare(w, &l);
}

static uint64_t doubles(struct world *w, size_t n)
{
	const uint64_t at = world_add(w, n * sizeof(double), sizeof(double));

	for (size_t i = 0; i < n; i++) {
		const double f = (double)world_random(w) / 4294967296.0;

		memcpy(w->start + at + i * sizeof(f), &f, sizeof(f));
	}
	return at;
}

static void rope(struct world *w)
{
	static const uint32_t dims[] = { 2, 4, 6, 32, 64, 80, 128, 256 };
	const uint32_t tokens = 1 + world_below(w, 4), heads = 1 + world_below(w, 12);
	const uint32_t head_dim = dims[world_below(w, MM_ARRAY_SIZE(dims))];
	const uint32_t stride = heads * head_dim + world_below(w, 9);
	struct mm_rope_args a = {
		.x_va = world_floats(w, (size_t)tokens * stride),
		.positions_va = world_words(w, tokens, world_below(w, 2) ? 100 : 1u << 31),
		.frequencies_va = doubles(w, head_dim / 2),
		.tokens = tokens,
		.heads = heads,
		.head_dim = head_dim,
		.stride = stride,
	};
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_ROPE, a, AT(rope, x_va), AT(rope, positions_va),
			     AT(rope, frequencies_va));

	world_compare(w, &l);
}

static void kv_write(struct world *w)
{
	enum { SEQUENCES = 3, BLOCKS = 4 };
	const uint32_t tokens = 1 + world_below(w, 6), kv_dim = some_columns(w);
	const uint32_t block_tokens = 1 + world_below(w, 4);
	const uint32_t stride = kv_dim + world_below(w, 9);
	const enum mm_dtype dtype = some_dtype(w);
	const size_t block = mm_round_up((uint64_t)block_tokens * kv_dim * mm_dtype_bytes(dtype),
					 MM_KV_UNIT_BYTES);
	const size_t arena = block * SEQUENCES * BLOCKS;
	struct mm_kv_write_args a = {
		.kv = { .k_va = world_add(w, arena, mm_dtype_bytes(dtype)),
			.v_va = world_add(w, arena, mm_dtype_bytes(dtype)),
			.tables_va = world_words(w, SEQUENCES * BLOCKS, 1),
			.seqs_va = world_words(w, tokens, SEQUENCES),
			.positions_va = world_words(w, tokens, BLOCKS * block_tokens),
			.table_stride = BLOCKS,
			.block_tokens = block_tokens,
			.kv_dim = kv_dim,
			.tokens = tokens,
			.dtype = dtype },
		.k_va = world_floats(w, (size_t)tokens * stride),
		.v_va = world_floats(w, (size_t)tokens * stride),
		.stride = stride,
	};
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_KV_WRITE, a, AT(kv_write, kv.k_va), AT(kv_write, kv.v_va),
			     AT(kv_write, kv.tables_va), AT(kv_write, kv.seqs_va),
			     AT(kv_write, kv.positions_va), AT(kv_write, k_va), AT(kv_write, v_va));
	uint32_t *table = (uint32_t *)(void *)(w->start + a.kv.tables_va);
	uint32_t *positions = (uint32_t *)(void *)(w->start + a.kv.positions_va);
	uint32_t *seqs = (uint32_t *)(void *)(w->start + a.kv.seqs_va);

	for (uint32_t i = 0; i < SEQUENCES * BLOCKS; i++)
		table[i] = (uint32_t)((SEQUENCES * BLOCKS - 1 - i) * block / MM_KV_UNIT_BYTES);
	for (uint32_t t = 0; t < tokens; t++) { /* no two at one place: one even, one odd */
		seqs[t] = t % SEQUENCES;
		positions[t] = positions[t] / 2 * 2 % (BLOCKS * block_tokens) + t / SEQUENCES;
		positions[t] %= BLOCKS * block_tokens;
	}
	world_compare(w, &l);
}

static void swiglu(struct world *w)
{
	const uint32_t rows = 1 + world_below(w, 5), n = some_columns(w);
	const uint32_t stride = n + world_below(w, 9);
	struct mm_swiglu_args a = { .gate_va = world_floats(w, (size_t)rows * stride),
				    .up_va = world_floats(w, (size_t)rows * stride),
				    .out_va = world_floats(w, (size_t)rows * n),
				    .rows = rows,
				    .n = n,
				    .stride = stride };
	const struct world_launch l = WORLD_LAUNCH(MM_KERNEL_SWIGLU, a, AT(swiglu, gate_va),
						   AT(swiglu, up_va), AT(swiglu, out_va));
	float *gate = (float *)(void *)(w->start + a.gate_va);

	for (uint32_t i = 0; i < rows * stride; i += 3)
		gate[i] *= 100; /* where the exponential ends */
	world_compare(w, &l);
}

/* Elements of a range that blocks share, and of ranges shorter than one vector. */
static uint64_t some_length(struct world *w)
{
	return world_below(w, 2) ? world_below(w, 40) : world_below(w, 9000);
}

static void relu(struct world *w)
{
	const uint64_t n = some_length(w);
	struct mm_relu_args a = { .x_va = world_floats(w, n), .n = n };
	const struct world_launch l = WORLD_LAUNCH(MM_KERNEL_RELU, a, AT(relu, x_va));
	float *x = (float *)(void *)(w->start + a.x_va);

	for (uint64_t i = 0; i < n; i++)
		switch (world_below(w, 16)) {
		case 0:
			x[i] = __builtin_nanf("");
			break;
		case 1:
			x[i] = -0.0f;
			break;
		case 2:
			x[i] = -__builtin_inff();
			break;
		}
	world_compare(w, &l);
}

static void add(struct world *w)
{
	const uint64_t n = some_length(w);
	struct mm_add_args a = { .x_va = world_floats(w, n), .y_va = world_floats(w, n), .n = n };
	const struct world_launch l = WORLD_LAUNCH(MM_KERNEL_ADD, a, AT(add, x_va), AT(add, y_va));

	world_compare(w, &l);
}

static void gemm(struct world *w)
{
	static const uint32_t outputs_of[] = { 1, 5, 33, 128, 131 };
	const uint32_t tokens = 1 + world_below(w, 10), k = 1 + world_below(w, 150);
	const uint32_t outputs = outputs_of[world_below(w, MM_ARRAY_SIZE(outputs_of))];
	const uint32_t stride = outputs + world_below(w, 9);
	const enum mm_dtype dtype = some_dtype(w);
	struct mm_gemm_args a = { .x_va = world_floats(w, (size_t)tokens * k),
				  .w_va = world_elements(w, (size_t)outputs * k, dtype),
				  .y_va = world_floats(w, (size_t)tokens * stride),
				  .tokens = tokens,
				  .outputs = outputs,
				  .k = k,
				  .dtype = dtype,
				  .y_stride = stride };
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_GEMM, a, AT(gemm, x_va), AT(gemm, w_va), AT(gemm, y_va));

	world_compare(w, &l);
	check_rows_alone(w, &l, AT(gemm, tokens), a.x_va, k * sizeof(float), a.y_va,
			 stride * sizeof(float), tokens, AT(gemm, x_va), AT(gemm, y_va));
}

static void narrow(struct world *w)
{
	const uint32_t rows = 1 + world_below(w, 5), n = some_columns(w);
	const uint32_t stride = n + world_below(w, 9), padded = rows + world_below(w, 4);
	struct mm_narrow_args a = { .x_va = world_words(w, (size_t)rows * stride, UINT32_MAX),
				    .out_va = world_add(w, (size_t)padded * n * 2, 2),
				    .rows = rows,
				    .padded_rows = padded,
				    .n = n,
				    .stride = stride,
				    .dtype = MM_DTYPE_F16 + world_below(w, 2) };
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_NARROW, a, AT(narrow, x_va), AT(narrow, out_va));

	world_compare(w, &l);
}

static void checksum(struct world *w)
{
	static const uint32_t lengths[] = { 0,
					    1,
					    7,
					    8,
					    63,
					    64,
					    65,
					    4095,
					    4096,
					    4097,
					    12345,
					    4096 * 32,
					    4096 * 33 + 5,
					    4096 * 70 - 3 };
	const uint32_t n = lengths[world_below(w, MM_ARRAY_SIZE(lengths))];
	struct mm_checksum_args a = { .data_va = world_add(w, n, 1),
				      .length_bytes = n,
				      .out_va = world_add(w, 8, 8) };
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_CHECKSUM, a, AT(checksum, data_va), AT(checksum, out_va));

	for (uint32_t i = 0; i < n; i++)
		w->start[a.data_va + i] = (char)world_random(w);
	memset(w->start + a.out_va, 0, 8);
	world_compare(w, &l);
}

static void fill(struct world *w)
{
	/* Also such as end in the second half of what a block takes. */
	const uint64_t n = world_below(w, 2) ? some_length(w) : 512 + world_below(w, 512);
	struct mm_fill_args a = { .va = world_add(w, n * 8, 8),
				  .n = n,
				  .pattern = (uint64_t)world_random(w) << 32 | world_random(w) };
	const struct world_launch l = WORLD_LAUNCH(MM_KERNEL_FILL, a, AT(fill, va));

	world_compare(w, &l);
	for (uint64_t i = 0; i < n; i++)
		assert_memory_equal(w->device + a.va + 8 * i, &a.pattern, 8);
}

static void kv_move(struct world *w)
{
	static const uint32_t sizes[] = { 2, 30, 64, 100, 1024, 4090, 5008, 9000, 16384 };
	enum { PARTS = 4, BLOCKS = 3 };
	const uint32_t part_bytes = sizes[world_below(w, MM_ARRAY_SIZE(sizes))];
	const size_t block = mm_round_up(part_bytes, MM_KV_UNIT_BYTES);
	struct mm_kv_move_args a = { .part_bytes = part_bytes, .blocks = BLOCKS, .parts = PARTS };
	uint64_t places[PARTS];
	struct world_launch l;
	uint32_t *table;

	for (uint32_t i = 0; i < PARTS; i++)
		places[i] = world_add(w, block * (BLOCKS + 1), 2);
	a.parts_va = world_pointers(w, places, PARTS);
	a.table_va = world_words(w, BLOCKS, 1);
	a.staging_va = world_add(w, (size_t)BLOCKS * PARTS * part_bytes, 2);
	table = (uint32_t *)(void *)(w->start + a.table_va);
	for (uint32_t i = 0; i < BLOCKS; i++)
		table[i] = (uint32_t)((BLOCKS - i) * block / MM_KV_UNIT_BYTES);
	for (size_t i = 0; i < w->used; i++)
		if (i < a.parts_va)
			w->start[i] = (char)world_random(w);
	l = WORLD_LAUNCH(MM_KERNEL_KV_GATHER, a, AT(kv_move, parts_va), AT(kv_move, table_va),
			 AT(kv_move, staging_va));
	world_compare(w, &l);
	for (uint32_t i = 0; i < BLOCKS * PARTS; i++)
		assert_memory_equal(w->device + a.staging_va + (size_t)i * part_bytes,
				    w->start + places[i % PARTS] +
					    (size_t)table[i / PARTS] * MM_KV_UNIT_BYTES,
				    part_bytes);
	for (size_t i = 0; i < (size_t)BLOCKS * PARTS * part_bytes; i++)
		w->start[a.staging_va + i] = (char)world_random(w);
	l.kernel = MM_KERNEL_KV_SCATTER;
	world_compare(w, &l);
	for (uint32_t i = 0; i < BLOCKS * PARTS; i++)
		assert_memory_equal(w->start + a.staging_va + (size_t)i * part_bytes,
				    w->device + places[i % PARTS] +
					    (size_t)table[i / PARTS] * MM_KV_UNIT_BYTES,
				    part_bytes);
}

/*
 * Rows with few different values, so that many are equal; with some NaN; and with no or hardly any
 * largest element.
 */
static void argmax(struct world *w)
{
	static const uint32_t lengths[] = { 1, 2, 3, 7, 100, 1023, 2049, 9001 };
	const uint32_t n = lengths[world_below(w, MM_ARRAY_SIZE(lengths))];
	const uint32_t rows = 1 + world_below(w, 3), values = 2 + world_below(w, 9);
	struct mm_argmax_args a = { .x_va = world_floats(w, (size_t)rows * n),
				    .out_va = world_words(w, rows, 1),
				    .rows = rows,
				    .n = n };
	const struct world_launch l =
		WORLD_LAUNCH(MM_KERNEL_ARGMAX, a, AT(argmax, x_va), AT(argmax, out_va));
	float *x = (float *)(void *)(w->start + a.x_va);

	for (uint32_t i = 0; i < rows * n; i++) {
		const uint32_t value = world_below(w, values + 1);

		x[i] = value == values ? __builtin_nanf("") : (float)value - 2;
		if (i < n && values < 4)
			x[i] = value ? __builtin_nanf("") : -__builtin_inff();
	}
	/* In half of the worlds anywhere: where many are equal it is one of the first. */
	if (world_below(w, 2))
		x[world_below(w, rows * n)] = values < 4 ? -3.4e38f : 100;
	world_compare(w, &l);
}

#define TWIN(name)                            \
	static void test_##name(void **state) \
	{                                     \
		(void)state;                  \
		rounds(name);                 \
	}

TWIN(embed)
TWIN(position_embed)
TWIN(gather)
TWIN(rmsnorm)
TWIN(layernorm)
TWIN(bias_add)
TWIN(rope)
TWIN(kv_write)
TWIN(swiglu)
TWIN(relu)
TWIN(add)
TWIN(gemm)
TWIN(narrow)
TWIN(checksum)
TWIN(fill)
TWIN(kv_move)
TWIN(argmax)

static int open_modules(void **state)
{
	(void)state;
	world_open();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_embed),     cmocka_unit_test(test_position_embed),
		cmocka_unit_test(test_gather),    cmocka_unit_test(test_rmsnorm),
		cmocka_unit_test(test_layernorm), cmocka_unit_test(test_bias_add),
		cmocka_unit_test(test_rope),      cmocka_unit_test(test_kv_write),
		cmocka_unit_test(test_swiglu),    cmocka_unit_test(test_relu),
		cmocka_unit_test(test_add),       cmocka_unit_test(test_gemm),
		cmocka_unit_test(test_narrow),    cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_fill),      cmocka_unit_test(test_argmax),
		cmocka_unit_test(test_kv_move),
	};

	return cmocka_run_group_tests_name("twins", tests, open_modules, NULL);
}
