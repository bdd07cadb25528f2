/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/decide.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/core.h"
#include "tools/lab/mmbench/decide_load.h"
#include "libclient/model/shapes.h"
#include "tools/lab/stepcost/stepcost.h"

#define POINTS_MAX 16

#define POLICY_CHOICES "remap, elastic, recompute or swap"

static const char decide_help[] =
	"usage: mmbench decide [options]    what deciding costs, by the number of tenants\n"
	"\n"
	"The core of mmd under a busy load in virtual time: only its own time is measured.\n"
	"\n"
	"  --tenants N,N,..   points of the curve, each 1 to 1000 (1,8,64,256)\n"
	"  --layers N         of each tenant's model (80)\n"
	"  --layer-pages N    of 16 MiB (4)\n"
	"  --chunks N         a tenant's share of KV, in pages (12)\n"
	"  --events N         timed at each point (40000)\n"
	"  --policy NAME      " POLICY_CHOICES " (remap)\n"
	"  --profile NAME     device of the shortest step (gh200-96)\n"
	"  --shape NAME       model of the shortest step: one token for one sequence (Llama-3-8B)\n"
	"  --seed N           (1)\n"
	"  --runs N           of the same: of each event the least time counts (3)\n"
	"  --json             one JSON object instead of the tables\n"
	"  -h, --help\n";

static const char *const kind_names[MM_DECIDE_KINDS] = {
	[MM_DECIDE_STATS] = "statistics",   [MM_DECIDE_DEMAND] = "kv_wish",
	[MM_DECIDE_RELEASE] = "kv_release", [MM_DECIDE_ANSWER] = "plan_answer",
	[MM_DECIDE_JOB] = "job_done",       [MM_DECIDE_LINK] = "streamed",
	[MM_DECIDE_TICK] = "tick",
};

struct decide {
	uint32_t tenants[POINTS_MAX], points;
	struct mm_decide_opts load;
	const char *profile, *shape;
	bool json;
	uint64_t step_ns; /* the shortest step */
	struct mm_decide_result result[POINTS_MAX];
};

/* ---- options ---- */

static bool decide_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end && *ret >= least && *ret <= most;
}

static bool decide_parse_points(struct decide *d, char *text)
{
	uint64_t n;

	d->points = 0;
	for (char *save, *part = strtok_r(text, ",", &save); part;
	     part = strtok_r(NULL, ",", &save)) {
		if (d->points == POINTS_MAX || !decide_parse_number(part, 1, 1000, &n))
			return false;
		d->tenants[d->points++] = (uint32_t)n;
	}
	return d->points;
}

static bool decide_parse_policy(const char *name, enum mm_policy *ret)
{
	static const struct {
		const char *name;
		enum mm_policy policy;
	} names[] = { { "remap", MM_POLICY_REMAP },
		      { "elastic", MM_POLICY_ELASTIC },
		      { "recompute", MM_POLICY_RECOMPUTE },
		      { "swap", MM_POLICY_SWAP } };

	for (size_t i = 0; i < MM_ARRAY_SIZE(names); i++) {
		if (strcmp(names[i].name, name))
			continue;
		*ret = names[i].policy;
		return true;
	}
	return false;
}

static bool decide_option(struct decide *d, int o, char *arg)
{
	struct mm_decide_opts *l = &d->load;
	uint64_t n = 0;
	bool ok = true;

	switch (o) {
	case 't':
		return decide_parse_points(d, arg);
	case 'P':
		return decide_parse_policy(arg, &l->policy);
	case 'p':
		d->profile = arg;
		return true;
	case 'm':
		d->shape = arg;
		return mm_shape_find(arg);
	case 'J':
		return d->json = true;
	case 'l':
		ok = decide_parse_number(arg, 1, MM_LAYERS_MAX, &n);
		l->layers = (uint32_t)n;
		return ok;
	case 'g':
		ok = decide_parse_number(arg, 1, 64, &n);
		l->layer_pages = (uint32_t)n;
		return ok;
	case 'c':
		ok = decide_parse_number(arg, 1, 64, &n);
		l->chunks = (uint32_t)n;
		return ok;
	case 'e':
		return decide_parse_number(arg, 100, 1000000000, &l->events);
	case 'r':
		ok = decide_parse_number(arg, 1, 100, &n);
		l->runs = (uint32_t)n;
		return ok;
	default:
		return decide_parse_number(arg, 0, UINT64_MAX, &l->seed);
	}
}

static void decide_refuse(const char *name, int o, const char *arg)
{
	char shapes[MM_SHAPE_NAMES_BYTES];

	mm_shape_names(shapes, sizeof(shapes));
	if (o == 'P' || o == 'm')
		fprintf(stderr, "mmbench: --%s '%s' is none of: %s\n", name, arg,
			o == 'P' ? POLICY_CHOICES : shapes);
	else
		fprintf(stderr, "mmbench: --%s: cannot be '%s'\n", name, arg);
}

/* Parses the command line. Return: the exit status, or -1 to go on. */
static int decide_parse(struct decide *d, int argc, char **argv)
{
	static const struct option names[] = { { "tenants", required_argument, NULL, 't' },
					       { "layers", required_argument, NULL, 'l' },
					       { "layer-pages", required_argument, NULL, 'g' },
					       { "chunks", required_argument, NULL, 'c' },
					       { "events", required_argument, NULL, 'e' },
					       { "policy", required_argument, NULL, 'P' },
					       { "profile", required_argument, NULL, 'p' },
					       { "shape", required_argument, NULL, 'm' },
					       { "seed", required_argument, NULL, 's' },
					       { "runs", required_argument, NULL, 'r' },
					       { "json", no_argument, NULL, 'J' },
					       { "help", no_argument, NULL, 'h' },
					       { 0 } };
	int o, index;

	while ((o = getopt_long(argc, argv, "h", names, &index)) != -1) {
		if (o == '?')
			return 2;
		if (o == 'h') {
			fputs(decide_help, stdout);
			return 0;
		}
		if (!decide_option(d, o, optarg)) {
			decide_refuse(names[index].name, o, optarg);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "mmbench: decide takes options only, not '%s'\n", argv[optind]);
		return 2;
	}
	return -1;
}

/* ---- the step that it is compared with ---- */

static int shortest_step(struct decide *d)
{
	const struct mm_step_opts opts = { .weight_element_bytes = 2,
					   .kv_element_bytes = 2,
					   .fused = true };
	const struct mm_shape *shape = mm_shape_find(d->shape);
	struct mm_step_batch batch = { 0 };
	char err[MM_PROFILE_ERROR_BYTES];
	struct mm_step_model model;
	struct mm_profile profile;
	struct mm_step_ns ns;

	if (mm_profile_load(d->profile, &profile, err, sizeof(err)) < 0) {
		fprintf(stderr, "mmbench: --profile: %s\n", err);
		return -EINVAL;
	}
	mm_step_model_init(&model, &profile, &shape->arch, &opts);
	mm_step_batch_add(&batch, 1, 1, true);
	mm_step_cost(&model, &batch, &ns);
	d->step_ns = ns.before + shape->arch.layers * ns.layer + ns.after;
	d->load.step_ns = d->step_ns;
	d->load.page_ns = (uint64_t)((double)(16 << 20) / profile.h2d_bps * 1e9);
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

static json_t *point_json(const struct decide *d, uint32_t i)
{
	const struct mm_decide_result *r = &d->result[i];
	json_t *kinds = json_object();

	for (uint32_t k = 0; k < MM_DECIDE_KINDS; k++)
		json_object_set_new(kinds, kind_names[k], histogram_json(&r->kind[k]));
	return json_pack("{sI so so sI sf sf sf sI sI sI}", "tenants", (json_int_t)d->tenants[i],
			 "all", histogram_json(&r->all), "kinds", kinds, "steps",
			 (json_int_t)r->steps, "per_step_ns", per_step(r), "per_step_ratio",
			 per_step(r) / (double)d->step_ns, "quiet_ns", r->quiet_ns, "grants",
			 (json_int_t)r->grants, "denials", (json_int_t)r->denials, "plan_changes",
			 (json_int_t)r->plan_changes);
}

static void decide_report_json(const struct decide *d)
{
	json_t *list = json_array();
	json_t *all;

	for (uint32_t i = 0; i < d->points; i++)
		json_array_append_new(list, point_json(d, i));
	all = json_pack("{si ss ss ss sI sI sI so}", "schema", 1, "commit", MM_COMMIT, "profile",
			d->profile, "shape", d->shape, "shortest_step_ns", (json_int_t)d->step_ns,
			"layers", (json_int_t)d->load.layers, "layer_pages",
			(json_int_t)d->load.layer_pages, "points", list);
	json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(all);
}

static double ns_to_us(uint64_t ns)
{
	return (double)ns / 1e3;
}

static void report_kinds(const struct decide *d, uint32_t i)
{
	printf("\n%u tenants, by what happened:\n%12s %10s %10s %10s %10s\n", d->tenants[i], "",
	       "events", "p50 us", "p99 us", "most us");
	for (uint32_t k = 0; k < MM_DECIDE_KINDS; k++) {
		const struct mm_histogram *h = &d->result[i].kind[k];

		printf("%12s %10llu %10.2f %10.2f %10.2f\n", kind_names[k],
		       (unsigned long long)h->n, ns_to_us(mm_histogram_percentile(h, 50)),
		       ns_to_us(mm_histogram_percentile(h, 99)), ns_to_us(h->most));
	}
}

static void decide_report_text(const struct decide *d)
{
	printf("shortest step: %s on %s, one token of one sequence: %.3f ms\n", d->shape,
	       d->profile, (double)d->step_ns / 1e6);
	printf("%u layers of %u pages a model, commit %s\n\n", d->load.layers, d->load.layer_pages,
	       MM_COMMIT);
	printf("%7s %9s %9s %9s %9s %9s %11s %9s %12s\n", "tenants", "p50 us", "p99 us", "most us",
	       "quiet us", "p99/step", "per step us", "/ step", "plan changes");
	for (uint32_t i = 0; i < d->points; i++) {
		const struct mm_decide_result *r = &d->result[i];
		uint64_t p99 = mm_histogram_percentile(&r->all, 99);

		printf("%7u %9.2f %9.2f %9.2f %9.3f %8.3f%% %11.2f %8.3f%% %12llu\n", d->tenants[i],
		       ns_to_us(mm_histogram_percentile(&r->all, 50)), ns_to_us(p99),
		       ns_to_us(r->all.most), r->quiet_ns / 1e3,
		       100.0 * (double)p99 / (double)d->step_ns, per_step(r) / 1e3,
		       100.0 * per_step(r) / (double)d->step_ns,
		       (unsigned long long)r->plan_changes);
	}
	for (uint32_t i = 0; i < d->points; i++)
		if (d->tenants[i] == 8 || d->points == 1)
			report_kinds(d, i);
}

int mm_bench_decide(int argc, char **argv)
{
	static struct decide d = { .tenants = { 1, 8, 64, 256 },
				   .points = 4,
				   .load = { .layers = 80,
					     .layer_pages = 4,
					     .chunks = 12,
					     .events = 40000,
					     .seed = 1,
					     .runs = 3,
					     .policy = MM_POLICY_REMAP },
				   .profile = "gh200-96",
				   .shape = "Llama-3-8B" };
	int r = decide_parse(&d, argc, argv);

	if (r >= 0)
		return r;
	if (shortest_step(&d) < 0)
		return 1;
	for (uint32_t i = 0; i < d.points; i++) {
		d.load.tenants = d.tenants[i];
		r = mm_decide_run(&d.load, &d.result[i]);
		if (r < 0) {
			fprintf(stderr, "mmbench: %u tenants: %s\n", d.tenants[i], strerror(-r));
			return 1;
		}
	}
	d.json ? decide_report_json(&d) : decide_report_text(&d);
	return 0;
}
