/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The market as the world sees it: each decision is made twice and keeps the laws (laws.h); between
 * two settlings nothing is granted, asked for or taken that no target says; and pages that are kept
 * for layers are not granted as KV.
 */
#include <string.h>

#include "mmd/core/book/account.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/plan/change.h"
#include "tests/sim/laws.h"
#include "tests/sim/world.h"

/* ---- decisions ---- */

static struct mm_policy_ops checked[MM_POLICY_COUNT];
static struct mm_market_memory again_memory;
static struct mm_target again_target[MM_CORE_TENANTS_MAX];
static struct mm_targets again;

static void assert_same_target(const struct mm_target *a, const struct mm_target *b)
{
	mm_assert(a->alpha == b->alpha && a->kv_most == b->kv_most && a->kv_keep == b->kv_keep);
	mm_assert(a->first == b->first && a->why == b->why && a->valued == b->valued);
	mm_assert(a->worth == b->worth && a->worth_more == b->worth_more);
	mm_assert(memcmp(&a->value, &b->value, sizeof(a->value)) == 0);
}

/* Targets begin with other bytes than the last ones: each field must be written. */
static void again_begin(const struct mm_view *v, const struct mm_market_memory *memory)
{
	again_memory = *memory;
	again = (struct mm_targets){ .tenant = again_target, .turn_ns = 77, .beside = true };
	for (uint32_t i = 0; i < v->n_tenants; i++)
		memset(&again_target[v->tenant[i].index], 0x5a, sizeof(*again_target));
}

/* The laws are those of mm_market_decide(): a policy adds what accounts are assured of. */
static void assert_laws(const struct mm_view *v, const struct mm_market_memory *memory)
{
	const char *broken;

	again_begin(v, memory);
	mm_market_decide(v, &again_memory, &again);
	broken = laws_broken(v, &again);
	if (broken)
		mm_panic(broken, __FILE__, __LINE__);
}

/*
 * I2: what a policy adds to a decision is the first chunk of each tenant, and what is free of its
 * account's min: not what it is asked for.
 */
static void assert_assured(const struct mm_view *v, const struct mm_targets *targets)
{
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		const struct mm_target *g = &targets->tenant[t->index];

		if (!v->account[t->account].min_pages && g->kv_keep < t->kv_held)
			mm_assert(g->kv_most <= MM_MAX(g->kv_keep, 1u));
	}
}

/*
 * By index, the most layers that a decision since the last look wanted away: a kill is an event of
 * its own, with decisions of its own, before the actions of the event that led to it are looked at.
 */
static uint32_t wanted_away[MM_CORE_TENANTS_MAX];

static void wanted_note(const struct mm_view *v, const struct mm_targets *targets)
{
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		uint32_t index = v->tenant[i].index;

		wanted_away[index] = MM_MAX(wanted_away[index], targets->tenant[index].alpha);
	}
}

/* I5: a decision depends on the view and its memory alone. */
static void decide_checked(const struct mm_view *v, struct mm_market_memory *memory,
			   struct mm_targets *targets)
{
	const struct mm_policy_ops *policy = mm_policy_get(v->policy);

	if (policy->market)
		assert_laws(v, memory);
	again_begin(v, memory);
	policy->decide(v, memory, targets);
	policy->decide(v, &again_memory, &again);
	wanted_note(v, targets);
	mm_assert(memcmp(memory, &again_memory, sizeof(*memory)) == 0);
	for (uint32_t i = 0; i < v->n_tenants; i++)
		assert_same_target(&targets->tenant[v->tenant[i].index],
				   &again_target[v->tenant[i].index]);
	if (!policy->market)
		return;
	assert_assured(v, targets);
	mm_assert(targets->beside == again.beside && targets->turn_of == again.turn_of);
	mm_assert(targets->turn_ns == again.turn_ns && targets->again_ns == again.again_ns);
}

void w_market_begin(struct world *w)
{
	enum mm_policy policy = w->opts.policy;

	memset(wanted_away, 0, sizeof(wanted_away));
	checked[policy] = *mm_policy_get(policy);
	checked[policy].decide = decide_checked;
	w->core->market->policy = &checked[policy];
}

/* ---- what follows ---- */

static const struct mm_target *seen_target(const struct world *w, const struct mm_c_tenant *t)
{
	return &w->core->market->targets.tenant[mm_c_index(w->core, t)];
}

static struct mm_c_tenant *tenant_of(const struct world *w, const struct w_proc *p)
{
	struct mm_c_tenant *t = &w->core->tenant[MM_TENANT_INDEX(p->tenant)];

	return p->used && t->id == p->tenant && t->life == MM_LIFE_LIVE ? t : NULL;
}

/* I2: a settling grants no more than the target. The account's min is assured in it. */
static void assert_granted(const struct world *w, const struct mm_c_tenant *t)
{
	mm_assert(t->kv.held <= seen_target(w, t)->kv_most);
}

/*
 * I4: more layers are away only by a target, by hand, or because the change that was to return them
 * failed.
 */
static void assert_taken(const struct world *w, const struct w_seen *seen,
			 const struct mm_c_tenant *t)
{
	uint32_t next = mm_c_alpha_next(t), wanted;

	if (next <= seen->alpha || t->plan.alpha_by_hand >= 0)
		return;
	wanted = MM_MAX(wanted_away[mm_c_index(w->core, t)], seen_target(w, t)->alpha);
	mm_assert(w->core->market->policy->lends && next <= wanted);
}

/* I4: what is asked for is beyond the target, or is what the account owes at a deadline. */
static void assert_reclaimed(const struct world *w, const struct mm_c_tenant *t, uint64_t chunks)
{
	/* From a rank, another core may have reclaimed them. */
	if (t->reclaim_deadline_ns || t->kv.grouped)
		return;
	mm_assert(chunks && chunks <= t->kv.held);
	mm_assert(t->kv.held - chunks >= seen_target(w, t)->kv_keep);
}

static uint64_t pages_kept_for_layers(const struct world *w)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(w->core, t)
		if (t->life == MM_LIFE_LIVE && !t->kicked && !t->lends->earmark.expired)
			sum += t->lends->earmark.pages;
	return sum;
}

static const struct w_seen *seen_of(const struct world *w, const struct w_proc *p)
{
	static const struct w_seen none = { .tenant = MM_NO_TENANT };
	const struct w_seen *seen = &w->seen[p - w->proc];

	return seen->tenant == p->tenant ? seen : &none;
}

/*
 * Returns how many pages of KV @p was granted before layers: its first chunk, and all within the
 * min of its account.
 */
static uint64_t granted_before_layers(const struct world *w, const struct w_proc *p,
				      const struct mm_c_tenant *t)
{
	uint32_t held = seen_of(w, p)->held, more = t->kv.held > held ? t->kv.held - held : 0;

	if (!w->core->account[t->account].quota.min_pages)
		more = held ? 0 : MM_MIN(more, 1u);
	return (uint64_t)more * t->kv.chunk_pages;
}

/* I3: what is granted besides is not from pages that are kept for layers. */
static void assert_earmarks(const struct world *w, const struct w_proc *p,
			    const struct mm_c_tenant *t)
{
	uint64_t more = t->kv.held - MM_MIN(seen_of(w, p)->held, t->kv.held), first = 0;

	if (!w->core->market->policy->market ||
	    granted_before_layers(w, p, t) == more * t->kv.chunk_pages)
		return;
	for (uint32_t i = 0; i < W_PROCS; i++) {
		const struct mm_c_tenant *u = tenant_of(w, &w->proc[i]);

		first += u ? granted_before_layers(w, &w->proc[i], u) : 0;
	}
	/* Pages that were free are scrubbed on their way to another domain. */
	mm_assert(mm_c_free_pages(w->core) + w->core->ledger.inflight_all + first >=
		  pages_kept_for_layers(w));
}

void w_market_note_action(struct world *w, const struct mm_action *a)
{
	struct w_proc *p = w_proc_of(w, a->tenant);
	struct mm_c_tenant *t = p ? tenant_of(w, p) : NULL;

	if (a->kind != MM_ACT_EVENT || !t || t->kicked)
		return;
	if (a->msg.opcode == MM_EV_KV_GRANT) {
		assert_granted(w, t);
		assert_earmarks(w, p, t);
	}
	if (a->msg.opcode == MM_EV_KV_RECLAIM)
		assert_reclaimed(w, t, a->msg.arg[0]);
}

void w_market_note_drained(struct world *w)
{
	for (uint32_t i = 0; i < W_PROCS; i++) {
		const struct mm_c_tenant *t = tenant_of(w, &w->proc[i]);
		struct w_seen *seen = &w->seen[i];

		if (t && seen->tenant == t->id)
			assert_taken(w, seen, t);
		*seen = (struct w_seen){ .tenant = MM_NO_TENANT };
		if (!t)
			continue;
		wanted_away[mm_c_index(w->core, t)] = seen_target(w, t)->alpha;
		seen->tenant = t->id;
		seen->held = t->kv.held;
		seen->alpha = MM_MAX(t->plan.alpha, mm_c_alpha_next(t));
	}
}
