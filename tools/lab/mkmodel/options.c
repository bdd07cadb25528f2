/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mkmodel/options.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/model/shapes.h"
#include "tools/lab/mkmodel/config.h"

#define AT(field) MM_OPT_AT(struct mk_options, field)
#define SIZE(name, field, help, most, otherwise_)                                           \
	{                                                                                   \
		name, "N", help, MM_OPT_NUMBER, AT(given.field),                            \
			.min = 1, .max = (most), .otherwise = otherwise_ ", or the shape's" \
	}

static const struct mm_opt_choice dtype_choices[] = {
	{ "f32", MM_DTYPE_F32, NULL },
	{ "f16", MM_DTYPE_F16, NULL },
	{ "bf16", MM_DTYPE_BF16, NULL },
	{ NULL, 0, NULL },
};
static const struct mm_opt_choice family_choices[] = {
	{ "llama", 1 + MM_FAMILY_LLAMA, NULL },
	{ "qwen2", 1 + MM_FAMILY_QWEN2, NULL },
	{ "opt", 1 + MM_FAMILY_OPT, NULL },
	{ NULL, 0, NULL },
};

/* Parses @n numbers, separated by commas; cuts @text. */
static int parse_reals(char *text, double *ret_values, size_t n, char *why)
{
	static const struct mm_opt any = { .type = MM_OPT_REAL };

	for (size_t i = 0; i < n; i++) {
		char *number = strsep(&text, ",");

		if (!number || (i + 1 == n && text)) {
			snprintf(why, MM_OPT_ERROR_BYTES, "needs %zu %s behind the colon", n,
				 n == 1 ? "number" : "numbers, separated by commas,");
			return -EINVAL;
		}
		if (mm_opt_real(&any, number, &ret_values[i], why))
			return -EINVAL;
	}
	return 0;
}

static int llama3_parse(char *text, struct mm_rope *rope, char *why)
{
	double v[4];

	if (parse_reals(text, v, MM_ARRAY_SIZE(v), why))
		return -EINVAL;
	if (v[3] < 1 || v[3] > MK_ROWS_MAX || v[3] != floor(v[3])) {
		snprintf(why, MM_OPT_ERROR_BYTES,
			 "the original length is not a whole number within 1 to %d", MK_ROWS_MAX);
		return -EINVAL;
	}
	*rope = (struct mm_rope){ .theta = rope->theta,
				  .scaling = MM_ROPE_LLAMA3,
				  .factor = v[0],
				  .low_factor = v[1],
				  .high_factor = v[2],
				  .original = (uint32_t)v[3] };
	return 0;
}

static int scaling_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_rope *rope = &((struct mk_options *)into)->given.rope;

	(void)opt;
	if (strncmp(text, "llama3:", 7) == 0)
		return llama3_parse(text + 7, rope, why);
	if (strncmp(text, "linear:", 7) == 0) {
		rope->scaling = MM_ROPE_LINEAR;
		return parse_reals(text + 7, &rope->factor, 1, why);
	}
	snprintf(why, MM_OPT_ERROR_BYTES,
		 "'%.64s' is none of: linear:FACTOR, llama3:FACTOR,LOW,HIGH,ORIGINAL", text);
	return -EINVAL;
}

static const struct mm_opt f32_opts[] = {
	{ "dtype", "TYPE", "type of matrices", MM_OPT_CHOICE, AT(format.dtype),
	  .choices = dtype_choices, .preset = "f32" },
	{ .name = NULL },
};
static const struct mm_opt f16_opts[] = {
	{ "dtype", "TYPE", "type of matrices", MM_OPT_CHOICE, AT(format.dtype),
	  .choices = dtype_choices, .preset = "f16" },
	{ .name = NULL },
};
static const struct mm_opt format_opts[] = {
	{ "vector-dtype", "TYPE", "type of norms and biases", MM_OPT_CHOICE,
	  AT(format.vector_dtype), .choices = dtype_choices, .otherwise = "that of --dtype" },
	{ "shards", "N", "write model-0000i-of-0000N.safetensors and an index", MM_OPT_NUMBER,
	  AT(format.shards), .min = 1, .max = MK_SHARDS_MAX,
	  .otherwise = "one file, model.safetensors" },
	{ .name = NULL },
};
static const struct mm_opt shape_opts[] = {
	{ "shape", "NAME",
	  "a model that is built in; sizes that are given replace its own, and the others keep "
	  "their proportions",
	  MM_OPT_CALL, AT(shape), .choices = mm_shape_choices, .parse = mm_shape_parse,
	  .otherwise = "none" },
	{ "family", "NAME", "family of the model; not with --shape", MM_OPT_CHOICE, AT(family),
	  .choices = family_choices, .otherwise = "llama, or the shape's" },
	{ .name = NULL },
};
static const struct mm_opt listed_opts[] = {
	{ "model", "NAME", "name of the model in FILE", MM_OPT_TEXT, AT(model) },
	{ .name = NULL },
};
static const struct mm_opt size_opts[] = {
	SIZE("hidden", hidden, "hidden size", MK_WIDTH_MAX, "256"),
	SIZE("layers", layers, "number of layers", MK_LAYERS_MAX, "8"),
	SIZE("heads", heads, "attention heads", MK_WIDTH_MAX, "8"),
	SIZE("kv-heads", kv_heads, "KV heads", MK_WIDTH_MAX, "as many as heads"),
	SIZE("ffn", ffn, "size of the feed-forward layer", MK_FFN_MAX, "3 x hidden, opt 4 x"),
	SIZE("vocab", vocab, "size of the vocabulary", MK_ROWS_MAX, "512"),
	SIZE("max-position", max_position, "longest sequence, in tokens", MK_ROWS_MAX, "2048"),
	{ "embed-dim", "N", "opt: size of the embedding, which is projected to the hidden size",
	  MM_OPT_NUMBER, AT(given.embed_dim), .min = 1, .max = MK_WIDTH_MAX,
	  .otherwise = "the hidden size" },
	{ "post-norm", NULL, "opt: norms behind their blocks, as in OPT-350m", MM_OPT_FLAG,
	  AT(given.post_norm) },
	{ "tied", NULL, "the head is the embedding, which is the default with opt", MM_OPT_FLAG,
	  AT(tied) },
	{ "untied", NULL, "the head is not the embedding, which is the default without opt",
	  MM_OPT_FLAG, AT(untied) },
	{ "rope-theta", "X", "base of RoPE's angles", MM_OPT_REAL, AT(given.rope.theta), .least = 1,
	  .most = 1e12, .otherwise = "10000, or the shape's" },
	{ "rope-scaling", "TEXT",
	  "scaling of RoPE: linear:FACTOR or llama3:FACTOR,LOW,HIGH,ORIGINAL", MM_OPT_CALL,
	  AT(given.rope), .parse = scaling_parse, .otherwise = "none, or the shape's" },
	{ "seed", "N", "seed of random weights; sparse files do not depend on it", MM_OPT_NUMBER,
	  AT(seed), .preset = "0" },
	{ .name = NULL },
};

#define SETS(first, second, third, fourth)                 \
	{                                                  \
		{ first, 0 }, { second, 0 }, { third, 0 }, \
		{                                          \
			fourth, 0                          \
		}                                          \
	}

static const struct mm_opt_command mk_commands[] = {
	[MK_LLAMA2C] = { "llama2c", "CHECKPOINT OUT_DIR",
			 "convert a llama2.c checkpoint (version 0)", NULL,
			 SETS(f32_opts, format_opts, NULL, NULL), 2, 2 },
	[MK_RANDOM] = { "random", "OUT_DIR",
			"write random weights, which depend on the model and the seed only", NULL,
			SETS(shape_opts, size_opts, f32_opts, format_opts), 1, 1 },
	[MK_SHAPES] = { "shapes", "FILE [OUT_DIR]",
			"list the models in FILE (models.json), or write one with random weights",
			"With OUT_DIR and --model NAME the same as random, with the shape of that "
			"model: sizes that are given replace its own, and the others keep their "
			"proportions.",
			SETS(listed_opts, size_opts, f32_opts, format_opts), 1, 2 },
	[MK_SPARSE] = { "sparse", "OUT_DIR",
			"write files of the right shape and length without weights",
			"They take no disk space and read as zeros, for devices that keep time "
			"instead of computing.",
			SETS(shape_opts, size_opts, f16_opts, format_opts), 1, 1 },
};

const struct mm_opt_program mk_program = {
	.name = "mkmodel",
	.summary = "write models as Hugging Face lays them out",
	.text = "Writes OUT_DIR/config.json and OUT_DIR/model.safetensors, and, but for llama2c, a "
		"tokenizer whose tokens are the words t0, t1, t2, ...; any other word is t0.",
	.commands = mk_commands,
	.n_commands = MM_ARRAY_SIZE(mk_commands),
	.exits = "Exit status: 0 done, 1 failed, 2 wrong arguments.",
	.man_section = "1",
	.see_also = "mmserve(1), mmbench(1), mmsim(1)",
};

static int model_options_check(const struct mk_options *o, const struct mm_opt_line *line)
{
	static const struct mm_arch none;

	if (o->tied && o->untied)
		return mm_opt_refuse(&mk_program, line->command,
				     "--tied, --untied: exclude each other");
	if (o->shape && o->family)
		return mm_opt_refuse(&mk_program, line->command,
				     "--family: the model of --shape has its own");
	if (line->command != MK_SHAPES)
		return -1;
	if (line->argc == 2 && !o->model)
		return mm_opt_refuse(&mk_program, line->command,
				     "--model is missing: OUT_DIR needs it");
	if (line->argc == 1 &&
	    (o->model || o->tied || o->untied || memcmp(&o->given, &none, sizeof(none)) != 0))
		return mm_opt_refuse(&mk_program, line->command,
				     "OUT_DIR is missing: without it the models are listed");
	return -1;
}

int mk_options_parse(int argc, char **argv, struct mk_options *ret_options,
		     struct mm_opt_line *ret_line)
{
	struct mk_options o;
	int status;

	memset(&o, 0, sizeof(o));
	status = mm_opt_main(&mk_program, argc, argv, &o, ret_line);
	if (status < 0)
		status = model_options_check(&o, ret_line);
	if (status >= 0)
		return status;
	o.format.words = ret_line->command != MK_LLAMA2C;
	if (!o.format.vector_dtype)
		o.format.vector_dtype = o.format.dtype;
	*ret_options = o;
	return -1;
}

/* Scales @part of @whole to the whole @other; the result is at least 1. */
static uint32_t proportion_of(uint32_t part, uint32_t whole, uint32_t other)
{
	return (uint32_t)MM_MAX((uint64_t)part * other / MM_MAX(whole, 1), 1);
}

static void apply_sizes(const struct mm_arch *g, struct mm_arch *a)
{
	const struct mm_arch base = *a;

	a->hidden = g->hidden ? g->hidden : base.hidden;
	a->heads = g->heads        ? g->heads
		   : base.head_dim ? MM_MAX(a->hidden / base.head_dim, 1)
				   : base.heads;
	a->kv_heads = g->kv_heads     ? g->kv_heads
		      : base.kv_heads ? proportion_of(base.kv_heads, base.heads, a->heads)
				      : a->heads;
	a->ffn = g->ffn ? g->ffn : proportion_of(base.ffn, base.hidden, a->hidden);
	a->layers = g->layers ? g->layers : base.layers;
	a->vocab = g->vocab ? g->vocab : base.vocab;
	a->max_position = g->max_position ? g->max_position : base.max_position;
	a->embed_dim = g->embed_dim;
	a->head_dim = 0;
}

void mk_options_apply(const struct mk_options *o, struct mm_arch *a)
{
	const struct mm_arch *g = &o->given;

	apply_sizes(g, a);
	a->tied = o->tied || (a->tied && !o->untied);
	a->post_norm = g->post_norm;
	if (g->rope.theta != 0)
		a->rope.theta = g->rope.theta;
	if (g->rope.scaling != MM_ROPE_UNSCALED) {
		const double theta = a->rope.theta;

		a->rope = g->rope;
		a->rope.theta = theta;
	}
	mm_arch_fill(a);
}
