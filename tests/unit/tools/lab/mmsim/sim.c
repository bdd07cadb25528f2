/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against results that can be computed by hand, and against itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "libclient/base/random.h"
#include "mmd/core/plan/plan.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/details.h"
#include "tools/lab/workload/knobs.h"

#define WORDS_MAX 32
#define STEP_NS   (150 * UINT64_C(1000))

struct fixture {
	struct mm_wl_opts wl;
	struct mm_wl_source source;
	struct mm_wl_sizes sizes;
	struct mm_wl_case c;
	struct mm_wl_record record;
	struct ms_opts opts;
	struct ms_plan plan[MM_WL_TENANTS_MAX];
	char line[512];
};

/* Makes the case of a command line. */
static void set_up(struct fixture *f, const char *line)
{
	static const struct mm_opt_command command = { .name = "",
						       .sets = { { mm_wl_options, 0 } } };
	static const struct mm_opt_program program = { .name = "sim",
						       .commands = &command,
						       .n_commands = 1 };
	char *words[WORDS_MAX] = { "sim" }, err[MM_PROFILE_ERROR_BYTES] = "";
	char why[MM_OPT_ERROR_BYTES];
	struct mm_opt_line unused;
	int n = 1;

	memset(f, 0, sizeof(*f));
	snprintf(f->line, sizeof(f->line), "%s", line);
	for (char *rest = f->line, *word; (word = strsep(&rest, " ")) && n < WORDS_MAX - 1;)
		words[n++] = word;
	assert_int_equal(mm_opt_parse(&program, n, words, &f->wl, &unused, why), MM_OPT_RUN);
	assert_int_equal(mm_wl_settle(&f->wl, why), 0);
	assert_int_equal(mm_profile_load(f->wl.profile, &f->opts.profile, err, sizeof(err)), 0);
	mm_wl_tokens_set(&f->opts.profile, &f->wl);
	assert_int_equal(
		mm_wl_sizes(&f->wl, f->opts.profile.memory_bytes, &f->sizes, err, sizeof(err)), 0);
	assert_int_equal(mm_wl_source_open(&f->wl, &f->source, err, sizeof(err)), 0);
	assert_int_equal(mm_wl_case_make(&f->wl, &f->source, 0, &f->c, err, sizeof(err)), 0);
	assert_int_equal(mm_wl_record_init(&f->record, &f->c, f->wl.seconds), 0);
	f->opts.wl = &f->wl;
	f->opts.sizes = &f->sizes;
	f->opts.c = &f->c;
	f->opts.record = &f->record;
	f->opts.policy = &f->wl.policy[0];
	f->opts.step_ns = STEP_NS;
}

static void tear_down(struct fixture *f)
{
	mm_wl_record_done(&f->record);
	mm_wl_case_done(&f->c);
	mm_wl_source_done(&f->source);
}

/* Has so many layers of each model away all the time. */
static void plan_by_hand(struct fixture *f, int32_t alpha, uint32_t slots)
{
	for (uint32_t t = 0; t < MM_WL_TENANTS_MAX; t++)
		f->plan[t] = (struct ms_plan){ .alpha = (uint32_t)alpha, .slots = slots };
	f->opts.plans = f->plan;
}

static struct ms_sim *case_run(struct fixture *f)
{
	char err[MS_ERROR_BYTES] = "";
	struct ms_sim *sim = NULL;
	int r = ms_sim_run(&f->opts, &sim, err);

	if (r)
		print_error("%s\n", err);
	assert_int_equal(r, 0);
	return sim;
}

/* Makes a case of one request per tenant, which arrives at the beginning. */
static void one_request(struct fixture *f, uint32_t prompt, uint32_t output)
{
	for (uint32_t t = 0; t < f->c.tenants; t++) {
		f->c.stream[t].n = 1;
		f->c.stream[t].request[0] =
			(struct mm_wl_request){ .prompt_tokens = prompt, .output_tokens = output };
	}
}

static double step_alone_ns(const struct ms_tenant *t, uint32_t first, uint32_t tokens)
{
	struct mm_step_batch batch = { 0 };
	struct mm_step_ns cost;

	mm_step_batch_add(&batch, first, tokens, true);
	mm_step_cost(&t->cost, &batch, &cost);
	return (double)(cost.before + t->n_layers * cost.layer + cost.after);
}

/* ---- by hand ---- */

/*
 * With one tenant and enough memory, the prompt and each token take the time of their kernels and
 * the host's part.
 */
static void steps_cost_what_they_cost(void **state)
{
	const uint32_t prompt = 100, output = 50;
	struct fixture f;
	struct ms_sim *sim;
	double ns = 0, host = STEP_NS + MS_SYNC_NS;

	(void)state;
	set_up(&f,
	       "--shapes OPT-6.7B:50 --policy recompute --sharing spatial --rate 1 --seconds 1");
	one_request(&f, prompt, output);
	f.opts.check = 1;
	sim = case_run(&f);
	ns = step_alone_ns(&sim->tenants[0], 0, prompt) + host;
	assert_true(fabs((double)f.record.served[0][0].first_ns - ns) < 100);
	for (uint32_t i = 1; i < output; i++)
		ns += step_alone_ns(&sim->tenants[0], prompt + i - 1, 1) + host;
	assert_int_equal(f.record.served[0][0].tokens, output);
	assert_true(fabs((double)f.record.served[0][0].last_ns - ns) < 100 * output);
	assert_int_equal(sim->tenants[0].s.steps, output);
	ms_sim_destroy(sim);
	tear_down(&f);
}

/* A request that takes as long as alone is late only where the goals leave it less. */
static void late_requests_are_counted(void **state)
{
	for (uint32_t hurry = 0; hurry < 2; hurry++) {
		const uint64_t second = hurry ? 0 : MM_NS_PER_S;
		struct fixture f;
		struct ms_sim *sim;

		(void)state;
		set_up(&f, "--shapes OPT-6.7B:50 --policy recompute --sharing spatial --rate 1 "
			   "--seconds 1 --slo-ttft 0");
		one_request(&f, 100, 20);
		f.c.stream[0].request[0].alone_ttft_ns = second;
		f.c.stream[0].request[0].alone_tpot_ns = second;
		sim = case_run(&f);
		assert_int_equal(sim->tenants[0].c.stats.requests_done, 1);
		assert_int_equal(sim->tenants[0].c.stats.requests_late, hurry);
		ms_sim_destroy(sim);
		tear_down(&f);
	}
}

/*
 * If two equal tenants compute at the same time, each takes twice as long, less the time of the
 * host's work.
 */
static void who_computes_shares(void **state)
{
	const uint32_t output = 200;
	struct fixture f;
	struct ms_sim *sim;
	double alone, both;

	(void)state;
	set_up(&f, "--shapes OPT-6.7B:40,OPT-6.7B:40 --policy recompute --sharing spatial --rate 9 "
		   "--seconds 1");
	one_request(&f, 8, output);
	sim = case_run(&f);
	alone = step_alone_ns(&sim->tenants[0], 100, 1);
	both = (double)sim->tenants[0].s.step_ns / output;
	assert_true(both > 1.8 * alone && both < 2.05 * alone);
	/* The device is never idle, and it is busy as long as both computations take. */
	assert_true((double)sim->devices[0].compute.busy_ns > 2 * output * alone * 0.98);
	ms_sim_destroy(sim);
	tear_down(&f);
}

/* If two tenants differ, each advances one layer in the time of both tenants' layers. */
static void layer_by_layer(void **state)
{
	struct fixture f;
	struct ms_sim *sim;
	double layers, ratio;

	(void)state;
	set_up(&f, "--shapes OPT-6.7B:30,OPT-13B:50 --policy recompute --sharing spatial --rate 9 "
		   "--seconds 1");
	one_request(&f, 8, 200);
	f.c.stream[1].request[0].output_tokens = 160;
	sim = case_run(&f);
	layers = (double)sim->tenants[0].n_layers / (double)sim->tenants[1].n_layers;
	ratio = (double)sim->tenants[0].s.step_ns / 200 / ((double)sim->tenants[1].s.step_ns / 160);
	assert_true(fabs(ratio / layers - 1) < 0.04);
	ms_sim_destroy(sim);
	tear_down(&f);
}

static void plan_of(const struct ms_sim *sim, struct mm_plan_set *set)
{
	const struct ms_tenant *t = &sim->tenants[0];
	const struct mm_core_plan *plan = mm_core_plan(t->dev->core, t->id);

	*set = (struct mm_plan_set){ .m = plan->m, .beta = plan->beta };
	for (uint32_t s = 0; s < plan->beta; s++)
		set->first_slot = plan->slot[s].layer[0] < plan->slot[set->first_slot].layer[0]
					  ? s
					  : set->first_slot;
	for (uint32_t i = 0; i < plan->m; i++)
		set->layer[i] =
			plan->slot[(i + set->first_slot) % plan->beta].layer[i / plan->beta];
}

/* A step takes the time that the planner computes for its set, if the link is the bottleneck. */
static void case_runs_cycling(const char *line, int32_t alpha, uint32_t slots)
{
	const uint32_t output = 60;
	struct mm_plan_set set;
	struct fixture f;
	struct ms_sim *sim;
	uint64_t t_c, t_t;
	double want, got;

	set_up(&f, line);
	one_request(&f, 8, output);
	plan_by_hand(&f, alpha, slots);
	sim = case_run(&f);
	plan_of(sim, &set);
	assert_int_equal(set.m, alpha + (int32_t)slots);
	t_t = (uint64_t)((double)f.sizes.tenant[0].layer_bytes / f.opts.profile.h2d_bps * 1e9) +
	      2 * MS_LOOK_NS;
	t_c = (uint64_t)((double)sim->tenants[0].step.cost.layer *
			 mm_cost_slowdown(&f.opts.profile, 1, 0));
	want = (double)mm_plan_set_step_ns(&set, sim->tenants[0].n_layers, t_c, t_t);
	got = (double)f.record.gaps[0].sum / (double)f.record.gaps[0].n;
	/* Work outside the layers adds to the time, unless the link streams meanwhile. */
	assert_true(got > want * 0.99);
	assert_true(got < want * 1.01 + STEP_NS + MS_SYNC_NS +
				  (double)(sim->tenants[0].step.cost.before +
					   sim->tenants[0].step.cost.after));
	assert_int_equal(sim->tenants[0].s.alpha_max, alpha);
	/* Only cycling layers are streamed, each once per step. */
	assert_true(sim->tenants[0].x.layers_streamed >= (uint64_t)set.m * (output - 1) &&
		    sim->tenants[0].x.layers_streamed <= (uint64_t)set.m * (output + 3));
	assert_int_equal(sim->tenants[0].x.bytes_streamed,
			 sim->tenants[0].x.layers_streamed * f.sizes.tenant[0].layer_bytes);
	ms_sim_destroy(sim);
	tear_down(&f);
}

#define ALONE                                                                             \
	"--shapes OPT-6.7B:50 --policy recompute --sharing spatial --rate 1 --seconds 1 " \
	"--profile "

static void cycling_steps_take_what_the_planner_says(void **state)
{
	(void)state;
	for (int32_t alpha = 1; alpha < 20; alpha += 3) {
		case_runs_cycling(ALONE "gh200-96,h2d_gbps=40", alpha, 1);
		case_runs_cycling(ALONE "gh200-96,h2d_gbps=40", alpha + 1, 2);
	}
}

static double step_with(int32_t alpha, double *ret_link_ns)
{
	struct fixture f;
	struct ms_sim *sim;
	double ns;

	set_up(&f, ALONE "gh200-96");
	one_request(&f, 8, 60);
	plan_by_hand(&f, alpha, 1);
	sim = case_run(&f);
	ns = (double)f.record.gaps[0].sum / (double)f.record.gaps[0].n;
	*ret_link_ns =
		(alpha + 1) * (double)f.sizes.tenant[0].layer_bytes / f.opts.profile.h2d_bps * 1e9;
	assert_true(sim->tenants[0].s.stall_ns < sim->tenants[0].s.step_ns / 100);
	ms_sim_destroy(sim);
	tear_down(&f);
	return ns;
}

/* Streaming that is hidden still takes memory bandwidth. */
static void streaming_slows_kernels_down(void **state)
{
	double link_ns, none, two, lost;

	(void)state;
	none = step_with(0, &link_ns);
	two = step_with(1, &link_ns);
	lost = link_ns * (1 - 1 / (1 + 419.0 / 4000));
	assert_true(two - none > 0.9 * lost && two - none < 1.1 * lost);
}

/* ---- cold blocks ---- */

struct cold_step {
	double work_ns, streamed_ns; /* of a step: of kernels and host; of the link */
	double slow;                 /* factor of kernels while the link streams */
	double got_ns;
};

/*
 * Runs steps of which each streams @entries cold blocks, used or not, and the weights of @m layers.
 */
static void cold_step_measure(const char *line, uint32_t entries, uint32_t m, struct cold_step *ret)
{
	const uint32_t output = 60;
	const struct ms_tenant *t;
	struct ms_sim *sim;
	struct fixture f;
	double bytes;

	set_up(&f, line);
	one_request(&f, 8, output);
	f.wl.cold_entries = entries;
	f.opts.cold_full = true;
	plan_by_hand(&f, m ? (int32_t)m - 2 : 0, m ? 2 : 0);
	sim = case_run(&f);
	t = &sim->tenants[0];
	assert_int_equal(mm_core_plan(t->dev->core, t->id)->m, m);
	bytes = (double)m * (double)f.sizes.tenant[0].layer_bytes +
		(double)entries * (double)t->kv.block_bytes;
	ret->work_ns = step_alone_ns(t, 8 + output / 2, 1) + STEP_NS + MS_SYNC_NS;
	ret->streamed_ns = bytes / f.opts.profile.h2d_bps * 1e9;
	ret->slow = mm_cost_slowdown(&f.opts.profile, 1, 0);
	ret->got_ns = (double)f.record.gaps[0].sum / (double)f.record.gaps[0].n;
	if (entries) {
		assert_int_equal(t->c.steps.plan.cycling, t->n_layers);
		assert_true(t->x.cold_rows >= (uint64_t)entries * t->n_layers * (output - 2));
		assert_int_equal(t->x.cold_bytes, t->x.cold_rows * t->kv.block_bytes / t->n_layers);
	}
	ms_sim_destroy(sim);
	tear_down(&f);
}

/* A step takes as long as its kernels, or as its link if that is longer, and not their sum. */
static void cold_steps_hide_what_they_stream(void **state)
{
	static const char *const lines[] = {
		"--shapes OPT-13B:50 --policy remap --sharing spatial --rate 1 --seconds 1",
		"--shapes Llama-3-8B:50 --policy remap --sharing spatial --rate 1 --seconds 1",
	};
	static const double parts[] = { 0.5, 0.9, 1.1 };
	struct cold_step s;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines) * 9; i++) {
		const char *line = lines[i / 9];
		const uint32_t m = 4 * (uint32_t)(i / 3 % 3);
		double hidden, want;

		cold_step_measure(line, 100, 0, &s);
		hidden = s.work_ns * s.slow / (s.streamed_ns / 100);
		cold_step_measure(line, (uint32_t)(hidden * parts[i % 3]), m, &s);
		want = fmax(s.work_ns + s.streamed_ns * (1 - 1 / s.slow), s.streamed_ns);
		print_message("m %u, %.1f of the hidden limit: %.3f ms, expected %.3f (%+.1f %%)\n",
			      m, parts[i % 3], s.got_ns / 1e6, want / 1e6,
			      100 * (s.got_ns / want - 1));
		assert_true(fabs(s.got_ns / want - 1) < 0.03);
	}
}

/* ---- against itself ---- */

static char *case_report(struct fixture *f, const struct ms_sim *sim)
{
	json_t *details = ms_details(sim);
	char *text = json_dumps(details, JSON_SORT_KEYS), *all = NULL;

	json_decref(details);
	assert_non_null(text);
	assert_true(asprintf(&all, "%s %llu %.17g", text, (unsigned long long)f->record.gaps[0].n,
			     f->record.gaps[0].sum) > 0);
	free(text);
	return all;
}

#define SHORT                                                                                \
	"--shapes OPT-13B:32,Llama-2-13B:32,Llama-3-8B:20 --pool 88G --rate 12 --seconds 4 " \
	"--max-len 1024 "                                                                    \
	"--page 64M "                                                                        \
	"--policy "

/* Did the case preempt requests or change plans? Otherwise it tests nothing. */
static bool sim_has_trouble(const struct ms_sim *sim)
{
	uint64_t sum = 0;

	for (uint32_t t = 0; t < sim->n_tenants; t++)
		sum += sim->tenants[t].e.sched.preemptions + sim->tenants[t].s.plan_changes;
	return sum != 0;
}

/*
 * With too little memory, all invariants hold after each event, a second run is the same, and all
 * requests are served.
 */
static void short_of_memory(const char *line)
{
	char *first = NULL;

	for (int i = 0; i < 2; i++) {
		struct fixture f;
		struct ms_sim *sim;
		char *text;

		set_up(&f, line);
		f.opts.check = i == 0 ? 97 : 0;
		sim = case_run(&f);
		for (uint32_t t = 0; t < sim->n_tenants; t++) {
			uint64_t requested = 0, got = 0;

			for (uint32_t r = 0; r < f.c.stream[t].n; r++) {
				requested += f.c.stream[t].request[r].output_tokens;
				got += f.record.served[t][r].tokens;
			}
			assert_int_equal(requested, got);
			assert_int_equal(requested, sim->tenants[t].s.tokens);
		}
		assert_true(sim_has_trouble(sim));
		text = case_report(&f, sim);
		ms_sim_destroy(sim);
		tear_down(&f);
		if (first)
			assert_string_equal(first, text);
		free(first);
		first = text;
	}
	free(first);
}

#define REMAP "--policy remap --sharing spatial "

/*
 * Cold blocks are used, by steps that break off and through changes of the plan, and each layer
 * finds the entries that it reads.
 */
static void cold_entries_are_there_when_read(void **state)
{
	static const char *const lines[] = {
		REMAP "--shapes OPT-13B:28.8 --rate 3 --seconds 3 --cold 60",
		REMAP
		"--shapes OPT-13B:28,Llama-3-8B:18 --rate 12 --seconds 2 --slots 2 --cold 100",
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		const struct ms_tenant *t;
		struct ms_sim *sim;
		struct fixture f;

		set_up(&f, lines[i]);
		f.opts.check = 1;
		f.opts.broken_permille = 50;
		sim = case_run(&f);
		t = &sim->tenants[0];
		assert_true(t->e.cold.cooled > f.wl.cold_entries);
		assert_true(t->x.cold_bytes > 10 * t->e.cold.cooled * t->kv.block_bytes);
		assert_true(t->s.plan_changes > 5 && t->s.steps_broken > 10);
		/* All requests have ended, and no entry is left. */
		assert_int_equal(t->e.sched.cold.n_free, f.wl.cold_entries);
		ms_sim_destroy(sim);
		tear_down(&f);
	}
}

/*
 * With the knob the market offers them: limits come and go with what is lacked, through windows of
 * several sizes, and each layer finds what it reads.
 */
static void the_market_offers_cold_blocks(void **state)
{
	static const char *const lines[] = {
		"--shapes OPT-13B:28.8 --policy remap --sharing spatial --rate 3 --seconds 3",
		REMAP "--shapes OPT-13B:28,Llama-3-8B:18 --rate 12 --seconds 4",
		"--combo C2 --policy remap --sharing temporal --rate 20 --seconds 2",
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		struct ms_sim *sim;
		struct fixture f;
		uint64_t cooled = 0;

		set_up(&f, lines[i]);
		f.opts.check = 1;
		f.opts.broken_permille = 50;
		f.opts.core.cold = MM_SWITCH_ON;
		sim = case_run(&f);
		for (uint32_t k = 0; k < sim->n_tenants; k++) {
			const struct ms_tenant *t = &sim->tenants[k];

			cooled += t->e.cold.cooled;
			assert_true(t->x.cold_bytes >= t->e.cold.cooled * t->kv.block_bytes);
			assert_int_equal(t->e.sched.cold.n_free, t->e.cold.entries_max);
		}
		assert_true(cooled > 20);
		ms_sim_destroy(sim);
		tear_down(&f);
	}
}

/* A tenant that lacks nothing has no window, and its layers do not cycle. */
static void nothing_to_gain_streams_nothing(void **state)
{
	const struct ms_tenant *t;
	struct ms_sim *sim;
	struct fixture f;

	(void)state;
	set_up(&f, "--shapes OPT-13B:60 --policy remap --sharing spatial --rate 2 --seconds 3");
	f.opts.check = 1;
	f.opts.core.cold = MM_SWITCH_ON;
	sim = case_run(&f);
	t = &sim->tenants[0];
	assert_true(t->e.cold.open && t->s.tokens > 100);
	assert_int_equal(t->x.cold_bytes + t->x.bytes_streamed, 0);
	assert_int_equal(t->s.plan_changes, 0);
	ms_sim_destroy(sim);
	tear_down(&f);
}

/* Layers go to the host while requests wait, and each step brings all of their KV in and out. */
static void pie_writes_back_what_it_brings(void **state)
{
	const struct ms_tenant *t;
	struct ms_sim *sim;
	struct fixture f;

	(void)state;
	set_up(&f, "--shapes OPT-13B:28.8 --policy pie --sharing spatial --rate 3 --seconds 3");
	f.opts.check = 1;
	sim = case_run(&f);
	t = &sim->tenants[0];
	assert_true(t->pie.m_max >= 5);
	assert_true(t->x.cold_bytes > 10 * t->e.cold.cooled * t->kv.block_bytes);
	/* But for rows that were in a window when it went, or on their way. */
	assert_true(t->x.returned_bytes < t->x.cold_bytes + t->x.cold_bytes / 10);
	assert_true(t->x.returned_bytes > t->x.cold_bytes - t->x.cold_bytes / 10);
	assert_int_equal(t->e.sched.cold.n_free, t->e.cold.entries_max);
	ms_sim_destroy(sim);
	tear_down(&f);
}

/* An engine that has nothing to do gives its window back, and gets it again when it has. */
static void idle_engines_give_their_window_back(void **state)
{
	const struct ms_tenant *t;
	struct ms_sim *sim;
	struct fixture f;

	(void)state;
	set_up(&f, "--shapes OPT-13B:28.8 --policy remap --sharing spatial --rate 2 --seconds 3 "
		   "--cold 60");
	assert_true(f.c.stream[0].n >= 3);
	f.c.stream[0].n = 3;
	for (uint32_t i = 0; i < 3; i++)
		f.c.stream[0].request[i] = (struct mm_wl_request){
			.arrival_ns = i * 5 * MM_NS_PER_S, .prompt_tokens = 100, .output_tokens = 30
		};
	plan_by_hand(&f, 0, 0);
	f.opts.check = 1;
	sim = case_run(&f);
	t = &sim->tenants[0];
	/* It is put in force before requests arrive, and ends twice. */
	assert_int_equal(t->s.plan_changes, 5);
	assert_int_equal(t->e.cold.window, t->e.cold.window_max);
	ms_sim_destroy(sim);
	tear_down(&f);
}

static void every_policy_holds_and_repeats(void **state)
{
	static const char *const lines[] = {
		SHORT "remap --sharing temporal",
		SHORT "remap --turns quantum",
		SHORT "remap --sharing mig --slots 2",
		SHORT "remap --sharing spatial --slots 1",
		SHORT "remap --sharing spatial --cold 60",
		SHORT "elastic-swap --sharing temporal --turns quantum --cold 7",
	};
	const struct mm_opt *policy = mm_opt_find(mm_wl_options, "policy", strlen("policy"));
	char line[256];

	(void)state;
	for (size_t i = 0; i < MM_POLICY_COUNT; i++) {
		const char *name = mm_opt_choice_name(policy->choices, i);

		assert_string_not_equal(name, "?");
		snprintf(line, sizeof(line), SHORT "%s --sharing %s", name,
			 i % 2 ? "temporal" : "spatial");
		short_of_memory(line);
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++)
		short_of_memory(lines[i]);
}

/*
 * The baseline has its share in single blocks, as an engine without mmd has, so that it does not
 * lose memory to chunks.
 */
static void the_baseline_loses_nothing_to_chunks(void **state)
{
	static const char *const lines[] = {
		"--combo C1 --seconds 1 --rate 3 --policy recompute --sharing spatial",
		"--combo C2 --seconds 1 --rate 3 --policy swap --sharing spatial",
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		struct fixture f;
		struct ms_sim *sim;

		set_up(&f, lines[i]);
		one_request(&f, 1000, 2);
		sim = case_run(&f);
		for (uint32_t t = 0; t < sim->n_tenants; t++) {
			const struct ms_tenant *tenant = &sim->tenants[t];
			const uint64_t blocks =
				(uint64_t)tenant->chunks_share * tenant->kv.blocks_per_chunk;
			const uint64_t share =
				f.sizes.tenant[t].kv_share_bytes / tenant->kv.block_bytes;

			print_message("%s: %llu of %llu blocks\n", tenant->name,
				      (unsigned long long)blocks, (unsigned long long)share);
			assert_true(blocks <= share && 100 * blocks >= 99 * share);
		}
		ms_sim_destroy(sim);
		tear_down(&f);
	}
}

/* A tenant that cannot run for lack of memory yields its turn to the others. */
static void no_turn_is_slept_through(void **state)
{
	struct fixture f;
	struct ms_sim *sim;

	(void)state;
	set_up(&f, "--combo C2 --seconds 30 --rate 2 --seed 3 --policy elastic --sharing temporal");
	sim = case_run(&f);
	print_message("busy %.1f of %.1f s\n", (double)sim->devices[0].compute.busy_ns / 1e9,
		      (double)(sim->end_ns - sim->start_ns) / 1e9);
	assert_true(sim->devices[0].compute.busy_ns > (sim->end_ns - sim->start_ns) * 4 / 5);
	ms_sim_destroy(sim);
	tear_down(&f);
}

/* ---- refused ---- */

static void a_case_without_room_is_refused(void **state)
{
	char err[MS_ERROR_BYTES] = "";
	struct ms_sim *sim = NULL;
	struct fixture f;

	(void)state;
	set_up(&f,
	       "--shapes OPT-6.7B:50 --policy recompute --sharing spatial --rate 1 --seconds 1");
	one_request(&f, 1024, 1024);
	f.sizes.tenant[0].kv_share_bytes = UINT64_C(512) << 20; /* holds 1024 tokens */
	f.sizes.pool_bytes = f.sizes.tenant[0].weight_pages * f.sizes.page_bytes +
			     f.sizes.tenant[0].kv_share_bytes;
	assert_int_equal(ms_sim_run(&f.opts, &sim, err), -ENOSPC);
	assert_null(sim);
	assert_non_null(strstr(err, "OPT-6.7B"));
	/* The weights do not fit, so mmd refuses the model. */
	f.sizes.tenant[0].kv_share_bytes = UINT64_C(4) << 30;
	f.sizes.pool_bytes = UINT64_C(4) << 30;
	assert_int_equal(ms_sim_run(&f.opts, &sim, err), -EIO);
	assert_non_null(strstr(err, "refuses its model"));
	/* The plan is not possible. */
	f.sizes.pool_bytes = UINT64_C(40) << 30;
	plan_by_hand(&f, 32, 0);
	assert_int_equal(ms_sim_run(&f.opts, &sim, err), -EIO);
	assert_non_null(strstr(err, "at most 31"));
	tear_down(&f);
}

/* ---- events ---- */

static void events_come_in_order(void **state)
{
	struct ms_heap heap = { 0 };
	struct ms_event last = { 0 };
	uint64_t x = 1;

	(void)state;
	for (uint32_t i = 0; i < 5000; i++) {
		ms_heap_push(&heap, mm_random_below(&x, 512), 0, 0, i);
		if (i % 3 == 2)
			ms_heap_pop(&heap);
	}
	while (heap.n) {
		const struct ms_event e = ms_heap_pop(&heap);

		assert_true(e.at_ns > last.at_ns ||
			    (e.at_ns == last.at_ns && (e.order > last.order || !last.order)));
		last = e;
	}
	ms_heap_done(&heap);
}

/* ---- explanations ---- */

/* A run with explanations ends as one without, and has those of the moments that it reached. */
static void explaining_changes_nothing(void **state)
{
	struct ms_explain explain = { .at_s = { 0, 1.5, 3, 1e5 }, .n = 4, .list = json_array() };
	uint64_t end[2], events[2];
	const json_t *moment, *device;
	struct ms_sim *sim;
	struct fixture f;

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		set_up(&f, SHORT "remap --sharing temporal --turns quantum");
		f.opts.explain = i ? &explain : NULL;
		sim = case_run(&f);
		end[i] = sim->end_ns;
		events[i] = sim->events;
		ms_sim_destroy(sim);
		tear_down(&f);
	}
	assert_int_equal(end[0], end[1]);
	assert_int_equal(events[0], events[1]);
	assert_int_equal(json_array_size(explain.list), 3);
	for (size_t i = 0; i < 3; i++) {
		moment = json_array_get(explain.list, i);
		device = json_array_get(json_object_get(moment, "devices"), 0);
		assert_true(json_real_value(json_object_get(moment, "at_s")) == explain.at_s[i]);
		assert_string_equal(json_string_value(json_object_get(moment, "policy")), "remap");
		assert_int_equal(json_array_size(json_object_get(device, "tenants")), f.wl.tenants);
		assert_true(json_array_size(json_object_get(device, "sentences")) >= 3);
	}
	json_decref(explain.list);
}

static void fifos_keep_their_order(void **state)
{
	struct ms_fifo fifo = { .item_bytes = sizeof(uint32_t) };
	uint32_t out = 0;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		ms_fifo_push(&fifo, &i);
		if (i % 2)
			continue;
		assert_int_equal(*(uint32_t *)ms_fifo_at(&fifo, 0), out++);
		ms_fifo_drop(&fifo);
	}
	for (; out < 1000; out++, ms_fifo_drop(&fifo))
		assert_int_equal(*(uint32_t *)ms_fifo_at(&fifo, 0), out);
	assert_null(ms_fifo_at(&fifo, 0));
	ms_fifo_done(&fifo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_in_order),
		cmocka_unit_test(fifos_keep_their_order),
		cmocka_unit_test(steps_cost_what_they_cost),
		cmocka_unit_test(late_requests_are_counted),
		cmocka_unit_test(who_computes_shares),
		cmocka_unit_test(layer_by_layer),
		cmocka_unit_test(cycling_steps_take_what_the_planner_says),
		cmocka_unit_test(streaming_slows_kernels_down),
		cmocka_unit_test(cold_steps_hide_what_they_stream),
		cmocka_unit_test(cold_entries_are_there_when_read),
		cmocka_unit_test(the_market_offers_cold_blocks),
		cmocka_unit_test(nothing_to_gain_streams_nothing),
		cmocka_unit_test(pie_writes_back_what_it_brings),
		cmocka_unit_test(idle_engines_give_their_window_back),
		cmocka_unit_test(every_policy_holds_and_repeats),
		cmocka_unit_test(no_turn_is_slept_through),
		cmocka_unit_test(the_baseline_loses_nothing_to_chunks),
		cmocka_unit_test(a_case_without_room_is_refused),
		cmocka_unit_test(explaining_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
