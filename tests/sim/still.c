/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories in which claims stand still for a while, again and again, from whatever was reached
 * before. Tenants answer, but for one that may be deaf. Then memory must reach what the targets say
 * within a bounded time, and nothing may change any more; in turns, everybody must go on computing.
 * A livelock does neither: pages are taken from one for the other, and back.
 */
#include <inttypes.h>
#include <stdio.h>

#include "mmd/core/book/account.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/plan/layers.h"
#include "mmd/core/plan/sets.h"
#include "tests/sim/history.h"
#include "tests/sim/mortal.h"

#define STILL_TENANTS   4
#define STILL_PHASES    3
#define ROUND_NS        (20 * MM_NS_PER_MS)
#define WANT_NS         (60 * MM_NS_PER_MS) /* after which a demand that was denied comes again */
#define STILL_NS        (5 * MM_NS_PER_S)   /* without any change: earmarks and waits are shorter */
#define REACH_NS        (90 * MM_NS_PER_S)  /* by then memory must stand still */
#define TURNS_NS        (40 * MM_NS_PER_S)  /* of each: then all have computed in turns */
#define CHANGES_PER_S   3
#define CHANGES_AT_ONCE 16

/* An engine: its claims and how it behaves, until the next phase. */
struct claims {
	bool busy, deaf;
	uint32_t want, used, need, waiting;
	uint64_t step_ns, transfer_ns, asked_ns, samples;
	uint64_t turn;             /* the last one in which it has demanded its KV */
	uint64_t give_ns, gave_ns; /* for each chunk that it gives back; when it gave the last */
};

static struct claims claims[W_PROCS];

/* ---- the random world ---- */

static struct mm_core_opts still_opts(struct world *w)
{
	struct mm_core_opts opts = { .page_bytes = 4096, .jobs_max = 40 };

	opts.pages = 60 + w_below(w, 190);
	opts.policy =
		w_below(w, 12) ? MM_POLICY_REMAP : (enum mm_policy)w_below(w, MM_POLICY_COUNT);
	opts.tenants_max = W_PROCS;
	opts.accounts_max = 16 + W_ACCOUNTS;
	opts.swap_max_bytes = 40 * opts.page_bytes;
	opts.sharing = w_below(w, 2) ? MM_SHARING_BESIDE
				     : (enum mm_sharing)(MM_SHARING_AUTO + 2 * w_below(w, 2));
	opts.link_slows_permille = 1 + w_below(w, 400);
	return opts;
}

static void still_spawn(struct world *w)
{
	struct w_proc *p = w_join(w, w_below(w, 2), MM_FEAT_KNOWN);
	uint32_t most = w_below(w, 2) ? 6 : 2, layers = 4 + w_below(w, 9), chunk;
	uint32_t pages = 1 + w_below(w, most);

	if (!p)
		return;
	h_count(H_JOINS, 1);
	w_model(w, p, 1 + w_below(w, 4), layers, pages, w_below(w, 3));
	chunk = 1 + w_below(w, 2);
	most = 20 + w_below(w, 128 / chunk - 20);
	w_kv_declare(w, p, chunk, 1, most, 1 + w_below(w, most / 4));
	if (w->opts.sharing != MM_SHARING_BESIDE && w_below(w, 4))
		w_turn_join(w, p, MM_TURN_QUANTUM, w_below(w, 200) * MM_NS_PER_MS, 0);
}

/* Returns whether all models and shares fit the pool together. */
static bool shares_fit(const struct world *w)
{
	uint64_t sum = 0;

	for (const struct w_proc *p = w->proc; p < w->proc + W_PROCS; p++)
		sum += p->connected ? p->entries + p->share * p->chunk_pages : 0;
	return sum <= w->opts.pages;
}

static void claims_draw(struct world *w, struct w_proc *p)
{
	struct claims *c = &claims[p - w->proc];
	uint32_t most = MM_MAX(p->chunks_max, 1u);

	*c = (struct claims){ .busy = w_below(w, 4) != 0, .samples = c->samples };
	c->want = c->busy ? 1 + w_below(w, w_below(w, 2) ? most : MM_MAX(p->share, 1u)) : 0;
	c->used = c->busy ? UINT32_MAX : w_below(w, 3);
	c->need = c->busy ? w_below(w, MM_MIN(p->share, c->want) + 1) : 0;
	/* Where shares do not fit, somebody may have nothing, and nobody can give. */
	c->need = shares_fit(w) ? c->need : 0;
	c->waiting = c->busy && w_below(w, 2) ? 1 + w_below(w, 5) : 0;
	c->deaf = !w_below(w, 12);
	c->give_ns = w_below(w, 2) ? w_below(w, 300) * MM_NS_PER_MS : 0;
	c->step_ns = (1 + w_below(w, 80)) * MM_NS_PER_MS;
	c->transfer_ns = 100000 + w_below(w, 8 * MM_NS_PER_MS);
}

/* ---- engines ---- */

/* A demand that was denied before a turn is repeated when it begins (client.md). */
static void engine_want(struct world *w, struct w_proc *p, struct claims *c)
{
	uint64_t turn = p->machine.turn.serial;
	bool begins = turn && turn != c->turn;

	c->turn = turn;
	if (!p->kv_declared || p->held >= c->want || (p->want == c->want && !p->denied) ||
	    (w->now_ns - c->asked_ns < WANT_NS && !begins))
		return;
	c->asked_ns = w->now_ns;
	w_kv_want(w, p, c->want);
}

/* Requests end, or are swapped out, one after the other. */
static void engine_give(struct world *w, struct w_proc *p, struct claims *c)
{
	while (!c->deaf && p->reclaim && w->now_ns - c->gave_ns >= c->give_ns) {
		if (!w_kv_release(w, p))
			return;
		c->gave_ns = w->now_ns;
	}
}

static void engine_report(struct world *w, struct w_proc *p, struct claims *c)
{
	struct mm_tenant_stats s = { .step_seq = 2 * p->steps + p->machine.open,
				     .steps = p->steps,
				     .samples = ++c->samples,
				     .step_ns = c->step_ns,
				     .waiting = c->waiting };

	p->used_chunks = MM_MIN(c->used, p->held);
	s.kv_chunks_used = p->used_chunks;
	s.running = c->busy && p->held >= c->need;
	if (p->model_ready && c->busy)
		w_event(w, (struct mm_event){ .kind = MM_EVENT_STREAMED,
					      .tenant = p->tenant,
					      .layer_ns = c->transfer_ns });
	w_event(w, (struct mm_event){ .kind = MM_EVENT_STATS, .tenant = p->tenant, .stats = &s });
	w_drain(w);
}

/* One that cannot admit its requests for want of memory gives its turn back. */
static void engine_yield(struct world *w, struct w_proc *p, const struct claims *c)
{
	if (p->turn && p->machine.turn.serial && !p->machine.open &&
	    (!c->busy || (p->held < c->need && p->denied)))
		w_turn_done(w, p);
}

/* A step that is open ends. */
static bool engine_may_step(const struct w_proc *p, const struct claims *c)
{
	return p->machine.open || (c->busy && p->held >= c->need);
}

static void engine_run(struct world *w, struct w_proc *p, struct claims *c)
{
	if (!p->connected)
		return;
	while (w_proc_event(w, p))
		;
	engine_give(w, p, c);
	engine_want(w, p, c);
	for (uint32_t i = 0; i < 40 && engine_may_step(p, c) && w_proc_step(w, p); i++)
		w_xfer_stream(w, p);
	if (c->busy && p->held < c->need && p->machine.turn.mode != MM_TURN_NONE &&
	    !p->machine.turn.serial && !p->machine.turn.requested && p->model_ready)
		w_turn_want(w, p);
	w_xfer_stream(w, p);
	engine_yield(w, p, c);
	engine_report(w, p, c);
}

static void still_round(struct world *w)
{
	while (w_xfer_work(w, 4, 0))
		;
	W_FOREACH(w, p)
		engine_run(w, p, &claims[p - w->proc]);
	w_tick(w, ROUND_NS);
}

/* ---- what must come of it ---- */

static void tenant_print(const struct world *w, const struct w_proc *p)
{
	const struct mm_c_tenant *t = &w->core->tenant[MM_TENANT_INDEX(p->tenant)];
	const struct mm_target *g = &w->core->market->targets.tenant[mm_c_index(w->core, t)];
	const struct claims *c = &claims[p - w->proc];

	fprintf(stderr,
		"tenant %u: busy %d deaf %d turn %d; alpha %u, next %u, target %u of %u, first %d, "
		"why %d; held %u, share %u, needs %u, wants %u, most %u, keep %d, chunks of %u; "
		"kept for layers: %" PRIu64 "%s\n",
		t->id, c->busy, c->deaf, p->machine.turn.mode, t->plan.alpha, mm_c_alpha_next(t),
		g->alpha, t->sets->alpha_max, (int)g->first, (int)g->why, p->held, p->share,
		c->need, c->want, g->kv_most, (int)g->kv_keep, p->chunk_pages,
		t->lends->earmark.pages, t->lends->earmark.expired ? " (given up)" : "");
}

/* Panics with the state of all tenants: the assertion alone does not say why. */
static void assert_or_print(struct world *w, bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "at %" PRIu64 " ms, %" PRIu64 " pages free:\n", w->now_ns / MM_NS_PER_MS,
		(uint64_t)w->core->ledger.count[MM_PAGE_FREE]);
	W_FOREACH(w, p)
		if (p->used)
			tenant_print(w, p);
	mm_panic(what, __FILE__, __LINE__);
}

/* A number that changes with what anybody holds. */
static uint64_t memory_of(struct world *w)
{
	uint64_t sum = 0;

	W_FOREACH(w, p) {
		const struct mm_c_tenant *t = &w->core->tenant[MM_TENANT_INDEX(p->tenant)];

		if (!p->used)
			continue;
		sum = sum * 1000003 + p->held;
		sum = sum * 1000003 + p->grants;
		sum = sum * 1000003 + mm_c_alpha_next(t);
		sum = sum * 1000003 + t->plan.epoch;
	}
	return sum;
}

static bool proc_lacks_share(const struct world *w, const struct w_proc *p)
{
	const struct claims *c = &claims[p - w->proc];

	return p->connected && c->busy && p->held < MM_MIN(p->share, c->want);
}

static bool proc_is_beyond_share(const struct world *w, const struct w_proc *p)
{
	return p->connected && p->held > p->share + STILL_TENANTS && !claims[p - w->proc].deaf;
}

/* I6: who lacks its share while claims stand still is not beside somebody beyond his. */
static void assert_entitled(struct world *w)
{
	bool lacks = false, beyond = false;

	W_FOREACH(w, p) {
		lacks |= proc_lacks_share(w, p);
		beyond |= proc_is_beyond_share(w, p);
	}
	assert_or_print(w, !lacks || !beyond,
			"I6: one lacks its share beside one that has more than its own");
}

/* Returns whether there are pages for all layers that are away: those, and a slot's. */
static bool layers_could_return(const struct world *w, const struct mm_c_tenant *t)
{
	uint64_t need = (t->plan.alpha + MM_SLOTS_MAX) * mm_c_layer_pages(t);

	return w->core->ledger.count[MM_PAGE_FREE] >= need;
}

/*
 * Targets are reached: layers return if there are pages for them, and nothing more is asked back.
 * KV in use that nobody is asked for may leave none.
 */
static void assert_reached(struct world *w)
{
	W_FOREACH(w, p) {
		const struct mm_c_tenant *t = &w->core->tenant[MM_TENANT_INDEX(p->tenant)];
		const struct mm_target *g =
			&w->core->market->targets.tenant[mm_c_index(w->core, t)];

		if (!p->connected || !p->model_ready)
			continue;
		assert_or_print(w, claims[p - w->proc].deaf || p->held <= g->kv_keep,
				"KV is asked for without end");
		assert_or_print(w,
				t->plan.alpha <= MM_MIN(g->alpha, t->sets->alpha_max) ||
					!layers_could_return(w, t),
				"layers never return");
	}
}

static void assert_few_changes(struct world *w, uint64_t changes, uint64_t from_ns)
{
	uint64_t ms = (w->now_ns - from_ns) / MM_NS_PER_MS;
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	mm_assert(s.plan_changes - changes <=
		  s.tenants * (CHANGES_AT_ONCE + CHANGES_PER_S * ms / 1000));
}

static void await_stillness(struct world *w)
{
	uint64_t from_ns = w->now_ns, since_ns = w->now_ns, memory = memory_of(w);

	while (w->now_ns - since_ns < STILL_NS) {
		still_round(w);
		/* A model that finds no room keeps pages until it is refused. */
		if (memory_of(w) != memory || w->core->market->big_kept)
			since_ns = w->now_ns;
		memory = memory_of(w);
		assert_or_print(w, w->now_ns - from_ns < REACH_NS, "memory goes to and fro");
	}
	assert_reached(w);
	assert_entitled(w);
}

static bool all_computed(struct world *w, const uint64_t *steps)
{
	W_FOREACH(w, p)
		if (p->connected && p->model_ready && claims[p - w->proc].busy &&
		    p->steps == steps[p - w->proc])
			return false;
	return true;
}

static void await_steps(struct world *w, uint64_t most_ns)
{
	uint64_t steps[W_PROCS], from_ns = w->now_ns;

	for (uint32_t i = 0; i < W_PROCS; i++)
		steps[i] = w->proc[i].steps;
	do {
		still_round(w);
		assert_or_print(w, w->now_ns - from_ns < most_ns, "somebody never computes");
	} while (!all_computed(w, steps));
}

static bool deaf_any(const struct world *w)
{
	bool any = false;

	for (uint32_t i = 0; i < W_PROCS; i++)
		any |= w->proc[i].used && claims[i].deaf;
	return any;
}

static void phase_run(struct world *w)
{
	bool beside = w->opts.sharing == MM_SHARING_BESIDE;
	struct mm_core_stats before;
	uint64_t from_ns = w->now_ns;

	W_FOREACH(w, p)
		claims_draw(w, p);
	mm_core_stats(w->core, &before);
	if (w->opts.policy == MM_POLICY_REMAP && beside && !deaf_any(w))
		await_stillness(w);
	else if (w->opts.policy == MM_POLICY_REMAP && !deaf_any(w))
		for (uint32_t i = 0; i < 3; i++)
			await_steps(w, STILL_TENANTS * TURNS_NS);
	else
		for (uint32_t i = 0; i < 50; i++)
			still_round(w);
	if (w->opts.policy == MM_POLICY_REMAP)
		assert_few_changes(w, before.plan_changes, from_ns);
}

/* Claims change all the time, and plans by hand. */
static void phase_disturb(struct world *w)
{
	for (uint32_t i = w_below(w, 80); i; i--) {
		struct w_proc *p = &w->proc[w_below(w, W_PROCS)];

		if (p->used && !w_below(w, 4))
			claims_draw(w, p);
		if (p->used && !w_below(w, 30)) {
			w_plan_set(w, p, (int32_t)w_below(w, 12) - 1, 0);
			w_drain(w);
		}
		still_round(w);
	}
	W_FOREACH(w, p) {
		if (p->used)
			w_plan_set(w, p, -1, 0);
		w_drain(w);
	}
}

void h_still(struct world *w, uint64_t seed)
{
	struct mm_core_opts opts;

	w->rng = seed * 171 + 11;
	for (uint32_t i = 0; i < W_PROCS; i++)
		claims[i] = (struct claims){ 0 };
	opts = still_opts(w);
	h_begin(w, &opts, seed);
	w_xfer_up(w);
	for (uint32_t i = 2 + w_below(w, STILL_TENANTS - 1); i; i--)
		still_spawn(w);
	for (uint32_t i = 0; i < 20; i++)
		h_round(w, MM_NS_PER_MS);
	for (uint32_t i = 0; i < STILL_PHASES; i++) {
		phase_disturb(w);
		phase_run(w);
	}
}
