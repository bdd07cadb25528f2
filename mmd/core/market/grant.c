/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/grant.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/big.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/order.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/rank.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"

#define MM_TURN_AWAITS_NS MM_NS_PER_S

/* Pages kept back in one pass over KV demands. Room in accounts is kept in struct mm_c_part. */
struct kv_kept {
	uint64_t pages;
	uint64_t layers; /* further pages, for layers that return */
	bool for_kv;     /* one KV demand has its pages kept */
};

/* Layers return before anybody gets more KV, but not before somebody has any. */
static uint64_t pages_kept_from(const struct kv_kept *keep, const struct mm_c_tenant *t)
{
	return keep->pages + (t->kv.held ? keep->layers : 0);
}

static bool kv_demand_serve(struct mm_core *c, struct mm_c_tenant *t, const struct kv_kept *keep)
{
	uint64_t kept = c->market->part[t->account].kept;

	if (mm_c_tenant_budget(c, t, pages_kept_from(keep, t)) < t->kv.chunk_pages ||
	    mm_account_room(&c->account[t->account]) < kept + t->kv.chunk_pages ||
	    !mm_c_reservable(c, t, t->kv.chunk_pages) || !mm_c_burst(c))
		return false;
	mm_c_kv_grant(c, t);
	return true;
}

/*
 * Sorts those of the @n tenants that wait for chunks into the order in which they are served.
 * Returns how many.
 */
static uint32_t kv_demands_sort(const struct mm_core *c, struct mm_c_tenant **item, uint32_t n)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < n; i++)
		if (mm_c_kv_due(c, item[i]))
			item[left++] = item[i];
	mm_c_sort(c, item, left, mm_c_served_before);
	return left;
}

/* Lists tenants that wait for chunks, in the order in which they are served. Returns how many. */
static uint32_t kv_demands_waiting(const struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
		ret[n++] = t;
	return kv_demands_sort(c, ret, n);
}

/*
 * Returns whether a chunk's pages are kept back for @t: if they come soon, or if it has waited for
 * MM_KV_KEEP_NS, since small chunks would starve a tenant with big ones. They are kept for
 * MM_KV_KEEP_NS at most; then @t is the last of its rank again. @room: only room in its account is
 * kept, while pages are kept for another one, whose time that is.
 */
static bool kv_demand_may_keep(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept, bool room)
{
	uint64_t soon = mm_c_account_soon(c, t->account), supply = mm_c_supply_for(c, t->account);

	if ((soon < t->kv.chunk_pages || supply < kept + t->kv.chunk_pages) &&
	    c->now_ns - t->demand->since_ns < mm_c_time(c, MM_KV_KEEP_NS)) {
		t->demand->kept_ns = 0;
		return false;
	}
	if (room)
		return true;
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
	if (!kv_demand_may_keep(c, t, pages_kept_from(keep, t), fits && keep->for_kv))
		return;
	if (fits && !keep->for_kv) {
		mm_c_pages_convert(
			c, t->account,
			MM_MIN(pages_kept_from(keep, t) + t->kv.chunk_pages, mm_c_free_pages(c)));
		keep->pages += t->kv.chunk_pages;
		keep->for_kv = true;
	}
	if (!a->keeps)
		a->kept += t->kv.chunk_pages;
	a->keeps = true;
}

/* Grants a chunk to the first of @n tenants that can be served; false: there is none. */
static bool kv_demands_serve_one(struct mm_core *c, struct mm_c_tenant **waiting, uint32_t n,
				 uint64_t kept, uint64_t layers)
{
	struct kv_kept keep = { .pages = kept, .layers = layers };

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

void mm_c_kv_demands_serve(struct mm_core *c, uint64_t kept, uint64_t layers)
{
	struct mm_c_tenant *waiting[MM_CORE_TENANTS_MAX];
	uint32_t n = kv_demands_waiting(c, waiting);

	/* A grant changes the place of its account's tenants alone: the rest is in order. */
	while (kv_demands_serve_one(c, waiting, n, kept, layers))
		n = kv_demands_sort(c, waiting, n);
}

/*
 * Sets aside whole chunks for @unmet chunks of @t, first from its account's unused min, then from
 * *@coming, within the account's room. Returns whether they cover all of @unmet, or with @some a
 * chunk of it.
 */
static bool kv_demand_is_covered(const struct mm_c_tenant *t, uint64_t unmet, bool some,
				 uint64_t *coming, struct mm_c_part *a)
{
	uint64_t pages = MM_MIN(*coming + a->min, a->room), own;

	pages = MM_MIN(unmet * t->kv.chunk_pages, pages - pages % t->kv.chunk_pages);
	own = MM_MIN(pages, a->min);
	a->min -= own;
	*coming -= pages - own;
	a->room -= pages;
	return some ? pages != 0 : pages == unmet * t->kv.chunk_pages;
}

/*
 * Returns whether @t waits for the first chunks that come, though they are fewer than it demands:
 * it runs nothing.
 */
static bool waits_for_any(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->market->policy->market && t->load.known && !t->load.last.running;
}

/*
 * Returns whether memory is on its way for @t's turn: layers come home before KV, and others are
 * asked for theirs only when the turn begins. If it was denied, it would give the turn back, and
 * what comes for it would go to the next one.
 */
static bool turn_awaits_kv(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_c_turn *turn = t->turn;

	return c->market->policy->market && turn->holds && turn->alone &&
	       c->now_ns - MM_MAX(turn->begun_ns, turn->kv_ns) < mm_c_time(c, MM_TURN_AWAITS_NS);
}

void mm_c_kv_demands_deny(struct mm_core *c, uint64_t coming)
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

		if (kv_demand_is_covered(t, mm_c_kv_due(c, t), waits_for_any(c, t), &coming, a) ||
		    turn_awaits_kv(c, t))
			continue;
		mm_c_kv_deny(c, t,
			     mm_c_quota_binds(c, t) && a->room < t->kv.chunk_pages ? -EDQUOT
										   : -ENOSPC);
	}
	/* A rank that waits for another one is offered nothing: its group denies it. */
	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && t->demand->wanted > t->kv.held &&
		    (!t->kv.grouped || t->kv.offer != MM_NO_CHUNK) && !mm_c_kv_due(c, t) &&
		    !turn_awaits_kv(c, t))
			mm_c_kv_deny(c, t, -ENOSPC);
}
