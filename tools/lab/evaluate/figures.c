/* SPDX-License-Identifier: Apache-2.0 */
/* figures - the report's sections: the paper's results, these results, and why they differ. */
#include "tools/lab/evaluate/figures.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/evaluate/curves.h"
#include "tools/lab/evaluate/points.h"
#include "tools/lab/workload/stats.h"

static const struct section {
	const char *title;
	const char *paper;  /* the paper's experiment and its numbers */
	const char *differ; /* why these results differ, as far as the model explains it */
	bool averages;      /* whether to list means of ratios to recompute, as the paper does */
	bool median_too;    /* whether to list the median of TBT, too */
} section_titles[MM_EVAL_SECTIONS] = {
	[MM_EVAL_FIG8] = { "Figure 8: temporal sharing",
			   "MIRAGE on vLLM 0.7.3 and a GH200 with 96 GB, Azure coding arrivals, "
			   "Alpaca and ShareGPT. Averages over "
			   "vLLM: C1 +39.9 % throughput, −96.7 % P99 TTFT, −54.4 % P99 TBT; C2 "
			   "+45.3 %, −74.8 %, −44.8 %.",
			   "The paper states neither its rates nor how long a turn is; averages "
			   "depend on which loads enter them: at loads "
			   "where KV suffices there is nothing to gain, beyond saturation a queue "
			   "without end makes any TTFT. Its baseline is "
			   "vLLM 0.7.3 (preemption pauses all decodes); ours is vLLM V1's "
			   "behaviour (chunked prefill, nobody else waits), "
			   "which loses less to a preemption.",
			   true, false },
	[MM_EVAL_FIG9] = { "Figure 9: unequal rates",
			   "C2 with different rates of its two models: on average +86.7 % "
			   "throughput, −82.5 % P99 TBT, −99.3 % P99 TTFT.",
			   "The pairs of rates are not stated there; here 1:1, 1:4 and 4:1.", true,
			   false },
	[MM_EVAL_FIG10] = { "Figure 10: short and long requests",
			    "C2, one model with requests of 634 tokens, the other of 1,734 on "
			    "average, and the reverse: on average +65.6 % "
			    "throughput, −57.1 % P99 TBT, −98.1 % P99 TTFT.",
			    "How the tokens divide into prompt and output is not stated; here as "
			    "in ShareGPT, 18 % are output.",
			    true, false },
	[MM_EVAL_FIG11] = { "Figure 11: whose layers go first, MRU or LRU",
			    "C1 by round robin: MRU has an up to 22.0 % lower tail latency than "
			    "LRU.",
			    "The paper's LRU takes from the model that is served next, whose "
			    "layers then come back during its first step. Here "
			    "layers that are needed for the next turn are returned in bulk where "
			    "that pays, so less hangs on the order.",
			    false, false },
	[MM_EVAL_FIG12] = { "Figure 12: spatial sharing without isolation (MPS)",
			    "C1: on average −65.5 % P99 TBT, −20.7 % P99 TTFT, +6.6 % throughput.",
			    "All models compute at once and alternate layer by layer here; that "
			    "compute-bound and memory-bound kernels "
			    "overlap on a real device is not modelled.",
			    true, false },
	[MM_EVAL_FIG13] = { "Figure 13: spatial sharing with isolation (MIG)",
			    "C1: on average −57.4 % P99 TBT, −34.8 % P99 TTFT, +7.9 % throughput.",
			    "Each model has its fraction of memory, compute and link here; MIG's "
			    "real slices are sevenths.",
			    true, false },
	[MM_EVAL_FIG15] = { "Figure 15: one slot or two",
			    "OPT-13B, Alpaca: always m = α + 1 loses up to 12.7 % throughput "
			    "against m = α + 2 or choosing.",
			    "By the exact expressions one slot is looser only while (α + 1)(α + 2) "
			    "< n; what is chosen follows measured times.",
			    false, false },
	[MM_EVAL_FIG16] = { "Figure 16: Dynamic Reversion on and off",
			    "OPT-13B, Alpaca: at 1 request/s P50 TBT falls by 49 %; at 10 hardly "
			    "anything changes.",
			    "Without reversion layers that were taken once stay away; how much "
			    "that costs depends on whether the window "
			    "has a burst that takes them.",
			    false, true },
	[MM_EVAL_FIG17] = { "Figure 17: capped or not",
			    "OPT-13B, Alpaca, 10 requests/s: the cap lowers P99 latency by 58 % "
			    "and P50 by 44 %.",
			    "A single model has nobody idle to take from: what is capped here is "
			    "what it takes from itself.",
			    false, true },
	[MM_EVAL_PCIE] = { "PCIe", "Not in the paper, whose argument rests on NVLink-C2C.",
			   "Ours alone: h200-pcie5 with its pool limited to 96 GiB, so that memory "
			   "is short, and an A100.",
			   true, false },
	[MM_EVAL_LINK] = { "How much hangs on the link's bandwidth",
			   "Published measurements of a GH200's link run from 300 to 427 GB/s.", "",
			   false, false },
	[MM_EVAL_ABLATION] = { "Decisions beyond the paper, each switched off", "Not in the paper.",
			       "Every switch of `mmd --controller` that is on by default, off by "
			       "itself.",
			       false, false },
	[MM_EVAL_GRID] = { "Never worse", "Not in the paper.",
			   "Every profile, combination, length mix and way of sharing, from idle "
			   "to twice what the "
			   "device could serve at most.",
			   false, false },
};

static const struct metric {
	const char *title, *key;
	double scale;
	int digits;
	bool median;
} metrics[] = {
	{ "output tokens/s", "throughput_tok_s", 1, 1, false },
	{ "goodput, tokens/s", "goodput_tok_s", 1, 1, false },
	{ "P99 TTFT, s", "ttft_p99_s", 1, 3, false },
	{ "P99 TBT, ms", "tbt_p99_s", 1e3, 1, false },
	{ "P50 TBT, ms", "tbt_p50_s", 1e3, 2, true },
};

struct chart {
	const struct mm_eval *eval;
	enum mm_eval_section section;
	const char *name;
	struct mm_eval_curve curve[MM_EVAL_CURVES_MAX];
	uint32_t curves;
	double rate[MM_EVAL_RATES_MAX];
	uint32_t rates;
	bool by_policy;
};

static const struct mm_eval_point *chart_point(const struct chart *c, uint32_t curve, uint32_t rate)
{
	return mm_eval_find(c->eval, c->section, c->name, c->curve[curve].variant, c->rate[rate]);
}

static void cell_print(FILE *out, double value, int digits)
{
	if (isfinite(value))
		fprintf(out, " %.*f |", digits, value);
	else
		fprintf(out, " – |");
}

static void head_row(const struct chart *c, const char *title, const char *more, int n_more,
		     FILE *out)
{
	fprintf(out, "\n%s:\n\n| requests/s |", title);
	for (uint32_t k = 0; k < c->curves; k++)
		fprintf(out, " %s |", c->curve[k].label);
	fprintf(out, "%s\n|---|", more);
	for (uint32_t k = 0; k < c->curves + (uint32_t)n_more; k++)
		fputs("---|", out);
	fputc('\n', out);
}

/* Prints G, the share of the certified bound, and whether weights can make room for the demand. */
static void judgement_print(const struct mm_eval_point *p, FILE *out)
{
	cell_print(out, p && p->json ? mm_eval_gain(p, "remap") : NAN, 3);
	cell_print(out,
		   p && p->json ? mm_eval_value(p, "remap", "throughput_tok_s") / p->bound_tok_s
				: NAN,
		   3);
	fprintf(out, " %s |",
		p && p->json && mm_eval_has(p, "unlimited") ? (mm_eval_fits(p) ? "yes" : "no")
							    : "–");
}

static void metric_table_print(const struct chart *c, const struct metric *m, FILE *out)
{
	const bool checked = c->by_policy && m == &metrics[0];

	head_row(c, m->title, checked ? " G | of bound | fits |" : "", checked ? 3 : 0, out);
	for (uint32_t r = 0; r < c->rates; r++) {
		fprintf(out, "| %.4g |", c->rate[r]);
		for (uint32_t k = 0; k < c->curves; k++) {
			const struct mm_eval_point *p = chart_point(c, k, r);

			cell_print(out,
				   p ? m->scale * mm_eval_value(p, c->curve[k].policy, m->key)
				     : NAN,
				   m->digits);
		}
		if (checked)
			judgement_print(chart_point(c, 0, r), out);
		fputc('\n', out);
	}
}

static void traffic_table_print(const struct chart *c, FILE *out)
{
	head_row(c, "preemptions / GiB streamed / plan changes", "", 0, out);
	for (uint32_t r = 0; r < c->rates; r++) {
		fprintf(out, "| %.4g |", c->rate[r]);
		for (uint32_t k = 0; k < c->curves; k++) {
			const struct mm_eval_point *p = chart_point(c, k, r);
			const char *policy = c->curve[k].policy;

			if (p && mm_eval_has(p, policy))
				fprintf(out, " %.0f / %.0f / %.0f |",
					mm_eval_value(p, policy, "preemptions"),
					mm_eval_value(p, policy, "bytes_streamed") / 0x1p30,
					mm_eval_value(p, policy, "plan_changes"));
			else
				fputs(" – |", out);
		}
		fputc('\n', out);
	}
}

static void failures_print(const struct chart *c, FILE *out)
{
	for (size_t i = 0; i < c->eval->n; i++) {
		const struct mm_eval_point *p = &c->eval->point[i];

		if (p->section == c->section && !strcmp(p->chart, c->name) && *p->failure)
			fprintf(out, "\n**Failed**: `mmsim %s`: %s\n", p->line, p->failure);
	}
}

static int write_chart(struct chart *c, FILE *out)
{
	const char *section = mm_eval_section_name(c->section);
	int r = 0;

	fprintf(out, "\n### %s\n", c->name);
	failures_print(c, out);
	if (c->eval->plots) {
		r = mm_eval_plot(c->eval, c->section, c->name);
		fprintf(out, "\n![%s %s](figures/%s-%s.svg)\n", section, c->name, section, c->name);
	}
	for (size_t m = 0; m < MM_ARRAY_SIZE(metrics); m++) {
		if (!metrics[m].median || section_titles[c->section].median_too)
			metric_table_print(c, &metrics[m], out);
	}
	traffic_table_print(c, out);
	return r;
}

/* ---- averages, as the paper states them ---- */

struct average {
	double log_throughput, log_ttft, log_tbt;
	uint32_t n;
};

/* Means over points are means of logarithms, so that 2 and 1/2 average to 1. */
static void add_average(struct average *a, const struct mm_eval_point *p)
{
	const double throughput = mm_eval_value(p, "remap", "throughput_tok_s") /
				  mm_eval_value(p, "recompute", "throughput_tok_s");
	const double ttft = mm_eval_value(p, "remap", "ttft_p99_s") /
			    mm_eval_value(p, "recompute", "ttft_p99_s");
	const double tbt =
		mm_eval_value(p, "remap", "tbt_p99_s") / mm_eval_value(p, "recompute", "tbt_p99_s");

	if (!(throughput > 0) || !(ttft > 0) || !(tbt > 0) || !isfinite(throughput * ttft * tbt))
		return;
	a->log_throughput += log(throughput);
	a->log_ttft += log(ttft);
	a->log_tbt += log(tbt);
	a->n++;
}

static void write_average(const struct average *a, const char *what, FILE *out)
{
	if (!a->n)
		return;
	fprintf(out, "| %s | %u | %+.1f %% | %+.1f %% | %+.1f %% |\n", what, a->n,
		100 * (exp(a->log_throughput / a->n) - 1), 100 * (exp(a->log_ttft / a->n) - 1),
		100 * (exp(a->log_tbt / a->n) - 1));
}

static void averages_print(const struct mm_eval *eval, enum mm_eval_section section, FILE *out)
{
	static const char *const combos[] = { "C1", "C2" };

	fprintf(out,
		"\nOurs over recompute, geometric means over the cases below; *short* are those in "
		"which recompute preempts:\n\n"
		"| cases | n | throughput | P99 TTFT | P99 TBT |\n|---|---|---|---|---|\n");
	for (size_t c = 0; c < MM_ARRAY_SIZE(combos); c++) {
		struct average all = { 0 }, scarce = { 0 };
		char label[64];

		for (size_t i = 0; i < eval->n; i++) {
			const struct mm_eval_point *p = &eval->point[i];

			if (p->section != section || !p->json || !strstr(p->chart, combos[c]))
				continue;
			add_average(&all, p);
			if (mm_eval_value(p, "recompute", "preemptions") > 0)
				add_average(&scarce, p);
		}
		snprintf(label, sizeof(label), "%s, all loads", combos[c]);
		write_average(&all, label, out);
		snprintf(label, sizeof(label), "%s, short", combos[c]);
		write_average(&scarce, label, out);
	}
}

/* ---- all of it ---- */

static bool first_of_chart(const struct mm_eval *eval, size_t i)
{
	for (size_t k = 0; k < i; k++) {
		if (eval->point[k].section == eval->point[i].section &&
		    !strcmp(eval->point[k].chart, eval->point[i].chart))
			return false;
	}
	return true;
}

static int write_charts(struct mm_eval *eval, enum mm_eval_section section, FILE *out)
{
	int r = 0;

	for (size_t i = 0; !r && i < eval->n; i++) {
		struct chart c = { .eval = eval,
				   .section = section,
				   .name = eval->point[i].chart,
				   .by_policy = !*eval->point[i].variant };

		if (eval->point[i].section != section || !first_of_chart(eval, i))
			continue;
		c.curves = mm_eval_curves(eval, section, c.name, c.curve);
		c.rates = mm_eval_rates(eval, section, c.name, c.rate);
		r = write_chart(&c, out);
	}
	return r;
}

static bool is_there(const struct mm_eval *eval, enum mm_eval_section section)
{
	for (size_t i = 0; i < eval->n; i++) {
		if (eval->point[i].section == section)
			return true;
	}
	return false;
}

int mm_eval_figures(struct mm_eval *eval, FILE *out)
{
	int r = 0;

	for (enum mm_eval_section s = 0; !r && s < MM_EVAL_SECTIONS; s++) {
		if (!is_there(eval, s))
			continue;
		fprintf(out, "\n## %s\n\n**The paper.** %s\n", section_titles[s].title,
			section_titles[s].paper);
		if (*section_titles[s].differ)
			fprintf(out, "\n**Why ours differ.** %s\n", section_titles[s].differ);
		if (section_titles[s].averages)
			averages_print(eval, s, out);
		r = write_charts(eval, s, out);
	}
	return r;
}
