/* SPDX-License-Identifier: Apache-2.0 */
/* steps_options - the command line of `mmbench steps`. */
#include "tools/lab/mmbench/steps_options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/size.h"
#include "tools/lab/common/words.h"
#include "libclient/model/shapes.h"

static const char steps_help[] =
	"usage: mmbench steps --profile NAME --shape NAME [options]\n"
	"\n"
	"One tenant on a timed software GPU computes the same batch again and again, while plans "
	"are\n"
	"set by hand. Prints the median device time of a step under each plan, and what the\n"
	"controller's arithmetic says.\n"
	"\n"
	"  --profile NAME[,KEY=VALUE...]  of the device, or the path of a file\n"
	"  --shape NAME           of a model that is built in, e.g. OPT-13B\n"
	"  --model DIR            instead: a model's folder, of fp16 weights\n"
	"  --batch N              sequences, each decodes one token a step (default 16)\n"
	"  --context N            tokens of each sequence (default 512)\n"
	"  --alpha all|N,N,...    layers away (default all that are possible)\n"
	"  --slots 1,2            (default both)\n"
	"  --steps N              measured under each plan (default 12)\n"
	"  --warmup N             steps before them (default 6)\n"
	"  --dilation K           host time per device time (default 4)\n"
	"  --page SIZE            of mmd (default: its own)\n"
	"  --json                 one JSON object on stdout\n"
	"  -h, --help, --version\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 usage.\n";

enum steps_flag {
	OPT_HELP = 'h',
	OPT_PROFILE = 256,
	OPT_SHAPE,
	OPT_MODEL,
	OPT_BATCH,
	OPT_CONTEXT,
	OPT_ALPHA,
	OPT_SLOTS,
	OPT_STEPS,
	OPT_WARMUP,
	OPT_DILATION,
	OPT_PAGE,
	OPT_JSON,
	OPT_VERSION
};

static const struct option steps_long_options[] = {
	{ "profile", required_argument, NULL, OPT_PROFILE },
	{ "shape", required_argument, NULL, OPT_SHAPE },
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "batch", required_argument, NULL, OPT_BATCH },
	{ "context", required_argument, NULL, OPT_CONTEXT },
	{ "alpha", required_argument, NULL, OPT_ALPHA },
	{ "slots", required_argument, NULL, OPT_SLOTS },
	{ "steps", required_argument, NULL, OPT_STEPS },
	{ "warmup", required_argument, NULL, OPT_WARMUP },
	{ "dilation", required_argument, NULL, OPT_DILATION },
	{ "page", required_argument, NULL, OPT_PAGE },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

#define wrong(...) mm_words_refuse("steps", __VA_ARGS__)

static int parse_alpha(char *text, struct mm_bench_steps_opts *o)
{
	o->n_alpha = 0;
	if (!strcmp(text, "all"))
		return 0;
	for (char *word; (word = strsep(&text, ","));) {
		uint32_t alpha;
		int r = mm_words_u32("steps", "alpha", word, 0, MM_LAYERS_MAX, &alpha);

		if (r)
			return r;
		if (o->n_alpha && alpha <= o->alpha[o->n_alpha - 1])
			return wrong("--alpha %u: the list must ascend", alpha);
		o->alpha[o->n_alpha++] = alpha;
	}
	return 0;
}

static int steps_parse_slots(char *text, struct mm_bench_steps_opts *o)
{
	memset(o->beta, 0, sizeof(o->beta));
	for (char *word; (word = strsep(&text, ","));) {
		uint32_t beta;
		int r = mm_words_u32("steps", "slots", word, 1, 2, &beta);

		if (r)
			return r;
		o->beta[beta] = true;
	}
	return 0;
}

static int parse_dilation(const char *text, double *ret_dilation)
{
	char *end;
	const double dilation = strtod(text, &end);

	if (end == text || *end || !isfinite(dilation) || dilation < 1 || dilation > 1000)
		return wrong("--dilation '%s' is not a number from 1 to 1000", text);
	*ret_dilation = dilation;
	return 0;
}

static int parse_page(const char *text, uint64_t *ret_bytes)
{
	uint64_t bytes;

	if (mm_size_parse(text, &bytes) || !bytes)
		return wrong("--page '%s' is not a size like 256K, 16M or 1G", text);
	*ret_bytes = bytes;
	return 0;
}

static int check_shape(const char *name)
{
	char known[MM_SHAPE_NAMES_BYTES];

	mm_shape_names(known, sizeof(known));
	return mm_shape_find(name) ? 0 : wrong("--shape '%s' is none of: %s", name, known);
}

static int steps_parse(int opt, char *arg, struct mm_bench_steps_opts *o)
{
	switch (opt) {
	case OPT_PROFILE:
		o->profile = arg;
		return 0;
	case OPT_SHAPE:
		o->shape = arg;
		return check_shape(arg);
	case OPT_MODEL:
		o->model = arg;
		return 0;
	case OPT_BATCH:
		return mm_words_u32("steps", "batch", arg, 1, 1024, &o->batch);
	case OPT_CONTEXT:
		return mm_words_u32("steps", "context", arg, 1, 1 << 20, &o->context);
	case OPT_ALPHA:
		return parse_alpha(arg, o);
	case OPT_SLOTS:
		return steps_parse_slots(arg, o);
	case OPT_STEPS:
		return mm_words_u32("steps", "steps", arg, 2, 1000, &o->steps);
	case OPT_WARMUP:
		return mm_words_u32("steps", "warmup", arg, 1, 1000, &o->warmup);
	case OPT_DILATION:
		return parse_dilation(arg, &o->dilation);
	case OPT_PAGE:
		return parse_page(arg, &o->page_bytes);
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_HELP:
		fputs(steps_help, stdout);
		return 1;
	case OPT_VERSION:
		puts("mmbench " MM_VERSION);
		return 1;
	default:
		return wrong("that is not understood");
	}
}

int mm_bench_steps_options(int argc, char **argv, struct mm_bench_steps_opts *o)
{
	int opt, r = 0;

	*o = (struct mm_bench_steps_opts){ .batch = 16,
					   .context = 512,
					   .beta = { false, true, true },
					   .steps = 12,
					   .warmup = 6,
					   .dilation = 4 };
	while (!r && (opt = getopt_long(argc, argv, "h", steps_long_options, NULL)) != -1)
		r = steps_parse(opt, optarg, o);
	if (r)
		return r;
	if (optind < argc)
		return wrong("'%s' is one word too many", argv[optind]);
	if (!o->profile)
		return wrong("--profile is missing");
	if (!o->model == !o->shape)
		return wrong("give --shape or --model");
	return 0;
}
