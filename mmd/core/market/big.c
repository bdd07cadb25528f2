/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/big.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/order.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/model.h"
#include "mmd/core/plan/sets.h"

uint64_t mm_c_tenant_budget(struct mm_core *c, const struct mm_c_tenant *t, uint64_t kept)
{
	uint64_t have = mm_c_free_pages(c), own = mm_account_unused_min(&c->account[t->account]);

	return MM_MAX(have > kept ? have - kept : 0, MM_MIN(have, own));
}

static bool plan_by_hand_is_due(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_plan *plan = &t->plan;

	return mm_c_changeable(c, t) && mm_c_alpha_by_hand(t) >= 0 &&
	       (plan->alpha != (uint32_t)mm_c_alpha_by_hand(t) ||
		(plan->m && plan->slots_by_hand && plan->beta != plan->slots_by_hand));
}

bool mm_c_demand_is_big(const struct mm_core *c, const struct mm_c_tenant *t)
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
	uint32_t alpha = (uint32_t)mm_c_alpha_by_hand(t);
	struct mm_plan_set set;

	if (t->model == MM_C_MODEL_WAITING)
		return t->entries;
	return mm_c_change_set(c, t, alpha, mm_c_policy_slots(c, t, alpha), 0, &set);
}

static bool big_demand_begin(struct mm_core *c, struct mm_c_tenant *t, uint64_t budget)
{
	uint32_t alpha = (uint32_t)mm_c_alpha_by_hand(t);

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
		if (mm_c_demand_is_big(c, t))
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

/*
 * Returns whether a demand for @pages could be met: from pages that are free, on their way or can
 * be taken, beyond @kept for older demands, and within its account's max.
 */
static bool big_demand_is_possible(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages,
				   uint64_t kept, const struct mm_c_gives *gives)
{
	uint64_t soon = mm_c_account_soon(c, t->account), supply = mm_c_supply_for(c, t->account);

	return soon + gives->of[t->account] >= pages && supply + gives->all >= kept + pages;
}

int mm_c_big_return_check(struct mm_core *c, struct mm_c_tenant *t, uint64_t *ret_pages)
{
	struct mm_plan_set set;
	struct mm_c_gives gives;

	*ret_pages = 0;
	if (!t->plan.alpha)
		return 0;
	*ret_pages = mm_c_change_set(c, t, 0, 0, 0, &set);
	if (*ret_pages > mm_c_room_soon(c, t))
		return MM_E_QUOTA;
	mm_c_could_give(c, &gives);
	return big_demand_is_possible(c, t, *ret_pages, 0, &gives) ? 0 : MM_E_FULL;
}

uint64_t mm_c_big_demands_serve(struct mm_core *c)
{
	struct mm_c_tenant *waiting[MM_CORE_TENANTS_MAX];
	uint32_t n = big_demands(c, waiting);
	struct mm_c_gives gives;
	uint64_t kept = 0;

	c->market->big_mins = 0;
	MM_FOREACH_TENANT(c, t)
		t->lends->big_pages = 0;
	/* Neither a model that is loaded nor a plan by hand changes what the others could give. */
	if (n)
		mm_c_could_give(c, &gives);
	for (uint32_t i = 0; i < n; i++) {
		struct mm_c_tenant *t = waiting[i];
		uint64_t pages = big_demand_need(c, t), have = mm_c_free_pages(c);

		if (big_demand_begin(c, t, mm_c_tenant_budget(c, t, kept)) ||
		    big_demand_expired(c, t) || !big_demand_is_possible(c, t, pages, kept, &gives))
			continue;
		mm_c_pages_convert(c, t->account, MM_MIN(pages, have));
		kept += pages;
		t->lends->big_pages = pages;
		c->market->big_mins +=
			MM_MIN(pages, mm_account_unused_min(&c->account[t->account]));
	}
	c->market->big_kept = kept;
	return kept;
}
