/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/lend.h"

#include "mm/base.h"
#include "mmd/core/controller.h"

#define RETURN_TRIES 3

/* ---- how many may be away ---- */

/* May its plan be changed now, by anybody? */
bool mm_c_changeable(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && t->model == MM_MODEL_READY && !t->kicked && !t->resync &&
	       t->plan.phase == MM_PLAN_STEADY && c->now_ns >= t->retry_ns;
}

bool mm_c_lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return mm_c_changeable(c, t) && t->plan.alpha_by_hand < 0 && t->alpha_max;
}

uint64_t mm_c_layer_pages(const struct mm_c_tenant *t)
{
	uint64_t pages = t->entries - t->group[0].pages;

	return MM_MAX(pages / t->n_layers, 1);
}

uint64_t mm_c_transfer_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (t->load.t_t_ns)
		return t->load.t_t_ns;
	if (c->copy_ns_per_mib && t->layer_bytes_max > UINT64_MAX / c->copy_ns_per_mib)
		return UINT64_MAX;
	return (c->copy_ns_per_mib * t->layer_bytes_max) >> 20;
}

/* Of the link's time, what the other active tenants' streaming takes. */
static uint64_t link_used(const struct mm_core *c, const struct mm_c_tenant *but)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t)
	if (t != but && t->life == MM_LIFE_LIVE && t->plan.m && !mm_c_idle(c, t))
		sum += mm_c_set_link_permille(c, t, &t->set);
	return sum;
}

/* Would the set that it gets for @alpha stream unnoticed, within what is left of the link? */
static bool hides(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha,
		  uint32_t link_permille)
{
	struct mm_plan_set set;

	mm_c_change_set(c, t, alpha, 0, &set);
	return mm_c_set_link_permille(c, t, &set) <= link_permille && mm_c_set_hidden(c, t, &set);
}

/* The largest alpha that hides: fewer layers are never harder to hide than more. */
static uint32_t alpha_hidden(const struct mm_core *c, const struct mm_c_tenant *t,
			     uint32_t link_permille)
{
	uint32_t low = 0, high = 0;

	for (uint32_t beta = 1; beta <= MM_SLOTS_MAX; beta++) {
		uint32_t m = mm_plan_m_max(beta, t->n_layers, t->load.t_c_ns,
					   mm_c_transfer_ns(c, t), link_permille);

		high = MM_MAX(high, m ? m - beta : 0);
	}
	high = t->uneven ? t->alpha_max : MM_MIN(high, t->alpha_max);
	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (hides(c, t, mid, link_permille))
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/* The most layers that may be away: of an idle model by the cap, of an active one while hidden. */
static uint32_t alpha_cap(const struct mm_core *c, struct mm_c_tenant *t)
{
	uint64_t used, cap = (uint64_t)t->n_layers * c->opts.lend_max_permille / 1000;
	struct mm_c_cap now;

	cap = MM_MIN(cap, t->alpha_max - 1); /* one layer stays resident */
	if (mm_c_idle(c, t))
		return (uint32_t)cap;
	used = link_used(c, t);
	if (used >= c->opts.link_permille)
		return 0;
	now = (struct mm_c_cap){ .epoch = t->plan.epoch,
				 .t_c_ns = t->load.t_c_ns,
				 .t_t_ns = mm_c_transfer_ns(c, t),
				 .link_permille = c->opts.link_permille - (uint32_t)used };
	if (now.epoch != t->cap.epoch || now.t_c_ns != t->cap.t_c_ns ||
	    now.t_t_ns != t->cap.t_t_ns || now.link_permille != t->cap.link_permille) {
		now.alpha = alpha_hidden(c, t, now.link_permille);
		t->cap = now;
	}
	return (uint32_t)MM_MIN(cap, t->cap.alpha);
}

/* ---- taking ---- */

bool mm_c_of_account(const struct mm_c_tenant *t, uint32_t account)
{
	return account == MM_DOMAIN_NONE || t->account == account;
}

/* Units of @pages that it may give: for others what its account has beyond its min, for its own wishes any. */
static uint64_t may_give(const struct mm_core *c, const struct mm_c_tenant *from, uint64_t pages,
			 uint32_t account)
{
	uint64_t excess = mm_c_excess(c, from->account), own = 0, expected;

	if (account != MM_DOMAIN_NONE || excess == UINT64_MAX)
		return UINT64_MAX;
	MM_FOREACH_TENANT(c, t)
	if (t->account == from->account)
		own += (uint64_t)mm_c_kv_unmet(c, t) * t->kv.chunk_pages +
		       (t->model == MM_MODEL_WAITING ? t->entries : 0);
	expected = mm_c_expected(c, from->account);
	own = own > expected ? own - expected : 0;
	excess = excess > expected ? excess - expected : 0;
	return excess / pages + mm_div_up(own, pages);
}

static uint32_t empty_chunks(const struct mm_c_tenant *t, bool slack)
{
	uint64_t used = t->load.last.kv_chunks_used;

	if (!t->load.known || !(t->features & MM_FEAT_RECLAIM))
		return 0;
	used = MM_MIN(used, t->kv.held);
	if (slack)
		used += used / 8 + 1;
	return used < t->kv.held ? t->kv.held - (uint32_t)used : 0;
}

uint64_t mm_c_take_chunks(struct mm_core *c, uint64_t short_pages, uint32_t account, bool idle_only,
			  bool dry)
{
	uint64_t got = 0;

	if (c->policy->kv_static)
		return 0;
	MM_FOREACH_TENANT(c, t)
	{
		uint64_t chunks;

		if (t->life != MM_LIFE_LIVE || t->kicked || got >= short_pages ||
		    !mm_c_of_account(t, account) || (idle_only && !mm_c_idle(c, t)) ||
		    c->now_ns < t->kv.reclaim_until_ns)
			continue;
		chunks = empty_chunks(t, !idle_only);
		if (!chunks || mm_c_kv_unmet(c, t))
			continue;
		chunks = MM_MIN(chunks, mm_div_up(short_pages - got, t->kv.chunk_pages));
		chunks = MM_MIN(chunks, may_give(c, t, t->kv.chunk_pages, account));
		if (!chunks)
			continue;
		if (!dry && !mm_c_burst(c))
			return got;
		if (!dry)
			mm_c_kv_reclaim(c, t, (uint32_t)chunks);
		got += chunks * t->kv.chunk_pages;
	}
	return got;
}

uint64_t mm_c_take_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages,
			  uint32_t account, bool dry)
{
	return mm_c_lends_by_itself(c, t)
		       ? mm_c_take_up_to(c, t, alpha_cap(c, t), short_pages, account, dry)
		       : 0;
}

uint64_t mm_c_take_up_to(struct mm_core *c, struct mm_c_tenant *t, uint32_t cap,
			 uint64_t short_pages, uint32_t account, bool dry)
{
	uint64_t per, more;

	if (cap <= t->plan.alpha)
		return 0;
	per = mm_c_layer_pages(t);
	more = MM_MIN(cap - t->plan.alpha, mm_div_up(short_pages, per));
	more = MM_MIN(more, may_give(c, t, per, account));
	if (!more)
		return 0;
	if (dry)
		return more * per;
	if (!mm_c_change_begin(c, t, t->plan.alpha + (uint32_t)more, 0))
		return 0;
	t->target = t->next_alpha;
	t->taken_ns = c->now_ns;
	return t->change_gain;
}

/*
 * Whose turn it is to lend: idle before active, then the lower priority; among the idle the most
 * recently active first (it is needed again last), among the active who lends least, by weight.
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

/* Layers return, as many in one change as the pages allow. */
bool mm_c_return_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages, uint32_t floor)
{
	uint64_t back = pages / mm_c_layer_pages(t);
	uint32_t alpha = t->plan.alpha, to;

	if (floor)
		back = MM_MIN(back, alpha - floor);
	for (uint32_t i = 0; i < RETURN_TRIES && back; i++, back--) {
		/* The last one brings two layers home: the slot's pages come free only after it. */
		to = back >= t->plan.m ? 0 : alpha - (uint32_t)MM_MIN(back, alpha - 1);
		if (to >= alpha)
			return false;
		if (mm_c_change_begin(c, t, to, pages)) {
			t->target = to;
			return true;
		}
	}
	return false;
}

/* Active, and more of its layers are away than can be hidden: it lent them while it was idle. */
static bool overdrawn(const struct mm_core *c, struct mm_c_tenant *t, uint32_t *ret_cap)
{
	if (!mm_c_lends_by_itself(c, t) || !t->plan.alpha || mm_c_idle(c, t))
		return false;
	*ret_cap = alpha_cap(c, t);
	return t->plan.alpha > *ret_cap;
}

/* Before any new wish is served: who lent and runs again gets back what it cannot hide. */
void mm_c_return_overdrawn(struct mm_core *c, uint64_t kept_pages)
{
	MM_FOREACH_TENANT(c, t)
	{
		uint64_t have =
			mm_c_free_pages(c) > kept_pages ? mm_c_free_pages(c) - kept_pages : 0;
		uint64_t missing;
		uint32_t cap;

		if (!overdrawn(c, t, &cap) || mm_c_return_layers(c, t, have, cap))
			continue;
		missing = (uint64_t)(t->plan.alpha - cap + t->plan.beta) * mm_c_layer_pages(t);
		mm_c_convert(c, t->account, MM_MIN(missing, have));
		if (missing > have + c->ledger.inflight_all)
			mm_c_take_chunks(c, missing - have, MM_DOMAIN_NONE, false, false);
	}
}

static bool returns_before(const struct mm_core *c, const struct mm_c_tenant *a,
			   const struct mm_c_tenant *b)
{
	bool a_idle = mm_c_idle(c, a), b_idle = mm_c_idle(c, b);

	if (a_idle != b_idle)
		return b_idle;
	return a->load.active_ns < b->load.active_ns;
}

struct mm_c_tenant *mm_c_next_to_return(const struct mm_core *c, uint64_t dwell_ns)
{
	struct mm_c_tenant *best = NULL;

	MM_FOREACH_TENANT(c, t)
	{
		if (!mm_c_lends_by_itself(c, t) || !t->plan.alpha ||
		    c->now_ns - t->taken_ns < dwell_ns)
			continue;
		if (!best || returns_before(c, t, best))
			best = t;
	}
	return best;
}

void mm_c_give_back(struct mm_core *c, uint64_t surplus_pages)
{
	struct mm_c_tenant *t = mm_c_next_to_return(c, c->opts.dwell_ns);

	if (!t)
		return;
	if (surplus_pages && c->surplus_ns && c->now_ns - c->surplus_ns >= c->opts.dwell_ns) {
		mm_c_convert(c, t->account, MM_MIN(surplus_pages, t->plan.m * mm_c_layer_pages(t)));
		if (mm_c_return_layers(c, t, surplus_pages, 0))
			return;
	}
	if (!mm_c_idle(c, t))
		mm_c_take_chunks(c, t->plan.m * mm_c_layer_pages(t), MM_DOMAIN_NONE, false, false);
}
