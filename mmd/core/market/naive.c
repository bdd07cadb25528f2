/* SPDX-License-Identifier: Apache-2.0 */
/*
 * naive - mirage's Algorithm 1 as it is written, for comparison
 *
 * One more layer is taken each time the KV runs out: of the first inactive model until all its
 * layers are away, then of the next one, then of active models. Layers return when memory that was
 * added is empty. BOUNDED adds §5.3: a model's layers are taken only while T_T·N <= T_compute.
 * Documentation/controller.md lists what is the paper's and what had to be added.
 */
#include "mmd/core/market/naive.h"

#include "libclient/base/base.h"
#include "mmd/core/market/simple.h"
#include "mmd/core/plan/plan.h"

/*
 * §5.4: the fewest transfers that fit, so one slot while (4) holds. If nothing was measured, one
 * slot while it is the looser one.
 */
static uint32_t naive_slots(uint64_t layers, uint64_t t_c_ns, uint64_t t_t_ns, uint64_t alpha)
{
	uint64_t m = alpha + 1;

	if (!t_c_ns || !t_t_ns)
		return m * (m + 1) < layers ? 1 : 2;
	return t_t_ns <= UINT64_MAX / m && t_t_ns * m <= t_c_ns * (layers - m) ? 1 : 2;
}

uint32_t mm_naive_slots(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha)
{
	return naive_slots(t->n_layers, t->load.t_c_ns, mm_c_transfer_ns(c, t), alpha);
}

/*
 * §5.3: the computing time of the present token of an active model, of a prefill of an inactive
 * one.
 */
static uint64_t naive_compute_ns(const struct mm_view_tenant *t)
{
	return mm_view_is_idle(t) ? t->longest_ns : t->layer_ns * t->layers;
}

static uint32_t naive_bounded_max(const struct mm_view_tenant *t)
{
	uint64_t m_max = t->largest_ns ? naive_compute_ns(t) / t->largest_ns : 0;
	uint32_t alpha = (uint32_t)MM_MIN(m_max, t->alpha_max);

	while (alpha) {
		bool two = alpha >= 2 && alpha <= t->alpha_two;
		uint32_t beta = two ? naive_slots(t->layers, t->layer_ns, t->largest_ns, alpha) : 1;

		if (mm_plan_cycling(alpha, beta) <= m_max)
			break;
		alpha--;
	}
	return alpha;
}

/* Idle ones first, then the lower priority, the last turn, the last active, the least lent. */
static bool lends_before(const struct mm_view_tenant *a, const struct mm_view_tenant *b)
{
	bool a_idle = mm_view_is_idle(a), b_idle = mm_view_is_idle(b);
	uint64_t a_lent = (uint64_t)a->alpha * a->weight, b_lent = (uint64_t)b->alpha * b->weight;

	if (a_idle != b_idle)
		return a_idle;
	if (a->priority != b->priority)
		return a->priority < b->priority;
	if (a_idle && a->place != b->place)
		return a->place > b->place;
	if (a_idle && a->active_ns != b->active_ns)
		return a->active_ns > b->active_ns;
	return !a_idle && a_lent != b_lent ? a_lent < b_lent : a->index < b->index;
}

/* True while a layer is being taken for this shortage; until it comes no other one is taken. */
static bool naive_layer_is_coming(const struct mm_view *v, const struct mm_targets *targets)
{
	for (uint32_t i = 0; i < v->n_tenants; i++)
		if (v->tenant[i].change_pages ||
		    targets->tenant[v->tenant[i].index].alpha > v->tenant[i].alpha_next)
			return true;
	return false;
}

/* Takes a layer of the first tenant of @account that may lend one. False: there is none. */
static bool naive_take_layer(const struct mm_view *v, struct mm_targets *targets, uint32_t account,
			     bool bounded)
{
	const struct mm_view_tenant *best = NULL;

	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];

		if ((account != MM_SIMPLE_ALL && t->account != account) || !mm_simple_lends(t) ||
		    (bounded ? naive_bounded_max(t) : t->alpha_max) <= t->alpha ||
		    !mm_simple_may_give(v, t, t->layer_pages, account))
			continue;
		if (!best || lends_before(t, best))
			best = t;
	}
	if (best)
		targets->tenant[best->index].alpha = best->alpha + 1;
	return best;
}

/* Returns whether anything was taken. */
static bool naive_take(const struct mm_view *v, struct mm_targets *targets, uint64_t short_pages,
		       uint32_t account, bool bounded)
{
	uint64_t got = mm_simple_take_chunks(v, targets, short_pages, account, true);

	if (got < short_pages && !naive_layer_is_coming(v, targets))
		return naive_take_layer(v, targets, account, bounded) || got;
	return got;
}

/* Chunks that nobody uses make room for the layers that return. */
static void naive_give_back(const struct mm_view *v, struct mm_targets *targets)
{
	const struct mm_view_tenant *t = mm_simple_next_to_return(v, 0);

	if (!t)
		return;
	mm_simple_return(t, v->unused_mins, targets);
	targets->chunks_for_layers = true;
	mm_simple_take_chunks(v, targets, (uint64_t)t->cycling * t->layer_pages, MM_SIMPLE_ALL,
			      false);
}

static void naive_decide(const struct mm_view *v, struct mm_targets *targets, bool bounded)
{
	bool taken = false;

	mm_simple_begin(v, targets);
	for (uint32_t i = 0; i < v->n_accounts; i++)
		taken |= naive_take(v, targets, v->account[i].owes + v->account[i].lacks, i,
				    bounded);
	naive_take(v, targets, v->short_pages, MM_SIMPLE_ALL, bounded);
	if (!taken && !v->needed && v->reversion)
		naive_give_back(v, targets);
}

void mm_naive_decide(const struct mm_view *v, struct mm_market_memory *memory,
		     struct mm_targets *targets)
{
	(void)memory;
	naive_decide(v, targets, false);
}

void mm_naive_decide_bounded(const struct mm_view *v, struct mm_market_memory *memory,
			     struct mm_targets *targets)
{
	(void)memory;
	naive_decide(v, targets, true);
}
