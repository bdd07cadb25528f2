/* SPDX-License-Identifier: Apache-2.0 */
/* points - lists the cases that the evaluation runs. */
#include "tools/lab/evaluate/points.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/knobs.h"
#include "tools/lab/evaluate/curves.h"

#define ALL_POLICIES  "recompute,elastic,swap,naive,naive-bounded,remap,unlimited"
#define SAFE_POLICIES "recompute,elastic,remap,unlimited"

/* Number of requests from which the highest rate that a device can serve is computed. */
#define SATURATION_REQUESTS 3000.0

static const char *const section_names[MM_EVAL_SECTIONS] = {
	[MM_EVAL_FIG8] = "fig8",        [MM_EVAL_FIG9] = "fig9",   [MM_EVAL_FIG10] = "fig10",
	[MM_EVAL_FIG11] = "fig11",      [MM_EVAL_FIG12] = "fig12", [MM_EVAL_FIG13] = "fig13",
	[MM_EVAL_FIG15] = "fig15",      [MM_EVAL_FIG16] = "fig16", [MM_EVAL_FIG17] = "fig17",
	[MM_EVAL_PCIE] = "pcie",        [MM_EVAL_LINK] = "link",   [MM_EVAL_ABLATION] = "ablation",
	[MM_EVAL_GRID] = "never-worse",
};

const char *mm_eval_section_name(enum mm_eval_section section)
{
	return section_names[section];
}

static bool section_is_wanted(const struct mm_eval *eval, enum mm_eval_section section)
{
	const char *name = section_names[section], *at = eval->opts.only;
	const size_t n = strlen(name);

	if (!at)
		return true;
	for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		if (!strncmp(at, name, n) && (at[n] == ',' || !at[n]))
			return true;
	}
	return false;
}

static int parse_line(const char *line, struct mm_wl_opts *ret_opts, char *copy, size_t copy_bytes)
{
	static const struct mm_opt_command command = { .name = "",
						       .sets = { { mm_wl_options, 0 } } };
	static const struct mm_opt_program program = { .name = "mmbench evaluate",
						       .commands = &command,
						       .n_commands = 1 };
	char *argv[96] = { (char *)"mmsim" }, *rest = copy, why[MM_OPT_ERROR_BYTES];
	struct mm_opt_line unused;
	int argc = 1;

	snprintf(copy, copy_bytes, "%s", line);
	for (char *word; argc < 95 && (word = strsep(&rest, " "));) {
		if (*word)
			argv[argc++] = word;
	}
	memset(ret_opts, 0, sizeof(*ret_opts));
	if (mm_opt_parse(&program, argc, argv, ret_opts, &unused, why) == MM_OPT_RUN &&
	    !mm_wl_settle(ret_opts, why))
		return 0;
	fprintf(stderr, "mmbench evaluate: %s\n", why);
	return -EINVAL;
}

struct line_setting { /* a line of flags, parsed */
	struct mm_wl_opts opts;
	struct mm_profile profile;
	struct mm_wl_sizes sizes;
	struct mm_wl_source source;
	char copy[MM_EVAL_LINE_BYTES]; /* opts point into it */
};

static void setting_done(struct line_setting *s)
{
	mm_wl_source_done(&s->source);
}

/*
 * Parses a line. @requests: one window with so many requests of all tenants together, made from the
 * seed; 0: the windows of the line.
 */
static int setting_make(struct line_setting *s, const char *line, double requests)
{
	char why[1024] = "";
	double sum = 0;
	int r = parse_line(line, &s->opts, s->copy, sizeof(s->copy));

	if (r)
		return -EINVAL;
	for (uint32_t t = 0; t < s->opts.tenants; t++)
		sum += s->opts.tenant[t].rate;
	if (requests > 0) {
		s->opts.trace_path = NULL;
		s->opts.windows = 1;
		s->opts.seconds = requests / sum;
	}
	r = mm_profile_load(s->opts.profile, &s->profile, why, sizeof(why));
	if (!r)
		r = mm_wl_sizes(&s->opts, s->profile.memory_bytes, &s->sizes, why, sizeof(why));
	if (!r)
		r = mm_wl_source_open(&s->opts, &s->source, why, sizeof(why));
	if (r)
		fprintf(stderr, "mmbench: %s: %s\n", line, why);
	return r;
}

static int window_bound(const struct line_setting *s, uint32_t window, struct mm_wl_bound *ret)
{
	mm_cleanup(mm_wl_case_done) struct mm_wl_case c = { 0 };
	char why[256];
	int r = mm_wl_case_make(&s->opts, &s->source, window, &c, why, sizeof(why));

	if (r)
		fprintf(stderr, "mmbench: %s\n", why);
	else
		mm_wl_bound(&s->opts, &s->sizes, &s->profile, &c, true, ret);
	return r;
}

/* Computes the rate of load 1: the requests/s that a device which never waits could serve. */
static int saturation_parse(const char *line, double *ret_rate)
{
	mm_cleanup(setting_done) struct line_setting s = { 0 };
	struct mm_wl_bound bound;
	int r = setting_make(&s, line, SATURATION_REQUESTS);

	if (!r)
		r = window_bound(&s, 0, &bound);
	if (!r)
		*ret_rate = SATURATION_REQUESTS / bound.busy_s;
	return r;
}

int mm_eval_check(struct mm_eval_point *p)
{
	mm_cleanup(setting_done) struct line_setting s = { 0 };
	double tokens = 0, seconds = 0;
	int r = setting_make(&s, p->line, 0);

	for (uint32_t w = 0; !r && w < s.opts.windows; w++) {
		struct mm_wl_bound bound;

		r = window_bound(&s, w, &bound);
		if (r)
			break;
		seconds += bound.seconds;
		tokens += bound.throughput_tok_s * bound.seconds;
	}
	if (r)
		return r;
	p->bound_tok_s = tokens / seconds;
	p->kv_fits_bytes = (double)mm_wl_lendable(&s.opts, &s.sizes, &s.profile);
	for (uint32_t t = 0; t < s.opts.tenants; t++)
		p->kv_fits_bytes += (double)s.sizes.tenant[t].kv_share_bytes;
	return 0;
}

/* Rounds a rate to three significant digits, so that it is easy to type. */
static double rate_round(double rate)
{
	const double unit = pow(10, floor(log10(rate)) - 2);

	return round(rate / unit) * unit;
}

static struct mm_eval_point *new_point(struct mm_eval *eval)
{
	if (eval->n == eval->room) {
		const size_t room = MM_MAX(2 * eval->room, (size_t)64);
		struct mm_eval_point *all = realloc(eval->point, room * sizeof(*all));

		if (!all)
			return NULL;
		eval->point = all;
		eval->room = room;
	}
	memset(&eval->point[eval->n], 0, sizeof(*eval->point));
	return &eval->point[eval->n++];
}

struct curve {
	enum mm_eval_section section;
	const char *chart, *variant;
	const char *policies;
	const char *flags; /* the case, without rate, policies and shared flags */
	const char *parts; /* each tenant's part of the rate: "1:3"; NULL: equal parts */
};

/* Divides a rate among tenants: "1:3" and 4 requests/s give "1,3". */
static int write_rates(const char *parts, double rate, char *out, size_t bytes)
{
	double sum = 0;
	size_t at = 0;

	if (!parts)
		return snprintf(out, bytes, "%.6g", rate);
	for (const char *p = parts; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL)
		sum += strtod(p, NULL);
	for (const char *p = parts; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL)
		at += (size_t)snprintf(out + at, bytes - at, p == parts ? "%.6g" : ",%.6g",
				       rate * strtod(p, NULL) / sum);
	return (int)at;
}

static int add_point(struct mm_eval *eval, const struct curve *c, double load, double rate)
{
	const struct mm_eval_opts *o = &eval->opts;
	struct mm_eval_point *p = new_point(eval);
	char rates[128];

	if (!p)
		return -ENOMEM;
	write_rates(c->parts, rate, rates, sizeof(rates));
	p->section = c->section;
	p->load = load;
	p->rate = rate;
	snprintf(p->chart, sizeof(p->chart), "%s", c->chart);
	snprintf(p->variant, sizeof(p->variant), "%s", c->variant);
	snprintf(p->id, sizeof(p->id), "%s-%s%s%s-%.6g", section_names[c->section], c->chart,
		 *c->variant ? "-" : "", c->variant, rate);
	snprintf(p->line, sizeof(p->line),
		 "%s --rate %s --policy %s --seconds %g --windows %u --seed %llu%s%s", c->flags,
		 rates, c->policies, o->seconds, o->windows, (unsigned long long)o->seed,
		 o->trace_path ? " --trace " : "", o->trace_path ? o->trace_path : "");
	return 0;
}

/* Adds a curve's points. Load 1 is the most that the device could serve with the flags @like. */
static int add_loads(struct mm_eval *eval, const struct curve *c, const char *like,
		     const double *loads, size_t n)
{
	char line[MM_EVAL_LINE_BYTES], rates[128];
	double most = 0;
	int r;

	if (!section_is_wanted(eval, c->section))
		return 0;
	write_rates(c->parts, 3, rates, sizeof(rates));
	snprintf(line, sizeof(line), "%s --rate %s --seed %llu", like, rates,
		 (unsigned long long)eval->opts.seed);
	r = saturation_parse(line, &most);
	for (size_t i = 0; !r && i < n; i++)
		r = add_point(eval, c, loads[i], rate_round(most * loads[i]));
	return r;
}

static int add_curve(struct mm_eval *eval, const struct curve *c, const double *loads, size_t n)
{
	return add_loads(eval, c, c->flags, loads, n);
}

static int add_rates(struct mm_eval *eval, const struct curve *c, const double *rates, size_t n)
{
	int r = 0;

	for (size_t i = 0; !r && section_is_wanted(eval, c->section) && i < n; i++)
		r = add_point(eval, c, 0, rates[i]);
	return r;
}

/* ---- the sections ---- */

static const double loads_full[] = { 0.02, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2 };
static const double loads_quick[] = { 0.1, 0.35, 0.75 };
static const double loads_grid[] = { 0.02, 0.25, 1, 2 };
static const double loads_grid_quick[] = { 0.02, 1 };

#define LOADS(eval)   ((eval)->opts.quick ? loads_quick : loads_full)
#define N_LOADS(eval) ((eval)->opts.quick ? MM_ARRAY_SIZE(loads_quick) : MM_ARRAY_SIZE(loads_full))

struct combo {
	const char *label, *flags;
};

static const struct combo paper[] = { { "C1", "--combo C1" }, { "C2", "--combo C2" } };
/* Other shares than the paper's: 20 % of 80 GB cannot hold Llama-3-8B, nor 65 % OPT-30B. */
static const struct combo pair[] = { { "pair", "--shapes OPT-13B:40%,Llama-3-8B:30%" } };

static const char *lengths_of(const struct mm_eval *eval, int i)
{
	return i ? "sharegpt" : eval->opts.alpaca;
}

static const char *const lengths_label[] = { "alpaca", "sharegpt" };

/* Adds the points of @head with each combination of models, with both kinds of lengths. */
static int add_combos(struct mm_eval *eval, const struct curve *like, const struct combo *combos,
		      size_t n_combos, const double *loads, size_t n)
{
	int r = 0;

	for (size_t i = 0; !r && i < 2 * n_combos; i++) {
		char flags[512], chart[64];
		const struct curve c = { like->section, chart, "", like->policies, flags, NULL };

		snprintf(chart, sizeof(chart), "%s%s-%s", like->chart, combos[i / 2].label,
			 lengths_label[i % 2]);
		snprintf(flags, sizeof(flags), "%s %s --lengths %s", like->flags,
			 combos[i / 2].flags, lengths_of(eval, i % 2));
		r = add_curve(eval, &c, loads, n);
	}
	return r;
}

static int add_fig8(struct mm_eval *eval)
{
	const struct curve drain = { .section = MM_EVAL_FIG8,
				     .chart = "drain-",
				     .policies = ALL_POLICIES,
				     .flags = "--profile gh200-96 --turns drain" };
	const struct curve quantum = { .section = MM_EVAL_FIG8,
				       .chart = "quantum-",
				       .policies = eval->opts.quick ? SAFE_POLICIES : ALL_POLICIES,
				       .flags = "--profile gh200-96 --turns quantum" };
	int r = add_combos(eval, &drain, paper, 2, LOADS(eval), N_LOADS(eval));

	return r ? r : add_combos(eval, &quantum, paper, 2, LOADS(eval), N_LOADS(eval));
}

static int add_fig9(struct mm_eval *eval)
{
	static const char *const parts[] = { "1:1", "1:4", "4:1" };
	int r = 0;

	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(parts); i++) {
		char chart[64];
		const struct curve c = { MM_EVAL_FIG9,
					 chart,
					 "",
					 ALL_POLICIES,
					 "--profile gh200-96 --combo C2 --lengths sharegpt",
					 parts[i] };

		snprintf(chart, sizeof(chart), "C2-rates-%c-%c", parts[i][0], parts[i][2]);
		r = add_curve(eval, &c, LOADS(eval), N_LOADS(eval));
	}
	return r;
}

static int add_fig10(struct mm_eval *eval)
{
	static const char *const mixes[][2] = { { "C2-long-short", "long,short" },
						{ "C2-short-long", "short,long" } };
	int r = 0;

	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(mixes); i++) {
		char flags[256];
		const struct curve c = {
			MM_EVAL_FIG10, mixes[i][0], "", ALL_POLICIES, flags, NULL
		};

		snprintf(flags, sizeof(flags), "--profile gh200-96 --combo C2 --lengths %s",
			 mixes[i][1]);
		r = add_curve(eval, &c, LOADS(eval), N_LOADS(eval));
	}
	return r;
}

struct variant {
	const char *label, *flags;
};

/* Adds variants of a case with one flag changed, under remap, and recompute for comparison. */
static int add_variants(struct mm_eval *eval, enum mm_eval_section section, const char *chart,
			const char *head, const struct variant *v, size_t n_variants)
{
	char like[512];
	int r = 0;

	/* All variants get the rates of the first one, so that their curves can be compared. */
	snprintf(like, sizeof(like), "%s %s", head, v[0].flags);
	for (size_t i = 0; !r && i < n_variants; i++) {
		char flags[512];
		const struct curve c = {
			section, chart, v[i].label, "recompute,remap", flags, NULL
		};

		snprintf(flags, sizeof(flags), "%s %s", head, v[i].flags);
		r = add_loads(eval, &c, like, LOADS(eval), N_LOADS(eval));
	}
	return r;
}

#define VARIANTS(v) (v), MM_ARRAY_SIZE(v)

static int add_fig11(struct mm_eval *eval)
{
	static const struct variant orders[] = { { "mru", "--controller lend-order=mru" },
						 { "lru", "--controller lend-order=lru" } };
	char head[256];
	int r = 0;

	for (int i = 0; !r && i < 2; i++) {
		snprintf(head, sizeof(head),
			 "--profile gh200-96 --combo C1 --turns quantum --lengths %s",
			 lengths_of(eval, i));
		r = add_variants(eval, MM_EVAL_FIG11, i ? "C1-sharegpt" : "C1-alpaca", head,
				 VARIANTS(orders));
	}
	return r;
}

static int add_spatial(struct mm_eval *eval)
{
	int r = 0;

	for (int i = 0; !r && i < 4; i++) {
		char flags[256], chart[64];
		const struct curve c = {
			i / 2 ? MM_EVAL_FIG13 : MM_EVAL_FIG12, chart, "", ALL_POLICIES, flags, NULL
		};

		snprintf(chart, sizeof(chart), "C1-%s", lengths_label[i % 2]);
		snprintf(flags, sizeof(flags),
			 "--profile gh200-96 --combo C1 --sharing %s --lengths %s",
			 i / 2 ? "mig" : "spatial", lengths_of(eval, i % 2));
		r = add_curve(eval, &c, LOADS(eval), N_LOADS(eval));
	}
	return r;
}

/* Adds cases of one model with a share of the device, as in sections 7.5 and 7.6 of the paper. */
static int add_single(struct mm_eval *eval)
{
	static const struct variant slots[] = { { "one-slot", "--slots 1" },
						{ "two-slots", "--slots 2" },
						{ "chosen", "--slots auto" } };
	static const struct variant reversion[] = { { "on", "--controller reversion=on" },
						    { "off", "--controller reversion=off" } };
	static const struct variant caps[] = { { "capped", "" },
					       { "uncapped", "--controller cap=1000,link=1000" } };
	char head[256];
	int r;

	snprintf(head, sizeof(head),
		 "--profile gh200-96 --shapes OPT-13B:35%% --sharing spatial --lengths %s",
		 eval->opts.alpaca);
	r = add_variants(eval, MM_EVAL_FIG15, "OPT-13B-alpaca", head, VARIANTS(slots));
	if (!r)
		r = add_variants(eval, MM_EVAL_FIG16, "OPT-13B-alpaca", head, VARIANTS(reversion));
	if (!r)
		r = add_variants(eval, MM_EVAL_FIG17, "OPT-13B-alpaca", head, VARIANTS(caps));
	return r;
}

static int add_pcie(struct mm_eval *eval)
{
	static const double two_and_four[] = { 2, 4 };
	const struct curve stated = {
		MM_EVAL_PCIE,
		"h200-C2-sharegpt-stated",
		"",
		ALL_POLICIES,
		"--profile h200-pcie5 --pool 96G --combo C2 --lengths sharegpt",
		NULL
	};
	const struct curve h200 = { .section = MM_EVAL_PCIE,
				    .chart = "h200-",
				    .policies = ALL_POLICIES,
				    .flags = "--profile h200-pcie5 --pool 96G" };
	const struct curve a100 = { .section = MM_EVAL_PCIE,
				    .chart = "a100-",
				    .policies = SAFE_POLICIES,
				    .flags = "--profile a100-pcie4 --max-len 2048" };
	int r = add_rates(eval, &stated, two_and_four, 2);

	if (!r)
		r = add_combos(eval, &h200, paper, 2, LOADS(eval), N_LOADS(eval));
	if (!r && !eval->opts.quick)
		r = add_combos(eval, &a100, pair, 1, LOADS(eval), N_LOADS(eval));
	return r;
}

static int add_link(struct mm_eval *eval)
{
	static const struct variant links[] = { { "300", "--profile gh200-96,h2d_gbps=300" },
						{ "375", "--profile gh200-96,h2d_gbps=375" },
						{ "419", "--profile gh200-96" },
						{ "427", "--profile gh200-96,h2d_gbps=427" } };

	return add_variants(eval, MM_EVAL_LINK, "C2-sharegpt", "--combo C2 --lengths sharegpt",
			    VARIANTS(links));
}

/* Adds a variant for each knob of the controller that can be switched off. */
static int add_ablation(struct mm_eval *eval)
{
	static const char *const heads[][2] = {
		{ "gh200-C1-sharegpt", "--profile gh200-96 --combo C1 --lengths sharegpt" },
		{ "gh200-C2-sharegpt", "--profile gh200-96 --combo C2 --lengths sharegpt" },
		{ "h200-C2-sharegpt",
		  "--profile h200-pcie5 --pool 96G --combo C2 --lengths sharegpt" },
	};
	char labels[MM_EVAL_CURVES_MAX][64], flags[MM_EVAL_CURVES_MAX][96];
	struct variant v[MM_EVAL_CURVES_MAX] = { { "default", "" } };
	const struct mm_knob *knob;
	size_t n = 1;
	int r = 0;

	for (uint32_t k = 0; (knob = mm_knob_at(k)) && n < MM_EVAL_CURVES_MAX - 1; k++) {
		if (!knob->names || strcmp(knob->names[0], "on") || strcmp(knob->names[1], "off") ||
		    knob->fallback != 1)
			continue;
		snprintf(labels[n], sizeof(labels[n]), "%s-off", knob->name);
		snprintf(flags[n], sizeof(flags[n]), "--controller %s=off", knob->name);
		v[n] = (struct variant){ labels[n], flags[n] };
		n++;
	}
	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(heads); i++)
		r = add_variants(eval, MM_EVAL_ABLATION, heads[i][0], heads[i][1], v, n);
	return r;
}

static int add_grid(struct mm_eval *eval)
{
	static const struct {
		const char *label, *flags;
		const struct combo *combos;
		size_t n;
	} devices[] = {
		{ "gh200", "--profile gh200-96", paper, 2 },
		{ "h200", "--profile h200-pcie5 --pool 96G", paper, 2 },
		{ "h100", "--profile h100-pcie5 --max-len 2048", pair, 1 },
		{ "a100", "--profile a100-pcie4 --max-len 2048", pair, 1 },
	};
	const double *loads = eval->opts.quick ? loads_grid_quick : loads_grid;
	const size_t n_loads =
		eval->opts.quick ? MM_ARRAY_SIZE(loads_grid_quick) : MM_ARRAY_SIZE(loads_grid);
	static const struct variant sharings[] = { { "drain", "--turns drain" },
						   { "quantum", "--turns quantum" },
						   { "spatial", "--sharing spatial" },
						   { "mig", "--sharing mig" } };
	int r = 0;

	for (size_t d = 0; !r && d < (eval->opts.quick ? 2 : MM_ARRAY_SIZE(devices)); d++) {
		for (size_t s = 0; !r && s < MM_ARRAY_SIZE(sharings); s++) {
			char head[256], prefix[32];
			const struct curve c = { .section = MM_EVAL_GRID,
						 .chart = prefix,
						 .policies = SAFE_POLICIES,
						 .flags = head };

			snprintf(head, sizeof(head), "%s %s", devices[d].flags, sharings[s].flags);
			snprintf(prefix, sizeof(prefix), "%s-%s-", devices[d].label,
				 sharings[s].label);
			r = add_combos(eval, &c, devices[d].combos, devices[d].n, loads, n_loads);
		}
	}
	return r;
}

int mm_eval_points(struct mm_eval *eval)
{
	static int (*const add[])(
		struct mm_eval *) = { add_fig8,   add_fig9, add_fig10, add_fig11,    add_spatial,
				      add_single, add_pcie, add_link,  add_ablation, add_grid };
	int r = 0;

	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(add); i++)
		r = add[i](eval);
	return r;
}

void mm_eval_done(struct mm_eval *eval)
{
	for (size_t i = 0; i < eval->n; i++)
		json_decref(eval->point[i].json);
	free(eval->point);
	eval->point = NULL;
	eval->n = eval->room = 0;
}
