/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/lend.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/order.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/rank.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/demand.h"

#define RETURN_TRIES 3

bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && t->change->state == MM_CHANGE_STEADY && !t->kicked &&
	       !t->change->broken && c->now_ns >= t->change->retry_ns &&
	       mm_c_change_may_begin(c, t);
}

bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return mm_c_changeable(c, t) && t->plan.alpha_by_hand < 0 && t->sets->alpha_max;
}

/* ---- taking ---- */

bool mm_c_of_account(const struct mm_c_tenant *t, uint32_t account)
{
	return account == MM_DOMAIN_NONE || t->account == account;
}

uint64_t mm_c_may_give(struct mm_core *c, const struct mm_c_tenant *from, uint64_t pages,
		       uint32_t account)
{
	uint64_t excess = mm_c_excess(c, from->account), own, expected;

	if (account != MM_DOMAIN_NONE || excess == UINT64_MAX)
		return UINT64_MAX;
	own = mm_c_sums(c)->own[from->account];
	expected = mm_c_expected(c, from->account);
	own = own > expected ? own - expected : 0;
	excess = excess > expected ? excess - expected : 0;
	return excess / pages + mm_div_up(own, pages);
}

/*
 * Returns how many chunks of @t are empty. @slack: @t may be active; then an eighth and one more
 * than it uses count as used, and a tenant with requests in its queue has none, since it will soon
 * fill them.
 */
static uint32_t empty_chunks_of(const struct mm_c_tenant *t, bool slack)
{
	uint64_t used = t->load.last.kv_chunks_used;

	if (!t->load.known || !(t->features & MM_FEAT_RECLAIM) || (slack && t->load.last.waiting))
		return 0;
	used = MM_MIN(used, t->kv.held);
	if (slack)
		used += used / 8 + 1;
	return used < t->kv.held ? t->kv.held - (uint32_t)used : 0;
}

uint64_t mm_c_take_chunks(struct mm_core *c, uint64_t short_pages, uint32_t account, bool idle_only,
			  bool dry_run)
{
	uint64_t got = 0;

	if (c->market->policy->kv_static)
		return 0;
	MM_FOREACH_TENANT(c, t) {
		uint64_t chunks, responsive = mm_c_kv_is_responsive(t);

		if (t->life != MM_LIFE_LIVE || t->kicked || got >= short_pages ||
		    !mm_c_of_account(t, account) || (idle_only && !mm_c_idle(c, t)) ||
		    c->now_ns < t->demand->reclaim_until_ns)
			continue;
		chunks = empty_chunks_of(t, !idle_only);
		if (!chunks || mm_c_kv_unmet(t))
			continue;
		chunks = MM_MIN(chunks, mm_div_up(short_pages - got, t->kv.chunk_pages));
		chunks = MM_MIN(chunks, mm_c_may_give(c, t, t->kv.chunk_pages, account));
		if (!chunks)
			continue;
		if (!dry_run && !mm_c_burst(c))
			return got;
		if (!dry_run)
			mm_c_kv_reclaim(c, t, (uint32_t)chunks);
		got += responsive * chunks * t->kv.chunk_pages;
	}
	return got;
}

uint32_t mm_c_layers_short(struct mm_core *c, const struct mm_c_tenant *t, uint32_t cap,
			   uint64_t short_pages, uint32_t account)
{
	uint64_t per = mm_c_layer_pages(t), more;

	if (cap <= t->plan.alpha)
		return 0;
	more = MM_MIN(cap - t->plan.alpha, mm_div_up(short_pages, per));
	return (uint32_t)MM_MIN(more, mm_c_may_give(c, t, per, account));
}

uint64_t mm_c_layers_take(struct mm_core *c, struct mm_c_tenant *t, uint32_t more, bool dry_run)
{
	if (!more || dry_run)
		return more * mm_c_layer_pages(t);
	if (!mm_c_change_begin(c, t, t->plan.alpha + more,
			       mm_c_policy_slots(c, t, t->plan.alpha + more), 0))
		return 0;
	t->lends->taken_ns = c->now_ns;
	return t->change->change_gain;
}

uint64_t mm_c_take_up_to(struct mm_core *c, struct mm_c_tenant *t, uint32_t cap,
			 uint64_t short_pages, uint32_t account, bool dry_run)
{
	return mm_c_layers_take(c, t, mm_c_layers_short(c, t, cap, short_pages, account), dry_run);
}

/*
 * Order of lenders: idle before active, then the lower priority first; among idle ones the most
 * recently active first (it is needed again last), among active ones the one that lends least, by
 * weight.
 */
static bool lends_before(const struct mm_core *c, const struct mm_c_tenant *a,
			 const struct mm_c_tenant *b)
{
	bool a_idle = mm_c_idle(c, a), b_idle = mm_c_idle(c, b);

	int rank = mm_c_lends_by_rank(c, a, b);

	if (a_idle != b_idle)
		return a_idle;
	if (rank)
		return rank < 0;
	if (a_idle && mm_c_turn_before(c, a, b) != mm_c_turn_before(c, b, a))
		return mm_c_turn_before(c, b, a);
	if (a_idle && a->load.active_ns != b->load.active_ns)
		return c->opts.lend_order == MM_LEND_MRU ? a->load.active_ns > b->load.active_ns
							 : a->load.active_ns < b->load.active_ns;
	if (!a_idle && mm_c_lent_weighted(c, a) != mm_c_lent_weighted(c, b))
		return mm_c_lent_weighted(c, a) < mm_c_lent_weighted(c, b);
	return a < b;
}

uint32_t mm_c_lenders(const struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
		ret[n++] = t;
	mm_c_sort(c, ret, n, lends_before);
	return n;
}

/* ---- giving back ---- */

bool mm_c_return_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages, uint32_t floor)
{
	uint64_t back = pages / mm_c_layer_pages(t);
	uint32_t alpha = t->plan.alpha, to;

	if (floor)
		back = MM_MIN(back, alpha - floor);
	for (uint32_t i = 0; i < RETURN_TRIES && back; i++, back--) {
		/*
		 * With the last one a second layer returns: the slot's pages come free only
		 * afterwards.
		 */
		to = back >= t->plan.m ? 0 : alpha - (uint32_t)MM_MIN(back, alpha - 1);
		if (to >= alpha)
			return false;
		if (mm_c_change_begin(c, t, to, mm_c_policy_slots(c, t, to), pages)) {
			return true;
		}
	}
	return false;
}

bool mm_c_any_without_kv(const struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (mm_c_kv_unmet(t) && !t->kv.held && !mm_c_turn_pending(c, t))
			return true;
	return false;
}

static bool returns_before(const struct mm_core *c, const struct mm_c_tenant *a,
			   const struct mm_c_tenant *b)
{
	bool a_idle = mm_c_idle(c, a), b_idle = mm_c_idle(c, b);

	if (a_idle != b_idle)
		return b_idle;
	if (mm_c_turn_before(c, a, b) != mm_c_turn_before(c, b, a))
		return mm_c_turn_before(c, a, b);
	return a->load.active_ns < b->load.active_ns;
}

struct mm_c_tenant *mm_c_next_to_return(const struct mm_core *c, uint64_t dwell_ns)
{
	struct mm_c_tenant *best = NULL;

	MM_FOREACH_TENANT(c, t) {
		if (!mm_c_lends_by_itself(c, t) || !t->plan.alpha ||
		    c->now_ns - t->lends->taken_ns < dwell_ns)
			continue;
		if (!best || returns_before(c, t, best))
			best = t;
	}
	return best;
}
