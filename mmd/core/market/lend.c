/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/lend.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"

bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && t->change->state == MM_CHANGE_STEADY && !t->kicked &&
	       !t->change->broken && c->now_ns >= t->change->retry_ns &&
	       mm_c_change_may_begin(c, t);
}

bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return mm_c_changeable(c, t) && mm_c_alpha_by_hand(t) < 0 && t->sets->alpha_max;
}

uint32_t mm_c_alpha_next(const struct mm_c_tenant *t)
{
	return mm_c_is_changing(t) ? t->change->next_alpha : t->plan.alpha;
}

uint64_t mm_c_may_give(struct mm_core *c, const struct mm_c_tenant *from, uint64_t pages)
{
	uint64_t excess = mm_c_excess(c, from->account), own, expected;

	if (excess == UINT64_MAX)
		return UINT64_MAX;
	own = mm_c_sums(c)->own[from->account];
	expected = mm_c_expected(c, from->account);
	own = own > expected ? own - expected : 0;
	excess = excess > expected ? excess - expected : 0;
	return excess / pages + mm_div_up(own, pages);
}

/* Returns the pages of @t's layers that could be away and are not. */
static uint64_t layers_could_give(const struct mm_c_tenant *t)
{
	uint32_t away = mm_c_alpha_next(t);

	if (t->model != MM_C_MODEL_READY || mm_c_alpha_by_hand(t) >= 0 ||
	    t->sets->alpha_max <= away)
		return 0;
	return (t->sets->alpha_max - away) * mm_c_layer_pages(t);
}

/* Returns the pages of @t's chunks that are empty and were not reclaimed yet. */
static uint64_t chunks_could_give(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t used = MM_MAX(t->load.last.kv_chunks_used, mm_c_window_chunks(t));

	if (!t->load.known || !(t->features & MM_FEAT_RECLAIM) || !mm_c_idle(c, t) ||
	    c->now_ns < t->demand->reclaim_until_ns || !mm_c_kv_is_responsive(t))
		return 0;
	return used < t->kv.held ? (t->kv.held - used) * t->kv.chunk_pages : 0;
}

void mm_c_could_give(const struct mm_core *c, struct mm_c_gives *ret_gives)
{
	ret_gives->all = 0;
	memset(ret_gives->of, 0, c->accounts_end * sizeof(*ret_gives->of));
	MM_FOREACH_TENANT(c, t) {
		uint64_t pages = 0;

		if (t->life != MM_LIFE_LIVE || t->kicked)
			continue;
		pages += c->market->policy->lends ? layers_could_give(t) : 0;
		pages += c->market->policy->kv_static ? 0 : chunks_could_give(c, t);
		ret_gives->of[t->account] += pages;
		ret_gives->all += pages;
	}
}

bool mm_c_any_without_kv(const struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (mm_c_kv_due(c, t) && !t->kv.held && !mm_c_turn_pending(c, t))
			return true;
	return false;
}
