/* SPDX-License-Identifier: Apache-2.0 */
/* options - the command line of `mmbench gpu`. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/driver.h"
#include "libclient/support/size.h"
#include "tools/lab/gpubench/gpubench.h"
#include "tools/lab/common/words.h"

static const char gpubench_help[] =
	"usage: mmbench gpu [PART,PART,...] [options]\n"
	"\n"
	"What the mechanism costs on the device that is there, each figure against a reference "
	"that is\n"
	"measured in turn with it in the same run. On the software GPU it is a rehearsal.\n"
	"\n"
	"  PART,...          of those that --list tells (default: all)\n"
	"  --driver NAME     software, cuda, or a library's path (default: $MM_DRIVER, else "
	"software)\n"
	"  --device N        ordinal that the driver knows the device by (default 0)\n"
	"  --pages SIZE,...  page sizes to compare (default 2M,16M,64M; software: 64K,256K)\n"
	"  --repeat N        measurements of each figure (default 15, with --quick 5)\n"
	"  --quick           fewer cases, fewer measurements\n"
	"  --model DIR       that mmserve serves in the part overhead (default: a random one)\n"
	"  --kernels FILE    module of kernels (default: by driver, beside the programs)\n"
	"  --out FILE        each result is appended to FILE as it comes, a line of JSON each\n"
	"  --patience S      end a part that takes longer, go on with the next (default 150)\n"
	"  --keep DIR        leave logs in DIR\n"
	"  --json            one JSON object on stdout instead of the table\n"
	"  --list            the parts\n"
	"  -h, --help, --version\n"
	"\n"
	"Exit status: 0 done, whether goals are reached or missed; 1 a part failed; 2 usage; 77 "
	"the\n"
	"driver is not there, or has no such device.\n";

enum gpubench_flag {
	OPT_HELP = 'h',
	OPT_DRIVER = 256,
	OPT_DEVICE,
	OPT_PAGES,
	OPT_REPEAT,
	OPT_QUICK,
	OPT_MODEL,
	OPT_KERNELS,
	OPT_OUT,
	OPT_TIMEOUT,
	OPT_KEEP,
	OPT_JSON,
	OPT_LIST,
	OPT_VERSION
};

static const struct option gpubench_options[] = {
	{ "driver", required_argument, NULL, OPT_DRIVER },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "pages", required_argument, NULL, OPT_PAGES },
	{ "repeat", required_argument, NULL, OPT_REPEAT },
	{ "quick", no_argument, NULL, OPT_QUICK },
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "kernels", required_argument, NULL, OPT_KERNELS },
	{ "out", required_argument, NULL, OPT_OUT },
	{ "patience", required_argument, NULL, OPT_TIMEOUT },
	{ "keep", required_argument, NULL, OPT_KEEP },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "list", no_argument, NULL, OPT_LIST },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

#define wrong(...) mm_words_refuse("gpu", __VA_ARGS__)

static int parse_parts(char *text, struct mm_gpu_opts *o)
{
	for (char *word; (word = strsep(&text, ","));) {
		uint32_t i = 0;

		while (mm_gpu_parts[i].name && strcmp(mm_gpu_parts[i].name, word))
			i++;
		if (!mm_gpu_parts[i].name)
			return wrong("there is no part '%s'; mmbench gpu --list tells them", word);
		if (o->part[i])
			return wrong("part %s twice", word);
		o->part[i] = true;
	}
	return 0;
}

static int parse_pages(char *text, struct mm_gpu_opts *o)
{
	o->n_pages = 0;
	for (char *word; (word = strsep(&text, ","));) {
		uint64_t bytes;

		if (mm_size_parse(word, &bytes) || bytes < 4096 || bytes > UINT64_C(1) << 30 ||
		    bytes & (bytes - 1))
			return wrong("--pages '%s' is not a power of two from 4K to 1G", word);
		if (o->n_pages == MM_GPU_PAGES_MAX)
			return wrong("--pages: more than %d", MM_GPU_PAGES_MAX);
		if (o->n_pages && bytes <= o->pages[o->n_pages - 1])
			return wrong("--pages %s: the list must ascend", word);
		o->pages[o->n_pages++] = bytes;
	}
	return 0;
}

static int parse_numbers(int opt, const char *arg, struct mm_gpu_opts *o)
{
	switch (opt) {
	case OPT_DEVICE:
		return mm_words_u32("gpu", "device", arg, 0, 1023, &o->device);
	case OPT_REPEAT:
		return mm_words_u32("gpu", "repeat", arg, 1, 10000, &o->repeat);
	case OPT_TIMEOUT:
		return mm_words_number("gpu", "patience", arg, 1, 86400, &o->timeout_s);
	default:
		return -ENOENT;
	}
}

static int list_parts(void)
{
	for (const struct mm_gpu_part *part = mm_gpu_parts; part->name; part++)
		printf("%-10s %s\n", part->name, part->what);
	return 1;
}

static int parse_words(int opt, char *arg, struct mm_gpu_opts *o)
{
	switch (opt) {
	case OPT_DRIVER:
		o->driver = arg;
		return mm_is_driver(arg)
			       ? 0
			       : wrong("--driver '%s' is none of: " MM_DRIVER_CHOICES, arg);
	case OPT_PAGES:
		return parse_pages(arg, o);
	case OPT_MODEL:
		o->model = arg;
		return 0;
	case OPT_KERNELS:
		o->kernels = arg;
		return 0;
	case OPT_OUT:
		o->out_path = arg;
		return 0;
	case OPT_KEEP:
		o->keep_dir = arg;
		return 0;
	case OPT_QUICK:
		o->quick = true;
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	default:
		return -ENOENT;
	}
}

static int gpubench_parse_rest(int opt)
{
	switch (opt) {
	case OPT_LIST:
		return list_parts();
	case OPT_HELP:
		fputs(gpubench_help, stdout);
		return 1;
	case OPT_VERSION:
		puts("mmbench " MM_VERSION);
		return 1;
	default:
		return -EINVAL; /* getopt has printed which argument is wrong */
	}
}

static void all_parts(struct mm_gpu_opts *o)
{
	for (uint32_t i = 0; mm_gpu_parts[i].name; i++)
		o->part[i] = true;
}

int mm_gpu_options(int argc, char **argv, struct mm_gpu_opts *ret_opts)
{
	struct mm_gpu_opts o = { .driver = getenv("MM_DRIVER"), .timeout_s = 150 };
	int opt, r;

	while ((opt = getopt_long(argc, argv, "h", gpubench_options, NULL)) != -1) {
		r = parse_words(opt, optarg, &o);
		if (r == -ENOENT)
			r = parse_numbers(opt, optarg, &o);
		if (r == -ENOENT)
			r = gpubench_parse_rest(opt);
		if (r)
			return r;
	}
	if (optind + 1 < argc)
		return wrong("unexpected argument '%s'", argv[optind + 1]);
	if (optind < argc) {
		r = parse_parts(argv[optind], &o);
		if (r)
			return r;
	} else {
		all_parts(&o);
	}
	if (!o.driver || !*o.driver)
		o.driver = "software";
	if (!mm_is_driver(o.driver))
		return wrong("MM_DRIVER '%s' is none of: " MM_DRIVER_CHOICES, o.driver);
	*ret_opts = o;
	return 0;
}
