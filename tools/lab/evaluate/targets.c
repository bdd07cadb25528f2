/* SPDX-License-Identifier: Apache-2.0 */
/* targets - compares the results with the targets, from the runs' data. */
#include "tools/lab/evaluate/targets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/workload/stats.h"

#define GAIN_MIN    0.95
#define TTFT_MAX    1.10
#define BOUND_MIN   0.90
#define PCIE_C1_MIN 0.97
#define PCIE_C2_MIN 2.0
#define NEVER_WORSE 0.99

/* How many of a target's points reach it, and the point that is farthest from it. */
struct tally {
	uint32_t of, reached;
	double worst; /* smallest margin: value / limit, or limit / value where less is better */
	double value;
	const struct mm_eval_point *where;
};

static void tally_count(struct tally *t, const struct mm_eval_point *p, double value, double limit,
			bool less)
{
	const double margin = less ? limit / value : value / limit;

	if (!isfinite(value))
		return;
	t->of++;
	t->reached += less ? value <= limit : value >= limit;
	if (t->where && margin >= t->worst)
		return;
	t->worst = margin;
	t->value = value;
	t->where = p;
}

static void tally_print(FILE *out, const char *target, const struct tally *t)
{
	if (!t->of) {
		fprintf(out, "| %s | – | no case of this run speaks of it | |\n", target);
		return;
	}
	fprintf(out, "| %s | %s | %u of %u | %.3f at `%s` |\n", target,
		t->reached == t->of ? "reached" : "**not reached**", t->reached, t->of, t->value,
		t->where->id);
}

static bool on_gh200(const struct mm_eval_point *p)
{
	return (p->section == MM_EVAL_FIG8 || p->section == MM_EVAL_FIG12) && p->json;
}

static double ratio_of_policies(const struct mm_eval_point *p, const char *a, const char *b,
				const char *key)
{
	return mm_eval_value(p, a, key) / mm_eval_value(p, b, key);
}

static void gh200_targets_print(const struct mm_eval *eval, FILE *out)
{
	struct tally gain = { 0 }, ttft = { 0 }, beyond = { 0 };

	for (size_t i = 0; i < eval->n; i++) {
		const struct mm_eval_point *p = &eval->point[i];

		if (!on_gh200(p))
			continue;
		if (!mm_eval_fits(p)) {
			tally_count(&beyond, p,
				    mm_eval_value(p, "remap", "throughput_tok_s") / p->bound_tok_s,
				    BOUND_MIN, false);
			continue;
		}
		tally_count(&gain, p, mm_eval_gain(p, "remap"), GAIN_MIN, false);
		tally_count(&ttft, p, ratio_of_policies(p, "remap", "unlimited", "ttft_p99_s"),
			    TTFT_MAX, true);
	}
	tally_print(out, "gh200-96, demand fits what weights can give: G ≥ 0.95", &gain);
	tally_print(out, "the same: P99 TTFT ≤ 1.10 × unlimited", &ttft);
	tally_print(out, "gh200-96, beyond that: throughput ≥ 0.90 of the certified bound",
		    &beyond);
}

static void pcie_targets_print(const struct mm_eval *eval, FILE *out)
{
	struct tally c1 = { 0 }, c2 = { 0 };

	for (size_t i = 0; i < eval->n; i++) {
		const struct mm_eval_point *p = &eval->point[i];

		if (p->section != MM_EVAL_PCIE || !p->json)
			continue;
		if (!strncmp(p->chart, "h200-C1", 7))
			tally_count(&c1, p,
				    ratio_of_policies(p, "remap", "unlimited", "throughput_tok_s"),
				    PCIE_C1_MIN, false);
		if (strstr(p->chart, "stated"))
			tally_count(&c2, p,
				    ratio_of_policies(p, "remap", "recompute", "throughput_tok_s"),
				    PCIE_C2_MIN, false);
	}
	tally_print(out, "h200-pcie5, 96 GiB, C1: throughput ≥ 0.97 of unlimited", &c1);
	tally_print(out,
		    "h200-pcie5, 96 GiB, C2, ShareGPT-like, 2 and 4 requests/s: ≥ 2 × recompute",
		    &c2);
}

/* Is memory never short in this case, so that remapping must not begin? */
static bool nothing_to_gain(const struct mm_eval_point *p)
{
	return mm_eval_value(p, "recompute", "preemptions") == 0 &&
	       ratio_of_policies(p, "unlimited", "recompute", "throughput_tok_s") <= 1.001 &&
	       ratio_of_policies(p, "recompute", "unlimited", "ttft_p99_s") <= 1.01;
}

static void never_worse(const struct mm_eval *eval, FILE *out)
{
	static const char *const others[] = { "recompute", "elastic" };
	static const char *const keys[] = { "throughput_tok_s", "goodput_tok_s" };
	struct tally idle = { 0 };

	for (size_t k = 0; k < MM_ARRAY_SIZE(keys) * MM_ARRAY_SIZE(others); k++) {
		struct tally t = { 0 };
		char target[160];

		for (size_t i = 0; i < eval->n; i++) {
			const struct mm_eval_point *p = &eval->point[i];
			struct mm_ratio r;

			if (!p->json || *p->variant || !mm_eval_has(p, others[k / 2]))
				continue;
			r = mm_eval_ratio(p, "remap", others[k / 2], keys[k % 2]);
			tally_count(&t, p, r.n || r.lost ? r.low : NAN, NEVER_WORSE, false);
		}
		snprintf(target, sizeof(target),
			 "never worse than %s: %s, lower bound of the paired ratio ≥ 0.99",
			 others[k / 2], k % 2 ? "goodput" : "throughput");
		tally_print(out, target, &t);
	}
	for (size_t i = 0; i < eval->n; i++) {
		const struct mm_eval_point *p = &eval->point[i];

		if (p->json && !*p->variant && mm_eval_has(p, "unlimited") && nothing_to_gain(p))
			tally_count(&idle, p,
				    mm_eval_value(p, "remap", "bytes_streamed") > 0 ? 0 : 1, 1,
				    false);
	}
	tally_print(out, "with nothing to gain nothing is streamed (1: so it is)", &idle);
}

void mm_eval_targets(const struct mm_eval *eval, FILE *out)
{
	fprintf(out,
		"## What must be reached\n"
		"\n"
		"Computed from the runs below. G = (remap − recompute) / (unlimited − recompute) "
		"of throughput, where unlimited gains at least 2 %%. *Fits*: the most KV that "
		"was in use at one time under unlimited memory is at most the shares' KV and "
		"what weights can make room for without a step that waits "
		"(`tools/lab/workload/bound.h`). *Bound*: no schedule on this device with this "
		"memory serves these windows faster (`tools/lab/workload/bound.c` has the "
		"proof). Intervals are 95 %%, Student's, of the logarithms of paired ratios over "
		"windows.\n"
		"\n"
		"| target | | cases | farthest from it |\n"
		"|---|---|---|---|\n");
	gh200_targets_print(eval, out);
	pcie_targets_print(eval, out);
	never_worse(eval, out);
	fprintf(out,
		"\n"
		"Two more are measured by programs of their own: the time of a step within 3 %% "
		"of protocol.md's expression by `mmbench steps`, the cost of deciding by "
		"`mmbench decide`.\n");
}
