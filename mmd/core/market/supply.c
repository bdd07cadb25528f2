/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/supply.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/market/market.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/turn.h"

/* Chunks being reclaimed, and pages that a plan change will free unless it takes too long. */
static uint64_t expected_of(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t pages = 0;

	if (t->life != MM_LIFE_LIVE || t->kicked)
		return 0;
	if (mm_c_is_changing(t) && t->model == MM_C_MODEL_READY &&
	    c->now_ns - t->change->change_ns < mm_c_time(c, MM_CHANGE_SLOW_NS))
		pages = t->change->change_gain;
	if (c->now_ns < t->demand->reclaim_until_ns && !t->demand->unresponsive)
		pages += (uint64_t)t->demand->reclaim_left * t->kv.chunk_pages;
	return pages;
}

uint64_t mm_c_expected(struct mm_core *c, uint32_t account)
{
	struct mm_c_expected *e = &c->market->expected;

	if (e->coming != c->coming) {
		e->coming = c->coming;
		e->all = 0;
		memset(e->of, 0, c->accounts_end * sizeof(*e->of));
		MM_FOREACH_TENANT(c, t) {
			e->of[t->account] += expected_of(c, t);
			e->all += expected_of(c, t);
		}
	}
	return account == MM_DOMAIN_NONE ? e->all : e->of[account];
}

const struct mm_c_sums *mm_c_sums(struct mm_core *c)
{
	struct mm_c_sums *s = &c->market->sums;

	if (s->coming == c->coming && s->waiting == c->waiting)
		return s;
	s->coming = c->coming;
	s->waiting = c->waiting;
	memset(s->own, 0, c->accounts_end * sizeof(*s->own));
	MM_FOREACH_TENANT(c, t)
		s->own[t->account] += (uint64_t)mm_c_kv_due(c, t) * t->kv.chunk_pages +
				      (t->model == MM_C_MODEL_WAITING ? t->entries : 0);
	return s;
}

uint64_t mm_c_supply(struct mm_core *c)
{
	return mm_c_free_pages(c) + c->ledger.inflight_all + mm_c_expected(c, MM_DOMAIN_NONE);
}

uint64_t mm_c_supply_for(struct mm_core *c, uint32_t account)
{
	uint64_t kept = mm_c_unused_mins(c) - mm_account_unused_min(&c->account[account]);
	uint64_t supply = mm_c_supply(c);

	return supply > kept ? supply - kept : 0;
}

uint64_t mm_c_account_soon(struct mm_core *c, uint32_t account)
{
	const struct mm_account *a = &c->account[account];
	uint64_t use = mm_account_use(a),
		 may = a->quota.max_pages + c->ledger.leaving[account] + mm_c_expected(c, account);

	return may > use ? may - use : 0;
}

uint64_t mm_c_needed(struct mm_core *c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < c->accounts_end; i++)
		c->market->part[i].demand = 0;
	MM_FOREACH_TENANT(c, t)
		if (!mm_c_turn_pending(c, t))
			c->market->part[t->account].demand +=
				(uint64_t)mm_c_kv_due(c, t) * t->kv.chunk_pages;
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		uint64_t own = mm_account_unused_min(&c->account[i]), may;

		if (!c->market->part[i].demand)
			continue;
		may = MM_MIN(c->market->part[i].demand, mm_c_account_soon(c, i));
		sum += may > own ? may - own : 0;
	}
	return sum + c->market->big_kept - c->market->big_mins;
}

uint64_t mm_c_awaited(const struct mm_core *c)
{
	uint64_t sum = c->market->big_kept - c->market->big_mins;

	MM_FOREACH_TENANT(c, t) {
		if (!mm_c_turn_pending(c, t))
			sum += (uint64_t)mm_c_kv_due(c, t) * t->kv.chunk_pages;
		if (!t->lends->earmark.expired)
			sum += t->lends->earmark.pages;
	}
	return sum;
}

bool mm_c_quota_binds(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->account[t->account].quota.max_pages < c->ledger.pages;
}
