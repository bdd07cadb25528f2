/* SPDX-License-Identifier: Apache-2.0 */
/* mkmodel: rounding, the RoPE permutation, checkpoints that lie, and files that say what was asked. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>

#include "mm/base.h"
#include "mmd/load/safetensors.h"
#include "tools/mkmodel/sources.h"

static char dir[256], path[300];
static char err[MK_ERROR_BYTES];

static const struct mk_format f32 = { MM_DTYPE_F32, MM_DTYPE_F32, 0 };
static const struct mm_arch tiny_arch = { .hidden = 16,
					  .ffn = 24,
					  .layers = 2,
					  .heads = 4,
					  .kv_heads = 2,
					  .vocab = 10,
					  .max_position = 32,
					  .head_dim = 4,
					  .embed_dim = 16,
					  .norm_eps = 1e-5,
					  .rope = { .theta = 1e4 } };

static int make_dir(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof(dir), "%s/mm-mkmodel.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	static const char *const names[] = { "c.bin", "config.json", "model.safetensors" };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

static const struct {
	float value;
	enum mm_dtype dtype;
	int error;
	uint16_t bits;
} narrow_cases[] = {
	{ 1.0f, MM_DTYPE_F16, 0, 0x3c00 },
	{ -2.0f, MM_DTYPE_F16, 0, 0xc000 },
	{ 65504.0f, MM_DTYPE_F16, 0, 0x7bff },
	{ 65519.0f, MM_DTYPE_F16, 0, 0x7bff },
	{ 65520.0f, MM_DTYPE_F16, -ERANGE, 0 },
	{ 1.0f + 0x1p-11f, MM_DTYPE_F16, 0, 0x3c00 }, /* halfway: to even */
	{ 1.0f + 0x3p-11f, MM_DTYPE_F16, 0, 0x3c02 },
	{ 0x1p-14f, MM_DTYPE_F16, 0, 0x0400 },
	{ 0x1p-24f, MM_DTYPE_F16, 0, 0x0001 },
	{ 0x1p-25f, MM_DTYPE_F16, 0, 0x0000 },
	{ 0x1.8p-25f, MM_DTYPE_F16, 0, 0x0001 },
	{ -0x1.ffcp-15f, MM_DTYPE_F16, 0, 0x8400 }, /* rounds up to the smallest normal */
	{ INFINITY, MM_DTYPE_F16, -ERANGE, 0 },
	{ NAN, MM_DTYPE_BF16, -ERANGE, 0 },
	{ 1.0f, MM_DTYPE_BF16, 0, 0x3f80 },
	{ 1.0f + 0x1p-8f, MM_DTYPE_BF16, 0, 0x3f80 },
	{ 1.0f + 0x3p-8f, MM_DTYPE_BF16, 0, 0x3f82 },
	{ 0x1.fffffep127f, MM_DTYPE_BF16, -ERANGE, 0 },
};

static void test_narrow(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(narrow_cases); i++) {
		uint16_t bits = 0;

		print_message("case %zu\n", i);
		assert_int_equal(mk_narrow(narrow_cases[i].value, narrow_cases[i].dtype, &bits),
				 narrow_cases[i].error);
		assert_int_equal(bits, narrow_cases[i].bits);
	}
}

/* dim 8, ffn 6, layers 2, heads 2, kv heads 1, vocab 5, max 4; element i of the file has value i. */
static const int32_t tiny[7] = { 8, 6, 2, 2, 1, 5, 4 };

static size_t tiny_floats(bool tied)
{
	const size_t layer = 8 + 64 + 32 + 32 + 64 + 8 + 3 * 48;

	return 5 * 8 + 2 * layer + 8 + 4 * 4 + (tied ? 0 : 5 * 8);
}

static void write_checkpoint(const int32_t header[7], size_t floats)
{
	FILE *file;

	snprintf(path, sizeof(path), "%s/c.bin", dir);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(header, 4, 7, file), 7);
	for (size_t i = 0; i < floats; i++) {
		const float value = (float)i;

		assert_int_equal(fwrite(&value, 4, 1, file), 1);
	}
	fclose(file);
}

static float first_of(struct mk_llama2c *c, enum mm_weight weight, uint32_t layer, uint32_t row)
{
	float out[8];

	mk_llama2c_row(c, weight, layer, row, out);
	return out[0];
}

static void test_llama2c_rows(void **state)
{
	/* Where the arrays begin, in floats. */
	const uint32_t norm = 40, q = norm + 16, k = q + 128, v = k + 64, o = v + 64;
	const uint32_t post = o + 128, gate = post + 16, down = gate + 96, up = down + 96;
	const uint32_t hf_rows[4] = { 0, 2, 1, 3 }; /* of a head of 4: first halves, then second */
	struct mk_llama2c c;

	(void)state;
	write_checkpoint(tiny, tiny_floats(true));
	assert_int_equal(mk_llama2c_open(path, &c, err), 0);
	for (uint32_t row = 0; row < 8; row++) {
		const uint32_t want = row / 4 * 4 + hf_rows[row % 4];

		assert_true(first_of(&c, MM_W_Q, 1, row) == (float)(q + 64 + want * 8));
		assert_true(first_of(&c, MM_W_O, 1, row) == (float)(o + 64 + row * 8));
		assert_true(first_of(&c, MM_W_DOWN, 1, row) == (float)(down + 48 + row * 6));
	}
	assert_true(first_of(&c, MM_W_K, 1, 1) == (float)(k + 32 + 16));
	assert_true(first_of(&c, MM_W_V, 1, 1) == (float)(v + 32 + 8));
	assert_true(first_of(&c, MM_W_INPUT_NORM, 1, 0) == (float)(norm + 8));
	assert_true(first_of(&c, MM_W_POST_NORM, 1, 0) == (float)(post + 8));
	assert_true(first_of(&c, MM_W_GATE, 0, 5) == (float)(gate + 40));
	assert_true(first_of(&c, MM_W_UP, 0, 5) == (float)(up + 40));
	assert_true(first_of(&c, MM_W_FINAL_NORM, 0, 0) == (float)(up + 96));
	assert_true(c.arch.tied);
	mk_llama2c_close(&c);
}

static void test_llama2c_untied(void **state)
{
	int32_t header[7];
	struct mk_llama2c c;

	(void)state;
	memcpy(header, tiny, sizeof(header));
	header[5] = -5;
	write_checkpoint(header, tiny_floats(false));
	assert_int_equal(mk_llama2c_open(path, &c, err), 0);
	assert_true(!c.arch.tied && c.arch.vocab == 5);
	assert_true(first_of(&c, MM_W_HEAD, 0, 1) == (float)(tiny_floats(true) + 8));
	mk_llama2c_close(&c);
}

static void test_llama2c_lies(void **state)
{
	static const int32_t values[] = { 0, -1, INT32_MIN, INT32_MAX, 3 };
	struct mk_llama2c c;
	int32_t header[7];

	(void)state;
	for (int word = 0; word < 7; word++) {
		for (size_t i = 0; i < MM_ARRAY_SIZE(values); i++) {
			memcpy(header, tiny, sizeof(header));
			header[word] = values[i];
			write_checkpoint(header, tiny_floats(true));
			assert_int_equal(mk_llama2c_open(path, &c, err), -EBADMSG);
			assert_non_null(strstr(err, "c.bin"));
		}
	}
	write_checkpoint(tiny, tiny_floats(true) - 1);
	assert_int_equal(mk_llama2c_open(path, &c, err), -EBADMSG);
	write_checkpoint(tiny, tiny_floats(true) + 1);
	assert_int_equal(mk_llama2c_open(path, &c, err), -EBADMSG);
	assert_int_equal(truncate(path, 27), 0);
	assert_int_equal(mk_llama2c_open(path, &c, err), -EBADMSG);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(mk_llama2c_open(path, &c, err), -EBADMSG);
	assert_int_equal(mk_llama2c_open(dir, &c, err), -EINVAL);
	assert_int_equal(mk_llama2c_open("/nonexistent", &c, err), -ENOENT);
}

static const struct mm_st_tensor *tensor(const struct mm_safetensors *st, const char *name)
{
	for (size_t i = 0; i < st->n_tensors; i++)
		if (!strcmp(st->tensors[i].name, name))
			return &st->tensors[i];
	return NULL;
}

/* What is written is read by the loader's own parser, and holds the source's rows. */
static void test_written_model(void **state)
{
	struct mk_random r = { tiny_arch, 9 };
	const struct mk_source source = { r.arch, mk_random_row, &r };
	const struct mm_st_tensor *t;
	struct mm_safetensors st;
	float want[16], got[16];
	int fd;

	(void)state;
	if (mk_write(&source, dir, &f32, err))
		fail_msg("%s", err);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (mm_safetensors_read(fd, &st, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(st.n_tensors, 2 * 9 + 3);
	t = tensor(&st, "model.layers.1.self_attn.k_proj.weight");
	assert_non_null(t);
	assert_int_equal(t->shape[0], 8);
	assert_int_equal(t->shape[1], 16);
	assert_int_equal(t->file_offset % 4, 0);
	mk_random_row(&r, MM_W_K, 1, 3, want);
	assert_int_equal(pread(fd, got, sizeof(got), (off_t)(t->file_offset + 3 * 64)), 64);
	assert_memory_equal(got, want, sizeof(got));
	assert_non_null(tensor(&st, "lm_head.weight"));
	mm_safetensors_done(&st);
	close(fd);
}

static void row_of_infinity(void *context, enum mm_weight weight, uint32_t layer, uint32_t row,
			    float *out)
{
	mk_random_row(context, weight, layer, row, out);
	if (weight == MM_W_GATE && row == 2)
		out[1] = INFINITY;
}

static void test_refuses_to_write(void **state)
{
	struct mk_random r = { tiny_arch, 9 };
	const struct mk_source source = { r.arch, row_of_infinity, &r };

	(void)state;
	for (enum mm_dtype d = MM_DTYPE_F32; d <= MM_DTYPE_BF16; d++) {
		const struct mk_format format = { d, d, 0 };

		assert_int_equal(mk_write(&source, dir, &format, err), -ERANGE);
		assert_non_null(strstr(err, "model.layers.0.mlp.gate_proj.weight, row 2"));
	}
	snprintf(path, sizeof(path), "%s/model.safetensors.part", dir);
	assert_int_equal(access(path, F_OK), -1);
	assert_true(mk_write(&source, "/nonexistent/x", &f32, err) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_narrow),         cmocka_unit_test(test_llama2c_rows),
		cmocka_unit_test(test_llama2c_untied), cmocka_unit_test(test_llama2c_lies),
		cmocka_unit_test(test_written_model),  cmocka_unit_test(test_refuses_to_write),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
