/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/timed.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/core/market/policy.h"
#include "tools/lab/common/device.h"
#include "tools/lab/common/dirs.h"
#include "tools/lab/common/procs.h"
#include "tools/lab/mmbench/report.h"
#include "tools/lab/mmbench/run.h"
#include "tools/lab/workload/alone.h"
#include "tools/lab/workload/knobs.h"
#include "tools/lab/workload/report.h"

#define ALONE_EACH   32
#define START_NS     (600 * MM_NS_PER_S) /* to load all models; generous: sanitizers, two cores */
#define MAKE_NS      (120 * MM_NS_PER_S)
#define SERVE_FACTOR 50 /* limit in device seconds per second of arrivals, to end hopeless cases */
#define GRANULARITY  (UINT64_C(2) << 20)
#define PAGES_MAX    6000u /* a page is an open file in core and xfer */

struct timed {
	struct mm_wl_opts opts;
	uint64_t dilation;
	const char *keep_dir;
	struct mm_profile profile;
	struct mm_wl_sizes sizes;
	struct mm_wl_source source;
	struct mm_wl_case *cases;     /* [windows] */
	struct mm_wl_record *records; /* [policies][windows] */
	struct mm_wl_slo slo;
	char model[MM_WL_TENANTS_MAX][PATH_MAX];
	char work_dir[PATH_MAX], bin_dir[PATH_MAX];
	int signals;
	uint64_t effects, late; /* sums over all runs */
};

/* A run of one policy in one window, and, under MIG, of one tenant. */
struct policy_run {
	struct timed *t;
	const struct mm_wl_case *c;
	struct mm_wl_record *record;
	uint32_t tenant[MM_WL_TENANTS_MAX]; /* the case's index of the run's i-th tenant */
	char profile[PATH_MAX + 256], controller[1024], quantum[24], quantum_max[12], scale[24],
		swap[24], keep[12], cold[12];
	struct mm_run_plan plan;
};

#define AT(field) MM_OPT_AT(struct mm_timed_opts, field)

const struct mm_opt mm_timed_options[] = {
	{ "keep", "DIR", "keep all files there", MM_OPT_TEXT, AT(keep_dir) },
	{ "dilation", "K", "a second of the device takes K of the host", MM_OPT_NUMBER,
	  AT(dilation), .min = 1, .max = 1000, .preset = "8", .group = "Of the timed run alone" },
	{ 0 },
};

static void timed_put(struct timed **at)
{
	struct timed *t = *at;

	if (!t)
		return;
	for (uint32_t w = 0; t->cases && w < t->opts.windows; w++)
		mm_wl_case_done(&t->cases[w]);
	for (uint32_t i = 0; t->records && i < t->opts.windows * t->opts.policies; i++)
		mm_wl_record_done(&t->records[i]);
	mm_wl_source_done(&t->source);
	mm_close_fd(&t->signals);
	if (*t->work_dir && !t->keep_dir)
		mm_work_dir_remove(t->work_dir);
	free(t->cases);
	free(t->records);
	free(t);
}

/* ---- before ---- */

static int make_cases(struct timed *t, char *err, size_t err_bytes)
{
	int e = 0;

	t->cases = calloc(t->opts.windows, sizeof(*t->cases));
	t->records = calloc((size_t)t->opts.windows * t->opts.policies, sizeof(*t->records));
	if (!t->cases || !t->records)
		return -ENOMEM;
	for (uint32_t w = 0; !e && w < t->opts.windows; w++) {
		e = mm_wl_case_make(&t->opts, &t->source, w, &t->cases[w], err, err_bytes);
		if (!e)
			mm_wl_alone(&t->opts, &t->profile, &t->cases[w]);
		if (!e && !t->cases[w].disjoint)
			fprintf(stderr,
				"mmbench: window %u: the trace is too short for tenants to "
				"have rows of their own\n",
				w);
	}
	return e;
}

static int timed_make_model(struct timed *t, uint32_t tenant)
{
	const char *name = t->opts.tenant[tenant].shape->name;
	char program[PATH_MAX + 16], errors[PATH_MAX + 32], *dir = t->model[tenant];
	char *argv[] = { program, (char *)"sparse", dir, (char *)"--shape", (char *)name, NULL };
	struct mm_child child = { .name = "mkmodel", .err_path = errors, .in = -1, .out = -1 };
	char words[256];
	struct stat st;
	int r;

	snprintf(program, sizeof(program), "%s/mkmodel", t->bin_dir);
	snprintf(errors, sizeof(errors), "%s/mkmodel.log", t->work_dir);
	if (snprintf(dir, PATH_MAX, "%s/%s", t->work_dir, name) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (!stat(dir, &st)) /* made for another tenant already */
		return 0;
	r = mm_child_start(&child, argv);
	if (!r && (!mm_child_wait(&child, mm_now_ns() + MAKE_NS) || child.status)) {
		fprintf(stderr, "mmbench: mkmodel: %s\n",
			mm_child_last_words(&child, words, sizeof(words)));
		r = -ECHILD;
	}
	mm_child_done(&child);
	return r;
}

static int timed_prepare(struct timed *t)
{
	char why[4096] = "out of memory";
	int r = mm_profile_load(t->opts.profile, &t->profile, why, sizeof(why));

	if (!r)
		mm_wl_tokens_set(&t->profile, &t->opts);
	if (!r)
		r = mm_wl_sizes(&t->opts, t->profile.memory_bytes, &t->sizes, why, sizeof(why));
	if (!r)
		r = mm_wl_source_open(&t->opts, &t->source, why, sizeof(why));
	if (!r)
		r = make_cases(t, why, sizeof(why));
	if (!r)
		r = mm_wl_slo_alone(&t->opts, &t->sizes, &t->profile, &t->cases[0], ALONE_EACH,
				    &t->slo);
	if (r) {
		fprintf(stderr, "mmbench: %s\n", why);
		return r;
	}
	r = mm_bin_dir(t->bin_dir);
	if (!r)
		r = mm_work_dir_make(t->keep_dir, t->work_dir);
	if (r)
		return r;
	t->signals = mm_signals_open();
	if (t->signals < 0)
		return t->signals;
	for (uint32_t i = 0; !r && i < t->opts.tenants; i++)
		r = timed_make_model(t, i);
	return r;
}

/* ---- a run ---- */

static int timed_write_trace(const void *user, uint32_t tenant, const char *path)
{
	const struct policy_run *one = user;
	const struct mm_wl_stream *s = &one->c->stream[one->tenant[tenant]];
	FILE *file = fopen(path, "we");
	int r = 0;

	if (!file)
		return -errno;
	fprintf(file, "arrival_s,prompt_tokens,output_tokens\n");
	for (uint32_t i = 0; i < s->n; i++)
		fprintf(file, "%.9f,%u,%u\n", (double)s->request[i].arrival_ns / 1e9,
			s->request[i].prompt_tokens, s->request[i].output_tokens);
	if (ferror(file))
		r = -EIO;
	if (fclose(file) && !r)
		r = -errno;
	return r ? r : (int)s->n;
}

/* Notes how late the effects of the device were, in its own seconds. */
static void lateness_note(void *user)
{
	struct policy_run *one = user;
	struct timed *t = one->t;
	struct mm_softgpu_stats s;

	if (mm_device_stats(&s)) {
		fprintf(stderr, "mmbench: the device does not tell its statistics\n");
		return;
	}
	t->effects += s.effects;
	t->late += s.late;
	one->record->late_max_s =
		MM_MAX(one->record->late_max_s, (double)s.late_max_ns / 1e9 / s.dilation);
	if (s.effects)
		one->record->late_mean_s =
			MM_MAX(one->record->late_mean_s,
			       (double)s.late_total_ns / (double)s.effects / 1e9 / s.dilation);
}

static void words_add(struct mm_bench_words *words, const char *const list[])
{
	for (; *list; list++) {
		mm_assert(words->n < MM_BENCH_EXTRA_MAX);
		words->word[words->n++] = (char *)*list;
	}
}

static void set_flags(struct policy_run *one)
{
	const struct mm_wl_opts *o = &one->t->opts;
	/* The quantum must be the case's for all tenants, although all are of one account. */
	const char *const mmd[] = { "--controller", one->controller, "--turn-quantum-max",
				    one->quantum_max, NULL };
	/* mmserve schedules as vLLM V1 does (Documentation/baseline.md). */
	const char *const mmserve[] = { "--kv-dtype",     "f16",     "--time-scale", one->scale,
					"--device-times", "--admit", "full",         "--kv-keep",
					one->keep,        NULL };
	const char *const turns[] = { "--turns", mm_wl_turns_name(o->turns), "--quantum",
				      one->quantum, NULL };
	const char *const swap[] = { "--swap", one->swap, NULL };
	const char *const cold[] = { "--cold", one->cold, NULL };
	const struct mm_policy_ops *policy = mm_policy_get(one->plan.policy);
	char knobs[sizeof(one->controller) - 64];

	mm_wl_knobs_text(&one->t->profile, o->controller, knobs, sizeof(knobs));
	snprintf(one->controller, sizeof(one->controller), "time-scale=%" PRIu64 ",%s",
		 one->t->dilation, knobs);
	snprintf(one->scale, sizeof(one->scale), "%" PRIu64, one->t->dilation);
	snprintf(one->quantum, sizeof(one->quantum), "%" PRIu64, o->quantum_ms * one->t->dilation);
	snprintf(one->quantum_max, sizeof(one->quantum_max), "%d", MM_WL_QUANTUM_MAX_MS);
	snprintf(one->keep, sizeof(one->keep), "%" PRIu32, o->kv_keep_permille);
	snprintf(one->swap, sizeof(one->swap), "%" PRIu64, o->swap_bytes);
	snprintf(one->cold, sizeof(one->cold), "%" PRIu32, o->cold_entries);
	words_add(&one->plan.mmd, mmd);
	words_add(&one->plan.mmserve, mmserve);
	if (o->sharing == MM_WL_TEMPORAL)
		words_add(&one->plan.mmserve, turns);
	if (o->swap_bytes != MM_WL_SWAP_AUTO && policy->kv_swaps)
		words_add(&one->plan.mmserve, swap);
	/* As in mmsim: where a share is fixed, the window would be a part of it. */
	if (o->cold_entries && policy->kv_swaps && !policy->kv_static)
		words_add(&one->plan.mmserve, cold);
}

/* Writes the name of a profile that has a fraction of the device's rates. */
static void set_profile(struct policy_run *one, double fraction)
{
	const struct mm_profile *p = &one->t->profile;

	if (fraction < 1)
		snprintf(one->profile, sizeof(one->profile),
			 "%s,hbm_gbps=%.6g,f16_tflops=%.6g,h2d_gbps=%.6g,d2h_gbps=%.6g",
			 one->t->opts.profile, p->hbm_bps * fraction / 1e9,
			 p->f16_flops * fraction / 1e12, p->h2d_bps * fraction / 1e9,
			 p->d2h_bps * fraction / 1e9);
	else
		snprintf(one->profile, sizeof(one->profile), "%s", one->t->opts.profile);
}

/* Returns the page size. With unlimited memory pages may be larger, so that they are fewer. */
static uint64_t page_bytes(const struct mm_wl_opts *o, uint64_t pool_bytes, bool unlimited)
{
	uint64_t page = o->page_bytes;

	while (unlimited && pool_bytes / page > PAGES_MAX)
		page *= 2;
	return page;
}

static void add_tenant(struct policy_run *one, const struct mm_wl_sizes *sizes, uint32_t t,
		       uint64_t page)
{
	const struct mm_wl_tenant_sizes *s = &sizes->tenant[t];
	const struct mm_arch *a = &one->t->opts.tenant[t].shape->arch;
	struct mm_run_plan *plan = &one->plan;
	const uint64_t weights =
		mm_div_up(s->layer_bytes, page) * a->layers + mm_div_up(s->resident_bytes, page);
	const uint64_t share = mm_div_up(s->kv_share_bytes, page);

	one->tenant[plan->tenants] = t;
	plan->tenant[plan->tenants++] = (struct mm_run_tenant){ .model = one->t->model[t],
								.kv_share_bytes = share * page,
								.seed = one->t->opts.seed + t };
	plan->pool_bytes += (weights + share) * page;
	/* The engine's activations are F32, twice as large as in @s, and get room for two. */
	plan->headroom_bytes += 4 * s->overhead_bytes;
}

static void timed_make_plan(struct policy_run *one, const struct mm_wl_policy *policy)
{
	struct timed *t = one->t;
	const struct mm_wl_opts *o = &t->opts;
	struct mm_run_plan *plan = &one->plan;

	plan->work_dir = t->work_dir;
	plan->label = policy->name;
	plan->bin_dir = t->bin_dir;
	plan->signals = t->signals;
	plan->policy = policy->policy;
	plan->granularity_bytes = GRANULARITY;
	plan->profile = one->profile;
	plan->dilation = (uint32_t)t->dilation;
	plan->slots = o->slots ? (o->slots == 1 ? "1" : "2") : "auto";
	plan->devices = 1;
	plan->block_tokens = o->block_tokens;
	plan->batch_max = o->max_seqs;
	plan->batched_tokens_max = o->batched_tokens;
	plan->write_trace = timed_write_trace;
	plan->user = one;
	plan->served = lateness_note;
	plan->served_user = one;
	plan->start_ns = START_NS;
	plan->serve_ns =
		START_NS + (uint64_t)MM_MIN(o->seconds * SERVE_FACTOR * (double)t->dilation *
						    (double)MM_NS_PER_S,
					    0x1p62);
	set_flags(one);
}

/*
 * Records a request's tokens with the device's time stamps. A stamp that is before its
 * predecessor's counts as equal to it.
 */
static void record_request(struct policy_run *one, uint32_t tenant, uint32_t index,
			   const struct mm_result_request *q)
{
	uint64_t last_ns = 0;

	for (size_t k = 0; k < q->n; k++) {
		const double ns = q->time_s[k] * 1e9;

		last_ns = MM_MAX(last_ns, ns > 0 ? (uint64_t)ns : 0);
		mm_wl_record_token(one->record, tenant, index, last_ns);
	}
}

static void record_run(struct policy_run *one, const struct mm_run_result *r)
{
	struct mm_wl_counters *c = &one->record->counters;

	for (uint32_t i = 0; i < one->plan.tenants; i++) {
		const struct mm_results_tenant *got = &r->results.tenant[i];

		for (uint32_t k = 0; k < got->n; k++) {
			c->refused += !got->request[k].n;
			record_request(one, one->tenant[i], k, &got->request[k]);
		}
	}
	c->preemptions += r->preemptions;
	c->steps += r->steps;
	c->swapped_bytes += r->swapped_out_bytes + r->swapped_in_bytes;
	c->streamed_bytes += r->bytes_streamed;
	c->plan_changes += r->plan_changes;
	c->layers_remapped_max += r->layers_remapped_max;
	c->stall_ns += (uint64_t)(r->stall_total_s * 1e9);
	c->turns += r->turns;
}

/* Runs tenants @first to @end - 1 together on one device. */
static int run_tenants(struct timed *t, uint32_t policy, uint32_t window, uint32_t first,
		       uint32_t end)
{
	const struct mm_wl_policy *of = &t->opts.policy[policy];
	struct mm_wl_record *record = &t->records[policy * t->opts.windows + window];
	struct policy_run one = { .t = t, .c = &t->cases[window], .record = record };
	struct mm_run_result result = { 0 };
	struct mm_wl_sizes sizes = t->sizes;
	const uint64_t begun_ns = mm_now_ns();
	int r;

	if (of->unlimited)
		mm_wl_sizes_unlimited(&t->opts, &t->sizes, &t->cases[window], &sizes);
	timed_make_plan(&one, of);
	set_profile(&one, sizes.tenant[first].fraction);
	one.plan.index = window * t->opts.tenants + first;
	one.plan.page_bytes = page_bytes(&t->opts, sizes.pool_bytes, of->unlimited);
	for (uint32_t i = first; i < end; i++)
		add_tenant(&one, &sizes, i, one.plan.page_bytes);
	r = mm_run(&one.plan, &result);
	if (r)
		return r;
	record_run(&one, &result);
	record->wall_s += (double)(mm_now_ns() - begun_ns) / 1e9;
	mm_run_result_done(&result);
	return 0;
}

static int run_window(struct timed *t, uint32_t policy, uint32_t window)
{
	const struct mm_wl_policy *of = &t->opts.policy[policy];
	struct mm_wl_record *record = &t->records[policy * t->opts.windows + window];
	int r = mm_wl_record_init(record, &t->cases[window], t->opts.seconds);

	fprintf(stderr, "mmbench: %s, window %u of %u\n", of->name, window + 1, t->opts.windows);
	if (!r && t->opts.sharing != MM_WL_MIG)
		r = run_tenants(t, policy, window, 0, t->opts.tenants);
	for (uint32_t i = 0; !r && t->opts.sharing == MM_WL_MIG && i < t->opts.tenants; i++)
		r = run_tenants(t, policy, window, i, i + 1);
	if (!r && of->unlimited && record->counters.preemptions) {
		fprintf(stderr, "mmbench: unlimited was short of memory\n");
		r = -EIO;
	}
	return r;
}

static int timed_report(struct timed *t)
{
	struct mm_wl_report r = {
		.mode = "timed",
		.opts = &t->opts,
		.sizes = &t->sizes,
		.cases = t->cases,
		.records = t->records,
		.slo = &t->slo,
		.windows = t->opts.windows,
		.more = json_pack("{s:I s:I s:I}", "dilation", (json_int_t)t->dilation, "effects",
				  (json_int_t)t->effects, "effects_late", (json_int_t)t->late)
	};
	int err = t->opts.json ? mm_wl_report_print(&r) : mm_wl_report_table(&r);

	if (!t->opts.json)
		printf("\ndilation %" PRIu64 "; of %" PRIu64 " effects of the device %" PRIu64
		       " were later than 50 us of the host\n",
		       t->dilation, t->effects, t->late);
	json_decref(r.more);
	return mm_report_end(err);
}

int mm_bench_timed(const struct mm_timed_opts *opts)
{
	mm_cleanup(timed_put) struct timed *t = calloc(1, sizeof(*t));
	int r;

	if (!t) {
		fputs("mmbench: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	t->signals = -1;
	t->opts = opts->wl;
	t->dilation = opts->dilation;
	t->keep_dir = opts->keep_dir;
	r = timed_prepare(t);
	for (uint32_t p = 0; !r && p < t->opts.policies; p++) {
		for (uint32_t w = 0; !r && w < t->opts.windows; w++)
			r = run_window(t, p, w);
	}
	if (!r)
		r = timed_report(t);
	return r ? MM_EXIT_FAILED : MM_EXIT_DONE;
}
