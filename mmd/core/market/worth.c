/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/worth.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/market/cost.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"

#define LINK_MORE        100 /* permille of the link more, where more than usual is tolerated */
#define WORTHWHILE_STEPS 8

/* Returns the permille of the link's time that streaming of other active tenants takes. */
static uint64_t link_used(struct mm_core *c, const struct mm_c_tenant *but)
{
	return mm_c_sums(c)->link - mm_c_link_permille(c, but);
}

/* Returns how long a transfer takes that leaves others @used_permille of the link. */
static uint64_t shared_transfer_ns(uint64_t ns, uint64_t used_permille)
{
	return MM_MIN(ns, UINT64_MAX / 2000) * 1000 / (1000 - MM_MIN(used_permille, 900u));
}

/*
 * Returns whether streaming stays within @limit with the set that @t would get for @alpha. More
 * layers are taken when pages are short, so that set is chosen with no pages for a preload. Layers
 * return when there are pages, so the set for fewer layers is chosen with any number: with none, it
 * would be a worse one.
 */
static bool alpha_is_hidden(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha,
			    const struct mm_c_cap *limit)
{
	struct mm_plan_set set = t->change->set;
	uint32_t slow;

	if (alpha != t->plan.alpha)
		mm_c_change_set(c, t, alpha, mm_c_policy_slots(c, t, alpha),
				alpha < t->plan.alpha ? UINT64_MAX : 0, &set);
	slow = mm_c_slow_permille(t, &set, limit->t_t_ns);
	return slow <= limit->slow_permille &&
	       mm_c_set_link_permille(c, t, &set, slow) <= limit->link_permille;
}

/*
 * Returns the largest number of layers that was found hidden. The bisection assumes that fewer
 * layers are never harder to hide than more, but sets depend on the one in force, and change a lot
 * with the number of slots. So the number in force is checked first: layers that were taken because
 * they are hidden must not be too many a moment later.
 */
static uint32_t largest_hidden_alpha(const struct mm_core *c, struct mm_c_tenant *t,
				     const struct mm_c_cap *limit)
{
	uint32_t low = 0, high = t->sets->alpha_max;

	if (t->plan.alpha && alpha_is_hidden(c, t, t->plan.alpha, limit))
		low = t->plan.alpha;
	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (alpha_is_hidden(c, t, mid, limit))
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

static struct mm_c_cap *cap_compute(struct mm_core *c, struct mm_c_tenant *t, struct mm_c_cap now,
				    struct mm_c_cap *cache)
{
	now.epoch = t->plan.epoch;
	now.claims = t->sets->claims;
	now.steps = t->load.steps_seen;
	if (now.epoch != cache->epoch || now.claims != cache->claims || now.steps != cache->steps ||
	    now.t_t_ns != cache->t_t_ns || now.link_permille != cache->link_permille ||
	    now.slow_permille != cache->slow_permille) {
		now.alpha = largest_hidden_alpha(c, t, &now);
		*cache = now;
	}
	return cache;
}

/* Gets the limits of @t's streaming now; false: there are none. */
static bool limit_find(struct mm_core *c, const struct mm_c_tenant *t, uint32_t more,
		       struct mm_c_cap *ret_limit)
{
	uint64_t used;

	if (mm_c_off_turn(c, t))
		return false;
	if (mm_c_idle(c, t)) {
		*ret_limit = (struct mm_c_cap){ .t_t_ns = mm_c_alone_ns(c, t),
						.slow_permille = c->opts.wake_permille,
						.link_permille = 1000 };
		return mm_c_steps_mean_ns(&t->load.steps) != 0;
	}
	used = MM_MIN(link_used(c, t), c->opts.link_permille);
	*ret_limit = (struct mm_c_cap){ .t_t_ns = shared_transfer_ns(mm_c_alone_ns(c, t), used),
					.slow_permille = c->opts.slow_permille * more,
					.link_permille = (uint32_t)(c->opts.link_permille - used) +
							 (more > 1 ? LINK_MORE : 0) };
	return true;
}

static struct mm_c_cap *cap_cache_of(const struct mm_core *c, struct mm_c_tenant *t, uint32_t more)
{
	return more > 1 && !mm_c_idle(c, t) ? &t->lends->cap_more : &t->lends->cap;
}

uint32_t mm_c_alpha_cap(struct mm_core *c, struct mm_c_tenant *t, uint32_t more)
{
	uint64_t cap = (uint64_t)t->n_layers * c->opts.lend_max_permille / 1000;
	struct mm_c_cap limit;

	cap = MM_MIN(cap, t->sets->alpha_max - 1); /* one layer stays resident */
	/* The holder lends nothing: at its next turn others would have to lend for the return. */
	if (!mm_c_off_turn(c, t) && mm_c_rotates(c, t))
		return 0;
	if (!limit_find(c, t, more, &limit))
		return (uint32_t)cap;
	return (uint32_t)MM_MIN(cap, cap_compute(c, t, limit, cap_cache_of(c, t, more))->alpha);
}

bool mm_c_alpha_is_hidden(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha)
{
	struct mm_c_cap limit, *cap;

	if (!limit_find(c, t, 1, &limit))
		return true;
	cap = cap_compute(c, t, limit, cap_cache_of(c, t, 1));
	if (!cap->is_hidden_alpha || cap->is_hidden_alpha != alpha) {
		cap->is_hidden_alpha = alpha;
		cap->is_hidden = alpha_is_hidden(c, t, alpha, cap);
	}
	return cap->is_hidden;
}

static uint32_t slow_at(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha)
{
	struct mm_plan_set set;

	if (!alpha)
		return 0;
	mm_c_change_set(c, t, alpha, mm_c_policy_slots(c, t, alpha), 0, &set);
	return mm_c_slow_permille(t, &set, mm_c_alone_ns(c, t));
}

static uint32_t alpha_worthwhile(const struct mm_core *c, struct mm_c_tenant *t, uint64_t kv_pages)
{
	uint32_t alpha = t->plan.alpha, best = alpha, best_step = 1;
	uint64_t per = mm_c_layer_pages(t), best_kv = 0;

	for (uint32_t i = 0; i <= WORTHWHILE_STEPS; i++) {
		uint32_t at = alpha - alpha * i / WORTHWHILE_STEPS, step = 1000 + slow_at(c, t, at);
		uint64_t less = (alpha - at) * per, kv = kv_pages > less ? kv_pages - less : 0;

		if ((unsigned __int128)kv * best_step > (unsigned __int128)best_kv * step) {
			best = at;
			best_kv = kv;
			best_step = step;
		}
	}
	return best;
}

uint32_t mm_c_alpha_worthwhile(const struct mm_core *c, struct mm_c_tenant *t, uint64_t kv_pages)
{
	struct mm_c_lends *lends = t->lends;

	if (t->load.steps_seen < MM_STEPS_LEAST || !mm_c_alone_ns(c, t))
		return t->plan.alpha;
	if (lends->worthwhile.epoch != t->plan.epoch ||
	    lends->worthwhile.claims != t->sets->claims ||
	    lends->worthwhile.steps != t->load.steps_seen) {
		lends->worthwhile.epoch = t->plan.epoch;
		lends->worthwhile.claims = t->sets->claims;
		lends->worthwhile.steps = t->load.steps_seen;
		lends->worthwhile.alpha = alpha_worthwhile(c, t, kv_pages);
	}
	return lends->worthwhile.alpha;
}

void mm_c_caps_void(struct mm_c_tenant *t)
{
	t->lends->cap = t->lends->cap_more = (struct mm_c_cap){ 0 };
	t->lends->worthwhile.epoch = 0;
}
