/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/controller.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/model.h"
#include "mmd/core/market/forecast.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/order.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/rank.h"
#include "mmd/core/market/rotate.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/demand.h"

#define LOOK_NS         (10 * MM_NS_PER_MS) /* between settlings while a tenant waits or lends */
#define HYSTERESIS_PART 32 /* part of the pool that stays free when layers return */

/*
 * Free pages that @t may be granted: all but @kept, and at least those that are free of its
 * account's unused min.
 */
static uint64_t tenant_budget(struct mm_core *c, const struct mm_c_tenant *t, uint64_t kept)
{
	uint64_t have = mm_c_free_pages(c), own = mm_account_unused_min(&c->account[t->account]);

	return MM_MAX(have > kept ? have - kept : 0, MM_MIN(have, own));
}

/* ---- big demands: a model, a plan that the operator set ---- */

static bool plan_by_hand_is_due(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_plan *plan = &t->plan;

	return mm_c_changeable(c, t) && plan->alpha_by_hand >= 0 &&
	       (plan->alpha != (uint32_t)plan->alpha_by_hand ||
		(plan->m && plan->slots_by_hand && plan->beta != plan->slots_by_hand));
}

static bool demand_is_big(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && !t->kicked &&
	       (t->model == MM_C_MODEL_WAITING || plan_by_hand_is_due(c, t));
}

static uint64_t big_demand_since(const struct mm_c_tenant *t)
{
	return t->model == MM_C_MODEL_WAITING ? t->model_since_ns : t->lends->by_hand_ns;
}

static uint64_t big_demand_need(const struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t alpha = (uint32_t)t->plan.alpha_by_hand;
	struct mm_plan_set set;

	if (t->model == MM_C_MODEL_WAITING)
		return t->entries;
	return mm_c_change_set(c, t, alpha, mm_c_policy_slots(c, t, alpha), 0, &set);
}

static bool big_demand_begin(struct mm_core *c, struct mm_c_tenant *t, uint64_t budget)
{
	uint32_t alpha = (uint32_t)t->plan.alpha_by_hand;

	if (t->model == MM_C_MODEL_WAITING)
		return budget >= t->entries && mm_c_change_begin_first(c, t);
	return mm_c_change_begin(c, t, alpha, mm_c_policy_slots(c, t, alpha), budget);
}

static bool big_demand_is_older(const struct mm_core *c, const struct mm_c_tenant *a,
				const struct mm_c_tenant *b)
{
	(void)c;
	return big_demand_since(a) < big_demand_since(b);
}

static uint32_t big_demands(struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
		if (demand_is_big(c, t))
			ret[n++] = t;
	mm_c_sort(c, ret, n, big_demand_is_older);
	return n;
}

/* If a demand has waited too long, refuses a model with the reason and returns true. */
static bool big_demand_expired(struct mm_core *c, struct mm_c_tenant *t)
{
	bool quota =
		mm_c_quota_binds(c, t) && mm_account_room(&c->account[t->account]) < t->entries;

	if (c->now_ns - big_demand_since(t) < mm_c_time(c, MM_MODEL_WAIT_NS))
		return false;
	if (t->model == MM_C_MODEL_WAITING)
		mm_c_model_refuse(c, t, quota ? -EDQUOT : -ENOSPC,
				  quota ? MM_REFUSED_QUOTA : MM_REFUSED_DEVICE);
	return true;
}

static uint64_t policy_take(struct mm_core *c, uint64_t need, uint64_t have, uint32_t account,
			    bool dry_run)
{
	return need > have && c->market->policy->take
		       ? c->market->policy->take(c, need - have, account, dry_run)
		       : 0;
}

/*
 * Returns whether a demand for @pages can be met: from pages that are free, on their way or can be
 * taken, beyond @kept for older demands, and within its account's max. Pages that only the
 * account's own tenants can give are taken at once.
 */
static bool big_demand_is_possible(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages,
				   uint64_t kept)
{
	uint64_t soon = mm_c_account_soon(c, t->account), supply = mm_c_supply_for(c, t->account);

	if (soon + policy_take(c, pages, soon, t->account, true) < pages ||
	    supply + policy_take(c, kept + pages, supply, MM_DOMAIN_NONE, true) < kept + pages)
		return false;
	policy_take(c, pages, soon, t->account, false);
	return true;
}

/*
 * Serves big demands, the oldest first. Pages are kept back for a demand only while it can be met.
 * Returns how many are kept back; *ret_mins of them belong to the mins of the tenants' own
 * accounts.
 */
static uint64_t big_demands_serve(struct mm_core *c, uint64_t *ret_mins)
{
	struct mm_c_tenant *waiting[MM_CORE_TENANTS_MAX];
	uint32_t n = big_demands(c, waiting);
	uint64_t kept = 0;

	*ret_mins = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct mm_c_tenant *t = waiting[i];
		uint64_t pages = big_demand_need(c, t), have = mm_c_free_pages(c);

		if (big_demand_begin(c, t, tenant_budget(c, t, kept)) || big_demand_expired(c, t) ||
		    !big_demand_is_possible(c, t, pages, kept))
			continue;
		mm_c_pages_convert(c, t->account, MM_MIN(pages, have));
		kept += pages;
		*ret_mins += MM_MIN(pages, mm_account_unused_min(&c->account[t->account]));
	}
	return kept;
}

/* ---- KV demands ---- */

/* Pages kept back in one pass over KV demands. Room in accounts is kept in struct mm_c_part. */
struct kv_kept {
	uint64_t pages;
	bool for_kv; /* one KV demand has its pages kept */
};

static bool kv_demand_serve(struct mm_core *c, struct mm_c_tenant *t, const struct kv_kept *keep)
{
	uint64_t kept = c->market->part[t->account].kept;

	if (tenant_budget(c, t, keep->pages) < t->kv.chunk_pages ||
	    mm_account_room(&c->account[t->account]) < kept + t->kv.chunk_pages ||
	    !mm_c_reservable(c, t, t->kv.chunk_pages) || !mm_c_burst(c))
		return false;
	mm_c_kv_grant(c, t);
	return true;
}

/* Lists tenants that wait for chunks, in the order in which they are served. Returns how many. */
static uint32_t kv_demands_waiting(const struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
		if (mm_c_kv_unmet(t))
			ret[n++] = t;
	mm_c_sort(c, ret, n, mm_c_served_before);
	return n;
}

/*
 * Returns whether a chunk's pages are kept back for @t: if they come soon, or if it has waited for
 * MM_KV_KEEP_NS, since small chunks would starve a tenant with big ones. They are kept for
 * MM_KV_KEEP_NS at most; then @t is the last of its rank again.
 */
static bool kv_demand_may_keep(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept)
{
	uint64_t soon = mm_c_account_soon(c, t->account), supply = mm_c_supply_for(c, t->account);

	if ((soon < t->kv.chunk_pages || supply < kept + t->kv.chunk_pages) &&
	    c->now_ns - t->demand->since_ns < mm_c_time(c, MM_KV_KEEP_NS)) {
		t->demand->kept_ns = 0;
		return false;
	}
	if (!t->demand->kept_ns)
		t->demand->kept_ns = MM_MAX(c->now_ns, 1);
	if (c->now_ns - t->demand->kept_ns <= mm_c_time(c, MM_KV_KEEP_NS))
		return true;
	mm_c_kv_requeue(c, t);
	return false;
}

/*
 * Pages are kept back for the first demand that cannot be served, and room in an account for the
 * first one of each account.
 */
static void kv_demand_keep(struct mm_core *c, struct mm_c_tenant *t, struct kv_kept *keep)
{
	struct mm_c_part *a = &c->market->part[t->account];
	bool fits = mm_account_room(&c->account[t->account]) >= a->kept + t->kv.chunk_pages;

	if ((keep->for_kv || !fits) && a->keeps)
		return;
	if (!kv_demand_may_keep(c, t, keep->pages))
		return;
	if (fits && !keep->for_kv) {
		mm_c_pages_convert(c, t->account,
				   MM_MIN(keep->pages + t->kv.chunk_pages, mm_c_free_pages(c)));
		keep->pages += t->kv.chunk_pages;
		keep->for_kv = true;
	}
	if (!a->keeps)
		a->kept += t->kv.chunk_pages;
	a->keeps = true;
}

/* Grants a chunk to the first tenant that can be served; false: there is none. */
static bool kv_demands_serve_one(struct mm_core *c, uint64_t kept)
{
	struct mm_c_tenant *waiting[MM_CORE_TENANTS_MAX];
	struct kv_kept keep = { .pages = kept };
	uint32_t n = kv_demands_waiting(c, waiting);

	for (uint32_t i = 0; i < n; i++) {
		c->market->part[waiting[i]->account].kept = 0;
		c->market->part[waiting[i]->account].keeps = false;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (kv_demand_serve(c, waiting[i], &keep))
			return true;
		kv_demand_keep(c, waiting[i], &keep);
	}
	return false;
}

static void kv_demands_serve(struct mm_core *c, uint64_t kept)
{
	while (kv_demands_serve_one(c, kept))
		;
}

/*
 * Returns how many pages KV demands need beyond unused mins, each account's at most what may be
 * charged to it soon. If an account's max is too small for its demands, chunks and layers of its
 * own tenants are taken first.
 */
static uint64_t kv_demands_need(struct mm_core *c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < c->accounts_end; i++)
		c->market->part[i].demand = 0;
	MM_FOREACH_TENANT(c, t)
		if (!mm_c_turn_pending(c, t))
			c->market->part[t->account].demand +=
				(uint64_t)mm_c_kv_unmet(t) * t->kv.chunk_pages;
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		uint64_t kept = mm_account_unused_min(&c->account[i]), may;
		uint64_t demand = c->market->part[i].demand;

		if (!demand)
			continue;
		policy_take(c, demand, mm_c_account_soon(c, i), i, false);
		may = MM_MIN(demand, mm_c_account_soon(c, i));
		sum += may > kept ? may - kept : 0;
	}
	return sum;
}

/*
 * Sets aside whole chunks for @unmet chunks of @t, first from its account's unused min, then from
 * *@coming, within the account's room. Returns whether they cover all of @unmet.
 */
static bool kv_demand_is_covered(const struct mm_c_tenant *t, uint64_t unmet, uint64_t *coming,
				 struct mm_c_part *a)
{
	uint64_t pages = MM_MIN(*coming + a->min, a->room), own;

	pages = MM_MIN(unmet * t->kv.chunk_pages, pages - pages % t->kv.chunk_pages);
	own = MM_MIN(pages, a->min);
	a->min -= own;
	*coming -= pages - own;
	a->room -= pages;
	return pages == unmet * t->kv.chunk_pages;
}

/*
 * In order of rank, tenants whose demand is covered by @coming pages go on waiting, and the others
 * are denied; so are those that may have no more by the policy.
 */
static void kv_demands_deny(struct mm_core *c, uint64_t coming)
{
	struct mm_c_tenant *waiting[MM_CORE_TENANTS_MAX];
	uint32_t n = kv_demands_waiting(c, waiting);

	for (uint32_t i = 0; n && i < c->accounts_end; i++) {
		struct mm_c_part *a = &c->market->part[i];

		a->room = c->account[i].used ? mm_c_account_soon(c, i) : 0;
		a->min = mm_account_unused_min(&c->account[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct mm_c_tenant *t = waiting[i];
		struct mm_c_part *a = &c->market->part[t->account];

		if (kv_demand_is_covered(t, mm_c_kv_unmet(t), &coming, a))
			continue;
		mm_c_kv_deny(c, t,
			     mm_c_quota_binds(c, t) && a->room < t->kv.chunk_pages ? -EDQUOT
										   : -ENOSPC);
	}
	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && t->demand->wanted > t->kv.held && !mm_c_kv_unmet(t))
			mm_c_kv_deny(c, t, -ENOSPC);
}

/* ---- one pass ---- */

static void surplus_give_back(struct mm_core *c, uint64_t need, uint64_t ahead)
{
	uint64_t reserve = c->ledger.pages / HYSTERESIS_PART + mm_c_unused_mins(c) + ahead;
	uint64_t have = mm_c_free_pages(c);
	uint64_t surplus = have > need + reserve ? have - need - reserve : 0;

	if (!surplus)
		c->market->surplus_ns = 0;
	else if (!c->market->surplus_ns)
		c->market->surplus_ns = MM_MAX(c->now_ns, 1);
	if (!need && c->market->policy->give_back && c->opts.reversion == MM_SWITCH_ON)
		c->market->policy->give_back(c, surplus);
}

uint64_t mm_c_take_from(struct mm_core *c, uint64_t pages, uint32_t account)
{
	uint64_t coming = mm_c_expected(c, account);

	return coming + policy_take(c, pages, coming, account, false);
}

/*
 * Returns layers to tenants that run and have more away than they can hide. Returns how many pages
 * are kept for them.
 */
static uint64_t overdrawn_bring_home(struct mm_core *c, uint64_t kept)
{
	uint64_t pages;

	if (!c->market->policy->overdrawn || c->opts.reversion != MM_SWITCH_ON)
		return 0;
	pages = c->market->policy->overdrawn(c, kept);
	mm_c_prefetch(c, kept + pages);
	return MM_MAX(pages, mm_c_turns_kept(c));
}

void mm_c_controller(struct mm_core *c)
{
	uint64_t mins, kept = big_demands_serve(c, &mins);
	uint64_t home = overdrawn_bring_home(c, kept), need, supply, unused, ahead;

	kv_demands_serve(c, kept + home);
	need = kv_demands_need(c);
	c->market->kv_unmet = need != 0;
	need += kept - mins;
	unused = mm_c_unused_mins(c) + (mm_c_turn_next(c) || c->market->turn.holder ? home : 0);
	supply = mm_c_supply(c);
	supply = supply > unused ? supply - unused : 0;
	ahead = c->market->policy->forecast ? mm_c_forecast_pages(c) : 0;
	supply += policy_take(c, need ? need : ahead, supply, MM_DOMAIN_NONE, false);
	kv_demands_deny(c, supply > kept - mins ? supply - (kept - mins) : 0);
	surplus_give_back(c, need, ahead);
	c->market->unmet = need;
}

uint64_t mm_c_controller_deadline(const struct mm_core *c)
{
	bool look = c->market->unmet != 0;

	MM_FOREACH_TENANT(c, t)
		look |= t->life == MM_LIFE_LIVE &&
			(demand_is_big(c, t) || (t->plan.alpha && t->plan.alpha_by_hand < 0) ||
			 mm_c_kv_unmet(t) ||
			 (t->demand->wanted > t->kv.held && !t->demand->answered) ||
			 c->settled_ns < t->change->retry_ns);
	/*
	 * The interval begins at the last settling: statistics arrive more often, and would
	 * postpone it for ever if it began now.
	 */
	return look ? c->settled_ns + mm_c_time(c, LOOK_NS) : UINT64_MAX;
}
