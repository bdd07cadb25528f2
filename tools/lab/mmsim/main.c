/* SPDX-License-Identifier: Apache-2.0 */
/* mmsim - measures in virtual time what `mmbench serve` measures. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/json.h"
#include "mmd/config/tune.h"
#include "tools/lab/mmsim/bound.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/details.h"
#include "tools/lab/mmsim/explain.h"
#include "tools/lab/mmsim/sim.h"
#include "tools/lab/workload/alone.h"
#include "tools/lab/workload/knobs.h"
#include "tools/lab/workload/report.h"

#define STEP_US_MAX    1000000u
#define BROKEN_MAX     500u  /* per mille, as a step is repeated until it is whole */
#define CHECK_EVERY    10000 /* events from check to check, without --check */
#define ALONE_EACH     32    /* requests of each tenant for the unloaded medians */
#define KV_SPARE_PAGES 8
#define EXPLAIN_MOST_S 1e6
#define PAGES_MAX      6000u /* limit with unlimited memory; pages get larger instead */

struct program {
	struct mm_wl_opts opts;
	struct ms_plan plan[MM_WL_TENANTS_MAX];
	uint32_t plans; /* 0: not given; 1: the same for all */
	uint32_t step_us;
	enum mm_admit admit;
	uint32_t slice_tokens;
	uint32_t broken_permille;
	bool cold_full;
	uint32_t pie_layers; /* 0: chosen */
	bool check;
	bool bound; /* print the bound, play nothing */
	const char *trace_path;
	FILE *trace;
	struct ms_explain explain;
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

/* ---- options ---- */

/* Parses plans, one for all tenants or one of each: "3" is alpha, "3:2" has the slots, too. */
static int plans_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct program *p = into;

	(void)opt;
	p->plans = 0;
	for (char *word; (word = strsep(&text, ","));) {
		unsigned int alpha, slots = 0;
		int end = 0, more_end = 0;

		if (p->plans == MM_WL_TENANTS_MAX || *word < '0' || *word > '9' ||
		    sscanf(word, "%4u%n:%1u%n", &alpha, &end, &slots, &more_end) < 1 ||
		    word[MM_MAX(end, more_end)] || alpha >= MM_LAYERS_MAX || slots > MM_SLOTS_MAX) {
			snprintf(why, MM_OPT_ERROR_BYTES,
				 "'%.64s' is not LAYERS or LAYERS:SLOTS, with 1 or 2 slots", word);
			return -EINVAL;
		}
		p->plan[p->plans++] = (struct ms_plan){ .alpha = alpha, .slots = slots };
	}
	return 0;
}

/* Gives each tenant its plan. */
static int plans_settle(struct program *p, char *why)
{
	if (p->plans > 1 && p->plans != p->opts.tenants) {
		snprintf(why, MM_OPT_ERROR_BYTES,
			 "--plan: %u plans for %u tenants; give one for all or one of each",
			 p->plans, p->opts.tenants);
		return -EINVAL;
	}
	for (uint32_t t = 1; p->plans == 1 && t < p->opts.tenants; t++)
		p->plan[t] = p->plan[0];
	return 0;
}

/* Some layer of each model must be on the device. */
static int pie_settle(const struct program *p, char *why)
{
	for (uint32_t t = 0; t < p->opts.tenants; t++) {
		const struct mm_shape *shape = p->opts.tenant[t].shape;

		if (p->pie_layers < shape->arch.layers)
			continue;
		snprintf(why, MM_OPT_ERROR_BYTES, "--pie-layers %u: %s has %u layers",
			 p->pie_layers, shape->name, shape->arch.layers);
		return -EINVAL;
	}
	return 0;
}

/* Parses moments: "12" or "1.5,12,60", ascending. */
static int explain_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	struct ms_explain *e = &((struct program *)into)->explain;
	char *save = NULL;

	e->n = 0;
	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		double *at = &e->at_s[e->n];

		if (e->n == MS_EXPLAIN_MAX) {
			snprintf(why, MM_OPT_ERROR_BYTES, "more than %d moments", MS_EXPLAIN_MAX);
			return -EINVAL;
		}
		if (mm_opt_real(opt, word, at, why) < 0)
			return -EINVAL;
		if (e->n && *at <= at[-1]) {
			snprintf(why, MM_OPT_ERROR_BYTES, "'%.64s' is not after the one before it",
				 word);
			return -EINVAL;
		}
		e->n++;
	}
	if (!e->n)
		snprintf(why, MM_OPT_ERROR_BYTES, "it has no moment");
	return e->n ? 0 : -EINVAL;
}

static const struct mm_opt_choice pie_layers_choices[] = {
	{ "auto", 0, "as its paper chooses" },
	{ NULL, 0, NULL },
};

static const struct mm_opt_choice admit_choices[] = {
	{ "whole", MM_ADMIT_WHOLE, "for its tokens and one more, taken at once" },
	{ "full", MM_ADMIT_FULL, "for its tokens, taken as they are computed" },
	{ "chunk", MM_ADMIT_CHUNK, "for those of one step" },
	{ NULL, 0, NULL },
};

#define AT(field) MM_OPT_AT(struct program, field)

static const struct mm_opt mmsim_options[] = {
	{ "trace-out", "FILE", "write CSV: what each tenant has and does, every 15 ms", MM_OPT_TEXT,
	  AT(trace_path) },
	{ "check", NULL, "check every invariant after every event (slow)", MM_OPT_FLAG, AT(check),
	  .group = "Of the simulator alone" },
	{ "plan", "LAYERS[:SLOTS],...",
	  "so many layers of all models, or of each, are away all the time, as by mmctl plan set",
	  MM_OPT_CALL, .parse = plans_parse, .otherwise = "mmd decides" },
	{ "step-us", "US", "the engine's own time for each step", MM_OPT_NUMBER, AT(step_us),
	  .preset = MS_STEP_US_TEXT, .max = STEP_US_MAX, .unit = "us" },
	{ "admit", "NAME", "let in a request that waits when there is memory", MM_OPT_CHOICE,
	  AT(admit), .preset = "full", .choices = admit_choices },
	{ "slice-tokens", "N",
	  "a request that waits and does not fit takes the place of those that have had N tokens "
	  "since they were let in; these go on later, from --swap: 64 on links of 150 GB/s and "
	  "more, 256 on others",
	  MM_OPT_NUMBER, AT(slice_tokens), .max = UINT32_MAX, .otherwise = "never" },
	{ "broken-steps", "N",
	  "of a thousand steps of each tenant so many break off before a layer drawn by the seed",
	  MM_OPT_NUMBER, AT(broken_permille), .preset = "0", .max = BROKEN_MAX },
	{ "cold-full", NULL,
	  "each step streams all --cold blocks, used or not: what streaming costs at most",
	  MM_OPT_FLAG, AT(cold_full) },
	{ "pie-layers", "M",
	  "under policy pie so many layers of KV are on the host all the time; of 2 both are under "
	  "way, which is as if there were none",
	  MM_OPT_NUMBER, AT(pie_layers), .preset = "auto", .min = 2, .max = MM_LAYERS_MAX,
	  .choices = pie_layers_choices },
	{ "explain", "S[,S...]",
	  "explain what mmd has decided at these moments of each window, in virtual seconds: bids, "
	  "offers, prices, and what was chosen",
	  MM_OPT_CALL, .parse = explain_parse, .most = EXPLAIN_MOST_S },
	{ "bound", NULL, "play nothing: print what no policy can exceed in this case", MM_OPT_FLAG,
	  AT(bound) },
	{ 0 },
};

static const struct mm_opt_command mmsim_command = {
	.name = "",
	.arguments = "",
	.sets = { { mm_wl_options, offsetof(struct program, opts) }, { mmsim_options, 0 } },
};

static const struct mm_opt_section mmsim_sections[] = {
	{ .title = "Files",
	  .text = "../share/mmd/profiles/NAME.conf, as seen from the program: device profiles." },
	{ 0 },
};

static const struct mm_opt_program mmsim_program = {
	.name = "mmsim",
	.summary = "play a trace against models that share a device, in virtual time",
	.text = "Runs mmd's decisions and mmserve's scheduler, the very code, in a simulated "
		"world: each policy, one after the other, serves the same requests on the same "
		"device, which is a profile. A table, or with --json one JSON object, says "
		"throughput, goodput, latencies and what it took. The same line gives the same "
		"result, and describes the same case to `mmbench serve`, which runs it for real.",
	.commands = &mmsim_command,
	.n_commands = 1,
	.exits = "Exit status: 0 done; 1 failed: the case is refused, or an invariant does not "
		 "hold, and standard error has the seed, the window, the policy, the commit and "
		 "the time that reproduce it; 2 usage.",
	.sections = mmsim_sections,
	.man_section = "1",
	.see_also = "mmbench(1), mmd(8), mmctl(1), Documentation/mmsim.md",
};

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
				.plans = p->plans ? p->plan : NULL,
				.step_ns = p->step_us * MS_US,
				.admit = p->admit,
				.slice_tokens = p->slice_tokens,
				.broken_permille = p->broken_permille,
				.cold_full = p->cold_full,
				.pie_layers = p->pie_layers,
				.check = p->check ? 1 : CHECK_EVERY,
				.trace = details ? p->trace : NULL,
				.explain = details && p->explain.n ? &p->explain : NULL };
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

/*
 * Divides a pool that no device has into larger pages, so that they are not too many. @unlimited:
 * shares are rounded up, and get some pages more, as the engine rounds them down to chunks.
 */
static void sizes_repage(const struct program *p, bool unlimited, struct mm_wl_sizes *sizes)
{
	uint64_t page = sizes->page_bytes;

	while (sizes->pool_bytes / page > PAGES_MAX)
		page *= 2;
	sizes->page_bytes = page;
	sizes->pool_bytes = 0;
	for (uint32_t i = 0; i < sizes->tenants; i++) {
		struct mm_wl_tenant_sizes *s = &sizes->tenant[i];

		s->weight_pages =
			mm_div_up(s->layer_bytes, page) * p->opts.tenant[i].shape->arch.layers +
			mm_div_up(s->resident_bytes, page);
		s->kv_share_bytes =
			unlimited ? mm_round_up(s->kv_share_bytes, page) + KV_SPARE_PAGES * page
				  : s->kv_share_bytes / page * page;
		sizes->pool_bytes += s->weight_pages * page + s->kv_share_bytes;
	}
}

/* Makes the sizes of a policy: those of the case, or those of a reference. */
static void sizes_of(const struct program *p, const struct mm_wl_policy *policy, uint32_t window,
		     struct mm_wl_sizes *ret)
{
	*ret = p->sizes;
	if (policy->unlimited)
		mm_wl_sizes_unlimited(&p->opts, &p->sizes, &p->cases[window], ret);
	else if (policy->ideal)
		mm_wl_sizes_ideal(&p->sizes, ret);
	else
		return;
	sizes_repage(p, policy->unlimited, ret);
}

static int run_window(struct program *p, uint32_t policy, uint32_t window, json_t *details)
{
	const struct mm_wl_policy *of = &p->opts.policy[policy];
	struct mm_wl_record *record = &p->records[policy * p->opts.windows + window];
	struct mm_wl_sizes sizes;
	int r;

	sizes_of(p, of, window, &sizes);
	r = mm_wl_record_init(record, &p->cases[window], p->opts.seconds);
	if (!r)
		r = policy_run(p, &p->cases[window], &sizes, of, record, details);
	if (!r && of->unlimited && record->counters.preemptions) {
		fprintf(stderr, "mmsim: unlimited was short of memory\n");
		r = -EIO;
	}
	return r;
}

/* Prints the explanations of a window that has ended, and which moments it did not reach. */
static void window_explain(const struct program *p, const char *policy, uint32_t window,
			   size_t before)
{
	size_t n = json_array_size(p->explain.list);

	for (size_t i = before; i < n; i++)
		ms_explain_print(json_array_get(p->explain.list, i));
	for (size_t i = n - before; i < p->explain.n; i++)
		printf("%s, window %u, at %.3f s: it had ended.\n\n", policy, window,
		       p->explain.at_s[i]);
}

static int run_all(struct program *p)
{
	int r = 0;

	for (uint32_t i = 0; i < p->opts.policies && !r; i++) {
		json_t *details = json_array();
		size_t before;

		json_object_set_new(p->details, p->opts.policy[i].name, details);
		for (uint32_t w = 0; w < p->opts.windows && !r; w++) {
			if (isatty(STDERR_FILENO))
				fprintf(stderr, "\rmmsim: %s, window %u of %u \033[K",
					p->opts.policy[i].name, w + 1, p->opts.windows);
			before = json_array_size(p->explain.list);
			r = run_window(p, i, w, details);
			if (!r && !p->opts.json)
				window_explain(p, p->opts.policy[i].name, w, before);
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
	if (!r) {
		mm_wl_knobs_set(&p->profile, &p->core);
		mm_wl_tokens_set(&p->profile, &p->opts);
	}
	if (!r)
		r = mm_wl_sizes(&p->opts, p->profile.memory_bytes, &p->sizes, err, sizeof(err));
	if (!r)
		r = mm_wl_source_open(&p->opts, &p->source, err, sizeof(err));
	p->cases = calloc(p->opts.windows, sizeof(*p->cases));
	p->records = calloc((size_t)p->opts.windows * p->opts.policies, sizeof(*p->records));
	p->details = json_object();
	p->explain.list = json_array();
	if (!r && (!p->cases || !p->records || !p->details || !p->explain.list))
		r = -ENOMEM;
	for (uint32_t w = 0; w < p->opts.windows && !r; w++)
		r = mm_wl_case_make(&p->opts, &p->source, w, &p->cases[w], err, sizeof(err));
	for (uint32_t w = 0; w < p->opts.windows && !r; w++)
		mm_wl_alone(&p->opts, &p->profile, &p->cases[w]);
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

/* Reports why what was printed is not whole, if it is not. @r: what printing returned. */
static int output_end(int r)
{
	if (!r && fflush(stdout))
		r = -EIO;
	/* If stdout has no error, the report failed for lack of memory. */
	if (ferror(stdout))
		return mmsim_wrong("cannot write the report to standard output");
	return r ? mmsim_wrong(strerror(-r)) : 0;
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

	if (!r && p->explain.n)
		r = mm_json_put(members, "explained", json_incref(p->explain.list));
	if (!r)
		r = p->opts.json ? mm_wl_report_print(&report) : mm_wl_report_table(&report);
	json_decref(members);
	return output_end(r);
}

static int program_bound(struct program *p)
{
	return output_end(ms_bound_print(&p->opts, &p->sizes, &p->profile, p->cases));
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
	json_decref(p->explain.list);
	mm_wl_source_done(&p->source);
}

int main(int argc, char **argv)
{
	static struct program p;
	char why[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;
	int r = mm_opt_main(&mmsim_program, argc, argv, &p, &line);

	if (r >= 0)
		return r;
	if (mm_wl_settle(&p.opts, why) || plans_settle(&p, why) || pie_settle(&p, why))
		return mm_opt_refuse(&mmsim_program, line.command, "%s", why);
	playing.opts = &p.opts;
	signal(SIGABRT, on_abort);
	r = program_prepare(&p);
	if (!r && p.bound) {
		r = program_bound(&p);
		program_done(&p);
		return r ? 1 : 0;
	}
	if (!r)
		r = trace_open(&p);
	if (!r)
		r = run_all(&p);
	if (trace_close(&p))
		r = -EIO;
	if (!r)
		r = program_report(&p);
	program_done(&p);
	return r ? MM_EXIT_FAILED : MM_EXIT_DONE;
}
