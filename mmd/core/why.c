/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/why.h"

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/cool.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/mode.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/cold.h"
#include "mmd/core/plan/sets.h"

#define BID_BYTES (UINT64_C(1) << 30)

/* ---- the device ---- */

static bool has_work(const struct mm_view_tenant *t)
{
	return t->active || t->turn == MM_VIEW_WAITS || t->turn == MM_VIEW_HOLDS;
}

static enum mm_why_mode mode_reason(const struct mm_core *c, uint32_t joined)
{
	const struct mm_view *v = &c->market->view;
	const struct mm_targets *targets = &c->market->targets;

	if (!c->market->policy->market)
		return MM_WHY_MODE_POLICY;
	if (!v->joined || targets->memory_of != MM_NO_TENANT)
		return targets->memory_of == MM_NO_TENANT ? MM_WHY_MODE_NOBODY : MM_WHY_MODE_MEMORY;
	if (!v->may_beside || !v->may_turns)
		return MM_WHY_MODE_SET;
	if (joined < 2)
		return MM_WHY_MODE_ALONE;
	if (targets->missed_beside != targets->missed_turns)
		return MM_WHY_MODE_GOALS;
	return targets->beside ? MM_WHY_MODE_FITS : MM_WHY_MODE_EXCEEDS;
}

static int64_t gain_of(const struct mm_value *v, uint64_t more)
{
	uint64_t had = MM_MAX(MM_MIN(v->kv_pages, v->kv_enough), 1u);
	uint64_t has = MM_MIN(v->kv_pages + more, v->kv_enough);

	return mm_value_ln(MM_MAX(has, had), had) * v->gain_permille / 1000;
}

/* One GiB more, on top of what the last tenant whose layers were chosen lends. */
static void bid_find(const struct mm_core *c, struct mm_core_why_device *why)
{
	const struct mm_view *view = &c->market->view;
	uint64_t lent, pages = mm_div_up(BID_BYTES, c->opts.page_bytes);

	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		const struct mm_target *target = &c->market->targets.tenant[t->index];
		int64_t bid;

		if (!target->valued)
			continue;
		lent = (uint64_t)target->alpha * t->layer_pages;
		bid = gain_of(&target->value, lent + pages) - gain_of(&target->value, lent);
		/* They were chosen one after the other, and each leaves less to gain. */
		if (why->has_bid && bid >= why->bid)
			continue;
		why->has_bid = true;
		why->bid = bid;
		why->bid_met = target->value.kv_pages + lent >= target->value.kv_enough;
	}
}

static enum mm_why_role role_seen(const struct mm_view_tenant *t, const struct mm_targets *targets)
{
	bool beside = targets->beside;

	if (targets->memory_of != MM_NO_TENANT && targets->memory_of != t->index &&
	    (has_work(t) || t->waiting))
		return MM_WHY_PAUSES;
	if (!has_work(t))
		return MM_WHY_NO_WORK;
	if (beside || t->turn == MM_VIEW_NO_TURNS)
		return MM_WHY_COMPUTES;
	if (t->turn == MM_VIEW_AWAY)
		return MM_WHY_NO_WORK;
	return t->turn == MM_VIEW_HOLDS ? MM_WHY_HOLDS : MM_WHY_WAITS;
}

static void tenants_count(const struct mm_core *c, struct mm_core_why_device *why)
{
	const struct mm_view *view = &c->market->view;

	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		bool pauses = role_seen(t, &c->market->targets) == MM_WHY_PAUSES;
		bool works = has_work(t) || pauses;
		bool waits = pauses || (t->turn == MM_VIEW_WAITS && !why->beside);

		why->working += works;
		why->joined += works && t->turn != MM_VIEW_NO_TURNS;
		why->waiting += waits;
		why->computing += works && !waits;
		if (t->turn == MM_VIEW_HOLDS && why->turn_ns)
			why->turn_home_ns = t->home_mean_ns;
	}
}

void mm_core_why_device(const struct mm_core *c, struct mm_core_why_device *ret_why)
{
	const struct mm_view *view = &c->market->view;
	const struct mm_targets *targets = &c->market->targets;
	uint64_t page = c->opts.page_bytes;

	*ret_why = (struct mm_core_why_device){
		.decided = targets->decided_ns != 0,
		.age_ns = c->now_ns - targets->decided_ns,
		.policy = c->opts.policy,
		.page_bytes = page,
		.pool_bytes = c->ledger.pages * page,
		.free_bytes = view->free * page,
		.coming_bytes = view->coming * page,
		.big_bytes = view->big_pages * page,
		.beside = targets->beside,
		.mode_changes = c->market->memory.mode_since_ns != 0,
		.demand_bytes = targets->demand * page,
		.supply_bytes = targets->supply * page,
		.from_permille = MM_MODE_TURNS_FROM,
		.below_permille = MM_MODE_BESIDE_BELOW,
		.turn_ns = targets->turn_ns,
	};
	tenants_count(c, ret_why);
	ret_why->mode_why = mode_reason(c, ret_why->joined);
	bid_find(c, ret_why);
}

/* ---- a tenant ---- */

static struct mm_core_why_point point_at(const struct mm_view_tenant *t, const struct mm_value *v,
					 uint32_t alpha)
{
	uint32_t slow = mm_value_slow(t, alpha);
	struct mm_core_why_point p = { .alpha = alpha, .known = slow != UINT32_MAX };

	p.gain = gain_of(v, (uint64_t)alpha * t->layer_pages);
	if (!p.known)
		return p;
	p.allowed = slow <= v->slow_most;
	p.slow_permille = slow;
	p.link_permille = mm_value_link(t, alpha);
	p.cost = p.gain - mm_value_at(v, t, alpha);
	return p;
}

static void value_fill(const struct mm_view_tenant *t, const struct mm_target *target,
		       struct mm_core_why *why)
{
	const struct mm_value *v = &target->value;

	why->clause_permille = v->slow_most == MM_VALUE_SLOW_KNOWN ? UINT32_MAX : v->slow_most;
	why->chosen = point_at(t, v, target->alpha);
	why->has_less = target->alpha > 0;
	why->has_more = target->alpha < t->alpha_max;
	if (why->has_less)
		why->less = point_at(t, v, target->alpha - 1);
	if (why->has_more)
		why->more = point_at(t, v, target->alpha + 1);
	for (uint32_t i = 0; i < t->points; i++)
		why->point[why->points++] = point_at(t, v, t->point[i].alpha);
}

static void decision_fill(const struct mm_core *c, const struct mm_view_tenant *t,
			  struct mm_core_why *why)
{
	const struct mm_target *target = &c->market->targets.tenant[t->index];

	why->decided = true;
	why->role = role_seen(t, &c->market->targets);
	why->place = t->place;
	why->queued = t->kv_queued;
	why->hungry_permille = t->hungry_permille;
	why->late_permille = t->late_permille;
	why->step_ns = t->step_ns;
	why->return_ns = target->alpha * t->transfer_ns;
	why->why = target->why;
	why->first = target->first;
	why->alpha_target = target->alpha;
	why->alpha_most = t->alpha_max;
	why->kv_most = target->kv_most;
	why->kv_keep = target->kv_keep < why->kv_held ? target->kv_keep : UINT32_MAX;
	why->valued = target->valued && t->lends;
	if (why->valued)
		value_fill(t, target, why);
}

static uint32_t chunks_in_use(const struct mm_c_tenant *t)
{
	if (!t->load.known)
		return t->kv.held;
	return (uint32_t)MM_MIN(t->load.last.kv_chunks_used, (uint64_t)t->kv.held);
}

/* Returns what the last decision saw of @t; NULL: it was not there. */
static const struct mm_view_tenant *view_row(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_view *view = &c->market->view;

	for (uint32_t i = 0; i < view->n_tenants; i++)
		if (view->tenant[i].index == mm_c_index(c, t))
			return &view->tenant[i];
	return NULL;
}

/* By hand, as the last decision has it, or else what the tenant has asked for at least. */
static enum mm_cool_why cold_reason(const struct mm_core *c, const struct mm_c_tenant *t)
{
	enum mm_cool_why why = c->market->targets.tenant[mm_c_index(c, t)].cold_why;

	if (!t->cold.classes)
		return MM_COOL_NONE;
	if (t->cold.by_hand)
		return MM_COOL_BY_HAND;
	if (why == MM_COOL_NONE || why == MM_COOL_BY_HAND ||
	    (t->cold.limit && t->cold.limit <= t->cold.floor))
		return MM_COOL_FLOOR;
	return why;
}

/* The price is by what was measured at the last decision. */
static void cold_price(const struct mm_core *c, const struct mm_c_tenant *t,
		       struct mm_core_why_cold *why)
{
	const struct mm_view_tenant *v = view_row(c, t);

	if (!v || !v->cold_entry_ns || mm_value_waits(v, 1) == UINT32_MAX)
		return;
	why->priced = true;
	why->load_permille = (uint32_t)MM_MIN(mm_cool_load(v, t->cold.live), 1000000u);
	why->slow_permille = mm_value_waits(v, why->load_permille);
}

static struct mm_core_why_cold cold_of(const struct mm_core *c, const struct mm_c_tenant *t)
{
	struct mm_core_why_cold why;

	if (t->life != MM_LIFE_LIVE || !t->cold.classes)
		return (struct mm_core_why_cold){ 0 };
	why = (struct mm_core_why_cold){
		.most = t->cold.entries_max,
		.floor = t->cold.floor,
		.limit = t->cold.limit,
		.live = t->cold.live,
		.streamed = t->cold.streamed,
		.falls = t->cold.cut_ns != 0,
		.entries = t->plan.cold.entries,
		.block_bytes = t->n_layers * t->cold.unit_bytes,
		.window_bytes =
			(uint64_t)t->plan.cold.chunks * t->kv.chunk_pages * c->opts.page_bytes,
		.gives = t->cold.limit < mm_c_cold_wanted(t),
		.why = cold_reason(c, t),
	};
	cold_price(c, t, &why);
	return why;
}

static struct mm_core_why state_of(const struct mm_core *c, const struct mm_c_tenant *t)
{
	struct mm_core_why why = { .tenant = t->id, .account = c->account[t->account].key };

	why.kv_keep = why.kv_most = UINT32_MAX;
	why.drains = t->life == MM_LIFE_LIVE && t->steer.drains;
	why.revoking = t->life == MM_LIFE_LIVE ? mm_c_revoking(t) : 0;
	why.model_ready = t->life == MM_LIFE_LIVE && t->model == MM_C_MODEL_READY;
	if (why.model_ready) {
		why.layers = t->n_layers;
		why.alpha = t->plan.alpha;
		why.held = t->hold.on;
		why.pinned = t->steer.pinned;
		why.activates = t->steer.activates;
		why.by_hand =
			t->plan.alpha_by_hand >= 0 && !why.held && !why.pinned && !why.activates;
		why.changing = mm_c_is_changing(t);
		why.alpha_next = why.changing ? t->change->next_alpha : why.alpha;
		why.layer_bytes = mm_c_layer_pages(t) * c->opts.page_bytes;
	}
	if (t->life == MM_LIFE_LIVE && t->kv.declared) {
		why.chunk_bytes = t->kv.chunk_pages * c->opts.page_bytes;
		why.kv_held = t->kv.held;
		why.kv_used = chunks_in_use(t);
		why.kv_wanted = t->demand->wanted;
		why.kv_share = t->kv.share;
	}
	why.cold = cold_of(c, t);
	return why;
}

bool mm_core_why(const struct mm_core *c, uint32_t tenant, struct mm_core_why *ret_why)
{
	const struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	const struct mm_view_tenant *v;

	if (!t)
		return false;
	*ret_why = state_of(c, t);
	v = t->life == MM_LIFE_LIVE ? view_row(c, t) : NULL;
	if (v)
		decision_fill(c, v, ret_why);
	return true;
}
