/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/controller.h"

#include <errno.h>

#include "mm/base.h"

#define LOOK_NS         (10 * MM_NS_PER_MS) /* between looks while somebody waits or lends */
#define HYSTERESIS_PART 32                  /* of the pool stays free before layers go back */
#define RETURN_TRIES    3

/* ---- facts ---- */

bool mm_c_idle(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return (mm_c_turn_waits(c, t) || c->now_ns - t->load.active_ns >= c->opts.idle_ns) &&
	       !mm_c_kv_unmet(c, t);
}

static uint64_t free_pages(const struct mm_core *c)
{
	return c->ledger.count[MM_PAGE_FREE];
}

/* Pages that are on their way out of @account's tenants (MM_DOMAIN_NONE: anybody's) and counted on. */
static uint64_t expected_pages(const struct mm_core *c, uint32_t account)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t)
	{
		if (t->life != MM_LIFE_LIVE || t->kicked ||
		    (account != MM_DOMAIN_NONE && t->account != account))
			continue;
		if (t->plan.phase != MM_PLAN_STEADY && t->model == MM_MODEL_READY &&
		    c->now_ns - t->change_ns < MM_CHANGE_SLOW_NS)
			sum += t->change_gain;
		if (c->now_ns < t->kv.reclaim_until_ns)
			sum += (uint64_t)t->kv.reclaiming * t->kv.chunk_pages;
	}
	return sum;
}

static uint64_t supply_pages(const struct mm_core *c)
{
	return free_pages(c) + c->ledger.inflight_all + expected_pages(c, MM_DOMAIN_NONE);
}

/* The same, for what @account wishes: others' mins are not to be had. */
static uint64_t supply_for(const struct mm_core *c, uint32_t account)
{
	uint64_t kept = mm_c_unused_mins(c) - mm_account_unused_min(&c->account[account]);
	uint64_t supply = supply_pages(c);

	return supply > kept ? supply - kept : 0;
}

/* Pages that may be charged to an account: now, once what it gave is scrubbed, once it gave more. */
static uint64_t account_soon(const struct mm_core *c, uint32_t account)
{
	const struct mm_account *a = &c->account[account];
	uint64_t use = mm_account_use(a),
		 may = a->quota.max_pages + c->ledger.leaving[account] + expected_pages(c, account);

	return may > use ? may - use : 0;
}

/* An account that may have the whole pool is never what stands in the way. */
static bool quota_binds(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->account[t->account].quota.max_pages < c->ledger.pages;
}

/* May its plan be changed now, by anybody? */
static bool changeable(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && t->model == MM_MODEL_READY && !t->kicked && !t->resync &&
	       t->plan.phase == MM_PLAN_STEADY && c->now_ns >= t->retry_ns;
}

static bool lends_by_itself(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return changeable(c, t) && t->plan.alpha_by_hand < 0 && t->alpha_max;
}

static uint64_t layer_pages(const struct mm_c_tenant *t)
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
		sum += mm_plan_link_permille(t->n_layers, t->plan.m, t->load.t_c_ns,
					     mm_c_transfer_ns(c, t));
	return sum;
}

/* Would the set that it gets for @alpha stream unnoticed, within what is left of the link? */
static bool hides(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha,
		  uint32_t link_permille)
{
	uint64_t t_c_ns = t->load.t_c_ns, t_t_ns = mm_c_transfer_ns(c, t);
	struct mm_plan_set set;

	mm_c_change_set(c, t, alpha, 0, &set);
	return mm_plan_link_permille(t->n_layers, set.m, t_c_ns, t_t_ns) <= link_permille &&
	       mm_plan_hidden(&set, t->n_layers, t_c_ns, t_t_ns);
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
	high = MM_MIN(high, t->alpha_max);
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

static bool of_account(const struct mm_c_tenant *t, uint32_t account)
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
	expected = expected_pages(c, from->account);
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

static uint64_t take_chunks(struct mm_core *c, uint64_t short_pages, uint32_t account,
			    bool idle_only, bool dry)
{
	uint64_t got = 0;

	if (c->policy->kv_static)
		return 0;
	MM_FOREACH_TENANT(c, t)
	{
		uint64_t chunks;

		if (t->life != MM_LIFE_LIVE || t->kicked || got >= short_pages ||
		    !of_account(t, account) || (idle_only && !mm_c_idle(c, t)) ||
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

static uint64_t take_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages,
			    uint32_t account, bool dry)
{
	uint64_t per, more;
	uint32_t cap;

	if (!lends_by_itself(c, t))
		return 0;
	cap = alpha_cap(c, t);
	if (cap <= t->plan.alpha)
		return 0;
	per = layer_pages(t);
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
		return a->load.active_ns > b->load.active_ns;
	if (!a_idle && mm_c_lent_weighted(c, a) != mm_c_lent_weighted(c, b))
		return mm_c_lent_weighted(c, a) < mm_c_lent_weighted(c, b);
	return a < b;
}

static uint32_t lenders(const struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
	ret[n++] = t;
	mm_c_sort(c, ret, n, lends_before);
	return n;
}

static uint64_t take_elastic(struct mm_core *c, uint64_t short_pages, uint32_t account, bool dry)
{
	return take_chunks(c, short_pages, account, true, dry);
}

static uint64_t take_remap(struct mm_core *c, uint64_t short_pages, uint32_t account, bool dry)
{
	struct mm_c_tenant *order[MM_TENANTS_LIMIT];
	uint64_t got = take_chunks(c, short_pages, account, true, dry);
	uint32_t n = lenders(c, order);

	for (uint32_t i = 0; i < n && got < short_pages; i++)
		if (of_account(order[i], account))
			got += take_layers(c, order[i], short_pages - got, account, dry);
	return got;
}

/* ---- giving back ---- */

/* Layers return, as many in one change as the pages allow. */
static bool return_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages, uint32_t floor)
{
	uint64_t back = pages / layer_pages(t);
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
	if (!lends_by_itself(c, t) || !t->plan.alpha || mm_c_idle(c, t))
		return false;
	*ret_cap = alpha_cap(c, t);
	return t->plan.alpha > *ret_cap;
}

/* Before any new wish is served: who lent and runs again gets back what it cannot hide. */
static void return_overdrawn(struct mm_core *c, uint64_t kept_pages)
{
	MM_FOREACH_TENANT(c, t)
	{
		uint64_t have = free_pages(c) > kept_pages ? free_pages(c) - kept_pages : 0;
		uint64_t missing;
		uint32_t cap;

		if (!overdrawn(c, t, &cap) || return_layers(c, t, have, cap))
			continue;
		missing = (uint64_t)(t->plan.alpha - cap + t->plan.beta) * layer_pages(t);
		mm_c_convert(c, t->account, MM_MIN(missing, have));
		if (missing > have + c->ledger.inflight_all)
			take_chunks(c, missing - have, MM_DOMAIN_NONE, false, false);
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

/* Who lends and has not been taken from for a while; the active first. */
static struct mm_c_tenant *next_to_return(const struct mm_core *c)
{
	struct mm_c_tenant *best = NULL;

	MM_FOREACH_TENANT(c, t)
	{
		if (!lends_by_itself(c, t) || !t->plan.alpha ||
		    c->now_ns - t->taken_ns < c->opts.dwell_ns)
			continue;
		if (!best || returns_before(c, t, best))
			best = t;
	}
	return best;
}

static void give_back_layers(struct mm_core *c, uint64_t surplus_pages)
{
	struct mm_c_tenant *t = next_to_return(c);

	if (!t)
		return;
	if (surplus_pages && c->surplus_ns && c->now_ns - c->surplus_ns >= c->opts.dwell_ns) {
		mm_c_convert(c, t->account, MM_MIN(surplus_pages, t->plan.m * layer_pages(t)));
		if (return_layers(c, t, surplus_pages, 0))
			return;
	}
	if (!mm_c_idle(c, t))
		take_chunks(c, t->plan.m * layer_pages(t), MM_DOMAIN_NONE, false, false);
}

static const struct mm_policy_ops policies[MM_POLICY_COUNT] = {
	/* What the operator took by hand goes back under any policy. */
	[MM_POLICY_RECOMPUTE] = { .kv_static = true, .give_back = give_back_layers },
	[MM_POLICY_ELASTIC] = { .take = take_elastic, .give_back = give_back_layers },
	[MM_POLICY_REMAP] = { .take = take_remap,
			      .overdrawn = return_overdrawn,
			      .give_back = give_back_layers },
	[MM_POLICY_SWAP] = { .kv_static = true, .give_back = give_back_layers },
};

const struct mm_policy_ops *mm_policy_get(enum mm_policy policy)
{
	return &policies[policy];
}

/* Free pages less those kept back, but never less than its account's min. */
static uint64_t budget(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t kept)
{
	uint64_t have = free_pages(c), own = mm_account_unused_min(&c->account[t->account]);

	return MM_MAX(have > kept ? have - kept : 0, MM_MIN(have, own));
}

/* ---- big wishes: a model, the operator's plan ---- */

static bool by_hand(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_plan *plan = &t->plan;

	return changeable(c, t) && plan->alpha_by_hand >= 0 &&
	       (plan->alpha != (uint32_t)plan->alpha_by_hand ||
		(plan->m && plan->slots_by_hand && plan->beta != plan->slots_by_hand));
}

static bool is_big(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && !t->kicked &&
	       (t->model == MM_MODEL_WAITING || by_hand(c, t));
}

static uint64_t big_since(const struct mm_c_tenant *t)
{
	return t->model == MM_MODEL_WAITING ? t->model_since_ns : t->by_hand_ns;
}

static uint64_t big_need(const struct mm_core *c, const struct mm_c_tenant *t)
{
	struct mm_plan_set set;

	if (t->model == MM_MODEL_WAITING)
		return t->entries;
	return mm_c_change_set(c, t, (uint32_t)t->plan.alpha_by_hand, 0, &set);
}

static bool big_begin(struct mm_core *c, struct mm_c_tenant *t, uint64_t budget)
{
	if (t->model == MM_MODEL_WAITING)
		return budget >= t->entries && mm_c_model_begin(c, t);
	return mm_c_change_begin(c, t, (uint32_t)t->plan.alpha_by_hand, budget);
}

static bool older(const struct mm_core *c, const struct mm_c_tenant *a, const struct mm_c_tenant *b)
{
	(void)c;
	return big_since(a) < big_since(b);
}

static uint32_t big_wishes(struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
	if (is_big(c, t))
		ret[n++] = t;
	mm_c_sort(c, ret, n, older);
	return n;
}

/* Too late: refused with what stood in its way. */
static bool big_expired(struct mm_core *c, struct mm_c_tenant *t)
{
	bool quota = quota_binds(c, t) && mm_account_room(&c->account[t->account]) < t->entries;

	if (c->now_ns - big_since(t) < MM_MODEL_WAIT_NS)
		return false;
	if (t->model == MM_MODEL_WAITING)
		mm_c_model_refuse(c, t, quota ? -EDQUOT : -ENOSPC,
				  quota ? MM_REFUSED_QUOTA : MM_REFUSED_DEVICE);
	return true;
}

static uint64_t take(struct mm_core *c, uint64_t need, uint64_t have, uint32_t account, bool dry)
{
	return need > have && c->policy->take ? c->policy->take(c, need - have, account, dry) : 0;
}

/*
 * Can it come true: with what is free, on its way and to be had, @kept for older ones besides, and
 * within its account, whose own tenants may have to give? If so, the account's part is begun.
 */
static bool big_possible(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages,
			 uint64_t kept)
{
	uint64_t soon = account_soon(c, t->account), supply = supply_for(c, t->account);

	if (soon + take(c, pages, soon, t->account, true) < pages ||
	    supply + take(c, kept + pages, supply, MM_DOMAIN_NONE, true) < kept + pages)
		return false;
	take(c, pages, soon, t->account, false);
	return true;
}

/*
 * The oldest first. Pages are kept back for a wish only while it can come true. Returns how many are
 * kept back; of those, *ret_mins are pages of the wishers' own mins.
 */
static uint64_t serve_big(struct mm_core *c, uint64_t *ret_mins)
{
	struct mm_c_tenant *wish[MM_TENANTS_LIMIT];
	uint32_t n = big_wishes(c, wish);
	uint64_t kept = 0;

	*ret_mins = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct mm_c_tenant *t = wish[i];
		uint64_t pages = big_need(c, t), have = free_pages(c);

		if (big_begin(c, t, budget(c, t, kept)) || big_expired(c, t) ||
		    !big_possible(c, t, pages, kept))
			continue;
		mm_c_convert(c, t->account, MM_MIN(pages, have));
		kept += pages;
		*ret_mins += MM_MIN(pages, mm_account_unused_min(&c->account[t->account]));
	}
	return kept;
}

/* ---- KV wishes ---- */

/* Pages that are not to be given to just anybody; room within accounts likewise: struct mm_account. */
struct keep {
	uint64_t pages;
	bool for_kv;
};

static bool kv_serve_one(struct mm_core *c, struct mm_c_tenant *t, const struct keep *keep)
{
	const struct mm_account *a = &c->account[t->account];

	if (budget(c, t, keep->pages) < t->kv.chunk_pages ||
	    mm_account_room(a) < a->kept + t->kv.chunk_pages ||
	    !mm_c_reservable(c, t, t->kv.chunk_pages) || !mm_c_burst(c))
		return false;
	mm_c_kv_grant(c, t);
	return true;
}

/* Who waits for chunks, in the order in which they are served. */
static uint32_t kv_waiting(const struct mm_core *c, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
	if (mm_c_kv_unmet(c, t))
		ret[n++] = t;
	mm_c_sort(c, ret, n, mm_c_served_before);
	return n;
}

/*
 * Is a chunk kept back for it? If the pages come soon anyway, or if it has waited long: big chunks would
 * starve beside small ones. But not for ever.
 */
static bool kv_keeps(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept)
{
	uint64_t soon = account_soon(c, t->account), supply = supply_for(c, t->account);

	if ((soon < t->kv.chunk_pages || supply < kept + t->kv.chunk_pages) &&
	    c->now_ns - t->kv.since_ns < MM_TURN_NS) {
		t->kv.kept_ns = 0;
		return false;
	}
	if (!t->kv.kept_ns)
		t->kv.kept_ns = MM_MAX(c->now_ns, 1);
	if (c->now_ns - t->kv.kept_ns <= MM_TURN_NS)
		return true;
	mm_c_kv_turn(c, t);
	return false;
}

/* The longest waiting of all keeps pages, the longest waiting of each account keeps room. */
static void kv_keep(struct mm_core *c, struct mm_c_tenant *t, struct keep *keep)
{
	struct mm_account *a = &c->account[t->account];
	bool fits = mm_account_room(a) >= a->kept + t->kv.chunk_pages;

	if ((keep->for_kv || !fits) && a->keeps)
		return;
	if (!kv_keeps(c, t, keep->pages))
		return;
	if (fits && !keep->for_kv) {
		mm_c_convert(c, t->account, MM_MIN(keep->pages + t->kv.chunk_pages, free_pages(c)));
		keep->pages += t->kv.chunk_pages;
		keep->for_kv = true;
	}
	if (!a->keeps)
		a->kept += t->kv.chunk_pages;
	a->keeps = true;
}

/* A chunk for the first one that can be served. */
static bool kv_round(struct mm_core *c, uint64_t kept)
{
	struct mm_c_tenant *wait[MM_TENANTS_LIMIT];
	struct keep keep = { .pages = kept };
	uint32_t n = kv_waiting(c, wait);

	for (uint32_t i = 0; i < n; i++) {
		c->account[wait[i]->account].kept = 0;
		c->account[wait[i]->account].keeps = false;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (kv_serve_one(c, wait[i], &keep))
			return true;
		kv_keep(c, wait[i], &keep);
	}
	return false;
}

static void serve_kv(struct mm_core *c, uint64_t kept)
{
	while (kv_round(c, kept))
		;
}

/*
 * What the KV wishes need beyond the mins that are kept for them, each account's within what it may
 * have; an account that is at its max has its own tenants give first.
 */
static uint64_t kv_need(struct mm_core *c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < c->accounts_end; i++)
		c->account[i].wish = 0;
	MM_FOREACH_TENANT(c, t)
	c->account[t->account].wish += (uint64_t)mm_c_kv_unmet(c, t) * t->kv.chunk_pages;
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		uint64_t kept = mm_account_unused_min(&c->account[i]), may;
		uint64_t wish = c->account[i].wish;

		if (!wish)
			continue;
		take(c, wish, account_soon(c, i), i, false);
		may = MM_MIN(wish, account_soon(c, i));
		sum += may > kept ? may - kept : 0;
	}
	return sum;
}

/*
 * Whole chunks of one tenant's wish out of its account's min, then of what comes. Returns whether that is
 * all of it.
 */
static bool covered(const struct mm_c_tenant *t, uint64_t unmet, uint64_t *coming,
		    struct mm_account *a)
{
	uint64_t pages = MM_MIN(*coming + a->min, a->room), own;

	pages = MM_MIN(unmet * t->kv.chunk_pages, pages - pages % t->kv.chunk_pages);
	own = MM_MIN(pages, a->min);
	a->min -= own;
	*coming -= pages - own;
	a->room -= pages;
	return pages == unmet * t->kv.chunk_pages;
}

/* In turn: who is covered by what comes waits; the others are told, and whose policy allows no more. */
static void deny(struct mm_core *c, uint64_t coming)
{
	struct mm_c_tenant *wait[MM_TENANTS_LIMIT];
	uint32_t n = kv_waiting(c, wait);

	for (uint32_t i = 0; n && i < c->accounts_end; i++) {
		struct mm_account *a = &c->account[i];

		a->room = a->used ? account_soon(c, i) : 0;
		a->min = mm_account_unused_min(a);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct mm_c_tenant *t = wait[i];
		struct mm_account *a = &c->account[t->account];

		if (covered(t, mm_c_kv_unmet(c, t), &coming, a))
			continue;
		mm_c_kv_deny(c, t,
			     quota_binds(c, t) && a->room < t->kv.chunk_pages ? -EDQUOT : -ENOSPC);
	}
	MM_FOREACH_TENANT(c, t)
	if (t->life == MM_LIFE_LIVE && t->kv.want > t->kv.held && !mm_c_kv_unmet(c, t))
		mm_c_kv_deny(c, t, -ENOSPC);
}

/* ---- all together ---- */

static void give_back(struct mm_core *c, uint64_t need)
{
	uint64_t reserve = c->ledger.pages / HYSTERESIS_PART + mm_c_unused_mins(c);
	uint64_t have = free_pages(c);
	uint64_t surplus = have > need + reserve ? have - need - reserve : 0;

	if (!surplus)
		c->surplus_ns = 0;
	else if (!c->surplus_ns)
		c->surplus_ns = MM_MAX(c->now_ns, 1);
	if (!need && c->policy->give_back)
		c->policy->give_back(c, surplus);
}

uint64_t mm_c_take_from(struct mm_core *c, uint64_t pages, uint32_t account)
{
	uint64_t coming = expected_pages(c, account);

	return coming + take(c, pages, coming, account, false);
}

void mm_c_controller(struct mm_core *c)
{
	uint64_t mins, kept = serve_big(c, &mins), need, supply, unused;

	if (c->policy->overdrawn)
		c->policy->overdrawn(c, kept);
	serve_kv(c, kept);
	need = kept - mins + kv_need(c);
	unused = mm_c_unused_mins(c);
	supply = supply_pages(c);
	supply = supply > unused ? supply - unused : 0;
	supply += take(c, need, supply, MM_DOMAIN_NONE, false);
	deny(c, supply > kept - mins ? supply - (kept - mins) : 0);
	give_back(c, need);
	c->unmet = need;
}

uint64_t mm_c_controller_deadline(const struct mm_core *c)
{
	bool look = c->unmet != 0;

	MM_FOREACH_TENANT(c, t)
	look |= t->life == MM_LIFE_LIVE &&
		(is_big(c, t) || (t->plan.alpha && t->plan.alpha_by_hand < 0) ||
		 (t->kv.want > t->kv.held && !t->kv.told) || c->now_ns < t->retry_ns);
	/* From the last look, not from now: statistics come more often, and would put it off for ever. */
	return look ? c->settled_ns + LOOK_NS : UINT64_MAX;
}
