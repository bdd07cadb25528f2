/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/decide.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"
#include "tools/lab/mmbench/report.h"
#include "libclient/model/shapes.h"
#include "tools/lab/mmbench/options.h"
#include "tools/lab/stepcost/stepcost.h"
#include "tools/lab/workload/options.h"

static const char *const kind_names[MM_DECIDE_KINDS] = {
	[MM_DECIDE_STATS] = "statistics",   [MM_DECIDE_DEMAND] = "kv_wish",
	[MM_DECIDE_RELEASE] = "kv_release", [MM_DECIDE_ANSWER] = "plan_answer",
	[MM_DECIDE_JOB] = "job_done",       [MM_DECIDE_LINK] = "streamed",
	[MM_DECIDE_TICK] = "tick",
};

struct decide {
	struct mm_decide_line line;
	uint64_t step_ns; /* the shortest step */
	struct mm_decide_result result[MM_DECIDE_POINTS_MAX];
};

/* ---- options ---- */

static int points_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct mm_decide_line *line = into;

	line->points = 0;
	for (char *word; (word = strsep(&text, ","));) {
		uint64_t n;
		const int r = mm_opt_number(opt, word, &n, why);

		if (r)
			return r;
		if (line->points == MM_DECIDE_POINTS_MAX) {
			snprintf(why, MM_OPT_ERROR_BYTES, "more than %d points",
				 MM_DECIDE_POINTS_MAX);
			return -EINVAL;
		}
		line->tenants[line->points++] = (uint32_t)n;
	}
	return 0;
}

#define AT(field)       MM_OPT_AT(struct mm_decide_line, field)
#define NUMBER(low, up) .type = MM_OPT_NUMBER, .min = (low), .max = (up)

const struct mm_opt mm_decide_options[] = {
	{ "tenants", "N,...", "points of the curve, each 1 to 1000", MM_OPT_CALL,
	  .parse = points_parse, .min = 1, .max = 1000, .unit = "tenants", .preset = "1,8,64,256" },
	{ "layers", "N", "of each tenant's model", NUMBER(1, MM_LAYERS_MAX), AT(load.layers),
	  .preset = "80" },
	{ "layer-pages", "N", "pages of a layer, of 16 MiB", NUMBER(1, 64), AT(load.layer_pages),
	  .preset = "4" },
	{ "chunks", "N", "a tenant's share of KV, in pages", NUMBER(1, 64), AT(load.chunks),
	  .preset = "12" },
	{ "events", "N", "timed at each point", NUMBER(100, 1000000000), AT(load.events),
	  .preset = "40000" },
	{ "policy", "NAME", "under which the core decides", MM_OPT_CHOICE, AT(load.policy),
	  .preset = "remap", .choices = mm_bench_policy_choices },
	{ "profile", "NAME|FILE", "device of the shortest step", MM_OPT_TEXT, AT(profile),
	  .preset = "gh200-96", .choices = mm_wl_profile_choices },
	{ "shape", "NAME", "model of the shortest step: one token for one sequence", MM_OPT_CALL,
	  AT(shape), .parse = mm_shape_parse, .preset = "Llama-3-8B", .choices = mm_shape_choices },
	{ "seed", "N", "of the load", MM_OPT_NUMBER, AT(load.seed), .preset = "1" },
	{ "runs", "N", "of the same: of each event the least time counts", NUMBER(1, 100),
	  AT(load.runs), .preset = "3" },
	{ "journal", NULL, "again with a journal and images, as mmd keeps them: what they cost",
	  MM_OPT_FLAG, AT(load.journal) },
	{ "json", NULL, "print one JSON object instead of the tables", MM_OPT_FLAG, AT(json) },
	{ 0 },
};

/* ---- the step that it is compared with ---- */

static int shortest_step(struct decide *d)
{
	const struct mm_step_opts opts = { .weight_element_bytes = 2,
					   .kv_element_bytes = 2,
					   .fused = true };
	const struct mm_shape *shape = mm_shape_find(d->line.shape);
	struct mm_step_batch batch = { 0 };
	char err[MM_PROFILE_ERROR_BYTES];
	struct mm_step_model model;
	struct mm_profile profile;
	struct mm_step_ns ns;

	if (mm_profile_load(d->line.profile, &profile, err, sizeof(err)) < 0) {
		fprintf(stderr, "mmbench: --profile: %s\n", err);
		return -EINVAL;
	}
	mm_step_model_init(&model, &profile, &shape->arch, &opts);
	mm_step_batch_add(&batch, 1, 1, true);
	mm_step_cost(&model, &batch, &ns);
	d->step_ns = ns.before + shape->arch.layers * ns.layer + ns.after;
	d->line.load.step_ns = d->step_ns;
	d->line.load.page_ns = (uint64_t)((double)(16 << 20) / profile.h2d_bps * 1e9);
	return 0;
}

/* ---- report ---- */

static double per_step(const struct mm_decide_result *r)
{
	return r->steps ? r->total_ns / (double)r->steps : 0;
}

static double histogram_mean(const struct mm_histogram *h)
{
	return h->n ? h->sum / (double)h->n : 0;
}

static json_t *histogram_json(const struct mm_histogram *h)
{
	return json_pack("{sI sI sI sf sI}", "events", (json_int_t)h->n, "p50_ns",
			 (json_int_t)mm_histogram_percentile(h, 50), "p99_ns",
			 (json_int_t)mm_histogram_percentile(h, 99), "mean_ns", histogram_mean(h),
			 "most_ns", (json_int_t)h->most);
}

/* Returns how many logarithms take as long as a decision. */
static double decide_references(const struct mm_decide_result *r)
{
	uint64_t reference = mm_histogram_percentile(&r->reference, 50);

	return reference ? (double)mm_histogram_percentile(&r->decide, 50) * MM_DECIDE_REFERENCE /
				   (double)reference
			 : 0;
}

static json_t *point_json(const struct decide *d, uint32_t i)
{
	const struct mm_decide_result *r = &d->result[i];
	json_t *kinds = json_object();

	for (uint32_t k = 0; k < MM_DECIDE_KINDS; k++)
		mm_json_put(kinds, kind_names[k], histogram_json(&r->kind[k]));
	return json_pack(
		"{sI so so sI sf sf sf sI sI sI sI so so sf sf}", "tenants",
		(json_int_t)d->line.tenants[i], "all", histogram_json(&r->all), "kinds", kinds,
		"steps", (json_int_t)r->steps, "per_step_ns", per_step(r), "per_step_ratio",
		per_step(r) / (double)d->step_ns, "quiet_ns", r->quiet_ns, "grants",
		(json_int_t)r->grants, "denials", (json_int_t)r->denials, "plan_changes",
		(json_int_t)r->plan_changes, "decisions", (json_int_t)r->decisions, "decide",
		histogram_json(&r->decide), "reference", histogram_json(&r->reference),
		"decide_share", r->decide_share, "decide_references", decide_references(r));
}

/* A step's time with what is decided and kept in it for all tenants, over that without keeping. */
static double step_kept_ratio(const struct decide *d, const struct mm_decide_result *r)
{
	const double step_ns = (double)d->step_ns;

	return (step_ns + r->kept_ratio * per_step(r)) / (step_ns + per_step(r));
}

static json_t *journal_json(const struct decide *d, const struct mm_decide_result *r)
{
	return json_pack("{sf sf sf sf sf sf sf}", "step_ratio", step_kept_ratio(d, r),
			 "events_ratio", r->journal_ratio, "p50_ratio", r->journal_p50_ratio,
			 "with_images_ratio", r->kept_ratio, "image_ns", r->image_ns, "image_bytes",
			 r->image_bytes, "events_per_image", r->image_events);
}

static int decide_report_json(const struct decide *d)
{
	mm_cleanup(mm_json_done) json_t *all = NULL;
	json_t *list = json_array();

	for (uint32_t i = 0; i < d->line.points; i++) {
		json_t *point = point_json(d, i);

		if (d->line.load.journal)
			mm_json_put(point, "journal", journal_json(d, &d->result[i]));
		json_array_append_new(list, point);
	}
	all = json_pack("{si ss ss ss sI sI sI so}", "schema", 1, "commit", MM_COMMIT, "profile",
			d->line.profile, "shape", d->line.shape, "shortest_step_ns",
			(json_int_t)d->step_ns, "layers", (json_int_t)d->line.load.layers,
			"layer_pages", (json_int_t)d->line.load.layer_pages, "points", list);
	return mm_json_print(all, JSON_COMPACT | JSON_REAL_PRECISION(6));
}

static double ns_to_us(uint64_t ns)
{
	return (double)ns / 1e3;
}

static void report_kinds(const struct decide *d, uint32_t i)
{
	printf("\n%u tenants, by what happened:\n%12s %10s %10s %10s %10s\n", d->line.tenants[i],
	       "", "events", "p50 us", "p99 us", "most us");
	for (uint32_t k = 0; k < MM_DECIDE_KINDS; k++) {
		const struct mm_histogram *h = &d->result[i].kind[k];

		printf("%12s %10llu %10.2f %10.2f %10.2f\n", kind_names[k],
		       (unsigned long long)h->n, ns_to_us(mm_histogram_percentile(h, 50)),
		       ns_to_us(mm_histogram_percentile(h, 99)), ns_to_us(h->most));
	}
}

static void report_decisions(const struct decide *d)
{
	printf("\na decision alone, repeated on views that the core saw:\n%7s %9s %9s %9s %9s %12s"
	       " %11s\n",
	       "tenants", "decisions", "p50 us", "p99 us", "of all", "logarithms", "a tenant's");
	for (uint32_t i = 0; i < d->line.points; i++) {
		const struct mm_decide_result *r = &d->result[i];

		printf("%7u %9llu %9.1f %9.1f %8.1f%% %12.0f %11.1f\n", d->line.tenants[i],
		       (unsigned long long)r->decisions,
		       ns_to_us(mm_histogram_percentile(&r->decide, 50)),
		       ns_to_us(mm_histogram_percentile(&r->decide, 99)), 100.0 * r->decide_share,
		       decide_references(r), decide_references(r) / d->line.tenants[i]);
	}
	printf("logarithms: mm_value_ln() as often as it takes as long, timed beside\n");
}

static void report_journal(const struct decide *d)
{
	printf("\nwith a journal and images, over without:\n%7s %9s %9s %12s %10s %9s %10s %12s\n",
	       "tenants", "events", "p50", "with images", "of a step", "image us", "image KiB",
	       "events/image");
	for (uint32_t i = 0; i < d->line.points; i++) {
		const struct mm_decide_result *r = &d->result[i];

		printf("%7u %9.3f %9.3f %12.3f %10.5f %9.1f %10.0f %12.0f\n", d->line.tenants[i],
		       r->journal_ratio, r->journal_p50_ratio, r->kept_ratio, step_kept_ratio(d, r),
		       r->image_ns / 1e3, r->image_bytes / 1024, r->image_events);
	}
}

static void decide_report_text(const struct decide *d)
{
	printf("shortest step: %s on %s, one token of one sequence: %.3f ms\n", d->line.shape,
	       d->line.profile, (double)d->step_ns / 1e6);
	printf("%u layers of %u pages a model, commit %s\n\n", d->line.load.layers,
	       d->line.load.layer_pages, MM_COMMIT);
	printf("%7s %9s %9s %9s %9s %9s %11s %9s %12s\n", "tenants", "p50 us", "p99 us", "most us",
	       "quiet us", "p99/step", "per step us", "/ step", "plan changes");
	for (uint32_t i = 0; i < d->line.points; i++) {
		const struct mm_decide_result *r = &d->result[i];
		uint64_t p99 = mm_histogram_percentile(&r->all, 99);

		printf("%7u %9.2f %9.2f %9.2f %9.3f %8.3f%% %11.2f %8.3f%% %12llu\n",
		       d->line.tenants[i], ns_to_us(mm_histogram_percentile(&r->all, 50)),
		       ns_to_us(p99), ns_to_us(r->all.most), r->quiet_ns / 1e3,
		       100.0 * (double)p99 / (double)d->step_ns, per_step(r) / 1e3,
		       100.0 * per_step(r) / (double)d->step_ns,
		       (unsigned long long)r->plan_changes);
	}
	report_decisions(d);
	if (d->line.load.journal)
		report_journal(d);
	for (uint32_t i = 0; i < d->line.points; i++)
		if (d->line.tenants[i] == 8 || d->line.points == 1)
			report_kinds(d, i);
}

int mm_bench_decide(const struct mm_decide_line *line)
{
	static struct decide d;

	d.line = *line;
	if (shortest_step(&d) < 0)
		return MM_EXIT_FAILED;
	for (uint32_t i = 0; i < line->points; i++) {
		int r;

		d.line.load.tenants = line->tenants[i];
		r = mm_decide_run(&d.line.load, &d.result[i]);
		if (r < 0) {
			fprintf(stderr, "mmbench: %u tenants: %s\n", line->tenants[i],
				strerror(-r));
			return MM_EXIT_FAILED;
		}
	}
	if (!line->json)
		decide_report_text(&d);
	return mm_report_end(line->json ? decide_report_json(&d) : 0) ? MM_EXIT_FAILED
								      : MM_EXIT_DONE;
}
