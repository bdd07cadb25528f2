/* SPDX-License-Identifier: Apache-2.0 */
/* curves - points as charts: their curves, their rates, and a plot of each chart. */
#include "tools/lab/evaluate/curves.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/evaluate/points.h"
#include "libclient/base/percentile.h"

/* Policies in the order of the legend. */
static const char *const policy_order[] = { "recompute",     "elastic", "swap",     "naive",
					    "naive-bounded", "remap",   "unlimited" };

static bool of_chart(const struct mm_eval_point *p, enum mm_eval_section section, const char *chart)
{
	return p->section == section && !strcmp(p->chart, chart);
}

const struct mm_eval_point *mm_eval_find(const struct mm_eval *eval, enum mm_eval_section section,
					 const char *chart, const char *variant, double rate)
{
	for (size_t i = 0; i < eval->n; i++) {
		const struct mm_eval_point *p = &eval->point[i];

		if (of_chart(p, section, chart) && !strcmp(p->variant, variant) &&
		    fabs(p->rate - rate) < 1e-9 * rate)
			return p;
	}
	return NULL;
}

uint32_t mm_eval_rates(const struct mm_eval *eval, enum mm_eval_section section, const char *chart,
		       double ret[MM_EVAL_RATES_MAX])
{
	uint32_t n = 0;

	for (size_t i = 0; i < eval->n && n < MM_EVAL_RATES_MAX; i++) {
		bool known = !of_chart(&eval->point[i], section, chart);

		for (uint32_t k = 0; k < n; k++)
			known = known || fabs(ret[k] - eval->point[i].rate) < 1e-9 * ret[k];
		if (!known)
			ret[n++] = eval->point[i].rate;
	}
	qsort(ret, n, sizeof(*ret), mm_double_compare);
	return n;
}

static uint32_t by_policy(const struct mm_eval *eval, enum mm_eval_section section,
			  const char *chart, struct mm_eval_curve ret[MM_EVAL_CURVES_MAX])
{
	uint32_t n = 0;

	for (size_t k = 0; k < MM_ARRAY_SIZE(policy_order); k++) {
		for (size_t i = 0; i < eval->n; i++) {
			if (!of_chart(&eval->point[i], section, chart) ||
			    !mm_eval_has(&eval->point[i], policy_order[k]))
				continue;
			ret[n++] = (struct mm_eval_curve){ policy_order[k], "", policy_order[k] };
			break;
		}
	}
	return n;
}

uint32_t mm_eval_curves(const struct mm_eval *eval, enum mm_eval_section section, const char *chart,
			struct mm_eval_curve ret[MM_EVAL_CURVES_MAX])
{
	uint32_t n = 0;

	for (size_t i = 0; i < eval->n; i++) {
		const struct mm_eval_point *p = &eval->point[i];
		bool known = false;

		if (!of_chart(p, section, chart))
			continue;
		if (!*p->variant)
			return by_policy(eval, section, chart, ret);
		if (!n)
			ret[n++] = (struct mm_eval_curve){ "recompute", p->variant, "recompute" };
		for (uint32_t k = 1; k < n; k++)
			known = known || !strcmp(ret[k].variant, p->variant);
		if (!known && n < MM_EVAL_CURVES_MAX)
			ret[n++] = (struct mm_eval_curve){ p->variant, p->variant, "remap" };
	}
	return n;
}

/* ---- plots ---- */

static const struct {
	const char *key, *label;
	double scale;
	bool log;
} panels[] = {
	{ "tbt_p99_s", "P99 TBT (ms)", 1e3, true },
	{ "ttft_p99_s", "P99 TTFT (s)", 1, true },
	{ "throughput_tok_s", "output tokens/s", 1, false },
};

/* Writes a block per curve, with a line per point: its rate and the value of each panel. */
static int write_data(const struct mm_eval *eval, enum mm_eval_section section, const char *chart,
		      const struct mm_eval_curve *curve, uint32_t n, const char *path)
{
	double rates[MM_EVAL_RATES_MAX];
	const uint32_t n_rates = mm_eval_rates(eval, section, chart, rates);
	FILE *file = fopen(path, "we");

	if (!file)
		return -errno;
	for (uint32_t c = 0; c < n; c++) {
		fprintf(file, "# %s\n", curve[c].label);
		for (uint32_t r = 0; r < n_rates; r++) {
			const struct mm_eval_point *p =
				mm_eval_find(eval, section, chart, curve[c].variant, rates[r]);

			if (!p || !mm_eval_has(p, curve[c].policy))
				continue;
			fprintf(file, "%.6g", rates[r]);
			for (size_t i = 0; i < MM_ARRAY_SIZE(panels); i++)
				fprintf(file, " %.6g",
					panels[i].scale *
						mm_eval_value(p, curve[c].policy, panels[i].key));
			fputc('\n', file);
		}
		fputs("\n\n", file);
	}
	return fclose(file) ? -errno : 0;
}

static int write_script(const struct mm_eval_curve *curve, uint32_t n, const char *data,
			const char *svg, const char *script)
{
	FILE *file = fopen(script, "we");

	if (!file)
		return -errno;
	fprintf(file,
		"set terminal svg size 1200,380 noenhanced background 'white'\n"
		"set output '%s'\n"
		"set multiplot layout 1,%zu\n"
		"set xlabel 'requests/s'\nset logscale x\nset grid\nset key top left\n",
		svg, MM_ARRAY_SIZE(panels));
	for (size_t i = 0; i < MM_ARRAY_SIZE(panels); i++) {
		fprintf(file, "set ylabel '%s'\n%s\nplot ", panels[i].label,
			panels[i].log ? "set logscale y" : "unset logscale y");
		for (uint32_t c = 0; c < n; c++)
			fprintf(file,
				"%s'%s' index %u using 1:%zu with linespoints lw 2 pt %u title "
				"'%s'",
				c ? ", " : "", data, c, i + 2, c + 4, curve[c].label);
		fputs("\nunset key\n", file);
	}
	fputs("unset multiplot\n", file);
	return fclose(file) ? -errno : 0;
}

/* Returns DIR/FOLDER/SECTION-CHART.SUFFIX, to be freed. */
static char *file_name(const struct mm_eval *eval, const char *folder, enum mm_eval_section section,
		       const char *chart, const char *suffix)
{
	char *path;

	if (asprintf(&path, "%s/%s/%s-%s.%s", eval->opts.out_dir, folder,
		     mm_eval_section_name(section), chart, suffix) < 0)
		return NULL;
	return path;
}

int mm_eval_plot(const struct mm_eval *eval, enum mm_eval_section section, const char *chart)
{
	mm_cleanup(mm_free_ptr) char *data = file_name(eval, "data", section, chart, "dat");
	mm_cleanup(mm_free_ptr) char *script = file_name(eval, "data", section, chart, "gp");
	mm_cleanup(mm_free_ptr) char *words = file_name(eval, "data", section, chart, "gp.err");
	mm_cleanup(mm_free_ptr) char *svg = file_name(eval, "figures", section, chart, "svg");
	mm_cleanup(mm_free_ptr) char *command = NULL;
	struct mm_eval_curve curve[MM_EVAL_CURVES_MAX];
	const uint32_t n = mm_eval_curves(eval, section, chart, curve);
	int r;

	if (!data || !script || !words || !svg)
		return -ENOMEM;
	if (asprintf(&command, "gnuplot '%s' 2>'%s'", script, words) < 0)
		return -ENOMEM;
	if (!n)
		return 0;
	r = write_data(eval, section, chart, curve, n, data);
	if (!r)
		r = write_script(curve, n, data, svg, script);
	if (r)
		return r;
	/* gnuplot fails for a chart without numbers, as it has no range. A warning will do. */
	if (system(command))
		fprintf(stderr, "mmbench: gnuplot cannot draw %s; see %s\n", svg, words);
	return 0;
}
