/* SPDX-License-Identifier: Apache-2.0 */
/* mmsim - measures in virtual time what `mmbench serve` measures. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mmd/config/tune.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/details.h"
#include "tools/lab/mmsim/sim.h"
#include "tools/lab/workload/alone.h"
#include "tools/lab/workload/report.h"

#define STEP_US_MAX    1000000u
#define BROKEN_MAX     500u  /* per mille, as a step is repeated until it is whole */
#define CHECK_EVERY    10000 /* events from check to check, without --check */
#define ALONE_EACH     32    /* requests of each tenant for the unloaded medians */
#define KV_SPARE_PAGES 8
#define PAGES_MAX      6000u /* limit with unlimited memory; pages get larger instead */

struct program {
	struct mm_wl_opts opts;
	int32_t alpha; /* -1: not given */
	uint32_t slots;
	uint64_t step_ns;
	enum mm_admit admit;
	uint32_t broken_permille;
	uint32_t check;
	const char *trace_path;
	FILE *trace;
	struct mm_profile profile;
	struct mm_core_opts core;
	struct mm_wl_source source;
	struct mm_wl_sizes sizes, sizes_alone;
	struct mm_wl_case *cases;     /* [windows] */
	struct mm_wl_record *records; /* [policies][windows] */
	struct mm_wl_slo slo;
	json_t *details; /* by policy and window */
	double simulated_s, wall_s, cpu_s;
};

enum { OPT_CHECK = MM_WL_OPT_MORE, OPT_TRACE_OUT, OPT_PLAN, OPT_STEP, OPT_ADMIT, OPT_BROKEN };

static const struct option more[] = {
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "trace-out", required_argument, NULL, OPT_TRACE_OUT },
	{ "plan", required_argument, NULL, OPT_PLAN },
	{ "step-us", required_argument, NULL, OPT_STEP },
	{ "admit", required_argument, NULL, OPT_ADMIT },
	{ "broken-steps", required_argument, NULL, OPT_BROKEN },
	{ 0 },
};

/* Parses a plan: "3" is alpha, "3:2" is alpha and the number of slots. */
static int take_plan(struct program *p, const char *text)
{
	unsigned int alpha, slots = 0;
	int end = 0, more_end = 0;

	if (*text < '0' || *text > '9' ||
	    sscanf(text, "%4u%n:%1u%n", &alpha, &end, &slots, &more_end) < 1 ||
	    text[MM_MAX(end, more_end)] || alpha >= MM_LAYERS_MAX || slots > MM_SLOTS_MAX) {
		fprintf(stderr,
			"mmsim: --plan '%s' is not LAYERS or LAYERS:SLOTS, with 1 or 2 slots; see "
			"mmsim --help\n",
			text);
		return -EINVAL;
	}
	p->alpha = (int32_t)alpha;
	p->slots = slots;
	return 0;
}

/* Parses a number of at most @max. */
static int take_number(const char *flag, const char *text, uint32_t max, uint32_t *ret)
{
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n > max) {
		fprintf(stderr, "mmsim: --%s '%s' is not in 0..%u; see mmsim --help\n", flag, text,
			max);
		return -EINVAL;
	}
	*ret = (uint32_t)n;
	return 0;
}

static int take_step(struct program *p, const char *text)
{
	uint32_t us;
	const int r = take_number("step-us", text, STEP_US_MAX, &us);

	if (!r)
		p->step_ns = us * UINT64_C(1000);
	return r;
}

static int take_admit(struct program *p, const char *text)
{
	static const char *const names[MM_ADMIT_COUNT] = {
		[MM_ADMIT_WHOLE] = "whole", [MM_ADMIT_FULL] = "full", [MM_ADMIT_CHUNK] = "chunk"
	};

	for (uint32_t i = 0; i < MM_ADMIT_COUNT; i++) {
		if (strcmp(text, names[i]))
			continue;
		p->admit = (enum mm_admit)i;
		return 0;
	}
	fprintf(stderr, "mmsim: --admit '%s' is not whole, full or chunk; see mmsim --help\n",
		text);
	return -EINVAL;
}

static int mmsim_option(void *user, int val, char *arg)
{
	struct program *p = user;

	if (val == OPT_PLAN)
		return take_plan(p, arg);
	if (val == OPT_ADMIT)
		return take_admit(p, arg);
	if (val == OPT_STEP)
		return take_step(p, arg);
	if (val == OPT_BROKEN)
		return take_number("broken-steps", arg, BROKEN_MAX, &p->broken_permille);
	if (val == OPT_CHECK)
		p->check = 1;
	else
		p->trace_path = arg;
	return 0;
}

static const char usage[] =
	"usage: mmsim [options]\n"
	"\n"
	"Plays a trace against models that share a device, under each policy in turn, in virtual "
	"time:\n"
	"mmd's core and the engine's scheduler are the real ones, the device is a profile.\n"
	"\n";

static const char more_help[] =
	"  --check                check every invariant after every event (slow)\n"
	"  --trace-out FILE       CSV: what each tenant has and does, every 15 ms\n"
	"  --plan LAYERS[:SLOTS]  so many layers of each model are away all the time\n"
	"  --step-us US           the engine's own time for each step (default 150)\n"
	"  --admit NAME           as of mmserve: whole, full (default) or chunk\n"
	"  --broken-steps N       of a thousand steps so many break off before some layer\n";

static int mmsim_wrong(const char *text)
{
	fprintf(stderr, "mmsim: %s\n", text);
	return -EINVAL;
}

static double clock_seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a panic prints which case it was ---- */

static struct {
	const struct mm_wl_opts *opts;
	const char *policy;
	uint32_t window;
} playing;

static void case_print(void)
{
	fprintf(stderr, "mmsim: seed=%llu window=%u policy=%s commit=%s\n",
		(unsigned long long)playing.opts->seed, playing.window, playing.policy, MM_COMMIT);
}

static void on_abort(int number)
{
	(void)number;
	if (playing.opts)
		case_print();
}

/* ---- runs ---- */

static void resources_count(struct mm_wl_record *record, const struct ms_sim *sim)
{
	struct mm_wl_counters *c = &record->counters;
	struct mm_core_stats s;

	for (uint32_t i = 0; i < sim->n_devices; i++) {
		mm_core_stats(sim->devices[i].core, &s);
		c->turns += s.turns;
		c->layers_remapped_max += s.alpha_sum_max;
	}
	for (uint32_t i = 0; i < sim->n_tenants; i++) {
		const struct ms_tenant *t = &sim->tenants[i];

		c->preemptions += t->e.sched.preemptions;
		c->recomputed_tokens += t->s.computed_tokens - t->s.needed_tokens;
		c->swapped_bytes += t->s.swapped_bytes;
		c->streamed_bytes += t->x.bytes_streamed;
		c->plan_changes += t->s.plan_changes;
		c->steps += t->s.steps;
		c->stall_ns += t->s.stall_ns;
	}
}

static const char trace_head[] = "policy,window,time_s,tenant,name,free_pages,model_pages,alpha,m,"
				 "kv_chunks,blocks_used,running,waiting,preemptions,steps,"
				 "bytes_streamed,turn\n";

static int policy_run(struct program *p, const struct mm_wl_case *c,
		      const struct mm_wl_sizes *sizes, const struct mm_wl_policy *policy,
		      struct mm_wl_record *record, json_t *details)
{
	struct ms_opts opts = { .wl = &p->opts,
				.sizes = sizes,
				.c = c,
				.record = record,
				.profile = p->profile,
				.core = p->core,
				.policy = policy,
				.alpha = p->alpha,
				.slots = p->slots,
				.step_ns = p->step_ns,
				.admit = p->admit,
				.broken_permille = p->broken_permille,
				.check = p->check,
				.trace = details ? p->trace : NULL };
	const double begin = clock_seconds(CLOCK_MONOTONIC),
		     cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
	char err[MS_ERROR_BYTES];
	struct ms_sim *sim;
	int r;

	playing.policy = policy->name;
	playing.window = c->window;
	r = ms_sim_run(&opts, &sim, err);
	if (r) {
		fprintf(stderr, "mmsim: %s\n", err);
		case_print();
		return r;
	}
	resources_count(record, sim);
	record->wall_s = clock_seconds(CLOCK_MONOTONIC) - begin;
	p->cpu_s += clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	p->wall_s += record->wall_s;
	p->simulated_s += (double)(sim->end_ns - sim->start_ns) / 1e9;
	if (details)
		json_array_append_new(details, ms_details(sim));
	ms_sim_destroy(sim);
	return 0;
}

/* Makes sizes with so much memory that the case can never fill it. */
static void sizes_unlimited(struct program *p, uint32_t window, struct mm_wl_sizes *ret)
{
	uint64_t page;

	mm_wl_sizes_unlimited(&p->opts, &p->sizes, &p->cases[window], ret);
	page = ret->page_bytes;
	while (ret->pool_bytes / page > PAGES_MAX)
		page *= 2;
	ret->page_bytes = page;
	ret->pool_bytes = 0;
	for (uint32_t i = 0; i < ret->tenants; i++) {
		struct mm_wl_tenant_sizes *s = &ret->tenant[i];

		s->weight_pages =
			mm_div_up(s->layer_bytes, page) * p->opts.tenant[i].shape->arch.layers +
			mm_div_up(s->resident_bytes, page);
		/* The engine rounds the share down to chunks, so it gets some pages more. */
		s->kv_share_bytes = mm_round_up(s->kv_share_bytes, page) + KV_SPARE_PAGES * page;
		ret->pool_bytes += s->weight_pages * page + s->kv_share_bytes;
	}
}

static int run_window(struct program *p, uint32_t policy, uint32_t window, json_t *details)
{
	const struct mm_wl_policy *of = &p->opts.policy[policy];
	struct mm_wl_record *record = &p->records[policy * p->opts.windows + window];
	struct mm_wl_sizes sizes = p->sizes;
	int r;

	if (of->unlimited)
		sizes_unlimited(p, window, &sizes);
	r = mm_wl_record_init(record, &p->cases[window], p->opts.seconds);
	if (!r)
		r = policy_run(p, &p->cases[window], &sizes, of, record, details);
	if (!r && of->unlimited && record->counters.preemptions) {
		fprintf(stderr, "mmsim: unlimited was short of memory\n");
		r = -EIO;
	}
	return r;
}

static int run_all(struct program *p)
{
	int r = 0;

	for (uint32_t i = 0; i < p->opts.policies && !r; i++) {
		json_t *details = json_array();

		json_object_set_new(p->details, p->opts.policy[i].name, details);
		for (uint32_t w = 0; w < p->opts.windows && !r; w++) {
			if (isatty(STDERR_FILENO))
				fprintf(stderr, "\rmmsim: %s, window %u of %u \033[K",
					p->opts.policy[i].name, w + 1, p->opts.windows);
			r = run_window(p, i, w, details);
		}
	}
	if (isatty(STDERR_FILENO))
		fputc('\n', stderr);
	return r;
}

/* ---- the case ---- */

static int program_prepare(struct program *p)
{
	char err[4096] = "out of memory";
	int r = mm_profile_load(p->opts.profile, &p->profile, err, sizeof(err));

	if (!r && p->opts.controller)
		r = mm_tune_parse(p->opts.controller, &p->core, err);
	if (!r)
		r = mm_wl_sizes(&p->opts, p->profile.memory_bytes, &p->sizes, err, sizeof(err));
	if (!r)
		r = mm_wl_source_open(&p->opts, &p->source, err, sizeof(err));
	p->cases = calloc(p->opts.windows, sizeof(*p->cases));
	p->records = calloc((size_t)p->opts.windows * p->opts.policies, sizeof(*p->records));
	p->details = json_object();
	if (!r && (!p->cases || !p->records || !p->details))
		r = -ENOMEM;
	for (uint32_t w = 0; w < p->opts.windows && !r; w++)
		r = mm_wl_case_make(&p->opts, &p->source, w, &p->cases[w], err, sizeof(err));
	if (!r)
		r = mm_wl_slo_alone(&p->opts, &p->sizes, &p->profile, &p->cases[0], ALONE_EACH,
				    &p->slo);
	return r ? mmsim_wrong(err) : 0;
}

static int trace_open(struct program *p)
{
	if (!p->trace_path)
		return 0;
	p->trace = fopen(p->trace_path, "we");
	if (p->trace && fputs(trace_head, p->trace) >= 0)
		return 0;
	fprintf(stderr, "mmsim: %s: cannot write: %m\n", p->trace_path);
	return -EIO;
}

static int trace_close(struct program *p)
{
	const bool failed = p->trace && (ferror(p->trace) | fclose(p->trace));

	p->trace = NULL;
	if (failed)
		fprintf(stderr, "mmsim: %s: cannot write all of it\n", p->trace_path);
	return failed ? -EIO : 0;
}

static int program_report(struct program *p)
{
	json_t *members =
		json_pack("{s:f, s:f, s:f, s:f, s:O}", "simulated_s", p->simulated_s, "wall_s",
			  p->wall_s, "cpu_s", p->cpu_s, "speed",
			  p->wall_s > 0 ? p->simulated_s / p->wall_s : 0, "details", p->details);
	const struct mm_wl_report report = { .mode = "simulated",
					     .opts = &p->opts,
					     .sizes = &p->sizes,
					     .cases = p->cases,
					     .records = p->records,
					     .slo = &p->slo,
					     .windows = p->opts.windows,
					     .more = members };
	int r = members ? 0 : -ENOMEM;

	if (!r)
		r = p->opts.json ? mm_wl_report_print(&report) : mm_wl_report_table(&report);
	json_decref(members);
	if (!r && fflush(stdout))
		r = -EIO;
	/* If stdout has no error, the report failed for lack of memory. */
	if (ferror(stdout))
		return mmsim_wrong("cannot write the report to standard output");
	return r ? mmsim_wrong(strerror(-r)) : 0;
}

static void program_done(struct program *p)
{
	for (uint32_t i = 0; p->records && i < p->opts.windows * p->opts.policies; i++)
		mm_wl_record_done(&p->records[i]);
	for (uint32_t w = 0; p->cases && w < p->opts.windows; w++)
		mm_wl_case_done(&p->cases[w]);
	free(p->records);
	free(p->cases);
	json_decref(p->details);
	mm_wl_source_done(&p->source);
}

int main(int argc, char **argv)
{
	static struct program p = { .alpha = -1,
				    .admit = MM_ADMIT_FULL,
				    .step_ns = MS_STEP_US * UINT64_C(1000),
				    .check = CHECK_EVERY };
	const struct mm_wl_program program = { .name = "mmsim",
					       .usage = usage,
					       .more = more,
					       .more_help = more_help,
					       .take = mmsim_option,
					       .user = &p };
	int r = mm_wl_options(argc, argv, &program, &p.opts);

	if (r)
		return r < 0 ? 2 : 0;
	playing.opts = &p.opts;
	signal(SIGABRT, on_abort);
	r = program_prepare(&p);
	if (!r)
		r = trace_open(&p);
	if (!r)
		r = run_all(&p);
	if (trace_close(&p))
		r = -EIO;
	if (!r)
		r = program_report(&p);
	program_done(&p);
	return r ? 1 : 0;
}
