/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/reconcile.h"

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/book/quota.h"
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

#define RETURN_TRIES  3
#define STUCK_NS      (2 * MM_NS_PER_S) /* without a target after a return in vain */
#define STUCK_TIMES   3                 /* in a row: each more doubles that */
#define STUCK_DOUBLE  4                 /* so often at most */
#define PROGRESS_PART 16                /* of the pages of an earmark: fewer are no progress */
#define TAKE_PART     4 /* of what a target leaves to take: less is not worth a change */

static const struct mm_target *target_of(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return &c->market->targets.tenant[mm_c_index(c, t)];
}

/* Returns whether the last decision was about @t's layers, and they are not set by hand since. */
static bool has_target(const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && !t->kicked && t->model == MM_C_MODEL_READY &&
	       mm_c_alpha_by_hand(t) < 0 && t->sets->alpha_max;
}

static uint32_t target_alpha(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return MM_MIN(target_of(c, t)->alpha, t->sets->alpha_max);
}

static bool target_is_first(const struct mm_core *c, const struct mm_c_tenant *a,
			    const struct mm_c_tenant *b)
{
	return target_of(c, a)->first < target_of(c, b)->first;
}

/*
 * Order in which layers are taken: from the last in the order of pages; of these first the lower
 * priority, who has its turn last, and who was active last: it is needed again last.
 */
static bool target_is_last(const struct mm_core *c, const struct mm_c_tenant *a,
			   const struct mm_c_tenant *b)
{
	uint32_t a_rank = c->account[a->account].quota.priority;
	uint32_t b_rank = c->account[b->account].quota.priority;

	if (target_of(c, a)->first != target_of(c, b)->first)
		return target_of(c, a)->first > target_of(c, b)->first;
	if (a_rank != b_rank)
		return a_rank < b_rank;
	if (mm_c_turn_before(c, a, b) != mm_c_turn_before(c, b, a))
		return mm_c_turn_before(c, b, a);
	return a->load.active_ns > b->load.active_ns;
}

/* ---- layers return ---- */

/* Lists tenants that have more layers away than their target, or take layers back if @surplus. */
static uint32_t returns_list(const struct mm_core *c, bool surplus, struct mm_c_tenant **ret)
{
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t)
		if (has_target(t) && mm_c_alpha_next(t) > target_alpha(c, t) &&
		    (target_of(c, t)->first == MM_FIRST_IDLE) == surplus)
			ret[n++] = t;
	mm_c_sort(c, ret, n, target_is_first);
	return n;
}

/* Begins a change with @alpha layers away, from @pages. */
static bool return_begin(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha, uint64_t pages)
{
	if (!mm_c_change_begin(c, t, alpha, mm_c_policy_slots(c, t, alpha), pages))
		return false;
	t->lends->earmark.pages = 0;
	t->lends->stuck_times = 0;
	return true;
}

/*
 * Begins a change by which as many layers return as @pages allow. With the last one a second layer
 * returns: the slot's pages come free only afterwards. False: none can.
 */
static bool return_some(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages)
{
	uint32_t alpha = t->plan.alpha, target = target_alpha(c, t), to;
	uint64_t back = pages / mm_c_layer_pages(t);

	if (target)
		back = MM_MIN(back, alpha - target);
	for (uint32_t i = 0; i < RETURN_TRIES && back; i++, back--) {
		to = !target && back >= t->plan.m ? 0 : alpha - (uint32_t)MM_MIN(back, alpha - 1);
		if (to >= alpha)
			break;
		if (return_begin(c, t, to, pages))
			return true;
	}
	return false;
}

/* Returns the pages that the return of @t's layers to their target needs. */
static uint64_t return_need(const struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t alpha = target_alpha(c, t);
	struct mm_plan_set set;

	return mm_c_change_set(c, t, alpha, mm_c_policy_slots(c, t, alpha), UINT64_MAX, &set);
}

/*
 * Others lent layers, or gave KV, for pages that did not suffice. What fails again and again is
 * tried less and less often.
 */
static void return_give_up(const struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_c_lends *lends = t->lends;
	uint32_t doubled = lends->stuck_times - MM_MIN(lends->stuck_times, STUCK_TIMES - 1u);

	lends->stuck_until_ns =
		c->now_ns + mm_c_time(c, STUCK_NS << MM_MIN(doubled, (uint32_t)STUCK_DOUBLE));
	lends->stuck_times++;
}

/*
 * An earmark lasts as long as it makes progress: a part more of its pages is there each time, or it
 * is not its turn yet.
 */
static void earmark_renew(struct mm_core *c, struct mm_c_tenant *t, uint64_t have, bool later)
{
	struct mm_c_earmark *mark = &t->lends->earmark;
	uint32_t alpha = target_alpha(c, t);
	uint64_t until_ns = c->now_ns + mm_c_time(c, MM_EARMARK_NS);

	if (mark->alpha != alpha || (!mark->pages && !mark->expired))
		*mark = (struct mm_c_earmark){ .alpha = alpha, .until_ns = until_ns };
	mark->pages = return_need(c, t);
	have = MM_MIN(have, mark->pages);
	if (!mark->expired &&
	    (later || have >= mark->most + mm_div_up(mark->pages, PROGRESS_PART))) {
		mark->most = have;
		mark->until_ns = until_ns;
	}
	if (c->now_ns < mark->until_ns || mark->expired)
		return;
	mark->expired = true;
	return_give_up(c, t);
}

/* Keeps pages for @t's layers, or begins their return. Returns how many pages are kept. */
static uint64_t return_or_keep(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept, bool later)
{
	struct mm_c_earmark *mark = &t->lends->earmark;
	uint64_t keep = kept + c->market->targets.keep_free, have, coming;

	if (mm_c_is_changing(t)) {
		mark->pages = 0;
		return 0;
	}
	have = mm_c_free_pages(c) > keep ? mm_c_free_pages(c) - keep : 0;
	earmark_renew(c, t, have, later);
	coming = mm_c_supply(c) - mm_c_free_pages(c);
	if (!mm_c_lends_by_itself(c, t))
		return mark->expired ? 0 : MM_MIN(mark->pages, have);
	mm_c_pages_convert(c, t->account, MM_MIN(mark->pages, have));
	if (have >= mark->pages && return_begin(c, t, target_alpha(c, t), have))
		return 0;
	/* Nothing more comes: the rest would wait in vain, and what is there serves nobody else. */
	if (mark->expired || have + coming < mark->pages) {
		if (return_some(c, t, have))
			return 0;
	}
	return mark->expired ? 0 : MM_MIN(mark->pages, have + coming);
}

uint64_t mm_c_layers_return(struct mm_core *c, uint64_t kept)
{
	struct mm_c_tenant *list[MM_CORE_TENANTS_MAX];
	uint32_t n = returns_list(c, false, list);
	uint64_t sum = kept;
	bool later = false;

	MM_FOREACH_TENANT(c, t)
		if (!has_target(t) || mm_c_alpha_next(t) <= target_alpha(c, t) ||
		    target_of(c, t)->first == MM_FIRST_IDLE)
			t->lends->earmark = (struct mm_c_earmark){ 0 };
	for (uint32_t i = 0; i < n; i++) {
		sum += return_or_keep(c, list[i], sum, later);
		later |= list[i]->lends->earmark.pages && !list[i]->lends->earmark.expired;
	}
	return sum - kept;
}

/* ---- memory is taken ---- */

/* Returns how many units of @pages may be taken from @t. */
static uint64_t units_may_give(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages)
{
	const struct mm_view_account *a = &c->market->view.account[t->account];

	return a->owes || a->lacks ? UINT64_MAX : mm_c_may_give(c, t, pages);
}

/*
 * A tenant that has not answered yet is not asked again before its time is over. Nobody is asked
 * for its window, which costs a change of the plan.
 */
static void chunks_take(struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t keep = MM_MAX(target_of(c, t)->kv_keep, mm_c_window_chunks(t));
	uint64_t chunks;

	if (t->life != MM_LIFE_LIVE || t->kicked || t->kv.held <= keep ||
	    !(t->features & MM_FEAT_RECLAIM) || c->now_ns < t->demand->reclaim_until_ns)
		return;
	chunks = MM_MIN(t->kv.held - keep, units_may_give(c, t, t->kv.chunk_pages));
	mm_assert(t->kv.held - chunks >= keep);
	if (chunks && mm_c_burst(c))
		mm_c_kv_reclaim(c, t, (uint32_t)chunks);
}

/* Returns how many of the @gap layers to the target are taken now. */
static uint64_t layers_due(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t gap,
			   uint64_t short_pages)
{
	uint64_t due = mm_div_up(short_pages, mm_c_layer_pages(t));

	if (!c->market->targets.as_needed || c->market->view.account[t->account].owes)
		return gap;
	return due ? MM_MIN(MM_MAX(due, mm_div_up(gap, TAKE_PART)), gap) : 0;
}

/* Begins a change towards @t's target. Returns how many pages will come. */
static uint64_t layers_take(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages)
{
	uint32_t alpha = t->plan.alpha, target = target_alpha(c, t);
	uint64_t more;

	if (!mm_c_lends_by_itself(c, t) || target <= alpha)
		return 0;
	more = layers_due(c, t, target - alpha, short_pages);
	more = MM_MIN(more, units_may_give(c, t, mm_c_layer_pages(t)));
	if (!more)
		return 0;
	alpha += (uint32_t)more;
	mm_assert(alpha <= target);
	if (!mm_c_change_begin(c, t, alpha, mm_c_policy_slots(c, t, alpha), 0))
		return 0;
	t->lends->taken_ns = c->now_ns;
	return t->change->change_gain;
}

/* Returns the pages that are awaited and neither free nor coming. */
static uint64_t pages_short(struct mm_core *c)
{
	uint64_t awaited = mm_c_awaited(c) + mm_c_unused_mins(c), supply = mm_c_supply(c);

	return awaited > supply ? awaited - supply : 0;
}

void mm_c_memory_take(struct mm_core *c)
{
	struct mm_c_tenant *list[MM_CORE_TENANTS_MAX];
	uint64_t short_pages;
	uint32_t n = 0;

	MM_FOREACH_TENANT(c, t) {
		if (!c->market->targets.chunks_for_layers)
			chunks_take(c, t);
		if (has_target(t) && target_alpha(c, t) > t->plan.alpha)
			list[n++] = t;
	}
	short_pages = pages_short(c);
	mm_c_sort(c, list, n, target_is_last);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t gain = layers_take(c, list[i], short_pages);

		short_pages -= MM_MIN(short_pages, gain);
	}
}

/* ---- what is left over ---- */

void mm_c_layers_return_surplus(struct mm_core *c, uint64_t kept)
{
	struct mm_c_tenant *list[MM_CORE_TENANTS_MAX];
	uint32_t n = returns_list(c, true, list);
	bool all = true;

	for (uint32_t i = 0; i < n; i++) {
		struct mm_c_tenant *t = list[i];
		uint64_t keep = kept + c->market->targets.keep_free, have = mm_c_free_pages(c);

		have = have > keep ? have - keep : 0;
		if (!mm_c_lends_by_itself(c, t))
			continue;
		mm_c_pages_convert(c, t->account, MM_MIN(have, t->plan.m * mm_c_layer_pages(t)));
		all = return_some(c, t, have) && all;
	}
	if (c->market->targets.chunks_for_layers && !all)
		MM_FOREACH_TENANT(c, t)
			chunks_take(c, t);
}

/* ---- checks ---- */

/* Pages are kept for layers whose target is the same, and no longer than a while. */
static const char *earmark_check(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_c_earmark *mark = &t->lends->earmark;

	if (!mark->pages || mark->expired || !has_target(t) || mm_c_is_changing(t))
		return NULL;
	mm_must(mark->alpha == target_alpha(c, t));
	mm_must(mark->alpha < t->plan.alpha);
	mm_must(c->settled_ns < mark->until_ns);
	mm_must(mark->until_ns <= c->settled_ns + mm_c_time(c, MM_EARMARK_NS));
	return NULL;
}

/* The targets of the last decision are possible for those that it saw. */
static const char *targets_check(const struct mm_core *c)
{
	const struct mm_view *v = &c->market->view;

	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		const struct mm_target *target = &c->market->targets.tenant[t->index];

		mm_must(target->alpha <= t->layers);
		mm_must(!t->lends || target->alpha <= t->alpha_max);
		mm_must(t->lends || target->alpha == t->alpha_next);
		mm_must(target->kv_keep == UINT32_MAX || target->kv_keep <= t->kv_held);
	}
	return NULL;
}

const char *mm_c_targets_check(const struct mm_core *c)
{
	if (!c->market->policy->market)
		return NULL;
	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE)
			mm_must_pass(earmark_check(c, t));
	mm_must_pass(targets_check(c));
	return NULL;
}

/* ---- how long it took ---- */

/* Returns whether no more layers of @t return now. */
static bool layers_are_home(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (!has_target(t))
		return true;
	return !mm_c_is_changing(t) &&
	       (t->plan.alpha <= target_alpha(c, t) || t->lends->earmark.expired);
}

void mm_c_homes_note(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds && !t->turn->home_ns && layers_are_home(c, t))
			t->turn->home_ns = c->now_ns;
}
