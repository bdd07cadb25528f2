/* SPDX-License-Identifier: Apache-2.0 */
/* mkmodel: models in Hugging Face's layout, from a llama2.c checkpoint or from a seed. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "mm/base.h"
#include "tools/mkmodel/sources.h"

#define EXIT_USAGE 2

static const char help[] =
	"Usage: mkmodel llama2c CHECKPOINT OUT_DIR [--dtype f32|f16|bf16]\n"
	"       mkmodel random OUT_DIR [options]\n"
	"\n"
	"Writes OUT_DIR/config.json and OUT_DIR/model.safetensors (LlamaForCausalLM).\n"
	"\n"
	"  llama2c            converts a llama2.c checkpoint (version 0)\n"
	"  random             random weights that depend on the shape and the seed only\n"
	"\n"
	"      --dtype TYPE       f32 (default), f16 or bf16\n"
	"      --hidden N         hidden size (default 256)\n"
	"      --layers N         (default 8)\n"
	"      --heads N          attention heads (default 8)\n"
	"      --kv-heads N       KV heads (default: as many as heads)\n"
	"      --ffn N            size of the feed-forward layer (default: 3 x hidden)\n"
	"      --vocab N          (default 512)\n"
	"      --max-position N   longest sequence (default 2048)\n"
	"      --tied             the head is the embedding\n"
	"      --seed N           (default 0)\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong arguments.\n";

struct options {
	struct mk_shape shape;
	uint64_t seed;
	enum mm_dtype dtype;
	bool shaped; /* an option of `random` was given */
};

static int usage(const char *what, const char *which)
{
	fprintf(stderr, "mkmodel: %s: %s (see mkmodel --help)\n", which, what);
	return EXIT_USAGE;
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

static int parse_dtype(const char *text, enum mm_dtype *ret_dtype)
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

enum { OPT_DTYPE = 256, OPT_TIED, OPT_SEED, OPT_VERSION, OPT_SHAPE };

static const struct option long_options[] = {
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "tied", no_argument, NULL, OPT_TIED },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "hidden", required_argument, NULL, OPT_SHAPE },
	{ "layers", required_argument, NULL, OPT_SHAPE + 1 },
	{ "heads", required_argument, NULL, OPT_SHAPE + 2 },
	{ "kv-heads", required_argument, NULL, OPT_SHAPE + 3 },
	{ "ffn", required_argument, NULL, OPT_SHAPE + 4 },
	{ "vocab", required_argument, NULL, OPT_SHAPE + 5 },
	{ "max-position", required_argument, NULL, OPT_SHAPE + 6 },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static int set_option(struct options *o, int c, const char *arg)
{
	uint32_t *const sizes[] = { &o->shape.hidden,      &o->shape.layers, &o->shape.heads,
				    &o->shape.kv_heads,    &o->shape.ffn,    &o->shape.vocab,
				    &o->shape.max_position };
	uint64_t value;

	if (c == OPT_DTYPE)
		return parse_dtype(arg, &o->dtype);
	o->shaped = true;
	if (c == OPT_TIED) {
		o->shape.tied = true;
		return 0;
	}
	if (c == OPT_SEED)
		return parse_u64(arg, UINT64_MAX, &o->seed);
	if (parse_u64(arg, INT32_MAX, &value) || !value)
		return -EINVAL;
	*sizes[c - OPT_SHAPE] = (uint32_t)value;
	return 0;
}

/* Return: -1 go on; else the exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
	int c, index = 0;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", long_options, &index)) != -1) {
		switch (c) {
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		case OPT_VERSION:
			puts("mkmodel " MM_VERSION);
			return EXIT_SUCCESS;
		case '?':
			return usage("unknown option", argv[optind - 1]);
		case ':':
			return usage("needs a value", argv[optind - 1]);
		default:
			if (set_option(o, c, optarg)) {
				fprintf(stderr, "mkmodel: --%s: %s is not allowed here\n",
					long_options[index].name, optarg);
				return EXIT_USAGE;
			}
		}
	}
	return -1;
}

static int write_model(const struct mk_source *source, const char *dir, enum mm_dtype dtype)
{
	char err[MK_ERROR_BYTES];

	if (!mk_write(source, dir, dtype, err))
		return EXIT_SUCCESS;
	fprintf(stderr, "mkmodel: %s\n", err);
	return EXIT_FAILURE;
}

static int run_llama2c(const struct options *o, const char *path, const char *dir)
{
	mm_cleanup(mk_llama2c_close) struct mk_llama2c ckpt = { 0 };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	if (mk_llama2c_open(path, &ckpt, err)) {
		fprintf(stderr, "mkmodel: %s\n", err);
		return EXIT_FAILURE;
	}
	source = (struct mk_source){ ckpt.shape, mk_llama2c_row, &ckpt };
	return write_model(&source, dir, o->dtype);
}

static int run_random(const struct options *o, const char *dir)
{
	struct mk_random r = { o->shape, o->seed };
	char err[MK_ERROR_BYTES];
	struct mk_source source;

	if (!r.shape.kv_heads)
		r.shape.kv_heads = r.shape.heads;
	if (!r.shape.ffn)
		r.shape.ffn = r.shape.hidden * 3;
	if (mk_shape_check(&r.shape, err))
		return usage(err, "random");
	source = (struct mk_source){ r.shape, mk_random_row, &r };
	return write_model(&source, dir, o->dtype);
}

int main(int argc, char **argv)
{
	struct options o = { .dtype = MM_DTYPE_F32,
			     .shape = { .hidden = 256,
					.layers = 8,
					.heads = 8,
					.vocab = 512,
					.max_position = 2048 } };
	const int r = parse_options(argc, argv, &o);
	char **rest = argv + optind;
	const int n = argc - optind;

	if (r >= 0)
		return r;
	if (n < 1)
		return usage("say llama2c or random", "command");
	if (!strcmp(rest[0], "llama2c")) {
		if (o.shaped)
			return usage("only --dtype may be given", "llama2c");
		return n == 3 ? run_llama2c(&o, rest[1], rest[2])
			      : usage("needs CHECKPOINT and OUT_DIR", "llama2c");
	}
	if (!strcmp(rest[0], "random"))
		return n == 2 ? run_random(&o, rest[1]) : usage("needs OUT_DIR", "random");
	return usage("unknown command", rest[0]);
}
