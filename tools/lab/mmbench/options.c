/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/driver.h"
#include "libclient/support/size.h"
#include "tools/lab/common/device.h"
#include "tools/lab/common/words.h"

const char *const mm_policy_names[MM_POLICY_COUNT] = {
	[MM_POLICY_RECOMPUTE] = "recompute", [MM_POLICY_ELASTIC] = "elastic",
	[MM_POLICY_REMAP] = "remap",         [MM_POLICY_SWAP] = "swap",
	[MM_POLICY_NAIVE] = "naive",         [MM_POLICY_NAIVE_BOUNDED] = "naive-bounded",
};

#define POLICY_CHOICES "recompute,elastic,remap,swap,naive,naive-bounded"

static const char serve_help[] =
	"usage: mmbench serve --models DIR,DIR,... [--trace FILE | --synthetic] [options]\n"
	"\n"
	"Starts mmd and one mmserve per model, replays a trace under each policy in turn, "
	"compares\n"
	"every token between the policies, prints a table.\n"
	"\n"
	"  --models DIR,DIR,...   one tenant each; the same folder may stand several times\n"
	"  --trace FILE           CSV: arrival_s,prompt_tokens,output_tokens[,tenant]\n"
	"  --synthetic            bursts from the seed that alternate between tenants (default)\n"
	"  --seed N               of prompts and of the synthetic trace (default 1)\n"
	"  --duration S           arrivals later than this are left out (default 12; 0 with "
	"--trace: all)\n"
	"  --speed F              arrivals come F times as fast (default 1)\n"
	"  --token-scale F        token counts times F (default 1)\n"
	"  --policies P,P,...     of " POLICY_CHOICES " (default: the first three)\n"
	"  --repeat N             runs of each policy; the one of median throughput is reported\n"
	"  --driver NAME          software, cuda, or a library's path (default: $MM_DRIVER, else "
	"software)\n"
	"  --devices N            so many of its devices, from 0 on; tenants are dealt out to "
	"them in turn (default 1)\n"
	"  --pool SIZE            memory that mmd manages of each device (default: the models and "
	"60 %)\n"
	"  --page SIZE            its unit (default 256K; not on the software GPU: 2M)\n"
	"  --slots N              of mmd: auto, 1 or 2 (default auto)\n"
	"  --kv-share SIZE        a tenant's share under recompute (default: equal parts of what "
	"the\n"
	"                         weights leave)\n"
	"  --block-tokens N       of mmserve (default 16)\n"
	"  --max-batch N          of mmserve (default 32)\n"
	"  --max-batched-tokens N of mmserve (default 128)\n"
	"  --host-store-max SIZE  of mmd: host memory for weights (default: no limit)\n"
	"  --kv-layout NAME       of mmserve: block-major or separate\n"
	"  --fused                of mmserve: q, k and v as one matrix, gate and up as one\n"
	"  --mmd \"FLAG ...\"       further flags of mmd, separated by spaces\n"
	"  --mmserve \"FLAG ...\"   further flags of every mmserve\n"
	"  --verify               checksum every layer's bytes where they are used\n"
	"  --keep DIR             leave logs, traces and outputs in DIR\n"
	"  --json                 the last line of stdout is one JSON object\n"
	"  -h, --help, --version\n"
	"\n"
	"Exit status: 0 done and every token the same, 1 failed or a token differed, 2 usage.\n";

enum serve_flag {
	OPT_HELP = 'h',
	OPT_MODELS = 256,
	OPT_TRACE,
	OPT_SYNTHETIC,
	OPT_SEED,
	OPT_DURATION,
	OPT_SPEED,
	OPT_SCALE,
	OPT_POLICIES,
	OPT_REPEAT,
	OPT_DRIVER,
	OPT_DEVICES,
	OPT_POOL,
	OPT_PAGE,
	OPT_SLOTS,
	OPT_SHARE,
	OPT_BLOCK,
	OPT_BATCH,
	OPT_BATCHED,
	OPT_STORE,
	OPT_LAYOUT,
	OPT_FUSED,
	OPT_MMD,
	OPT_MMSERVE,
	OPT_VERIFY,
	OPT_KEEP,
	OPT_JSON,
	OPT_VERSION
};

static const struct option serve_options[] = {
	{ "models", required_argument, NULL, OPT_MODELS },
	{ "trace", required_argument, NULL, OPT_TRACE },
	{ "synthetic", no_argument, NULL, OPT_SYNTHETIC },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "duration", required_argument, NULL, OPT_DURATION },
	{ "speed", required_argument, NULL, OPT_SPEED },
	{ "token-scale", required_argument, NULL, OPT_SCALE },
	{ "policies", required_argument, NULL, OPT_POLICIES },
	{ "repeat", required_argument, NULL, OPT_REPEAT },
	{ "driver", required_argument, NULL, OPT_DRIVER },
	{ "devices", required_argument, NULL, OPT_DEVICES },
	{ "pool", required_argument, NULL, OPT_POOL },
	{ "page", required_argument, NULL, OPT_PAGE },
	{ "slots", required_argument, NULL, OPT_SLOTS },
	{ "kv-share", required_argument, NULL, OPT_SHARE },
	{ "block-tokens", required_argument, NULL, OPT_BLOCK },
	{ "max-batch", required_argument, NULL, OPT_BATCH },
	{ "max-batched-tokens", required_argument, NULL, OPT_BATCHED },
	{ "host-store-max", required_argument, NULL, OPT_STORE },
	{ "kv-layout", required_argument, NULL, OPT_LAYOUT },
	{ "fused", no_argument, NULL, OPT_FUSED },
	{ "mmd", required_argument, NULL, OPT_MMD },
	{ "mmserve", required_argument, NULL, OPT_MMSERVE },
	{ "verify", no_argument, NULL, OPT_VERIFY },
	{ "keep", required_argument, NULL, OPT_KEEP },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

#define wrong(...) mm_words_refuse("serve", __VA_ARGS__)

static int serve_parse_real(const char *name, const char *text, double least, double *ret_real)
{
	char *end;
	double real = strtod(text, &end);

	if (end == text || *end || !isfinite(real))
		return wrong("--%s '%s' is not a number", name, text);
	if (real < least || real > 1e6)
		return wrong("--%s %s is not in %g..1e6", name, text, least);
	*ret_real = real;
	return 0;
}

/* Parses a size: 512, 64K, 96M, 2G. */
static int serve_parse_size(const char *name, const char *text, uint64_t *ret_bytes)
{
	uint64_t bytes;

	if (mm_size_parse(text, &bytes) || !bytes)
		return wrong("--%s '%s' is not a size like 256K, 96M or 2G", name, text);
	*ret_bytes = bytes;
	return 0;
}

static int parse_models(char *text, struct mm_bench_opts *opts)
{
	opts->shape.tenants = 0;
	for (char *dir; (dir = strsep(&text, ","));) {
		if (!*dir)
			return wrong("--models: an empty name");
		if (*dir == '-')
			return wrong("--models needs folders; '%s' is a flag (or ./%s)", dir, dir);
		if (opts->shape.tenants == MM_BENCH_TENANTS_MAX)
			return wrong("--models: more than %d", MM_BENCH_TENANTS_MAX);
		opts->model[opts->shape.tenants++] = dir;
	}
	return 0;
}

static int serve_parse_policies(char *text, struct mm_bench_opts *opts)
{
	opts->n_policies = 0;
	for (char *name; (name = strsep(&text, ","));) {
		enum mm_policy policy = 0;

		while (policy < MM_POLICY_COUNT && strcmp(name, mm_policy_names[policy]))
			policy++;
		if (policy == MM_POLICY_COUNT)
			return wrong("--policies: '%s' is none of: " POLICY_CHOICES, name);
		for (uint32_t i = 0; i < opts->n_policies; i++) {
			if (opts->policy[i] == policy)
				return wrong("--policies: '%s' twice", name);
		}
		opts->policy[opts->n_policies++] = policy;
	}
	return 0;
}

static int add_word(const char *name, char *word, struct mm_bench_words *words)
{
	if (words->n == MM_BENCH_EXTRA_MAX)
		return wrong("--%s: more than %d words", name, MM_BENCH_EXTRA_MAX);
	words->word[words->n++] = word;
	return 0;
}

static int flag_words_add(const char *name, char *text, struct mm_bench_words *words)
{
	int r = 0;

	for (char *word; !r && (word = strsep(&text, " "));)
		r = *word ? add_word(name, word, words) : 0;
	return r;
}

/* Takes flags whose values mmd and mmserve check, with messages of their own. */
static int parse_passed_on(int opt, char *arg, struct mm_bench_opts *opts)
{
	int r;

	switch (opt) {
	case OPT_STORE:
		r = add_word("host-store-max", "--host-store-max", &opts->mmd);
		return r ? r : add_word("host-store-max", arg, &opts->mmd);
	case OPT_LAYOUT:
		if (strcmp(arg, "block-major") && strcmp(arg, "separate"))
			return wrong("--kv-layout: '%s' is not block-major or separate", arg);
		r = add_word("kv-layout", "--kv-layout", &opts->mmserve);
		return r ? r : add_word("kv-layout", arg, &opts->mmserve);
	case OPT_FUSED:
		return add_word("fused", "--fused", &opts->mmserve);
	case OPT_MMD:
		return flag_words_add("mmd", arg, &opts->mmd);
	case OPT_MMSERVE:
		return flag_words_add("mmserve", arg, &opts->mmserve);
	default:
		return -ENOENT;
	}
}

static int parse_workload(int opt, char *arg, struct mm_bench_opts *opts)
{
	switch (opt) {
	case OPT_MODELS:
		return parse_models(arg, opts);
	case OPT_TRACE:
		opts->trace_path = arg;
		return 0;
	case OPT_SYNTHETIC:
		opts->trace_path = NULL;
		return 0;
	case OPT_SEED:
		return mm_words_number("serve", "seed", arg, 0, UINT64_MAX >> 1, &opts->shape.seed);
	case OPT_DURATION:
		return serve_parse_real("duration", arg, 0, &opts->shape.duration_s);
	case OPT_SPEED:
		return serve_parse_real("speed", arg, 1e-3, &opts->shape.speed);
	case OPT_SCALE:
		return serve_parse_real("token-scale", arg, 1e-4, &opts->shape.token_scale);
	default:
		return -ENOENT;
	}
}

static int parse_machine(int opt, char *arg, struct mm_bench_opts *opts)
{
	switch (opt) {
	case OPT_DRIVER:
		opts->driver = arg;
		return mm_is_driver(arg)
			       ? 0
			       : wrong("--driver '%s' is none of: " MM_DRIVER_CHOICES, arg);
	case OPT_DEVICES:
		return mm_words_u32("serve", "devices", arg, 1, MM_BENCH_DEVICES_MAX,
				    &opts->devices);
	case OPT_POOL:
		return serve_parse_size("pool", arg, &opts->pool_bytes);
	case OPT_PAGE:
		return serve_parse_size("page", arg, &opts->page_bytes);
	case OPT_SLOTS:
		opts->slots = arg;
		if (strcmp(arg, "auto") && strcmp(arg, "1") && strcmp(arg, "2"))
			return wrong("--slots: '%s' is not auto, 1 or 2", arg);
		return 0;
	case OPT_SHARE:
		return serve_parse_size("kv-share", arg, &opts->kv_share_bytes);
	case OPT_BLOCK:
		return mm_words_u32("serve", "block-tokens", arg, 1, 1024, &opts->block_tokens);
	case OPT_BATCH:
		return mm_words_u32("serve", "max-batch", arg, 1, 4096, &opts->batch_max);
	case OPT_BATCHED:
		return mm_words_u32("serve", "max-batched-tokens", arg, 1, 65536,
				    &opts->batched_tokens_max);
	default:
		return -ENOENT;
	}
}

static int serve_parse_rest(int opt, char *arg, struct mm_bench_opts *opts)
{
	switch (opt) {
	case OPT_POLICIES:
		return serve_parse_policies(arg, opts);
	case OPT_REPEAT:
		return mm_words_u32("serve", "repeat", arg, 1, MM_BENCH_REPEAT_MAX, &opts->repeat);
	case OPT_VERIFY:
		opts->verify = true;
		return 0;
	case OPT_KEEP:
		opts->keep_dir = arg;
		return 0;
	case OPT_JSON:
		opts->json = true;
		return 0;
	case OPT_HELP:
		fputs(serve_help, stdout);
		return 1;
	case OPT_VERSION:
		puts("mmbench " MM_VERSION);
		return 1;
	default:
		return -EINVAL; /* getopt has printed which argument is wrong */
	}
}

static int serve_check(struct mm_bench_opts *opts, int argc, char **argv)
{
	if (!opts->driver || !*opts->driver)
		opts->driver = "software";
	if (!mm_is_driver(opts->driver))
		return wrong("MM_DRIVER '%s' is none of: " MM_DRIVER_CHOICES, opts->driver);
	if (!opts->page_bytes)
		opts->page_bytes = mm_device_is_software(opts->driver) ? 256 << 10 : 2 << 20;
	if (optind < argc)
		return wrong("unexpected argument '%s'", argv[optind]);
	if (!opts->shape.tenants)
		return wrong("--models is missing");
	if (opts->devices > opts->shape.tenants)
		return wrong("--devices: %u for %u tenants", opts->devices, opts->shape.tenants);
	if (opts->pool_bytes && opts->pool_bytes < opts->page_bytes)
		return wrong("--pool is smaller than one page");
	if (opts->shape.duration_s < 0)
		opts->shape.duration_s = opts->trace_path ? 0 : 12;
	if (!opts->trace_path && opts->shape.duration_s <= 0)
		return wrong("--duration 0 needs --trace");
	return 0;
}

int mm_bench_options(int argc, char **argv, struct mm_bench_opts *ret_opts)
{
	struct mm_bench_opts opts = {
		.shape = { .duration_s = -1, .speed = 1, .token_scale = 1, .seed = 1 },
		.driver = getenv("MM_DRIVER"),
		.slots = "auto",
		.repeat = 1,
		.devices = 1,
		.block_tokens = 16,
		.batch_max = 32,
		.batched_tokens_max = 128,
		.policy = { MM_POLICY_RECOMPUTE, MM_POLICY_ELASTIC, MM_POLICY_REMAP },
		.n_policies = 3,
	};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "+h", serve_options, NULL)) != -1) {
		r = parse_workload(opt, optarg, &opts);
		if (r == -ENOENT)
			r = parse_machine(opt, optarg, &opts);
		if (r == -ENOENT)
			r = parse_passed_on(opt, optarg, &opts);
		if (r == -ENOENT)
			r = serve_parse_rest(opt, optarg, &opts);
		if (r)
			return r;
	}
	r = serve_check(&opts, argc, argv);
	if (!r)
		*ret_opts = opts;
	return r;
}
