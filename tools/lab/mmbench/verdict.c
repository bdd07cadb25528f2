/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/config/config.h"
#include "libclient/support/json.h"
#include "tools/lab/common/device.h"

/* Two runs of the same case on a busy machine rarely differ by more than this. */
#define SAME 0.05
#define MIB  (1024.0 * 1024.0)

static const struct {
	const char *key, *title;
} figures[MM_VERDICT_FIGURES] = {
	[MM_VERDICT_THROUGHPUT] = { "throughput", "tokens/s" },
	[MM_VERDICT_TTFT_P50] = { "ttft_p50", "TTFT p50" },
	[MM_VERDICT_TTFT_P99] = { "ttft_p99", "TTFT p99" },
	[MM_VERDICT_TBT_P50] = { "tbt_p50", "TBT p50" },
	[MM_VERDICT_TBT_P99] = { "tbt_p99", "TBT p99" },
	[MM_VERDICT_PREEMPTIONS] = { "preemptions", "preempt." },
};

static double figure_of(const struct mm_run_result *r, enum mm_verdict_figure figure)
{
	switch (figure) {
	case MM_VERDICT_THROUGHPUT:
		return r->latency.throughput_tok_s;
	case MM_VERDICT_TTFT_P50:
		return r->latency.ttft_p50_s;
	case MM_VERDICT_TTFT_P99:
		return r->latency.ttft_p99_s;
	case MM_VERDICT_TBT_P50:
		return r->latency.tbt_p50_s;
	case MM_VERDICT_TBT_P99:
		return r->latency.tbt_p99_s;
	default:
		return (double)r->preemptions;
	}
}

double mm_verdict_ratio(const struct mm_run_result *run, const struct mm_run_result *base,
			enum mm_verdict_figure figure)
{
	const double of = figure_of(base, figure);

	return of > 0 ? figure_of(run, figure) / of : NAN;
}

static uint32_t policy_index(const struct mm_report *report, enum mm_policy policy,
			     uint32_t otherwise)
{
	for (uint32_t i = 0; i < report->opts->n_policies; i++) {
		if (report->result[i].policy == policy)
			return i;
	}
	return otherwise;
}

uint32_t mm_verdict_base(const struct mm_report *report)
{
	return policy_index(report, MM_POLICY_RECOMPUTE, 0);
}

/* ---- the table ---- */

static void ratios_print(FILE *out, const struct mm_report *report, uint32_t base)
{
	const struct mm_run_result *b = &report->result[base];

	fprintf(out, "\nratio to %s\n%-13s", mm_policy_name(b->policy), "policy");
	for (size_t i = 0; i < MM_VERDICT_FIGURES; i++)
		fprintf(out, " %9s", figures[i].title);
	fputc('\n', out);
	for (uint32_t p = 0; p < report->opts->n_policies; p++) {
		if (p == base)
			continue;
		fprintf(out, "%-13s", mm_policy_name(report->result[p].policy));
		for (enum mm_verdict_figure i = 0; i < MM_VERDICT_FIGURES; i++) {
			const double ratio = mm_verdict_ratio(&report->result[p], b, i);

			if (isnan(ratio))
				fprintf(out, " %9s", "-");
			else
				fprintf(out, " %9.3f", ratio);
		}
		fputc('\n', out);
	}
	fprintf(out, "tokens/s: above 1 is better; all others: below 1\n");
}

/* ---- the words ---- */

struct verdict_print {
	FILE *out;
	const struct mm_report *report;
	const struct mm_run_result *run, *base;
	const char *name, *base_name;
};

static bool is_same(double ratio)
{
	return ratio > 1 - SAME && ratio < 1 / (1 - SAME);
}

/* Explains why a run may be slower, as far as its numbers show it. */
static void why_slower(const struct verdict_print *w)
{
	const char *cpu = "It can be so, because the software GPU computes and copies on the same "
			  "processor cores: what streams layers\n"
			  "back takes time from what computes, where a GPU copies beside its "
			  "kernels.";

	if (w->run->bytes_streamed == 0)
		fprintf(w->out,
			" No layer was streamed, so that this is not the price of the mechanism: "
			"something else\n"
			"used the machine, or the batches differed.");
	else if (mm_device_is_software(w->report->opts->driver))
		fprintf(w->out, " %s", cpu);
	else
		fprintf(w->out, " Its streams waited %.2f s for layers in all.",
			w->run->stall_total_s);
	fprintf(w->out, " --repeat 3 runs each three times and\nreports the median.");
}

static void print_throughput(const struct verdict_print *w)
{
	const double ratio = mm_verdict_ratio(w->run, w->base, MM_VERDICT_THROUGHPUT);

	if (isnan(ratio))
		return;
	fprintf(w->out, "- Throughput: ");
	if (is_same(ratio))
		fprintf(w->out, "about the same, %.1f tokens/s against %.1f.",
			w->run->latency.throughput_tok_s, w->base->latency.throughput_tok_s);
	else
		fprintf(w->out, "%.0f %% %s tokens/s, %.1f against %.1f.", 100 * fabs(ratio - 1),
			ratio > 1 ? "more" : "fewer", w->run->latency.throughput_tok_s,
			w->base->latency.throughput_tok_s);
	if (ratio < 1 && !is_same(ratio))
		why_slower(w);
	fputc('\n', w->out);
}

/* Prints by how much a latency differs, with both numbers. @less, @more: "sooner" and "later". */
static void print_latency(const struct verdict_print *w, enum mm_verdict_figure figure,
			  const char *what, const char *less, const char *more)
{
	const double ratio = mm_verdict_ratio(w->run, w->base, figure);
	const double got = figure_of(w->run, figure), had = figure_of(w->base, figure);

	fprintf(w->out, "- %s: ", what);
	if (isnan(ratio))
		fprintf(w->out, "nothing to compare with.");
	else if (is_same(ratio))
		fprintf(w->out, "about the same, %.3g s against %.3g s.", got, had);
	else if (!(got > 0))
		fprintf(w->out, "none instead of %.3g s.", had);
	else
		fprintf(w->out, "%.3g s instead of %.3g s, %.1f times %s.", got, had,
			ratio < 1 ? 1 / ratio : ratio, ratio < 1 ? less : more);
}

static double tokens_per_step(const struct mm_run_result *r)
{
	return r->steps ? (double)r->latency.tokens / (double)r->steps : 0;
}

/* More memory allows larger batches, whose steps take longer. */
static void print_gaps(const struct verdict_print *w)
{
	const double got = tokens_per_step(w->run), had = tokens_per_step(w->base);

	print_latency(w, MM_VERDICT_TBT_P50, "Between two tokens, the median", "sooner", "later");
	if (mm_verdict_ratio(w->run, w->base, MM_VERDICT_TBT_P50) > 1 / (1 - SAME) && had > 0 &&
	    got > had / (1 - SAME))
		fprintf(w->out,
			" A step takes longer because it carries more: %.1f tokens, not %.1f.", got,
			had);
	fputc('\n', w->out);
	print_latency(w, MM_VERDICT_TBT_P99, "Between two tokens, of the slowest 1 %", "sooner",
		      "later");
	fputc('\n', w->out);
}

static void print_preemptions(const struct verdict_print *w)
{
	const uint64_t got = w->run->preemptions, had = w->base->preemptions;

	if (!got && !had)
		fprintf(w->out,
			"- Thrown out: nothing, under neither: memory was not short in this run, "
			"and there was nothing to win.\n");
	else
		fprintf(w->out,
			"- Thrown out: requests lost their KV %" PRIu64 " times instead of %" PRIu64
			"; each time it was computed again%s.\n",
			got, had, w->run->swapped_in_bytes ? ", or copied back" : "");
}

static void print_price(const struct verdict_print *w)
{
	if (w->run->policy != MM_POLICY_REMAP)
		return;
	if (!w->run->layers_remapped_max)
		fprintf(w->out, "- The price: none, no layer was away.\n");
	else
		fprintf(w->out,
			"- The price: up to %" PRIu64 " layers were away at one time, and "
			"%.1f MiB of them were streamed back, for which streams\n"
			"  waited %.2f s in all.\n",
			w->run->layers_remapped_max, (double)w->run->bytes_streamed / MIB,
			w->run->stall_total_s);
}

static void print_tokens(const struct verdict_print *w)
{
	if (w->report->token_mismatches)
		fprintf(w->out,
			"- Tokens: %" PRIu64 " DIFFER between the policies. That is a fault: "
			"please report it, with the command and its seed.\n",
			w->report->token_mismatches);
	else
		fprintf(w->out,
			"- Tokens: not one of %" PRIu64
			" differs; a policy changes when they come, not which they are.\n",
			w->base->latency.tokens);
}

static void print_next(const struct verdict_print *w)
{
	fprintf(w->out, "\nWhat to try next\n");
	if (!w->base->preemptions)
		fprintf(w->out, "- make memory short: a smaller --pool, or --token-scale 2\n");
	else
		fprintf(w->out,
			"- more or less memory (--pool), and another trace (--seed, --duration): "
			"where memory is not short, nothing is to be won\n");
	if (w->report->opts->repeat == 1)
		fprintf(w->out, "- --repeat 3 on a machine that does nothing else: how much of "
				"this was chance\n");
	if (mm_device_is_software(w->report->opts->driver))
		fprintf(w->out,
			"- mmsim --profile gh200-96 --combo C2 --sharing spatial --rate 1: what "
			"a GPU would do\n");
}

void mm_verdict_print(FILE *out, const struct mm_report *report)
{
	const uint32_t base = mm_verdict_base(report), last = report->opts->n_policies - 1;
	uint32_t run = policy_index(report, MM_POLICY_REMAP, last);
	struct verdict_print w = { .out = out, .report = report, .base = &report->result[base] };

	if (report->opts->n_policies < 2)
		return;
	if (run == base)
		run = base == last ? 0 : last;
	w.run = &report->result[run];
	w.name = mm_policy_name(w.run->policy);
	w.base_name = mm_policy_name(w.base->policy);
	ratios_print(out, report, base);
	fprintf(out, "\nWhat it means: %s against %s\n", w.name, w.base_name);
	print_latency(&w, MM_VERDICT_TTFT_P99, "First token, of the slowest 1 % of requests",
		      "sooner", "later");
	fputc('\n', out);
	print_preemptions(&w);
	print_throughput(&w);
	print_gaps(&w);
	print_price(&w);
	print_tokens(&w);
	print_next(&w);
}

/* ---- for programs ---- */

static json_t *ratios_json(const struct mm_run_result *run, const struct mm_run_result *base)
{
	mm_cleanup(mm_json_done) json_t *json = json_object();

	for (enum mm_verdict_figure i = 0; i < MM_VERDICT_FIGURES; i++) {
		const double ratio = mm_verdict_ratio(run, base, i);

		if (mm_json_put(json, figures[i].key,
				isnan(ratio) ? json_null() : json_real(ratio)))
			return NULL;
	}
	return mm_json_take(&json);
}

json_t *mm_verdict_json(const struct mm_report *report)
{
	const uint32_t base = mm_verdict_base(report);
	mm_cleanup(mm_json_done) json_t *json = json_object();

	for (uint32_t p = 0; p < report->opts->n_policies; p++) {
		if (p == base)
			continue;
		if (mm_json_put(json, mm_policy_name(report->result[p].policy),
				ratios_json(&report->result[p], &report->result[base])))
			return NULL;
	}
	return mm_json_take(&json);
}
