/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/look.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/big.h"
#include "mmd/core/market/cost.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/order.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/plan/swap.h"

#define DEAF_NS      (2 * MM_NS_PER_S) /* that who gave nothing is not asked again */
#define SAMPLES_MOST UINT64_C(64)      /* of a time without looks */
#define SMOOTH_PART  8                 /* of a new sample */
#define RESERVE_PART 32                /* part of the pool that stays free when layers return */

/* ---- what is smoothed ---- */

/* A window is in use, whatever its tenant claims. */
static uint64_t used_chunks(const struct mm_c_tenant *t)
{
	const uint64_t claim = MM_MAX(t->load.last.kv_chunks_used, mm_c_window_chunks(t));

	return t->load.known ? MM_MIN(claim, (uint64_t)t->kv.held) : t->kv.held;
}

/* Returns whether more KV would be of use to @t now. */
static bool tenant_lacks_kv(const struct mm_c_tenant *t)
{
	uint64_t held = t->kv.held;

	if (t->steer.drains)
		return false;
	return mm_c_kv_unmet(t) || (t->kv.declared && t->load.known && t->load.last.waiting &&
				    used_chunks(t) >= held - held / SMOOTH_PART);
}

static void hungry_sample(struct mm_c_tenant *t, uint64_t samples)
{
	uint32_t *hungry = &t->lends->hungry_permille, now = tenant_lacks_kv(t) ? 1000 : 0;

	/* While nothing was looked at, nobody had work. */
	for (uint64_t i = 1; i < MM_MIN(samples, SAMPLES_MOST); i++)
		*hungry -= (uint32_t)mm_div_up(*hungry, SMOOTH_PART);
	if (now > *hungry)
		*hungry += (uint32_t)mm_div_up(now - *hungry, SMOOTH_PART);
	else
		*hungry -= (uint32_t)mm_div_up(*hungry - now, SMOOTH_PART);
}

/* Requests that ended since the last sample count as one, however many they are. */
static void late_sample(struct mm_c_tenant *t)
{
	const struct mm_tenant_stats *last = &t->load.last;
	struct mm_c_lends *lends = t->lends;
	uint64_t done = last->requests_done - lends->requests_done;
	uint64_t late = last->requests_late - lends->requests_late, now;

	if (last->requests_done < lends->requests_done ||
	    last->requests_late < lends->requests_late)
		done = 0;
	lends->requests_done = last->requests_done;
	lends->requests_late = last->requests_late;
	if (!done)
		return;
	now = (uint64_t)((unsigned __int128)MM_MIN(late, done) * 1000 / done);
	lends->late_permille = (uint32_t)(lends->late_permille -
					  lends->late_permille / SMOOTH_PART + now / SMOOTH_PART);
}

static void tenants_sample(struct mm_core *c)
{
	uint64_t every = mm_c_time(c, MM_LOOK_NS);
	uint64_t samples = (c->now_ns - c->market->sampled_ns) / every;

	if (samples)
		c->market->sampled_ns = c->now_ns;
	MM_FOREACH_TENANT(c, t) {
		if (t->life != MM_LIFE_LIVE || !samples)
			continue;
		hungry_sample(t, samples);
		late_sample(t);
	}
}

/* ---- a tenant ---- */

/* The transfer time of the largest layer, by bytes. */
static uint64_t mean_layer_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t sum = 0;

	for (uint32_t l = 0; l < t->n_layers; l++)
		sum += t->group[1 + l].bytes;
	return (uint64_t)((unsigned __int128)mm_c_alone_ns(c, t) * (sum / t->n_layers) /
			  MM_MAX(t->layer_bytes_max, 1));
}

/* Returns whether the return of @t's layers was given up lately, and there is no room for all. */
static bool return_is_stuck(const struct mm_core *c, const struct mm_c_tenant *t,
			    const struct mm_view_tenant *v)
{
	uint64_t need = (uint64_t)v->alpha * v->layer_pages + v->slot_pages;

	return c->now_ns < t->lends->stuck_until_ns && mm_c_free_pages(c) < need;
}

static void look_at_layers(const struct mm_core *c, const struct mm_c_tenant *t,
			   struct mm_view_tenant *v)
{
	uint64_t may_at = MM_MAX(t->change->retry_ns, mm_c_change_may_at_ns(c, t));

	v->big_pages = t->lends->big_pages;
	if (t->model == MM_C_MODEL_LOADING || t->model == MM_C_MODEL_SWITCHED)
		v->fixed_pages = t->entries;
	if (t->model != MM_C_MODEL_READY)
		return;
	v->layers = t->n_layers;
	v->layer_pages = (uint32_t)mm_c_layer_pages(t);
	v->fixed_pages = t->entries - (uint64_t)v->layers * v->layer_pages;
	v->alpha = t->plan.alpha;
	v->changing = mm_c_is_changing(t);
	v->alpha_next = v->changing ? t->change->next_alpha : v->alpha;
	v->change_pages =
		v->changing && c->now_ns - t->change->change_ns < mm_c_time(c, MM_CHANGE_SLOW_NS)
			? t->change->change_gain
			: 0;
	v->cycling = t->plan.m;
	v->slot_pages = v->alpha ? (uint32_t)mm_c_slots_pages(t, &t->change->set) : 0;
	v->lends = mm_c_alpha_by_hand(t) < 0 && t->sets->alpha_max && !t->change->broken &&
		   !return_is_stuck(c, t, v);
	v->alpha_max = v->lends ? t->sets->alpha_max : 0;
	v->alpha_two = v->lends ? t->sets->alpha_max_two : 0;
	v->change_from_ns = may_at > c->now_ns ? may_at : 0;
	v->taken_ns = t->lends->taken_ns;
	v->transfer_ns = mean_layer_ns(c, t);
	v->largest_ns = mm_c_transfer_ns(c, t);
	v->points = v->lends ? t->lends->points.n : 0;
	memcpy(v->point, t->lends->points.point, v->points * sizeof(*v->point));
}

static void look_at_kv(const struct mm_core *c, const struct mm_c_tenant *t,
		       struct mm_view_tenant *v)
{
	const struct mm_demand *d = t->demand;

	if (!t->kv.declared)
		return;
	v->chunk_pages = t->kv.chunk_pages;
	v->kv_held = t->kv.held;
	v->asked = c->now_ns < d->reclaim_until_ns;
	v->kv_share = t->kv.share;
	v->kv_limit = MM_MIN(d->wanted_max, t->kv.chunks_max);
	v->reclaims = t->features & MM_FEAT_RECLAIM;
	/* One that has time to answer for the first time is not deaf: its target stays. */
	v->gives = v->reclaims && ((v->asked && !d->unresponsive) || mm_c_kv_is_responsive(t) ||
				   c->now_ns >= d->reclaim_until_ns + mm_c_time(c, DEAF_NS));
	v->swap_bytes = t->swap->bytes;
	v->kv_used = (uint32_t)used_chunks(t);
	v->kv_wanted =
		MM_MIN(d->wanted, t->kv.grouped ? MM_MIN(t->kv.most, v->kv_limit) : v->kv_limit);
	v->kv_queued = (uint32_t)t->load.last.kv_chunks_queued;
	if (t->steer.drains) {
		v->kv_wanted = MM_MIN(v->kv_wanted, v->kv_held);
		v->kv_queued = 0;
	}
}

/* Returns the most entries that @t may have: of its declaration, and by the knob of its share. */
static uint32_t cold_most(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t share = (uint64_t)t->kv.share * t->kv.chunk_pages * c->opts.page_bytes;
	unsigned __int128 most = (unsigned __int128)share * c->opts.cold_max_permille / 1000;

	most /= MM_MAX(t->cold.unit_bytes * t->n_layers, 1u);
	most = MM_MAX(most, t->cold.floor);
	return (uint32_t)MM_MIN(most, t->cold.entries_max);
}

static void look_at_cold(const struct mm_core *c, const struct mm_c_tenant *t,
			 struct mm_view_tenant *v)
{
	/* The transfer of a layer may have waited for cold blocks: the better of both counts. */
	uint64_t copies_ns = mm_c_copies_ns(c, t), layer_ns = mm_c_alone_ns(c, t);
	unsigned __int128 ns = copies_ns ? MM_MIN(copies_ns, layer_ns) : layer_ns;

	if (!t->cold.classes || t->model != MM_C_MODEL_READY)
		return;
	v->cold_by_hand = t->cold.by_hand;
	v->cold_most = v->cold_by_hand ? t->cold.entries_max : cold_most(c, t);
	v->cold_floor = t->cold.floor;
	v->cold_limit = t->cold.limit;
	v->cold_live = t->cold.live;
	v->cold_classes = t->cold.classes;
	v->cold_unit_bytes = t->cold.unit_bytes;
	v->cold_entry_ns = (uint64_t)MM_MIN(ns * t->cold.unit_bytes * t->n_layers /
						    MM_MAX(t->layer_bytes_max, 1u),
					    UINT64_MAX / 2);
	v->stall_permille = (uint32_t)MM_MIN(t->load.stall_permille, (uint64_t)UINT32_MAX);
	for (uint32_t i = 0; i < MM_VIEW_LOADS; i++)
		v->load_slow[i] = mm_c_load_permille(t, v->step_ns / (MM_VIEW_LOADS / 2) * i);
}

static void look_at_work(const struct mm_core *c, const struct mm_c_tenant *t,
			 struct mm_view_tenant *v)
{
	const struct mm_tenant_stats *last = &t->load.last;
	uint32_t kappa;

	v->running = (uint32_t)MM_MIN(last->running, (uint64_t)UINT32_MAX);
	v->waiting = (uint32_t)MM_MIN(last->waiting, (uint64_t)UINT32_MAX);
	/* Late requests are a claim: they count only where the operator has set a goal. */
	if (v->goal_ttft_ns || v->goal_tpot_ns)
		v->late_permille = t->lends->late_permille;
	v->step_ns = mm_c_steps_mean_ns(&t->load.steps);
	v->longest_ns = t->load.longest_ns;
	v->layer_ns = t->load.t_c_ns;
	if (mm_slope_permille(&t->load.slope, &kappa))
		v->kappa_permille = MM_MAX(kappa, 1);
	v->hungry_permille = t->lends->hungry_permille;
	v->active_ns = t->load.active_ns;
	v->stepped_ns = t->load.stepped_ns;
	v->home_mean_ns = t->turn->home_ns_mean;
	v->active = c->now_ns - t->load.active_ns < c->opts.idle_ns || mm_c_kv_unmet(t) ||
		    mm_c_turn_pending(c, t);
}

static void look_at_turn(const struct mm_core *c, const struct mm_c_tenant *t,
			 struct mm_view_tenant *v)
{
	v->place = UINT32_MAX;
	v->quantum_ns = mm_c_turn_quantum_ns(c, t);
	if (t->turn->mode == MM_TURN_NONE)
		return;
	v->turn = MM_VIEW_AWAY;
	if (mm_c_turn_pending(c, t))
		v->turn = MM_VIEW_WAITS;
	if (t->turn->holds) {
		v->turn = MM_VIEW_HOLDS;
		v->turn_since_ns = t->turn->begun_ns;
		v->turn_ends = t->turn->closing;
	}
}

static void look_at_tenant(const struct mm_core *c, const struct mm_c_tenant *t,
			   struct mm_view_tenant *v)
{
	const struct mm_core_quota *quota = &c->account[t->account].quota;

	*v = (struct mm_view_tenant){
		.index = mm_c_index(c, t),
		.account = t->account,
		.weight = quota->weight,
		.priority = quota->priority,
		.goal_ttft_ns = quota->goal_ttft_ns,
		.goal_tpot_ns = quota->goal_tpot_ns,
	};
	look_at_layers(c, t, v);
	look_at_kv(c, t, v);
	look_at_work(c, t, v);
	look_at_cold(c, t, v);
	look_at_turn(c, t, v);
}

/* Numbers those that wait for a turn in the order in which they get it. */
static void places_find(struct mm_core *c, struct mm_view *v)
{
	struct mm_c_tenant *waits[MM_CORE_TENANTS_MAX];
	uint32_t place[MM_CORE_TENANTS_MAX]; /* by index in the core */
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->n_tenants; i++)
		if (v->tenant[i].turn == MM_VIEW_WAITS)
			waits[n++] = &c->tenant[v->tenant[i].index];
	mm_c_sort(c, waits, n, mm_c_turn_before);
	for (uint32_t k = 0; k < n; k++)
		place[mm_c_index(c, waits[k])] = k;
	for (uint32_t i = 0; i < v->n_tenants; i++)
		if (v->tenant[i].turn == MM_VIEW_WAITS)
			v->tenant[i].place = place[v->tenant[i].index];
}

/* ---- accounts and the device ---- */

static uint64_t pages_beyond(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void look_at_account(struct mm_core *c, uint32_t i, struct mm_view_account *v)
{
	const struct mm_account *a = &c->account[i];
	uint64_t excess = mm_c_excess(c, i), expected = mm_c_expected(c, i);
	uint64_t wants = mm_c_sums(c)->own[i];

	*v = (struct mm_view_account){
		.min_pages = a->quota.min_pages,
		.max_pages = a->quota.max_pages,
		.charged = a->charged,
		.owes = a->used ? pages_beyond(mm_c_over(c, i), expected) : 0,
		.spare = excess == UINT64_MAX ? excess : pages_beyond(excess, expected),
		.wants = pages_beyond(wants, expected),
	};
	if (c->market->part[i].demand)
		v->lacks = pages_beyond(c->market->part[i].demand, mm_c_account_soon(c, i));
}

/*
 * Returns the pages that no decision is about: of tenants that end or are being thrown out, and
 * memory that is neither weights nor KV.
 */
static uint64_t pages_of_others(const struct mm_core *c)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t) {
		sum += c->ledger.revoking[mm_c_index(c, t)].length + t->mem.held;
		if (t->life == MM_LIFE_LIVE && t->kicked)
			sum += (uint64_t)t->kv.held * t->kv.chunk_pages +
			       (t->model > MM_C_MODEL_WAITING ? t->entries : 0);
	}
	return sum;
}

/* Returns the pages that layers which wait to return need until their slots' pages come free. */
static uint64_t pages_of_returns(const struct mm_core *c)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t) {
		const struct mm_c_earmark *mark = &t->lends->earmark;

		if (t->life == MM_LIFE_LIVE && mark->pages && !mark->expired &&
		    t->plan.alpha > mark->alpha)
			sum += pages_beyond(mark->pages,
					    (t->plan.alpha - mark->alpha) * mm_c_layer_pages(t));
	}
	return sum;
}

static void look_at_device(struct mm_core *c, struct mm_view *v)
{
	uint64_t reserve = c->ledger.pages / RESERVE_PART + mm_c_unused_mins(c);

	v->now_ns = c->now_ns;
	v->policy = c->opts.policy;
	v->pages = pages_beyond(c->ledger.pages - c->ledger.count[MM_PAGE_QUARANTINE],
				pages_of_others(c) + pages_of_returns(c));
	v->free = mm_c_free_pages(c);
	v->coming = c->ledger.inflight_all + mm_c_expected(c, MM_DOMAIN_NONE);
	v->unused_mins = mm_c_unused_mins(c);
	v->needed = mm_c_needed(c);
	v->short_pages = pages_beyond(v->needed, pages_beyond(v->free + v->coming, v->unused_mins));
	v->surplus = pages_beyond(v->free, v->needed + reserve);
	v->reversion = c->opts.reversion == MM_SWITCH_ON;
	v->link_slows_permille = c->opts.link_slows_permille;
	v->rho_permille = c->opts.rho_permille;
	v->cold = c->opts.cold == MM_SWITCH_ON;
	v->page_bytes = c->opts.page_bytes;
	v->dwell_ns = c->opts.dwell_ns;
	v->turn_cost_permille = c->opts.turn_cost_permille;
	v->may_beside = c->opts.sharing != MM_SHARING_TURNS;
	v->may_turns = c->opts.sharing != MM_SHARING_BESIDE;
}

/* A decision knows no scale of time: the times of a dilated run are the device's in its view. */
static void view_undilate(struct mm_view *v, uint64_t scale)
{
	v->now_ns /= scale;
	v->dwell_ns /= scale;
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		struct mm_view_tenant *t = &v->tenant[i];

		t->taken_ns /= scale;
		t->change_from_ns = mm_div_up(t->change_from_ns, scale);
		t->transfer_ns /= scale;
		t->step_ns /= scale;
		t->longest_ns /= scale;
		t->layer_ns /= scale;
		t->largest_ns /= scale;
		t->cold_entry_ns /= scale;
		t->active_ns /= scale;
		t->stepped_ns /= scale;
		t->home_mean_ns /= scale;
		t->turn_since_ns /= scale;
		t->quantum_ns /= scale;
	}
}

void mm_market_look(struct mm_core *c)
{
	struct mm_view *v = &c->market->view;

	if (c->market->policy->lends)
		mm_c_points_update(c);
	tenants_sample(c);
	v->n_tenants = v->joined = 0;
	v->n_accounts = c->accounts_end;
	v->big_pages = 0;
	MM_FOREACH_TENANT(c, t) {
		if (t->life != MM_LIFE_LIVE || t->kicked)
			continue;
		look_at_tenant(c, t, &v->tenant[v->n_tenants]);
		v->joined += t->turn->mode != MM_TURN_NONE;
		v->big_pages += v->tenant[v->n_tenants++].big_pages;
	}
	places_find(c, v);
	look_at_device(c, v);
	for (uint32_t i = 0; i < c->accounts_end; i++)
		look_at_account(c, i, &v->account[i]);
	if (c->opts.time_scale > 1)
		view_undilate(v, c->opts.time_scale);
}

/* ---- when to look ---- */

static uint64_t situation_mix(uint64_t sum, uint64_t value)
{
	return (sum ^ value) * UINT64_C(0x100000001b3);
}

uint64_t mm_market_situation(struct mm_core *c)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	MM_FOREACH_TENANT(c, t) {
		bool live = t->life == MM_LIFE_LIVE && !t->kicked;
		uint64_t bits = (uint64_t)live << 0;

		if (live)
			bits |= (uint64_t)mm_c_idle(c, t) << 1 |
				(uint64_t)(mm_c_kv_unmet(t) != 0) << 2 |
				(uint64_t)mm_c_turn_pending(c, t) << 3 |
				(uint64_t)t->turn->holds << 4 | (uint64_t)t->turn->mode << 5 |
				(uint64_t)t->model << 8 | (uint64_t)t->kv.declared << 12 |
				(uint64_t)mm_c_demand_is_big(c, t) << 13 |
				(uint64_t)(mm_c_alpha_by_hand(t) >= 0) << 14 |
				(uint64_t)(t->cold.classes != 0) << 15;
		sum = situation_mix(sum, bits << 10 | mm_c_index(c, t));
	}
	for (uint32_t i = 0; i < c->accounts_end; i++)
		if (c->account[i].used && mm_c_over(c, i))
			sum = situation_mix(sum, UINT64_C(1) << 63 | i);
	return sum;
}

bool mm_market_is_busy(const struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && !t->kicked &&
		    (!mm_c_idle(c, t) || mm_c_turn_pending(c, t)))
			return true;
	return false;
}
