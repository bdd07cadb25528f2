/* SPDX-License-Identifier: Apache-2.0 */
/* mkmodel: rounding, the RoPE permutation, malformed checkpoints, and the contents of files. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/base/base.h"
#include "libclient/model/safetensors.h"
#include "tools/lab/mkmodel/options.h"
#include "tools/lab/mkmodel/shapes.h"
#include "tools/lab/mkmodel/sources.h"
#include "tools/lab/mkmodel/narrow.h"
#include "tools/lab/mkmodel/config.h"
#include "libclient/model/shapes.h"

static char dir[256], path[300];
static char err[MK_ERROR_BYTES];

static const struct mk_format f32 = { MM_DTYPE_F32, MM_DTYPE_F32, 0, false };
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

static void empty_dir(void)
{
	const struct dirent *entry;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((entry = readdir(d)))
		unlinkat(dirfd(d), entry->d_name, 0); /* all but . and .. */
	closedir(d);
}

static int remove_dir(void **state)
{
	(void)state;
	empty_dir();
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

/*
 * A checkpoint with dim 8, ffn 6, layers 2, heads 2, KV heads 1, vocab 5, max 4; element i of the
 * file has the value i.
 */
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
	/* The beginnings of the arrays, in floats. */
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

static const struct mm_st_tensor *tensor_find(const struct mm_safetensors *st, const char *name)
{
	for (size_t i = 0; i < st->n_tensors; i++)
		if (!strcmp(st->tensors[i].name, name))
			return &st->tensors[i];
	return NULL;
}

/* The loader's own parser reads a written model, whose rows are those of the source. */
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
	t = tensor_find(&st, "model.layers.1.self_attn.k_proj.weight");
	assert_non_null(t);
	assert_int_equal(t->shape[0], 8);
	assert_int_equal(t->shape[1], 16);
	assert_int_equal(t->file_offset % 4, 0);
	mk_random_row(&r, MM_W_K, 1, 3, want);
	assert_int_equal(pread(fd, got, sizeof(got), (off_t)(t->file_offset + 3 * 64)), 64);
	assert_memory_equal(got, want, sizeof(got));
	assert_non_null(tensor_find(&st, "lm_head.weight"));
	mm_safetensors_done(&st);
	close(fd);
}

/* Sparse models have the right header and length, in one file or in shards, and take no disk. */
static void test_sparse(void **state)
{
	const struct mm_shape *shape = mm_shape_find("OPT-30B");
	const struct mk_source source = { .arch = shape->arch };
	struct mk_format format = { MM_DTYPE_F16, MM_DTYPE_F16, 0, false };
	const struct mm_st_tensor *t;
	struct mm_safetensors st;
	uint64_t bytes = 0;
	struct stat s;
	char zero[64];
	int fd;

	(void)state;
	assert_int_equal(mk_write(&source, dir, &format, err), 0);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (mm_safetensors_read(fd, &st, err, sizeof(err)))
		fail_msg("%s", err);
	for (size_t i = 0; i < st.n_tensors; i++)
		bytes += st.tensors[i].bytes;
	assert_int_equal(bytes, mm_arch_weight_bytes(&shape->arch, 2));
	t = tensor_find(&st, "model.decoder.layers.47.fc2.weight");
	assert_non_null(t);
	assert_int_equal(pread(fd, zero, sizeof(zero), (off_t)t->file_offset), sizeof(zero));
	for (size_t i = 0; i < sizeof(zero); i++)
		assert_int_equal(zero[i], 0);
	assert_int_equal(fstat(fd, &s), 0);
	assert_true(s.st_size > 59 * (INT64_C(1) << 30) / 10 * 9);
	assert_true(s.st_blocks * 512 < 1 << 20);
	mm_safetensors_done(&st);
	close(fd);
	format.shards = 7;
	assert_int_equal(mk_write(&source, dir, &format, err), 0);
	snprintf(path, sizeof(path), "%s/model-00007-of-00007.safetensors", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(mm_safetensors_read(fd, &st, err, sizeof(err)), 0);
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
		const struct mk_format format = { d, d, 0, false };

		assert_int_equal(mk_write(&source, dir, &format, err), -ERANGE);
		assert_non_null(strstr(err, "model.layers.0.mlp.gate_proj.weight, row 2"));
	}
	snprintf(path, sizeof(path), "%s/model.safetensors.part", dir);
	assert_int_equal(access(path, F_OK), -1);
	assert_true(mk_write(&source, "/nonexistent/x", &f32, err) < 0);
}

/* Two rows fail, far apart. The message names the one that is first in the file. */
static void row_of_infinities(void *context, enum mm_weight weight, uint32_t layer, uint32_t row,
			      float *out)
{
	mk_random_row(context, weight, layer, row, out);
	if (weight == MM_W_EMBED && row >= 70001)
		out[1] = INFINITY;
}

/* When many threads write a tensor in pieces, every row is at its place. */
static void test_large_tensor(void **state)
{
	struct mk_random r = { tiny_arch, 9 };
	struct mk_source source = { .row = mk_random_row, .context = &r };
	const struct mm_st_tensor *t;
	struct mm_safetensors st;
	float want[16], got[16];
	int fd;

	(void)state;
	r.arch.vocab = 300000; /* 19 MB */
	source.arch = r.arch;
	if (mk_write(&source, dir, &f32, err))
		fail_msg("%s", err);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (mm_safetensors_read(fd, &st, err, sizeof(err)))
		fail_msg("%s", err);
	t = tensor_find(&st, "model.embed_tokens.weight");
	assert_non_null(t);
	for (uint32_t row = 0; row < r.arch.vocab; row += 997) {
		mk_random_row(&r, MM_W_EMBED, 0, row, want);
		assert_int_equal(pread(fd, got, sizeof(got), (off_t)(t->file_offset + row * 64)),
				 64);
		assert_memory_equal(got, want, sizeof(got));
	}
	mm_safetensors_done(&st);
	close(fd);
	source.row = row_of_infinities;
	assert_int_equal(mk_write(&source, dir, &f32, err), -ERANGE);
	assert_non_null(strstr(err, "model.embed_tokens.weight, row 70001:"));
}

/* The output of a wide model with a tied head does not depend mainly on the last token. */
static void test_wide_embeddings(void **state)
{
	const uint32_t widths[] = { 256, 1024, 5120, 7168 };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(widths); i++) {
		struct mk_random r = { .arch = { .family = MM_FAMILY_OPT,
						 .hidden = widths[i],
						 .layers = 2,
						 .heads = 8,
						 .vocab = 16,
						 .max_position = 32,
						 .tied = true } };
		float row[7168], sum = 0;

		mm_arch_fill(&r.arch);
		mk_random_row(&r, MM_W_EMBED, 0, 3, row);
		for (uint32_t k = 0; k < widths[i]; k++)
			sum += row[k] * row[k];
		assert_true(sum > 4 && sum < 24);
	}
}

static void open_shard(uint32_t i, uint32_t n, struct mm_safetensors *st)
{
	int fd;

	snprintf(path, sizeof(path), "%s/model-%05u-of-%05u.safetensors", dir, i + 1, n);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (mm_safetensors_read(fd, st, err, sizeof(err)))
		fail_msg("%s", err);
	close(fd);
}

/* Checks that each tensor is in the shard that the index names, and that no shard is empty. */
static void check_shards(const struct mk_source *source, uint32_t n, size_t tensors)
{
	const struct mk_format format = { MM_DTYPE_BF16, MM_DTYPE_F32, n, false };
	json_t *index, *map;
	size_t found = 0;
	uint64_t bytes = 0;

	empty_dir();
	if (mk_write(source, dir, &format, err))
		fail_msg("%s", err);
	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
	index = json_load_file(path, 0, NULL);
	map = json_object_get(index, "weight_map");
	assert_int_equal(json_object_size(map), tensors);
	for (uint32_t i = 0; i < n; i++) {
		struct mm_safetensors st;

		open_shard(i, n, &st);
		assert_true(st.n_tensors > 0);
		for (size_t t = 0; t < st.n_tensors; t++) {
			const char *in =
				json_string_value(json_object_get(map, st.tensors[t].name));

			assert_non_null(in);
			assert_non_null(strstr(path, in));
			assert_int_equal(st.tensors[t].dtype,
					 st.tensors[t].rank == 1 ? MM_DTYPE_F32 : MM_DTYPE_BF16);
			bytes += st.tensors[t].bytes;
		}
		found += st.n_tensors;
		mm_safetensors_done(&st);
	}
	assert_int_equal(found, tensors);
	assert_int_equal(json_integer_value(
				 json_object_get(json_object_get(index, "metadata"), "total_size")),
			 bytes);
	json_decref(index);
}

static void test_shards(void **state)
{
	struct mk_random r = { tiny_arch, 9 };
	const struct mk_source source = { r.arch, mk_random_row, &r };
	const struct mk_format too_many = { MM_DTYPE_F32, MM_DTYPE_F32, 22, false };

	(void)state;
	check_shards(&source, 1, 21);
	check_shards(&source, 2, 21);
	check_shards(&source, 7, 21);
	check_shards(&source, 21, 21);
	assert_int_equal(mk_write(&source, dir, &too_many, err), -EINVAL);
	assert_non_null(strstr(err, "22 shards for 21 tensors"));
}

/* ---- command lines ---- */

static struct mm_opt_line line_parsed;

static int opts_parse(const char *line, struct mk_options *ret)
{
	static char text[512];
	char *argv[32] = { (char *)"mkmodel" }, *save;
	int argc = 1;

	snprintf(text, sizeof(text), "%s", line);
	for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return mk_options_parse(argc, argv, ret, &line_parsed);
}

static const char *const bad_lines[] = {
	"random x --family gpt2",
	"random x --dtype f64",
	"random x --vector-dtype f8",
	"random x --shards 0",
	"random x --shards 513",
	"random x --hidden 0",
	"random x --layers -1",
	"random x --tied --untied",
	"random x --rope-theta nan",
	"random x --rope-theta 1e4x",
	"random x --rope-scaling yarn:4",
	"random x --rope-scaling linear:",
	"random x --rope-scaling linear:2,3",
	"random x --rope-scaling llama3:8,1,4",
	"random x --rope-scaling llama3:8,1,4,0.5",
	"random x --rope-scaling llama3:8,1,4,8192,1",
	"random x --rope-scaling",
	"random x --frob",
	"random x --shape OPT-31B",
	"random x --shape OPT-30B --family opt",
	"random x --model m",
	"random x --rope-theta 0.5",
	"random",
	"random x y",
	"llama2c x",
	"llama2c x y --hidden 64",
	"shapes f x",
	"shapes f --model m",
	"shapes f --hidden 64",
	"shapes f x --model m --family opt",
	"--seed 5 random x",
	"randm x",
	"",
};

static void test_options(void **state)
{
	struct mk_options o;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_lines); i++) {
		print_message("%s\n", bad_lines[i]);
		assert_int_equal(opts_parse(bad_lines[i], &o), 2);
	}
	assert_int_equal(opts_parse("random x --dtype bf16 --rope-scaling llama3:8,1,4,8192 "
				    "--rope-theta 5e5 --shards 3",
				    &o),
			 -1);
	assert_int_equal(o.format.vector_dtype, MM_DTYPE_BF16);
	assert_int_equal(o.format.shards, 3);
	assert_true(o.given.rope.theta == 5e5 && o.given.rope.high_factor == 4);
	assert_int_equal(o.given.rope.original, 8192);
	assert_int_equal(opts_parse("sparse x --shape OPT-30B", &o), -1);
	assert_string_equal(o.shape, "OPT-30B");
	assert_true(line_parsed.command == MK_SPARSE && o.format.dtype == MM_DTYPE_F16);
	assert_int_equal(o.format.vector_dtype, MM_DTYPE_F16);
	for (enum mm_family f = 0; f < MM_FAMILY_COUNT; f++) {
		char line[64];

		snprintf(line, sizeof(line), "random x --family %s", mm_family_name(f));
		assert_int_equal(opts_parse(line, &o), -1);
		assert_int_equal(o.family, 1 + f);
	}
	assert_int_equal(opts_parse("shapes f --dtype f16", &o), -1);
	assert_int_equal(opts_parse("shapes f x --model m", &o), -1);
	assert_string_equal(o.model, "m");
	assert_int_equal(opts_parse("--help", &o), 0);
	assert_int_equal(opts_parse("shapes --help", &o), 0);
}

/* Sizes that are given replace those of a shape; dependent sizes keep their proportions. */
static void test_scaled_down(void **state)
{
	const struct mm_arch llama3 = { .hidden = 4096,
					.ffn = 14336,
					.layers = 32,
					.heads = 32,
					.kv_heads = 8,
					.vocab = 128256,
					.max_position = 8192,
					.head_dim = 128,
					.embed_dim = 4096,
					.rope = { .theta = 5e5 } };
	struct mm_arch a = llama3;
	struct mk_options o;

	(void)state;
	assert_int_equal(opts_parse("shapes f x --model m --layers 2", &o), -1);
	mk_options_apply(&o, &a);
	assert_true(a.layers == 2 && a.hidden == 4096 && a.heads == 32 && a.kv_heads == 8);
	assert_true(a.ffn == 14336 && a.head_dim == 128 && a.rope.theta == 5e5);
	assert_int_equal(mk_arch_check(&a, err), 0);
	a = llama3;
	assert_int_equal(opts_parse("shapes f x --model m --hidden 1024 --vocab 300", &o), -1);
	mk_options_apply(&o, &a);
	assert_true(a.heads == 8 && a.kv_heads == 2 && a.ffn == 3584 && a.head_dim == 128);
	assert_true(a.layers == 32 && a.vocab == 300 && a.embed_dim == 1024);
	assert_int_equal(mk_arch_check(&a, err), 0);
	a = llama3;
	assert_int_equal(opts_parse("shapes f x --model m --hidden 64 --heads 4 --tied", &o), -1);
	mk_options_apply(&o, &a);
	assert_true(a.kv_heads == 1 && a.head_dim == 16 && a.tied);
	assert_int_equal(mk_arch_check(&a, err), 0);
}

static const struct {
	struct mm_arch arch;
	const char *want;
} bad_archs[] = {
	{ { .hidden = 48, .heads = 5 }, "multiple of the number of heads" },
	{ { .hidden = 36, .heads = 4 }, "odd" },
	{ { .hidden = 48, .heads = 4, .kv_heads = 3 }, "multiple of the KV heads" },
	{ { .hidden = 512, .heads = 1 }, "larger than 256" },
	{ { .hidden = 48, .heads = 4, .embed_dim = 24 }, "only OPT" },
	{ { .hidden = 48, .heads = 4, .post_norm = true }, "only OPT" },
	{ { .hidden = 48, .heads = 4, .kv_heads = 2, .family = MM_FAMILY_OPT }, "as many KV" },
	{ { .hidden = 48,
	    .heads = 4,
	    .family = MM_FAMILY_OPT,
	    .rope = { .scaling = MM_ROPE_LINEAR, .factor = 2 } },
	  "no RoPE" },
	{ { .hidden = 48, .heads = 4, .rope = { .scaling = MM_ROPE_LINEAR } }, "the factor" },
	{ { .hidden = 48,
	    .heads = 4,
	    .rope = { .scaling = MM_ROPE_LLAMA3,
		      .factor = 2,
		      .low_factor = 4,
		      .high_factor = 1,
		      .original = 9 } },
	  "low < high" },
	{ { .hidden = 48, .heads = 4, .rope = { .theta = 0.5 } }, "theta" },
};

static void test_bad_archs(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_archs); i++) {
		struct mm_arch a = bad_archs[i].arch;

		a.ffn = a.layers = a.vocab = a.max_position = 8;
		mm_arch_fill(&a);
		print_message("%s\n", bad_archs[i].want);
		assert_int_equal(mk_arch_check(&a, err), -EINVAL);
		assert_non_null(strstr(err, bad_archs[i].want));
	}
}

/* ---- lists of shapes ---- */

static void write_list(const char *text)
{
	FILE *file;

	snprintf(path, sizeof(path), "%s/shapes.json", dir);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

#define SHAPE(more)                                                                       \
	"{\"models\":[{\"name\":\"m\",\"n_layers\":2,\"hidden_size\":48,\"n_heads\":4,"   \
	"\"n_kv_heads\":4,\"ffn_size\":9,\"vocab_size\":9,\"max_position\":9,\"family\":" \
	"\"opt\"" more "}]}"

static const struct {
	const char *text, *want;
} bad_lists[] = {
	{ "", "line 1" },
	{ "[]", "no list \"models\"" },
	{ "{\"models\":1}", "no list \"models\"" },
	{ "{\"models\":[1]}", "model 0: name" },
	{ SHAPE(",\"tied_lm_head\":true"), "head_dim must be" },
	{ SHAPE(",\"head_dim\":12"), "tied_lm_head must be" },
	{ SHAPE(",\"head_dim\":10,\"tied_lm_head\":true"), "multiple of the number of heads" },
	{ SHAPE(",\"head_dim\":12,\"tied_lm_head\":true,\"rope_theta\":\"a\""), "rope_theta" },
	{ "{\"models\":[{\"name\":\"m\",\"n_layers\":0}]}", "n_layers must be" },
};

static void test_bad_lists(void **state)
{
	struct mk_shapes s;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_lists); i++) {
		write_list(bad_lists[i].text);
		assert_int_equal(mk_shapes_read(path, &s, err), -EBADMSG);
		print_message("%s\n", err);
		assert_non_null(strstr(err, bad_lists[i].want));
	}
	write_list(SHAPE(",\"head_dim\":12,\"tied_lm_head\":true"));
	assert_int_equal(mk_shapes_read(path, &s, err), 0);
	assert_true(s.n == 1 && s.all[0].arch.family == MM_FAMILY_OPT && s.all[0].arch.tied);
	mk_shapes_done(&s);
	assert_int_equal(mk_shapes_read("/nonexistent", &s, err), -ENOENT);
}

/* Counts the parameters of a listed model; each layer tensor of the list must be a known one. */
static uint64_t count_parameters(const struct mm_arch *a, const json_t *model)
{
	const json_t *listed = json_object_get(model, "layer_tensors");
	uint64_t sum = 0;
	size_t in_layer = 0;

	for (enum mm_weight w = 0; w < MM_W_COUNT; w++) {
		uint32_t rows, columns;
		const json_t *shape;

		if (!mm_arch_has(a, w))
			continue;
		mm_arch_size(a, w, &rows, &columns);
		sum += (uint64_t)MM_MAX(rows, 1) * columns *
		       (mm_weight_per_layer(w) ? a->layers : 1);
		if (!mm_weight_per_layer(w))
			continue;
		in_layer++;
		shape = json_object_get(listed, mm_arch_short_name(a, w));
		assert_int_equal(json_array_size(shape), rows ? 2 : 1);
		assert_int_equal(json_integer_value(json_array_get(shape, 0)),
				 rows ? rows : columns);
		assert_int_equal(json_integer_value(json_array_get(shape, rows ? 1 : 0)), columns);
	}
	assert_int_equal(json_object_size(listed), in_layer);
	return sum;
}

/* Published models have exactly the listed tensors, sizes and number of parameters. */
static void test_published_models(void **state)
{
	const char *data = getenv("MM_TEST_DATA");
	struct mk_shapes s;
	json_t *root, *model;
	size_t i;

	(void)state;
	if (!data)
		skip();
	snprintf(path, sizeof(path), "%s/models.json", data);
	if (mk_shapes_read(path, &s, err))
		fail_msg("%s", err);
	root = json_load_file(path, 0, NULL);
	assert_true(s.n >= 7);
	json_array_foreach(json_object_get(root, "models"), i, model) {
		print_message("%s\n", s.all[i].name);
		assert_int_equal(count_parameters(&s.all[i].arch, model),
				 json_integer_value(json_object_get(model, "params_total")));
	}
	json_decref(root);
	mk_shapes_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_narrow),           cmocka_unit_test(test_llama2c_rows),
		cmocka_unit_test(test_llama2c_untied),   cmocka_unit_test(test_llama2c_lies),
		cmocka_unit_test(test_written_model),    cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_refuses_to_write), cmocka_unit_test(test_shards),
		cmocka_unit_test(test_large_tensor),     cmocka_unit_test(test_wide_embeddings),
		cmocka_unit_test(test_options),          cmocka_unit_test(test_scaled_down),
		cmocka_unit_test(test_bad_archs),        cmocka_unit_test(test_bad_lists),
		cmocka_unit_test(test_published_models),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
