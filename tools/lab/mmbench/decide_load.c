/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/decide_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/protocol/xplan.h"
#include "libclient/base/base.h"
#include "libclient/base/heap.h"
#include "libclient/base/random.h"
#include "mmd/core/book/book.h"
#include "mmd/core/core.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/value.h"
#include "tools/lab/mmbench/decide_kept.h"

#define PAGE_BYTES    (UINT64_C(16) << 20)
#define CHUNKS_MAX    64 /* chunks of a tenant's arena */
#define CONTROL_NS    (5 * UINT64_C(1000))
#define MAP_NS        (200 * UINT64_C(1000)) /* time that a tenant takes to map a new plan */
#define ACTIONS_MAX   (1u << 19)
#define QUIET_SETTLES 20000 /* over the number of tenants, but at least QUIET_LEAST */
#define QUIET_LEAST   200
#define REPEAT_EVERY  16 /* decisions, of which one is repeated */
#define ACTIVE_STEPS  60 /* average length of a busy phase, and of an idle one */
#define IDLE_STEPS    120

enum event_kind { STEP, PARK, COMMIT, JOB };

struct load_event {
	uint64_t when_ns;
	enum event_kind event_kind;
	uint32_t who;
};

struct load_engine {
	uint32_t id;
	bool active, ready, prepared;
	uint64_t epoch;       /* epoch of the plan change under way */
	uint64_t until_steps; /* steps until it becomes idle or busy */
	uint64_t steps;
	uint32_t demand, want, held, asked_back;
	uint64_t chunks; /* bitmap of the chunks that it holds */
};

struct load {
	const struct mm_decide_opts *opts;
	struct mm_decide_result *result;
	struct mm_core *core;
	uint64_t now_ns, rng;
	struct load_engine *engine;
	struct load_event *heap;
	uint32_t n_events, events_max;
	struct mm_msg *job; /* ring of jobs, which are done one after the other */
	uint64_t job_head, job_tail;
	struct mm_action *action;
	uint32_t actions;
	uint64_t timed, warm; /* timed events so far; events before that */
	uint32_t *took;       /* least ns of each timed event over all runs; 0: none yet */
	uint8_t *kind;
	uint64_t decided_ns;            /* when the core decided last */
	struct mm_market_memory memory; /* of the decision that is repeated, and its targets */
	struct mm_targets targets;
	struct mm_decide_kept *kept; /* NULL: the core is not kept */
	int64_t logarithms;          /* their sum, so that the compiler computes them */
};

static uint64_t random_below(struct load *l, uint64_t n)
{
	return mm_random_below(&l->rng, n);
}

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * MM_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- what comes when ---- */

static bool event_is_sooner(const void *one, const void *other)
{
	const struct load_event *a = one, *b = other;

	return a->when_ns < b->when_ns;
}

static void event_schedule(struct load *l, uint64_t ns, enum event_kind event_kind, uint32_t who)
{
	const struct load_event e = { l->now_ns + ns, event_kind, who };

	mm_assert(l->n_events < l->events_max);
	mm_heap_push(l->heap, l->n_events++, sizeof(e), event_is_sooner, &e);
}

static struct load_event take_first(struct load *l)
{
	struct load_event first;

	mm_heap_pop(l->heap, l->n_events--, sizeof(first), event_is_sooner, &first);
	return first;
}

/* ---- the core's calls, timed ---- */

struct load_call {
	enum mm_decide_kind kind;
	uint32_t tenant;
	struct mm_msg msg;
	const struct mm_tenant_stats *stats;
	int result;
};

static void call_enter(struct load *l, const struct load_call *call)
{
	switch (call->kind) {
	case MM_DECIDE_STATS:
		mm_core_on_stats(l->core, l->now_ns, call->tenant, call->stats);
		break;
	case MM_DECIDE_JOB:
		mm_core_on_job_done(l->core, l->now_ns, call->msg.user_data, 0);
		break;
	case MM_DECIDE_LINK:
		mm_core_on_streamed(l->core, call->tenant, l->opts->layer_pages * l->opts->page_ns);
		break;
	case MM_DECIDE_TICK:
		mm_core_on_tick(l->core, l->now_ns);
		break;
	default:
		mm_core_on_request(l->core, l->now_ns, call->tenant, &call->msg);
	}
}

/* Enters the call as an event, which is written down before it happens. */
static void call_enter_kept(struct load *l, const struct load_call *call)
{
	struct mm_event e = { .kind = MM_EVENT_REQUEST,
			      .tenant = call->tenant,
			      .now_ns = l->now_ns };

	switch (call->kind) {
	case MM_DECIDE_STATS:
		e.kind = MM_EVENT_STATS;
		e.stats = call->stats;
		break;
	case MM_DECIDE_JOB:
		e.kind = MM_EVENT_JOB_DONE;
		e.job.id = call->msg.user_data;
		break;
	case MM_DECIDE_LINK:
		e.kind = MM_EVENT_STREAMED;
		e.layer_ns = l->opts->layer_pages * l->opts->page_ns;
		break;
	case MM_DECIDE_TICK:
		e.kind = MM_EVENT_TICK;
		break;
	default:
		e.msg = call->msg;
	}
	mm_decide_kept_event(l->kept, l->core, &e);
}

static void actions_perform(struct load *l);

static void actions_take(struct load *l)
{
	uint64_t none = 0, *performed = l->kept ? &l->kept->performed : &none;

	while (l->actions < ACTIONS_MAX && mm_core_next(l->core, &l->action[l->actions])) {
		l->actions++;
		/* A successor must not see this later than the action. */
		__atomic_store_n(performed, *performed + 1, __ATOMIC_RELEASE);
	}
}

/* ---- a decision alone ---- */

/*
 * Repeats the last decision on the view that it saw, and computes as many logarithms as the
 * reference has: what else the machine does then makes both longer.
 */
static void decision_repeat(struct load *l)
{
	const struct mm_market *m = l->core->market;
	uint64_t began, between;

	l->memory = m->memory;
	began = real_ns();
	m->policy->decide(&m->view, &l->memory, &l->targets);
	between = real_ns();
	mm_histogram_add(&l->result->decide, between - began, 1);
	for (uint64_t i = 0; i < MM_DECIDE_REFERENCE; i++)
		l->logarithms += mm_value_ln(between + i, began);
	mm_histogram_add(&l->result->reference, real_ns() - between, 1);
}

/* Counts a decision that the last event led to. */
static void decision_note(struct load *l)
{
	uint64_t decided_ns = l->core->market->targets.decided_ns;

	if (decided_ns == l->decided_ns)
		return;
	l->decided_ns = decided_ns;
	if (l->result->decisions++ % REPEAT_EVERY == 0)
		decision_repeat(l);
}

/* ---- events ---- */

/*
 * Gives the event to the core as mmd's shell does, takes its actions and reads its deadline, and
 * measures how long these take. Then performs the actions, which is not measured.
 */
static void call_make(struct load *l, const struct load_call *call)
{
	uint64_t began = real_ns(), ns;

	if (l->kept)
		call_enter_kept(l, call);
	else
		call_enter(l, call);
	actions_take(l);
	(void)mm_core_deadline(l->core);
	ns = real_ns() - began;
	if (l->timed >= l->warm && l->timed - l->warm < l->opts->events) {
		uint64_t i = l->timed - l->warm;

		ns = MM_MIN(MM_MAX(ns, 1), UINT32_MAX);
		l->took[i] = l->took[i] ? MM_MIN(l->took[i], (uint32_t)ns) : (uint32_t)ns;
		l->kind[i] = (uint8_t)call->kind;
		if (!l->kept)
			decision_note(l);
	}
	if (l->kept)
		mm_decide_kept_image(l->kept, l->core, real_ns() - began);
	l->timed++;
	actions_perform(l);
}

static void request_send(struct load *l, struct load_engine *e, enum mm_decide_kind kind,
			 enum mm_op op, uint64_t epoch, uint64_t arg)
{
	call_make(l, &(struct load_call){
			     .kind = kind,
			     .tenant = e->id,
			     .msg = { .opcode = (uint16_t)op, .epoch = epoch, .arg = { arg } } });
}

/* ---- what the core wants done ---- */

static uint64_t job_ns(const struct load *l, const struct mm_msg *job)
{
	switch (job->opcode) {
	case MM_XOP_COPY:
		return l->opts->page_ns;
	case MM_XOP_CREATE:
		return CONTROL_NS * job->arg[1];
	default:
		return CONTROL_NS;
	}
}

static void job_add(struct load *l, const struct mm_msg *job)
{
	l->job[l->job_tail++ % MM_XQ_SLOTS] = *job;
	if (l->job_tail - l->job_head == 1)
		event_schedule(l, job_ns(l, job), JOB, 0);
}

static void event_handle(struct load *l, struct load_engine *e, const struct mm_msg *msg)
{
	uint32_t index = (uint32_t)(e - l->engine);

	switch (msg->opcode) {
	case MM_EV_PREPARE:
		e->epoch = msg->epoch;
		e->prepared = true;
		if (!e->active)
			event_schedule(l, CONTROL_NS, PARK, index);
		break;
	case MM_EV_SWITCH:
		e->epoch = msg->epoch;
		event_schedule(l, MAP_NS, COMMIT, index);
		break;
	case MM_EV_MODEL_READY:
		e->ready = !msg->result;
		break;
	case MM_EV_KV_GRANT:
		e->chunks |= UINT64_C(1) << msg->arg[0];
		e->held++;
		break;
	case MM_EV_KV_DENIED: /* the engine preempts a request */
		e->demand = MM_MIN(e->demand, e->held);
		break;
	case MM_EV_KV_RECLAIM:
		e->asked_back = (uint32_t)msg->arg[0];
		break;
	default:
		break;
	}
}

static void actions_perform(struct load *l)
{
	uint32_t n = l->actions;

	mm_assert(n < ACTIONS_MAX);
	l->actions = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct mm_action *a = &l->action[i];

		if (a->kind == MM_ACT_JOB)
			job_add(l, &a->msg);
		else if (a->kind == MM_ACT_EVENT)
			event_handle(l, &l->engine[MM_TENANT_INDEX(a->tenant)], &a->msg);
	}
}

/* ---- engines ---- */

static void chunk_release(struct load *l, struct load_engine *e)
{
	uint32_t chunk = (uint32_t)__builtin_ctzll(e->chunks);

	e->chunks &= e->chunks - 1;
	e->held--;
	e->want -= e->want != 0;
	request_send(l, e, MM_DECIDE_RELEASE, MM_OP_KV_RELEASE, 0, chunk);
}

/* Changes the demand: requests come and end, and at times many come at once. */
static void demand_moves(struct load *l, struct load_engine *e)
{
	uint64_t choice = random_below(l, 100);

	if (!e->active) {
		e->demand = 0;
		return;
	}
	if (choice < 3)
		e->demand += 16;
	else if (choice < 45)
		e->demand += 1;
	else if (choice < 85)
		e->demand -= e->demand != 0;
	e->demand = MM_MIN(e->demand, CHUNKS_MAX);
}

static void kv_adjust(struct load *l, struct load_engine *e)
{
	while (e->asked_back && e->held > e->demand) {
		e->asked_back--;
		chunk_release(l, e);
	}
	e->asked_back = 0;
	if (e->active && e->held > e->demand + 8)
		chunk_release(l, e);
	if (e->demand > e->held && e->want != e->demand) {
		e->want = e->demand;
		request_send(l, e, MM_DECIDE_DEMAND, MM_OP_KV_WANT, 0, e->want);
	} else if (e->demand <= e->held && e->want > e->held) {
		e->want = e->held;
		request_send(l, e, MM_DECIDE_DEMAND, MM_OP_KV_WANT, 0, e->want);
	}
}

static void streaming_report(struct load *l, struct load_engine *e)
{
	const struct mm_core_plan *plan = mm_core_plan(l->core, e->id);

	for (uint32_t i = 0; plan && i < MM_MIN(plan->m, 4u); i++)
		call_make(l, &(struct load_call){ .kind = MM_DECIDE_LINK, .tenant = e->id });
}

static void engine_park(struct load *l, struct load_engine *e)
{
	if (!e->prepared)
		return;
	e->prepared = false;
	request_send(l, e, MM_DECIDE_ANSWER, MM_OP_PARKED, e->epoch, 0);
}

/* Handles the end of a step; an idle tenant only counts the time of a step. */
static void engine_end_step(struct load *l, struct load_engine *e)
{
	struct mm_tenant_stats s = { .step_seq = 2 * e->steps,
				     .steps = e->steps,
				     .samples = e->steps,
				     .step_ns = l->opts->step_ns,
				     .kv_chunks_used = MM_MIN(e->demand, e->held),
				     .running = e->active };

	if (e->active && e->ready) {
		e->steps++;
		s.steps = s.samples = e->steps;
		s.step_seq = 2 * e->steps;
		s.step_ns += random_below(l, l->opts->step_ns / 8);
		l->result->steps += l->timed >= l->warm;
		streaming_report(l, e);
	}
	demand_moves(l, e);
	call_make(l, &(struct load_call){ .kind = MM_DECIDE_STATS, .tenant = e->id, .stats = &s });
	kv_adjust(l, e);
	engine_park(l, e);
	if (!e->until_steps--) {
		e->active = !e->active;
		e->until_steps = random_below(l, 2 * (e->active ? ACTIVE_STEPS : IDLE_STEPS));
	}
	event_schedule(l, l->opts->step_ns, STEP, (uint32_t)(e - l->engine));
}

/* ---- from the beginning to the end ---- */

static void job_done(struct load *l)
{
	struct load_call call = { .kind = MM_DECIDE_JOB,
				  .msg = l->job[l->job_head++ % MM_XQ_SLOTS] };

	if (l->job_head < l->job_tail)
		event_schedule(l, job_ns(l, &l->job[l->job_head % MM_XQ_SLOTS]), JOB, 0);
	call_make(l, &call);
}

static void go_on(struct load *l)
{
	struct load_event e;

	if (mm_core_deadline(l->core) <= l->heap[0].when_ns) {
		l->now_ns = MM_MAX(l->now_ns, mm_core_deadline(l->core));
		call_make(l, &(struct load_call){ .kind = MM_DECIDE_TICK });
		return;
	}
	e = take_first(l);
	l->now_ns = e.when_ns;
	switch (e.event_kind) {
	case STEP:
		engine_end_step(l, &l->engine[e.who]);
		break;
	case PARK:
		engine_park(l, &l->engine[e.who]);
		break;
	case COMMIT:
		request_send(l, &l->engine[e.who], MM_DECIDE_ANSWER, MM_OP_COMMITTED,
			     l->engine[e.who].epoch, 0);
		break;
	case JOB:
		job_done(l);
		break;
	}
}

static int engine_join(struct load *l, uint32_t i)
{
	const struct mm_core_join join = { .account = i, .features = MM_FEAT_KNOWN };
	struct mm_core_group group[MM_LAYERS_MAX + 1];
	uint64_t bytes = l->opts->layer_pages * PAGE_BYTES;
	struct load_engine *e = &l->engine[i];
	int r = mm_core_on_join(l->core, l->now_ns, &join, &e->id);

	if (r)
		return -ENOSPC;
	group[0] = (struct mm_core_group){ 0, PAGE_BYTES };
	for (uint32_t k = 1; k <= l->opts->layers; k++)
		group[k] = (struct mm_core_group){ PAGE_BYTES + (k - 1) * bytes, bytes };
	e->until_steps = random_below(l, ACTIVE_STEPS);
	mm_core_on_model(l->core, l->now_ns, e->id, i + 1, PAGE_BYTES + l->opts->layers * bytes,
			 group, l->opts->layers + 1);
	actions_take(l);
	actions_perform(l);
	call_make(l, &(struct load_call){
			     .kind = MM_DECIDE_DEMAND,
			     .tenant = e->id,
			     .msg = { .opcode = MM_OP_KV_DECLARE,
				      .arg = { PAGE_BYTES, 1, CHUNKS_MAX, l->opts->chunks } } });
	return 0;
}

static int all_stand(struct load *l)
{
	for (uint32_t i = 0; i < l->opts->tenants; i++) {
		int r = engine_join(l, i);

		if (r < 0)
			return r;
		while (l->n_events)
			go_on(l);
		if (!l->engine[i].ready)
			return -ENOSPC;
	}
	return 0;
}

/*
 * Times settling when nothing has happened. It is done many times, because a clock is too coarse
 * for a single one.
 */
static void load_settle(struct load *l)
{
	uint32_t n = MM_MAX(QUIET_SETTLES / l->opts->tenants, QUIET_LEAST);
	struct mm_action a;
	uint64_t began = real_ns();
	double took;

	for (uint32_t i = 0; i < n; i++) {
		mm_core_on_tick(l->core, l->now_ns);
		mm_assert(!mm_core_next(l->core, &a));
	}
	took = (double)(real_ns() - began) / n;
	if (l->result->quiet_ns <= 0 || took < l->result->quiet_ns)
		l->result->quiet_ns = took;
}

static int decide_load_run(struct load *l)
{
	struct mm_core_stats s;
	int r;

	mm_core_on_xfer_up(l->core, l->now_ns, 1);
	actions_take(l);
	actions_perform(l);
	r = all_stand(l);
	if (r < 0)
		return r;
	load_settle(l);
	for (uint32_t i = 0; i < l->opts->tenants; i++)
		event_schedule(l, random_below(l, l->opts->step_ns), STEP, i);
	l->result->steps = l->result->decisions = 0;
	l->timed = 0;
	l->warm = l->opts->events / 10;
	if (l->kept)
		l->kept->images = l->kept->image_ns = 0;
	while (l->timed < l->warm + l->opts->events)
		go_on(l);
	mm_core_check(l->core);
	mm_core_stats(l->core, &s);
	l->result->grants = s.grants;
	l->result->denials = s.denials;
	l->result->plan_changes = s.plan_changes;
	return 0;
}

static int run_once(const struct load *all)
{
	const struct mm_decide_opts *opts = all->opts;
	const struct mm_core_opts core = {
		.pages = opts->tenants * (opts->layers * opts->layer_pages + 1 + opts->chunks),
		.page_bytes = PAGE_BYTES,
		.policy = opts->policy,
		.tenants_max = opts->tenants,
		.accounts_max = MM_MIN(opts->tenants + 32, MM_CORE_ACCOUNTS_MAX),
	};
	struct load l = *all;
	int r = -ENOMEM;

	l.now_ns = MM_NS_PER_S;
	l.rng = mm_random_seed(opts->seed, opts->tenants, 0);
	l.warm = UINT64_MAX;
	l.events_max = 4 * opts->tenants + 16;
	l.engine = calloc(opts->tenants, sizeof(*l.engine));
	l.heap = calloc(l.events_max, sizeof(*l.heap));
	l.job = calloc(MM_XQ_SLOTS, sizeof(*l.job));
	l.action = calloc(ACTIONS_MAX, sizeof(*l.action));
	l.targets.tenant = calloc(opts->tenants, sizeof(*l.targets.tenant));
	if (l.engine && l.heap && l.job && l.action && l.targets.tenant)
		r = mm_core_create(&core, &l.core);
	if (!r && l.kept)
		r = mm_decide_kept_begin(l.kept, l.core);
	if (!r)
		r = decide_load_run(&l);
	if (l.kept)
		mm_decide_kept_done(l.kept);
	mm_core_destroy(l.core);
	free(l.targets.tenant);
	free(l.action);
	free(l.job);
	free(l.heap);
	free(l.engine);
	return r;
}

/* Compares the events of runs with a journal to those without. */
static void kept_compare(const struct mm_decide_kept *kept, const uint32_t *took, uint64_t events,
			 struct mm_decide_result *ret)
{
	const double runs_ns = ret->total_ns;
	struct mm_histogram all = { 0 };
	double total_ns = 0;

	for (uint64_t i = 0; i < events; i++) {
		mm_histogram_add(&all, took[i], 1);
		total_ns += took[i];
	}
	ret->journal_ratio = total_ns / runs_ns;
	ret->journal_p50_ratio = (double)mm_histogram_percentile(&all, 50) /
				 (double)mm_histogram_percentile(&ret->all, 50);
	ret->kept_ratio = (total_ns + (double)kept->image_ns) / runs_ns;
	ret->image_ns = kept->images ? (double)kept->image_ns / (double)kept->images : 0;
	ret->image_bytes = (double)kept->image_bytes;
	ret->image_events = (double)events / (double)MM_MAX(kept->images, 1);
}

/* The load with a journal, and without beside it, so that both have the same neighbours. */
static int load_runs(struct load *l, uint32_t *took_kept)
{
	struct mm_decide_kept kept = { 0 };
	struct load with = *l;
	int r = 0;

	with.took = took_kept;
	with.kept = &kept;
	for (uint32_t i = 0; i < l->opts->runs && !r; i++) {
		r = run_once(l);
		if (!r && l->opts->journal)
			r = run_once(&with);
	}
	if (r)
		return r;
	for (uint64_t i = 0; i < l->opts->events; i++) {
		mm_histogram_add(&l->result->all, l->took[i], 1);
		mm_histogram_add(&l->result->kind[l->kind[i]], l->took[i], 1);
		l->result->total_ns += l->took[i];
	}
	if (l->opts->journal)
		kept_compare(&kept, took_kept, l->opts->events, l->result);
	return 0;
}

int mm_decide_run(const struct mm_decide_opts *opts, struct mm_decide_result *ret)
{
	struct load l = { .opts = opts, .result = ret };
	uint32_t *took_kept = calloc(opts->events, sizeof(*took_kept));
	int r = -ENOMEM;

	*ret = (struct mm_decide_result){ 0 };
	l.took = calloc(opts->events, sizeof(*l.took));
	l.kind = calloc(opts->events, sizeof(*l.kind));
	if (l.took && l.kind && took_kept)
		r = load_runs(&l, took_kept);
	if (ret->decide.n && ret->total_ns > 0)
		ret->decide_share = (double)mm_histogram_percentile(&ret->decide, 50) *
				    (double)ret->decisions / ret->total_ns;
	free(took_kept);
	free(l.took);
	free(l.kind);
	return r;
}
