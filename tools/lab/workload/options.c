/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/size.h"
#include "mmd/config/tune.h"

#define SHARE_ALL_PERMILLE 900 /* sum of shares for --shapes without shares, as vLLM's default */

static const char workload_help[] =
	"  --profile NAME|FILE      device: gh200-96 (default), h200-pcie5, h100-pcie5, "
	"a100-pcie4\n"
	"  --pool SIZE              shares are shares of this much memory (default: the device's)\n"
	"  --combo C1|C2            C1 (default): OPT-13B 35 %, Llama-2-13B 35 %, Llama-3-8B 20 "
	"%;\n"
	"                           C2: OPT-30B 65 %, OPT-6.7B 15 %\n"
	"  --shapes NAME[:SHARE%],… models and shares of your own; without shares 90 % divided "
	"equally\n"
	"  --trace FILE             CSV whose arrival_s is used: a window of it for each tenant, "
	"scaled\n"
	"                           to the rate (default: bursts from the seed)\n"
	"  --lengths L[,L…]         of all tenants or of each: a CSV file with prompt_tokens and\n"
	"                           output_tokens, or alpaca, sharegpt (default), long, short, "
	"trace\n"
	"  --rate R[,R…]            requests/s of all tenants together, or of each (default 4)\n"
	"  --seconds S              in which requests arrive (default 60); then all are served\n"
	"  --windows N              repeat with N windows of the trace, report paired ratios "
	"(default 1)\n"
	"  --seed N                 of lengths, prompts and synthetic arrivals (default 1)\n"
	"  --policy P,P,…           recompute, elastic, remap, unlimited, swap, naive, "
	"naive-bounded\n"
	"                           (default: the first four); ratios are to the first\n"
	"  --sharing HOW            temporal (default), spatial, mig\n"
	"  --turns HOW              of temporal sharing: drain (default), quantum\n"
	"  --quantum MS             (default 200)\n"
	"  --max-seqs N             sequences that run at once (default 256)\n"
	"  --batched-tokens N       tokens of one step (default 2048)\n"
	"  --max-len N              longest request, prompt and output (default: the model's "
	"positions)\n"
	"  --page SIZE              (default 16M)\n"
	"  --slots auto|1|2         that cycling layers share (default auto)\n"
	"  --swap SIZE              host memory of each tenant for KV of preempted requests, under "
	"remap\n"
	"                           and swap; 0: none (default: twice its share of KV)\n"
	"  --controller K=V,…       knobs of mmd's controller\n"
	"  --json                   print JSON instead of a table\n";

enum workload_flag {
	OPT_HELP = 'h',
	OPT_PROFILE = 256,
	OPT_POOL,
	OPT_COMBO,
	OPT_SHAPES,
	OPT_TRACE,
	OPT_LENGTHS,
	OPT_RATE,
	OPT_SECONDS,
	OPT_WINDOWS,
	OPT_SEED,
	OPT_POLICY,
	OPT_SHARING,
	OPT_TURNS,
	OPT_QUANTUM,
	OPT_MAX_SEQS,
	OPT_BATCHED,
	OPT_MAX_LEN,
	OPT_PAGE,
	OPT_SLOTS,
	OPT_SWAP,
	OPT_CONTROLLER,
	OPT_JSON,
	OPT_VERSION
};

static const struct option shared_options[] = {
	{ "profile", required_argument, NULL, OPT_PROFILE },
	{ "pool", required_argument, NULL, OPT_POOL },
	{ "combo", required_argument, NULL, OPT_COMBO },
	{ "shapes", required_argument, NULL, OPT_SHAPES },
	{ "trace", required_argument, NULL, OPT_TRACE },
	{ "lengths", required_argument, NULL, OPT_LENGTHS },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "seconds", required_argument, NULL, OPT_SECONDS },
	{ "windows", required_argument, NULL, OPT_WINDOWS },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "policy", required_argument, NULL, OPT_POLICY },
	{ "sharing", required_argument, NULL, OPT_SHARING },
	{ "turns", required_argument, NULL, OPT_TURNS },
	{ "quantum", required_argument, NULL, OPT_QUANTUM },
	{ "max-seqs", required_argument, NULL, OPT_MAX_SEQS },
	{ "batched-tokens", required_argument, NULL, OPT_BATCHED },
	{ "max-len", required_argument, NULL, OPT_MAX_LEN },
	{ "page", required_argument, NULL, OPT_PAGE },
	{ "slots", required_argument, NULL, OPT_SLOTS },
	{ "swap", required_argument, NULL, OPT_SWAP },
	{ "controller", required_argument, NULL, OPT_CONTROLLER },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
};

#define SHARED_N MM_ARRAY_SIZE(shared_options)
#define MORE_MAX 32

static const struct mm_wl_policy known_policies[] = {
	{ "recompute", MM_POLICY_RECOMPUTE, false },
	{ "elastic", MM_POLICY_ELASTIC, false },
	{ "remap", MM_POLICY_REMAP, false },
	{ "unlimited", MM_POLICY_RECOMPUTE, true },
	{ "swap", MM_POLICY_SWAP, false },
	{ "naive", MM_POLICY_NAIVE, false },
	{ "naive-bounded", MM_POLICY_NAIVE_BOUNDED, false },
};

#define POLICIES_DEFAULT 4

static const char *const sharing_names[MM_WL_SHARINGS] = {
	[MM_WL_TEMPORAL] = "temporal",
	[MM_WL_SPATIAL] = "spatial",
	[MM_WL_MIG] = "mig",
};

static const char *const turns_names[MM_WL_TURNS] = {
	[MM_WL_DRAIN] = "drain",
	[MM_WL_QUANTUM] = "quantum",
};

static const struct {
	const char *name, *shapes;
} combos[] = {
	{ "C1", "OPT-13B:35%,Llama-2-13B:35%,Llama-3-8B:20%" },
	{ "C2", "OPT-30B:65%,OPT-6.7B:15%" },
};

/* State of parsing, with values for tenants that are applied when their number is known. */
struct workload_parser {
	const struct mm_wl_program *program;
	struct mm_wl_opts opts;
	char *shapes, *rates, *lengths;
	uint32_t max_len;
};

const char *mm_wl_sharing_name(enum mm_wl_sharing sharing)
{
	return sharing_names[sharing];
}

const char *mm_wl_turns_name(enum mm_wl_turns turns)
{
	return turns_names[turns];
}

const struct mm_wl_policy *mm_wl_policy_at(size_t index)
{
	return index < MM_ARRAY_SIZE(known_policies) ? &known_policies[index] : NULL;
}

MM_PRINTF(2, 3) static int workload_wrong(const struct workload_parser *p, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", p->program->name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("; see --help\n", stderr);
	return -EINVAL;
}

static int workload_parse_number(const struct workload_parser *p, const char *name,
				 const char *text, uint64_t least, uint64_t most,
				 uint64_t *ret_number)
{
	char *end;
	unsigned long long number;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text < '0' || *text > '9')
		return workload_wrong(p, "--%s '%s' is not a whole number", name, text);
	if (number < least || number > most)
		return workload_wrong(p, "--%s %s is not in %llu..%llu", name, text,
				      (unsigned long long)least, (unsigned long long)most);
	*ret_number = number;
	return 0;
}

static int parse_u32(const struct workload_parser *p, const char *name, const char *text,
		     uint32_t least, uint32_t most, uint32_t *ret_number)
{
	uint64_t number;
	int r = workload_parse_number(p, name, text, least, most, &number);

	if (!r)
		*ret_number = (uint32_t)number;
	return r;
}

static int workload_parse_real(const struct workload_parser *p, const char *name, const char *text,
			       double least, double most, double *ret_real)
{
	char *end;
	double real = strtod(text, &end);

	if (end == text || *end || !isfinite(real))
		return workload_wrong(p, "--%s '%s' is not a number", name, text);
	if (real < least || real > most)
		return workload_wrong(p, "--%s %s is not in %g..%g", name, text, least, most);
	*ret_real = real;
	return 0;
}

static int workload_parse_size(const struct workload_parser *p, const char *name, const char *text,
			       uint64_t *ret_bytes)
{
	if (mm_size_parse(text, ret_bytes) || !*ret_bytes || *ret_bytes > UINT64_C(1) << 50)
		return workload_wrong(p, "--%s '%s' is not a size like 16M or 96G", name, text);
	return 0;
}

/* Finds the index of @text in @names. */
static int parse_word(const struct workload_parser *p, const char *name, const char *text,
		      const char *const names[], int n, int *ret_index)
{
	char known[256] = "";
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		if (!strcmp(text, names[i])) {
			*ret_index = i;
			return 0;
		}
		at += (size_t)snprintf(known + at, sizeof(known) - at, i ? ", %s" : "%s", names[i]);
	}
	return workload_wrong(p, "--%s '%s' is not one of %s", name, text, known);
}

static int workload_parse_policies(struct workload_parser *p, char *text)
{
	const char *names[MM_ARRAY_SIZE(known_policies)];

	for (size_t i = 0; i < MM_ARRAY_SIZE(known_policies); i++)
		names[i] = known_policies[i].name;
	p->opts.policies = 0;
	for (char *word; (word = strsep(&text, ","));) {
		int index = 0, err = parse_word(p, "policy", word, names,
						(int)MM_ARRAY_SIZE(known_policies), &index);

		if (err)
			return err;
		for (uint32_t i = 0; i < p->opts.policies; i++) {
			if (p->opts.policy[i].name == known_policies[index].name)
				return workload_wrong(p, "--policy: '%s' twice", word);
		}
		p->opts.policy[p->opts.policies++] = known_policies[index];
	}
	return 0;
}

static int parse_combo(struct workload_parser *p, const char *text)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(combos); i++) {
		if (strcasecmp(text, combos[i].name))
			continue;
		p->opts.combo = combos[i].name;
		return 0;
	}
	return workload_wrong(p, "--combo '%s' is not C1 or C2", text);
}

static int workload_parse_slots(struct workload_parser *p, const char *text)
{
	if (strcmp(text, "auto") && strcmp(text, "1") && strcmp(text, "2"))
		return workload_wrong(p, "--slots '%s' is not auto, 1 or 2", text);
	p->opts.slots = *text == 'a' ? 0 : (uint32_t)(*text - '0');
	return 0;
}

static int parse_swap(struct workload_parser *p, const char *text)
{
	uint64_t bytes = 0;

	if (strcmp(text, "0")) {
		int r = workload_parse_size(p, "swap", text, &bytes);

		if (r)
			return r;
	}
	p->opts.swap_bytes = bytes;
	return 0;
}

/* Checks --controller with the controller's own parser. The program parses it again later. */
static int parse_controller(struct workload_parser *p, const char *text)
{
	struct mm_core_opts unused = { 0 };
	char why[MM_TUNE_ERROR_BYTES];

	if (mm_tune_parse(text, &unused, why))
		return workload_wrong(p, "--controller: %s", why);
	p->opts.controller = text;
	return 0;
}

static int take_case(struct workload_parser *p, int opt, char *arg)
{
	struct mm_wl_opts *o = &p->opts;

	switch (opt) {
	case OPT_PROFILE:
		o->profile = arg;
		return 0;
	case OPT_POOL:
		return workload_parse_size(p, "pool", arg, &o->pool_bytes);
	case OPT_COMBO:
		return parse_combo(p, arg);
	case OPT_SHAPES:
		p->shapes = arg;
		o->combo = NULL;
		return 0;
	case OPT_TRACE:
		o->trace_path = arg;
		return 0;
	case OPT_LENGTHS:
		p->lengths = arg;
		return 0;
	case OPT_RATE:
		p->rates = arg;
		return 0;
	case OPT_SECONDS:
		return workload_parse_real(p, "seconds", arg, 0.01, 1e6, &o->seconds);
	case OPT_WINDOWS:
		return parse_u32(p, "windows", arg, 1, MM_WL_WINDOWS_MAX, &o->windows);
	case OPT_SEED:
		return workload_parse_number(p, "seed", arg, 0, UINT64_MAX >> 1, &o->seed);
	case OPT_POLICY:
		return workload_parse_policies(p, arg);
	default:
		return -ENOENT;
	}
}

static int take_engine(struct workload_parser *p, int opt, char *arg)
{
	struct mm_wl_opts *o = &p->opts;
	int index = 0, err;

	switch (opt) {
	case OPT_SHARING:
		err = parse_word(p, "sharing", arg, sharing_names, MM_WL_SHARINGS, &index);
		o->sharing = (enum mm_wl_sharing)index;
		return err;
	case OPT_TURNS:
		err = parse_word(p, "turns", arg, turns_names, MM_WL_TURNS, &index);
		o->turns = (enum mm_wl_turns)index;
		return err;
	case OPT_QUANTUM:
		return parse_u32(p, "quantum", arg, 1, MM_WL_QUANTUM_MAX_MS, &o->quantum_ms);
	case OPT_MAX_SEQS:
		return parse_u32(p, "max-seqs", arg, 1, 4096, &o->max_seqs);
	case OPT_BATCHED:
		return parse_u32(p, "batched-tokens", arg, 1, 65536, &o->batched_tokens);
	case OPT_MAX_LEN:
		return parse_u32(p, "max-len", arg, 2, 1 << 24, &p->max_len);
	case OPT_PAGE:
		return workload_parse_size(p, "page", arg, &o->page_bytes);
	case OPT_SLOTS:
		return workload_parse_slots(p, arg);
	case OPT_SWAP:
		return parse_swap(p, arg);
	case OPT_CONTROLLER:
		return parse_controller(p, arg);
	case OPT_JSON:
		o->json = true;
		return 0;
	default:
		return -ENOENT;
	}
}

static int workload_option(struct workload_parser *p, int opt, char *arg)
{
	int r;

	if (opt == OPT_HELP) {
		printf("%s%s%s  -h, --help, --version\n", p->program->usage, workload_help,
		       p->program->more_help ? p->program->more_help : "");
		return 1;
	}
	if (opt == OPT_VERSION) {
		printf("%s " MM_VERSION "\n", p->program->name);
		return 1;
	}
	if (opt >= MM_WL_OPT_MORE)
		return p->program->take(p->program->user, opt, arg);
	if (opt == '?')
		return -EINVAL; /* getopt has printed which argument is wrong */
	r = take_case(p, opt, arg);
	return r == -ENOENT ? take_engine(p, opt, arg) : r;
}

/* Parses a tenant of --shapes: "OPT-13B:35%", "opt-13b:12.5", "OPT-13B". */
static int workload_parse_tenant(struct workload_parser *p, char *text, struct mm_wl_tenant *tenant)
{
	char *share = strchr(text, ':');
	double percent;
	int r;

	if (share)
		*share++ = '\0';
	tenant->shape = mm_shape_find(text);
	if (!tenant->shape) {
		char known[MM_SHAPE_NAMES_BYTES];

		mm_shape_names(known, sizeof(known));
		return workload_wrong(p, "--shapes: '%s' is not one of %s", text, known);
	}
	if (!share)
		return 0;
	if (*share && share[strlen(share) - 1] == '%')
		share[strlen(share) - 1] = '\0';
	r = workload_parse_real(p, "shapes", share, 0.1, 100, &percent);
	if (!r)
		tenant->share_permille = (uint32_t)lround(percent * 10);
	return r;
}

static int parse_shapes(struct workload_parser *p, char *text)
{
	struct mm_wl_opts *o = &p->opts;
	uint32_t given = 0, without = 0;

	o->tenants = 0;
	for (char *word; (word = strsep(&text, ","));) {
		int r;

		if (o->tenants == MM_WL_TENANTS_MAX)
			return workload_wrong(p, "--shapes: more than %d", MM_WL_TENANTS_MAX);
		r = workload_parse_tenant(p, word, &o->tenant[o->tenants]);
		if (r)
			return r;
		given += o->tenant[o->tenants].share_permille;
		without += !o->tenant[o->tenants++].share_permille;
	}
	if (given > 1000)
		return workload_wrong(p, "--shapes: the shares are %.1f %% together", given / 10.0);
	if (without && given + without > SHARE_ALL_PERMILLE)
		return workload_wrong(p,
				      "--shapes: %.1f %% leave nothing for those without a share",
				      given / 10.0);
	for (uint32_t t = 0; t < o->tenants; t++) {
		if (!o->tenant[t].share_permille)
			o->tenant[t].share_permille = (SHARE_ALL_PERMILLE - given) / without;
	}
	return 0;
}

static int parse_rates(struct workload_parser *p, char *text)
{
	struct mm_wl_opts *o = &p->opts;
	uint32_t n = 0;

	for (char *word; (word = strsep(&text, ",")); n++) {
		int r;

		if (n == o->tenants)
			return workload_wrong(p, "--rate: more than %u values for as many tenants",
					      o->tenants);
		r = workload_parse_real(p, "rate", word, 1e-3, 1e6, &o->tenant[n].rate);
		if (r)
			return r;
	}
	if (n != 1 && n != o->tenants)
		return workload_wrong(
			p, "--rate: %u values for %u tenants; give one for all or one of each", n,
			o->tenants);
	for (uint32_t t = o->tenants; n == 1 && t-- > 0;)
		o->tenant[t].rate = o->tenant[0].rate / o->tenants;
	return 0;
}

static int parse_lengths(struct workload_parser *p, char *text)
{
	struct mm_wl_opts *o = &p->opts;
	uint32_t n = 0;

	for (char *word; (word = strsep(&text, ",")); n++) {
		if (n == o->tenants)
			return workload_wrong(p,
					      "--lengths: more than %u values for as many tenants",
					      o->tenants);
		if (!*word)
			return workload_wrong(p, "--lengths: an empty name");
		o->tenant[n].lengths = word;
	}
	if (n != 1 && n != o->tenants)
		return workload_wrong(
			p, "--lengths: %u values for %u tenants; give one for all or one of each",
			n, o->tenants);
	for (uint32_t t = 1; n == 1 && t < o->tenants; t++)
		o->tenant[t].lengths = o->tenant[0].lengths;
	return 0;
}

static const char *combo_shapes(const char *name)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(combos); i++) {
		if (!strcmp(combos[i].name, name))
			return combos[i].shapes;
	}
	return "";
}

/* Parses the values whose number depends on the number of tenants. */
static int parse_tenants(struct workload_parser *p)
{
	struct mm_wl_opts *o = &p->opts;
	mm_cleanup(mm_free_ptr) char *shapes =
		strdup(p->shapes ? p->shapes : combo_shapes(o->combo));
	char rate[] = "4";
	int r;

	if (!shapes)
		return -ENOMEM;
	r = parse_shapes(p, shapes);
	if (!r)
		r = parse_rates(p, p->rates ? p->rates : rate);
	if (!r && p->lengths)
		r = parse_lengths(p, p->lengths);
	for (uint32_t t = 0; !r && t < o->tenants; t++) {
		const uint32_t positions = o->tenant[t].shape->arch.max_position;

		if (!p->lengths)
			o->tenant[t].lengths = "sharegpt";
		o->tenant[t].tokens_max = p->max_len ? MM_MIN(p->max_len, positions) : positions;
	}
	return r;
}

static int workload_check(struct workload_parser *p)
{
	const struct mm_wl_opts *o = &p->opts;
	double requests = 0;

	if (o->combo && p->shapes)
		return workload_wrong(p, "--combo and --shapes exclude each other");
	if (o->batched_tokens < o->max_seqs)
		return workload_wrong(p, "--batched-tokens %u is less than --max-seqs %u",
				      o->batched_tokens, o->max_seqs);
	for (uint32_t t = 0; t < o->tenants; t++)
		requests += o->tenant[t].rate * o->seconds;
	if (requests > 1e7)
		return workload_wrong(
			p, "--rate and --seconds make %.0f requests; at most 10 million", requests);
	return 0;
}

int mm_wl_options(int argc, char **argv, const struct mm_wl_program *program,
		  struct mm_wl_opts *ret_opts)
{
	struct option all[SHARED_N + MORE_MAX + 1] = { 0 };
	struct workload_parser p = {
		.program = program,
		.opts = { .profile = "gh200-96",
			  .page_bytes = UINT64_C(16) << 20,
			  .combo = combos[0].name,
			  .seconds = 60,
			  .windows = 1,
			  .seed = 1,
			  .policies = POLICIES_DEFAULT,
			  .quantum_ms = 200,
			  .max_seqs = 256,
			  .batched_tokens = 2048,
			  .block_tokens = 16,
			  .swap_bytes = MM_WL_SWAP_AUTO },
	};
	size_t n = SHARED_N;
	int opt, r;

	memcpy(p.opts.policy, known_policies, POLICIES_DEFAULT * sizeof(*known_policies));
	memcpy(all, shared_options, sizeof(shared_options));
	for (const struct option *o = program->more; o && o->name; o++) {
		mm_assert(n < SHARED_N + MORE_MAX);
		all[n++] = *o;
	}
	optind = 1;
	while ((opt = getopt_long(argc, argv, "+h", all, NULL)) != -1) {
		r = workload_option(&p, opt, optarg);
		if (r)
			return r;
	}
	if (optind < argc)
		return workload_wrong(&p, "unexpected argument '%s'", argv[optind]);
	r = parse_tenants(&p);
	if (!r)
		r = workload_check(&p);
	if (!r)
		*ret_opts = p.opts;
	return r;
}
