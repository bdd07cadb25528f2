/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/rank.h"

#include "libclient/base/base.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/demand.h"

static const struct mm_account *rank_account_of(const struct mm_core *c,
						const struct mm_c_tenant *t)
{
	return &c->account[t->account];
}

/*
 * Returns whether weights do not count for @t: it has waited long, as tenants with big chunks do
 * beside small ones, or pages are kept for it.
 */
static bool tenant_is_starved(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->demand->kept_ns || c->now_ns - t->demand->since_ns >= mm_c_time(c, MM_STARVED_NS);
}

static enum mm_target_first target_first(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->market->targets.tenant[mm_c_index(c, t)].first;
}

bool mm_c_served_before(const struct mm_core *c, const struct mm_c_tenant *a,
			const struct mm_c_tenant *b)
{
	const struct mm_account *of_a = rank_account_of(c, a), *of_b = rank_account_of(c, b);

	if (of_a->quota.priority != of_b->quota.priority)
		return of_a->quota.priority > of_b->quota.priority;
	if (tenant_is_starved(c, a) != tenant_is_starved(c, b))
		return tenant_is_starved(c, a);
	if (target_first(c, a) != target_first(c, b))
		return target_first(c, a) < target_first(c, b);
	if (mm_c_turn_pending(c, a) != mm_c_turn_pending(c, b))
		return mm_c_turn_pending(c, b);
	if (!tenant_is_starved(c, a) && of_a->served != of_b->served)
		return of_a->served < of_b->served;
	return a->demand->order != b->demand->order ? a->demand->order < b->demand->order : a < b;
}
