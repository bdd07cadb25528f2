/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mkmodel/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"

static const char mkmodel_help[] =
	"Usage: mkmodel llama2c CHECKPOINT OUT_DIR [--dtype TYPE] [--shards N]\n"
	"       mkmodel random OUT_DIR [--shape NAME] [options]\n"
	"       mkmodel shapes FILE\n"
	"       mkmodel shapes FILE OUT_DIR --model NAME [options]\n"
	"       mkmodel sparse OUT_DIR [--shape NAME] [options]\n"
	"\n"
	"Writes OUT_DIR/config.json and OUT_DIR/model.safetensors as Hugging Face lays them out.\n"
	"\n"
	"  llama2c            converts a llama2.c checkpoint (version 0)\n"
	"  random             random weights that depend on the model and the seed only\n"
	"  shapes             lists the models in FILE (models.json); or the same as random, with\n"
	"                     the shape of one of them: the sizes that are given replace its own,\n"
	"                     and the others keep their proportions\n"
	"\n"
	"  sparse             no weights: files of the right shape and length that take no disk "
	"and\n"
	"                     read as zeros, for devices that keep time instead of computing\n"
	"\n"
	"      --dtype TYPE         of matrices: f32 (default), f16 (sparse: default) or bf16\n"
	"      --vector-dtype TYPE  of norms and biases (default: as --dtype)\n"
	"      --shards N           model-0000i-of-0000N.safetensors and an index\n"
	"      --model NAME         in the list of shapes\n"
	"      --shape NAME         random, sparse: a model that is built in, e.g. OPT-30B; sizes\n"
	"                           that are given replace its own, others keep their proportions\n"
	"      --family NAME        llama (default), qwen2 or opt\n"
	"      --hidden N           hidden size (default 256)\n"
	"      --layers N           (default 8)\n"
	"      --heads N            attention heads (default 8)\n"
	"      --kv-heads N         KV heads (default: as many as heads)\n"
	"      --ffn N              size of the feed-forward layer (default: 3 x hidden, opt 4 x)\n"
	"      --vocab N            (default 512)\n"
	"      --max-position N     longest sequence (default 2048)\n"
	"      --embed-dim N        opt: of the embedding, projected to the hidden size\n"
	"      --post-norm          opt: norms behind their blocks, as in OPT-350m\n"
	"      --tied               the head is the embedding (default with opt)\n"
	"      --untied             it is not\n"
	"      --rope-theta X       (default 10000)\n"
	"      --rope-scaling TEXT  linear:FACTOR or llama3:FACTOR,LOW,HIGH,ORIGINAL\n"
	"      --seed N             (default 0)\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong arguments.\n";

int mk_usage(const char *what, const char *which)
{
	fprintf(stderr, "mkmodel: %s: %s (see mkmodel --help)\n", which, what);
	return MK_EXIT_USAGE;
}

static int parse_u64(const char *text, uint64_t max, uint64_t *ret_value)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || end == text || *text == '-' || value > max)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

static int dtype_parse(const char *text, enum mm_dtype *ret_dtype)
{
	static const char *const names[] = {
		[MM_DTYPE_F32] = "f32", [MM_DTYPE_F16] = "f16", [MM_DTYPE_BF16] = "bf16"
	};

	for (enum mm_dtype d = MM_DTYPE_F32; d <= MM_DTYPE_BF16; d++) {
		if (!strcmp(text, names[d])) {
			*ret_dtype = d;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_family(const char *text, enum mm_family *ret_family)
{
	for (enum mm_family f = 0; f < MM_FAMILY_COUNT; f++) {
		if (!strcmp(text, mm_family_name(f))) {
			*ret_family = f;
			return 0;
		}
	}
	return -EINVAL;
}

/* Parses @n numbers, separated by commas. */
static int parse_reals(const char *text, double *ret_values, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *end;

		ret_values[i] = strtod(text, &end);
		if (end == text || *end != (i + 1 < n ? ',' : '\0') || !isfinite(ret_values[i]))
			return -EINVAL;
		text = end + 1;
	}
	return 0;
}

static int parse_scaling(const char *text, struct mm_rope *rope)
{
	double v[4];

	if (!strncmp(text, "linear:", 7)) {
		rope->scaling = MM_ROPE_LINEAR;
		return parse_reals(text + 7, &rope->factor, 1);
	}
	if (strncmp(text, "llama3:", 7) || parse_reals(text + 7, v, 4) || v[3] < 1 ||
	    v[3] > 1 << 24 || v[3] != floor(v[3]))
		return -EINVAL;
	*rope = (struct mm_rope){ .theta = rope->theta,
				  .scaling = MM_ROPE_LLAMA3,
				  .factor = v[0],
				  .low_factor = v[1],
				  .high_factor = v[2],
				  .original = (uint32_t)v[3] };
	return 0;
}

enum {
	OPT_DTYPE = 256,
	OPT_VECTOR_DTYPE,
	OPT_SHARDS,
	OPT_MODEL,
	OPT_SHAPE,
	OPT_FAMILY,
	OPT_POST_NORM,
	OPT_TIED,
	OPT_UNTIED,
	OPT_THETA,
	OPT_SCALING,
	OPT_SEED,
	OPT_VERSION,
	OPT_SIZE
};

static const struct option long_options[] = {
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "vector-dtype", required_argument, NULL, OPT_VECTOR_DTYPE },
	{ "shards", required_argument, NULL, OPT_SHARDS },
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "shape", required_argument, NULL, OPT_SHAPE },
	{ "family", required_argument, NULL, OPT_FAMILY },
	{ "post-norm", no_argument, NULL, OPT_POST_NORM },
	{ "tied", no_argument, NULL, OPT_TIED },
	{ "untied", no_argument, NULL, OPT_UNTIED },
	{ "rope-theta", required_argument, NULL, OPT_THETA },
	{ "rope-scaling", required_argument, NULL, OPT_SCALING },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "hidden", required_argument, NULL, OPT_SIZE },
	{ "layers", required_argument, NULL, OPT_SIZE + 1 },
	{ "heads", required_argument, NULL, OPT_SIZE + 2 },
	{ "kv-heads", required_argument, NULL, OPT_SIZE + 3 },
	{ "ffn", required_argument, NULL, OPT_SIZE + 4 },
	{ "vocab", required_argument, NULL, OPT_SIZE + 5 },
	{ "max-position", required_argument, NULL, OPT_SIZE + 6 },
	{ "embed-dim", required_argument, NULL, OPT_SIZE + 7 },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static int set_size(struct mm_arch *a, int which, const char *arg)
{
	uint32_t *const sizes[] = { &a->hidden, &a->layers, &a->heads,        &a->kv_heads,
				    &a->ffn,    &a->vocab,  &a->max_position, &a->embed_dim };
	uint64_t value;

	if (parse_u64(arg, INT32_MAX, &value) || !value)
		return -EINVAL;
	*sizes[which] = (uint32_t)value;
	return 0;
}

static int set_format(struct mk_options *o, int c, const char *arg)
{
	uint64_t value;

	if (c == OPT_DTYPE) {
		o->dtype_given = true;
		return dtype_parse(arg, &o->format.dtype);
	}
	if (c == OPT_VECTOR_DTYPE) {
		o->vector_dtype_given = true;
		return dtype_parse(arg, &o->format.vector_dtype);
	}
	if (parse_u64(arg, MK_SHARDS_MAX, &value) || !value)
		return -EINVAL;
	o->format.shards = (uint32_t)value;
	return 0;
}

static int set_option(struct mk_options *o, int c, const char *arg)
{
	if (c == OPT_DTYPE || c == OPT_VECTOR_DTYPE || c == OPT_SHARDS)
		return set_format(o, c, arg);
	o->of_random = true;
	switch (c) {
	case OPT_MODEL:
		o->model = arg;
		return 0;
	case OPT_SHAPE:
		o->shape = arg;
		return 0;
	case OPT_FAMILY:
		o->family_given = true;
		return parse_family(arg, &o->given.family);
	case OPT_POST_NORM:
		o->given.post_norm = true;
		return 0;
	case OPT_TIED:
		o->tied = true;
		return o->untied ? -EINVAL : 0;
	case OPT_UNTIED:
		o->untied = true;
		return o->tied ? -EINVAL : 0;
	case OPT_THETA:
		return parse_reals(arg, &o->given.rope.theta, 1);
	case OPT_SCALING:
		return parse_scaling(arg, &o->given.rope);
	case OPT_SEED:
		return parse_u64(arg, UINT64_MAX, &o->seed);
	default:
		return set_size(&o->given, c - OPT_SIZE, arg);
	}
}

/* Returns the words that an option accepts, for a message, or "" if it takes no words. */
static const char *option_choices(int c)
{
	switch (c) {
	case OPT_DTYPE:
	case OPT_VECTOR_DTYPE:
		return "is none of: f32, f16, bf16";
	case OPT_FAMILY:
		return "is none of: llama, qwen2, opt";
	case OPT_SCALING:
		return "is none of: linear:FACTOR, llama3:FACTOR,LOW,HIGH,ORIGINAL";
	default:
		return "is not allowed here";
	}
}

static int value_refuse(const char *name, int c, const char *arg)
{
	if (arg)
		fprintf(stderr, "mkmodel: --%s: '%s' %s (see mkmodel --help)\n", name, arg,
			option_choices(c));
	else
		fprintf(stderr, "mkmodel: --%s: contradicts another option\n", name);
	return MK_EXIT_USAGE;
}

int mk_options_parse(int argc, char **argv, struct mk_options *o)
{
	int c, index = 0;

	*o = (struct mk_options){ .format = { .dtype = MM_DTYPE_F32 } };
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", long_options, &index)) != -1) {
		switch (c) {
		case 'h':
			fputs(mkmodel_help, stdout);
			return EXIT_SUCCESS;
		case OPT_VERSION:
			puts("mkmodel " MM_VERSION);
			return EXIT_SUCCESS;
		case '?':
			return mk_usage("unknown option", argv[optind - 1]);
		case ':':
			return mk_usage("needs a value", argv[optind - 1]);
		default:
			if (set_option(o, c, optarg))
				return value_refuse(long_options[index].name, c, optarg);
		}
	}
	if (!o->vector_dtype_given)
		o->format.vector_dtype = o->format.dtype;
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
