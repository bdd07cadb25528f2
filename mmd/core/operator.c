/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the operator, and the state of accounts for status.
 */
#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/market/big.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/steer.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/settle.h"
#include "mmd/core/book/emit.h"

int mm_core_plan_set(struct mm_core *c, uint64_t now_ns, uint32_t tenant, int32_t alpha,
		     uint32_t slots, uint32_t *ret_max)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	uint32_t max;

	mm_c_event_begin(c, now_ns);
	if (!t || t->life != MM_LIFE_LIVE || t->model != MM_C_MODEL_READY)
		return MM_E_STALE;
	max = slots == 2 ? t->sets->alpha_max_two : t->sets->alpha_max;
	if (alpha < -1 || alpha > (int32_t)max ||
	    (alpha > 0 && slots && !mm_c_alpha_possible(t, (uint32_t)alpha, slots))) {
		*ret_max = max;
		return MM_E_RANGE;
	}
	t->plan.alpha_by_hand = alpha;
	t->plan.slots_by_hand = slots;
	t->lends->by_hand_ns = c->now_ns;
	mm_c_settle(c, now_ns);
	return 0;
}

int mm_core_cold_set(struct mm_core *c, uint64_t now_ns, uint32_t tenant, int32_t limit,
		     uint32_t *ret_max)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, now_ns);
	if (!t || t->life != MM_LIFE_LIVE || !t->cold.classes)
		return MM_E_STALE;
	if (limit < -1 || limit > (int32_t)t->cold.entries_max) {
		*ret_max = t->cold.entries_max;
		return MM_E_RANGE;
	}
	t->cold.by_hand = (uint32_t)(limit + 1);
	mm_c_settle(c, now_ns);
	return 0;
}

/* ---- steering ---- */

/* Returns whether @t's layers can be at home, and has them there if so. */
static int steer_home(struct mm_core *c, struct mm_c_tenant *t, bool pin, uint64_t *ret_pages)
{
	const struct mm_c_steer before = t->steer;
	int r;

	if (t->model != MM_C_MODEL_READY)
		return MM_E_STALE;
	t->steer.pinned |= pin;
	t->steer.activates |= !pin;
	r = mm_c_big_return_check(c, t, ret_pages);
	if (r) {
		t->steer = before;
		return r;
	}
	if (!pin) {
		t->plan.alpha_by_hand = -1;
		t->plan.slots_by_hand = 0;
	}
	t->steer.activate_until_ns = c->now_ns + mm_c_time(c, MM_MODEL_WAIT_NS);
	t->lends->by_hand_ns = c->now_ns;
	return 0;
}

static int tenant_steer(struct mm_core *c, struct mm_c_tenant *t, enum mm_steer steer,
			uint64_t until_ns, uint64_t *ret_pages)
{
	uint32_t chunks;

	switch (steer) {
	case MM_STEER_REVOKE:
		*ret_pages = mm_core_revocable(c, t->id, &chunks);
		t->steer.revokes = chunks != 0;
		t->steer.revoke_keep = t->kv.held - chunks;
		mm_c_demand_changed(c);
		return 0;
	case MM_STEER_DRAIN:
		mm_c_steer_drain(c, t, until_ns);
		return 0;
	case MM_STEER_UNDRAIN:
		t->steer.drains = false;
		mm_c_demand_changed(c);
		return 0;
	case MM_STEER_ACTIVATE:
	case MM_STEER_PIN:
		return steer_home(c, t, steer == MM_STEER_PIN, ret_pages);
	default:
		t->steer.pinned = false;
		t->lends->by_hand_ns = c->now_ns;
		return 0;
	}
}

int mm_core_steer(struct mm_core *c, uint64_t now_ns, uint32_t tenant, enum mm_steer steer,
		  uint64_t until_ns, uint64_t *ret_pages)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	int r;

	mm_c_event_begin(c, now_ns);
	*ret_pages = 0;
	if (!t || t->life != MM_LIFE_LIVE || t->kicked)
		return MM_E_STALE;
	r = tenant_steer(c, t, steer, until_ns, ret_pages);
	mm_c_settle(c, now_ns);
	return r;
}

/* ---- accounts ---- */

int mm_core_account_add(struct mm_core *c, uint64_t account, uint64_t domain,
			const struct mm_core_quota *quota)
{
	struct mm_account *a, *of = NULL;

	mm_c_event_begin(c, c->now_ns);
	if (domain != account) {
		of = mm_account_find(c->account, c->accounts_end, domain);
		if (!of || !of->stays)
			return MM_E_STALE;
	}
	if (mm_account_find(c->account, c->accounts_end, account))
		return MM_E_STALE;
	if (mm_core_quota_check(c, account, quota))
		return MM_E_QUOTA;
	a = mm_c_account_named(c, account);
	if (!a)
		return MM_E_FULL;
	if (of)
		a->domain = of->domain;
	mm_c_quota_put(c, a, quota);
	return 0;
}

enum mm_quota_outcome mm_core_quota_set(struct mm_core *c, uint64_t now_ns, uint64_t account,
					uint64_t revision, const struct mm_core_quota *quota)
{
	struct mm_account *a = mm_account_find(c->account, c->accounts_end, account);

	mm_c_event_begin(c, now_ns);
	if (revision && (!a || a->revision != revision))
		return MM_QUOTA_STALE;
	if (mm_core_quota_check(c, account, quota))
		return MM_QUOTA_CONFLICT;
	if (!a)
		a = mm_c_account_named(c, account);
	if (!a)
		return MM_QUOTA_CONFLICT;
	mm_c_quota_put(c, a, quota);
	mm_c_settle(c, now_ns);
	return mm_c_quota_is_pending(c, a) ? MM_QUOTA_DEFERRED : MM_QUOTA_APPLIED;
}

/* Pages that the ladder reclaimed from the account, and that were not given in time. */
static uint32_t account_overdue_pages(const struct mm_core *c, uint32_t index)
{
	bool any = false;

	MM_FOREACH_TENANT(c, t)
		any |= t->account == index && t->life == MM_LIFE_LIVE && t->overdue;
	return any ? (uint32_t)mm_c_over_computed(c, index) : 0;
}

uint32_t mm_core_accounts_end(const struct mm_core *c)
{
	return c->accounts_end;
}

bool mm_core_account(const struct mm_core *c, uint32_t index, struct mm_core_account *ret)
{
	const struct mm_account *a = &c->account[index];

	if (index >= c->accounts_end || !a->used)
		return false;
	*ret = (struct mm_core_account){
		.account = a->key,
		.domain = c->account[a->domain].key,
		.quota = a->quota,
		.revision = a->revision,
		.charged = a->charged,
		.quarantined = a->quarantined,
		.tenants = a->tenants,
		.stays = a->stays,
		.pending = mm_c_quota_is_pending(c, a),
		.overdue_pages = account_overdue_pages(c, index),
	};
	return true;
}

bool mm_core_account_find(const struct mm_core *c, uint64_t account, struct mm_core_account *ret)
{
	const struct mm_account *a = mm_account_find(c->account, c->accounts_end, account);

	return a && mm_core_account(c, (uint32_t)(a - c->account), ret);
}
