/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/workload/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libclient/base/base.h"
#include "mmd/config/policies.h"
#include "mmd/config/tune.h"

#define SHARE_ALL_PERMILLE   900 /* sum of shares for --shapes without shares, as vLLM's default */
#define SHARE_WHOLE_PERMILLE 980 /* the same with --shares whole */
#define REQUESTS_MAX         1e7
#define BLOCK_TOKENS         16
#define SHAPES_BYTES         64
#define GOAL_MAX_MS          3600000

enum reference { UNLIMITED, IDEAL, ELASTIC_SWAP, PIE };

#define REFERENCE(which) ((uint64_t)MM_POLICY_COUNT + (which))

static const struct mm_opt_choice policy_choices[] = {
	MM_POLICY_CHOICES,
	{ "unlimited", REFERENCE(UNLIMITED), "recompute with memory that never runs out" },
	{ "ideal", REFERENCE(IDEAL),
	  "mmsim alone, in turns: recompute, but who has its turn sees the whole device, and "
	  "nothing that moves takes time" },
	{ "elastic-swap", REFERENCE(ELASTIC_SWAP), "mmsim alone: elastic, and engines swap" },
	{ "pie", REFERENCE(PIE),
	  "mmsim alone, for one model: elastic-swap, with layers of KV on the host as Pie's paper "
	  "has them" },
	{ NULL, 0, NULL },
};

static const struct mm_wl_policy reference_policies[] = {
	[UNLIMITED] = { .policy = MM_POLICY_RECOMPUTE, .unlimited = true },
	[IDEAL] = { .policy = MM_POLICY_RECOMPUTE, .ideal = true, .simulated = true },
	[ELASTIC_SWAP] = { .policy = MM_POLICY_ELASTIC, .swaps = true, .simulated = true },
	[PIE] = { .policy = MM_POLICY_ELASTIC, .swaps = true, .pie = true, .simulated = true },
};

static const struct mm_opt_choice sharing_choices[] = {
	{ "temporal", MM_WL_TEMPORAL, "one tenant computes at a time, by turns" },
	{ "spatial", MM_WL_SPATIAL, "all at once on one device" },
	{ "mig", MM_WL_MIG, "each has a part of the device for itself" },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice turns_choices[] = {
	{ "drain", MM_WL_DRAIN, "a turn lasts until nothing is left to do" },
	{ "quantum", MM_WL_QUANTUM, "a turn ends after --quantum" },
	{ NULL, 0, NULL },
};

const struct mm_opt_choice mm_wl_profile_choices[] = {
	{ "gh200-96", 0, NULL },   { "h200-pcie5", 0, NULL }, { "h100-pcie5", 0, NULL },
	{ "a100-pcie4", 0, NULL }, { NULL, 0, NULL },
};

static const struct mm_opt_choice combo_choices[] = {
	{ "C1", 0, "OPT-13B 35 %, Llama-2-13B 35 %, Llama-3-8B 20 %" },
	{ "C2", 0, "OPT-30B 65 %, OPT-6.7B 15 %" },
	{ NULL, 0, NULL },
};

static const char *const combo_shapes[] = { "OPT-13B:35%,Llama-2-13B:35%,Llama-3-8B:20%",
					    "OPT-30B:65%,OPT-6.7B:15%" };
static const char *const combo_whole_shapes[] = { "OPT-13B:33%,Llama-2-13B:33%,Llama-3-8B:32%",
						  "OPT-30B:78%,OPT-6.7B:20%" };

static const struct mm_opt_choice shares_choices[] = {
	{ "given", false, "as --combo or --shapes says" },
	{ "whole", true, "98 % of the memory together: C1 33, 33, 32 %; C2 78, 20 %" },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice lengths_choices[] = {
	{ "alpaca", 0, NULL }, { "sharegpt", 0, NULL }, { "long", 0, NULL },
	{ "short", 0, NULL },  { "trace", 0, NULL },    { NULL, 0, NULL },
};

static const struct mm_opt_choice tokens_choices[] = {
	{ "auto", MM_WL_TOKENS_AUTO,
	  "by the profile: 512, and up to 2048 where a step of so few would only read weights" },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice arrivals_choices[] = {
	{ "gaps", MM_WL_GAPS, "a gamma distribution's, four times as irregular as Poisson's" },
	{ "steady", MM_WL_STEADY, "Poisson's" },
	{ "bursts", MM_WL_BURSTS, "on for 4 s and off for 16 s in the mean" },
	{ "day", MM_WL_DAY,
	  "--seconds is a day, in which each tenant has its noon and its bursts" },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice slots_choices[] = {
	{ "auto", 0, NULL },
	{ "1", 1, NULL },
	{ "2", 2, NULL },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice swap_choices[] = {
	{ "auto", MM_WL_SWAP_AUTO, "eight times its share of KV" },
	{ NULL, 0, NULL },
};

const char *mm_wl_arrivals_name(const struct mm_wl_opts *opts)
{
	if (opts->trace_path)
		return opts->trace_path;
	return opts->arrivals == MM_WL_GAPS ? "synthetic"
					    : mm_opt_choice_name(arrivals_choices, opts->arrivals);
}

const char *mm_wl_sharing_name(enum mm_wl_sharing sharing)
{
	return mm_opt_choice_name(sharing_choices, sharing);
}

const char *mm_wl_turns_name(enum mm_wl_turns turns)
{
	return mm_opt_choice_name(turns_choices, turns);
}

MM_PRINTF(2, 3) static int workload_refuse(char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, MM_OPT_ERROR_BYTES, format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- one option ---- */

static int policies_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_wl_opts *o = into;

	o->policies = 0;
	for (const char *word = text;; word += strcspn(word, ",") + 1) {
		const size_t n = strcspn(word, ",");
		struct mm_wl_policy *p = &o->policy[o->policies];
		uint64_t value = 0;
		const int r = mm_opt_choice(opt, word, n, &value, why);

		if (r)
			return r;
		if (value < REFERENCE(0))
			*p = (struct mm_wl_policy){ .policy = (enum mm_policy)value };
		else
			*p = reference_policies[value - REFERENCE(0)];
		p->name = mm_opt_choice_name(opt->choices, value);
		for (uint32_t i = 0; i < o->policies; i++) {
			if (o->policy[i].name == p->name)
				return workload_refuse(why, "'%s' twice", p->name);
		}
		o->policies++;
		if (!word[n])
			return 0;
	}
}

static int combo_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_wl_opts *o = into;
	uint64_t unused;

	for (const struct mm_opt_choice *c = opt->choices; c->name; c++) {
		if (strcasecmp(text, c->name))
			continue;
		o->combo = c->name;
		return 0;
	}
	return mm_opt_choice(opt, text, strlen(text), &unused, why);
}

/* Checks with the controller's own parser. The program parses it again later. */
static int controller_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_wl_opts *o = into;
	struct mm_core_opts unused = { 0 };

	static_assert(MM_OPT_ERROR_BYTES >= MM_TUNE_ERROR_BYTES, "why holds the sentence");
	(void)opt;
	if (mm_tune_parse(text, &unused, why))
		return -EINVAL;
	o->controller = text;
	return 0;
}

/* Parses a tenant of --shapes: "OPT-13B:35%", "opt-13b:12.5", "OPT-13B". */
static int tenant_parse(const struct mm_opt *opt, char *text, struct mm_wl_tenant *tenant,
			char *why)
{
	char *share = strchr(text, ':');
	uint64_t unused;
	double real;
	int r;

	if (share)
		*share++ = '\0';
	*tenant = (struct mm_wl_tenant){ .shape = mm_shape_find(text) };
	if (!tenant->shape)
		return mm_opt_choice(opt, text, strlen(text), &unused, why);
	if (!share)
		return 0;
	if (*share && share[strlen(share) - 1] == '%')
		share[strlen(share) - 1] = '\0';
	r = mm_opt_real(opt, share, &real, why);
	if (!r)
		tenant->share_permille = (uint32_t)lround(real * 10);
	return r;
}

static int shapes_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_wl_opts *o = into;
	uint32_t given = 0, without = 0;

	o->tenants = 0;
	for (char *word; (word = strsep(&text, ","));) {
		int r;

		if (o->tenants == MM_WL_TENANTS_MAX)
			return workload_refuse(why, "more than %d", MM_WL_TENANTS_MAX);
		r = tenant_parse(opt, word, &o->tenant[o->tenants], why);
		if (r)
			return r;
		given += o->tenant[o->tenants].share_permille;
		without += !o->tenant[o->tenants++].share_permille;
	}
	if (given > 1000)
		return workload_refuse(why, "the shares are %.1f %% together", given / 10.0);
	if (without && given + without > SHARE_ALL_PERMILLE)
		return workload_refuse(why, "%.1f %% leave nothing for those without a share",
				       given / 10.0);
	for (uint32_t t = 0; t < o->tenants; t++) {
		if (!o->tenant[t].share_permille)
			o->tenant[t].share_permille = (SHARE_ALL_PERMILLE - given) / without;
	}
	return 0;
}

static int rates_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_wl_given *g = &((struct mm_wl_opts *)into)->given;

	g->rates = 0;
	for (char *word; (word = strsep(&text, ",")); g->rates++) {
		int r;

		if (g->rates == MM_WL_TENANTS_MAX)
			return workload_refuse(why, "more than %d values", MM_WL_TENANTS_MAX);
		r = mm_opt_real(opt, word, &g->rate[g->rates], why);
		if (r)
			return r;
	}
	return 0;
}

static int lengths_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_wl_given *g = &((struct mm_wl_opts *)into)->given;

	(void)opt;
	g->n_lengths = 0;
	for (char *word; (word = strsep(&text, ","));) {
		if (g->n_lengths == MM_WL_TENANTS_MAX)
			return workload_refuse(why, "more than %d values", MM_WL_TENANTS_MAX);
		if (!*word)
			return workload_refuse(why, "an empty name");
		g->lengths[g->n_lengths++] = word;
	}
	return 0;
}

/* ---- the table ---- */

#define AT(field)       MM_OPT_AT(struct mm_wl_opts, field)
#define CALL(p)         .type = MM_OPT_CALL, .parse = (p)
#define NUMBER(low, up) .type = MM_OPT_NUMBER, .min = (low), .max = (up)

const struct mm_opt mm_wl_options[] = {
	{ "profile", "NAME|FILE", "the device, and with ,KEY=VALUE behind it other numbers of it",
	  MM_OPT_TEXT, AT(profile), .preset = "gh200-96", .choices = mm_wl_profile_choices,
	  .group = "Device and models" },
	{ "pool", "SIZE", "shares are shares of this much memory", MM_OPT_SIZE, AT(pool_bytes),
	  .otherwise = "the device's", .min = 1 },
	{ "combo", "NAME", "models and shares of a published case", CALL(combo_parse),
	  .choices = combo_choices, .otherwise = "C1, unless --shapes is given" },
	{ "shapes", "NAME[:SHARE%],...",
	  "models and shares of your own; those without a share divide equally what is left of "
	  "90 %",
	  CALL(shapes_parse), .choices = mm_shape_choices, .least = 0.1, .most = 100, .unit = "%" },
	{ "shares", "HOW", "how much of the memory the shares give out", MM_OPT_CHOICE,
	  AT(shares_whole), .preset = "given", .choices = shares_choices },
	{ "trace", "FILE",
	  "a CSV file whose arrival_s is used: a window of it for each tenant, scaled to its rate",
	  MM_OPT_TEXT, AT(trace_path), .otherwise = "--arrivals", .group = "Requests" },
	{ "arrivals", "NAME", "without --trace: how arrivals are made from the seed", MM_OPT_CHOICE,
	  AT(arrivals), .preset = "gaps", .choices = arrivals_choices },
	{ "lengths", "NAME|FILE,...",
	  "of all tenants, or one of each: a CSV file with prompt_tokens and output_tokens, or a "
	  "distribution",
	  CALL(lengths_parse), .choices = lengths_choices, .otherwise = "sharegpt" },
	{ "rate", "R,...", "requests/s of all tenants together, or of each", CALL(rates_parse),
	  .preset = "4", .least = 1e-3, .most = 1e6, .unit = "requests/s" },
	{ "seconds", "S", "in which requests arrive; then all are served", MM_OPT_REAL, AT(seconds),
	  .preset = "60", .least = 0.01, .most = 1e6, .unit = "s" },
	{ "windows", "N", "repeat with so many windows of the trace, and report paired ratios",
	  NUMBER(1, MM_WL_WINDOWS_MAX), AT(windows), .preset = "1" },
	{ "seed", "N", "of lengths, prompts and synthetic arrivals", NUMBER(0, UINT64_MAX >> 1),
	  AT(seed), .preset = "1" },
	{ "max-len", "TOKENS", "longest request, prompt and output", NUMBER(2, 1 << 24),
	  AT(given.max_len), .otherwise = "the model's positions" },
	{ "policy", "NAME,...", "one run each; ratios are to the first", CALL(policies_parse),
	  .preset = "recompute,elastic,remap,unlimited", .choices = policy_choices,
	  .group = "Policies and engines" },
	{ "sharing", "HOW", "how tenants share the device", MM_OPT_CHOICE, AT(sharing),
	  .preset = "temporal", .choices = sharing_choices },
	{ "turns", "HOW", "of temporal sharing", MM_OPT_CHOICE, AT(turns), .preset = "drain",
	  .choices = turns_choices },
	{ "quantum", "MS", "length of a turn", NUMBER(1, MM_WL_QUANTUM_MAX_MS), AT(quantum_ms),
	  .preset = "200", .unit = "ms" },
	{ "max-seqs", "N", "sequences that run at once", NUMBER(1, 4096), AT(max_seqs),
	  .preset = "256" },
	{ "batched-tokens", "N", "tokens of one step, at least --max-seqs", NUMBER(1, 65536),
	  AT(batched_tokens), .preset = "auto", .choices = tokens_choices },
	{ "kv-keep", "PERMILLE", "part of its share of KV that an idle engine does not give back",
	  MM_OPT_NUMBER, AT(kv_keep_permille), .max = 1000, .preset = "0", .unit = "permille" },
	{ "page", "SIZE", "mmd's unit of memory", MM_OPT_SIZE, AT(page_bytes), .preset = "16M",
	  .min = 1 },
	{ "slots", "N", "that cycling layers share", MM_OPT_CHOICE, AT(slots), .preset = "auto",
	  .choices = slots_choices },
	{ "swap", "SIZE",
	  "host memory of each tenant for KV of preempted requests, under remap and swap (0 is "
	  "none)",
	  MM_OPT_SIZE, AT(swap_bytes), .preset = "auto", .choices = swap_choices },
	{ "cold", "N",
	  "full KV blocks of each tenant that may lie in host memory, from where each step streams "
	  "them, under remap",
	  MM_OPT_NUMBER, AT(cold_entries), .preset = "0", .max = MM_COLD_MAX },
	{ "slo-ttft", "MS",
	  "goal of each request: its first token within so much and --slo-factor times the time "
	  "that it takes when it is alone",
	  NUMBER(0, GOAL_MAX_MS), AT(goal_ttft_ms), .preset = "1000", .unit = "ms",
	  .group = "Goals" },
	{ "slo-factor", "X",
	  "and its tokens so many times as far apart, in the mean, as when it is alone",
	  MM_OPT_REAL, AT(goal_factor), .preset = "5", .least = 1, .most = 1000 },
	{ "controller", "KEY=VALUE,...", "knobs of mmd's controller, as of mmd --controller",
	  CALL(controller_parse), .otherwise = "as mmd's", .group = "Controller" },
	{ "json", NULL, "print JSON instead of a table", MM_OPT_FLAG, AT(json), .group = "Output" },
	{ 0 },
};

/* ---- all of them ---- */

/* Scales shares so that they give out the whole memory but what is lost to contexts. */
static void scale_shares(struct mm_wl_opts *o)
{
	uint32_t sum = 0;

	for (uint32_t t = 0; t < o->tenants; t++)
		sum += o->tenant[t].share_permille;
	for (uint32_t t = 0; t < o->tenants; t++)
		o->tenant[t].share_permille =
			o->tenant[t].share_permille * SHARE_WHOLE_PERMILLE / sum;
}

static int settle_shapes(struct mm_wl_opts *o, char *why)
{
	char shapes[SHAPES_BYTES];
	size_t combo = 0;

	if (o->combo && o->tenants)
		return workload_refuse(why, "--combo and --shapes exclude each other");
	if (o->tenants) {
		if (o->shares_whole)
			scale_shares(o);
		return 0;
	}
	if (!o->combo)
		o->combo = combo_choices[0].name;
	while (combo_choices[combo].name != o->combo)
		combo++;
	snprintf(shapes, sizeof(shapes), "%s",
		 (o->shares_whole ? combo_whole_shapes : combo_shapes)[combo]);
	return shapes_parse(mm_opt_find(mm_wl_options, "shapes", 6), shapes, o, why);
}

static int settle_count(const struct mm_wl_opts *o, const char *name, uint32_t n, char *why)
{
	if (n == 1 || n == o->tenants)
		return 0;
	return workload_refuse(why,
			       "--%s: %u values for %u tenants; give one for all or one of each",
			       name, n, o->tenants);
}

static void settle_tenants(struct mm_wl_opts *o)
{
	const struct mm_wl_given *g = &o->given;

	for (uint32_t i = 0; i < o->tenants; i++) {
		struct mm_wl_tenant *t = &o->tenant[i];
		const uint32_t positions = t->shape->arch.max_position;

		t->rate = g->rates == 1 ? g->rate[0] / o->tenants : g->rate[i];
		t->lengths = g->lengths[g->n_lengths == 1 ? 0 : i];
		t->tokens_max = g->max_len ? MM_MIN(g->max_len, positions) : positions;
	}
}

int mm_wl_settle(struct mm_wl_opts *o, char *why)
{
	double requests = 0;
	int r = settle_shapes(o, why);

	o->block_tokens = BLOCK_TOKENS;
	if (!o->given.n_lengths)
		o->given.lengths[o->given.n_lengths++] = "sharegpt";
	if (!r)
		r = settle_count(o, "rate", o->given.rates, why);
	if (!r)
		r = settle_count(o, "lengths", o->given.n_lengths, why);
	if (r)
		return r;
	for (uint32_t p = 0; p < o->policies; p++) {
		if (o->policy[p].ideal && o->sharing != MM_WL_TEMPORAL)
			return workload_refuse(why, "policy 'ideal' is one of turns: it needs "
						    "--sharing temporal");
	}
	settle_tenants(o);
	if (o->trace_path && o->arrivals != MM_WL_GAPS)
		return workload_refuse(why, "--trace and --arrivals exclude each other");
	if (o->batched_tokens != MM_WL_TOKENS_AUTO && o->batched_tokens < o->max_seqs)
		return workload_refuse(why, "--batched-tokens %u is less than --max-seqs %u",
				       o->batched_tokens, o->max_seqs);
	for (uint32_t t = 0; t < o->tenants; t++)
		requests += o->tenant[t].rate * o->seconds;
	if (requests > REQUESTS_MAX)
		return workload_refuse(
			why, "--rate and --seconds make %.0f requests; at most 10 million",
			requests);
	return 0;
}
