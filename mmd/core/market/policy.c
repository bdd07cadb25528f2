/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/policy.h"

#include "libclient/base/base.h"
#include "mmd/core/market/naive.h"
#include "mmd/core/market/simple.h"

static void policy_decide_static(const struct mm_view *v, struct mm_market_memory *memory,
				 struct mm_targets *targets)
{
	mm_simple_begin(v, targets);
	mm_simple_give_back(v, memory, targets);
}

static void policy_decide_elastic(const struct mm_view *v, struct mm_market_memory *memory,
				  struct mm_targets *targets)
{
	uint64_t got;

	mm_simple_begin(v, targets);
	got = mm_simple_take_owed(v, targets);
	mm_simple_take_chunks(v, targets, v->short_pages, MM_SIMPLE_ALL, true);
	if (!got)
		mm_simple_give_back(v, memory, targets);
}

/*
 * Returns how many chunks @t may have whatever is decided: what is free of its account's min, and
 * one if it has none, since it cannot do anything without. What it is asked for does not count: it
 * would be granted again as soon as it is released. Within a min nothing is taken.
 */
static uint64_t chunks_assured(const struct mm_view *v, const struct mm_view_tenant *t,
			       const struct mm_target *target)
{
	const struct mm_view_account *a = &v->account[t->account];
	uint64_t own = a->min_pages > a->charged ? a->min_pages - a->charged : 0;

	if (!t->chunk_pages)
		return 0;
	if (own >= t->chunk_pages)
		return t->kv_held + own / t->chunk_pages;
	return MM_MAX(MM_MIN(t->kv_held, target->kv_keep), 1u);
}

/* Returns the pages that @t gives by its target. */
static uint64_t target_gives(const struct mm_view_tenant *t, const struct mm_target *target)
{
	uint64_t pages = 0;

	if (target->kv_keep < t->kv_held)
		pages += (uint64_t)(t->kv_held - target->kv_keep) * t->chunk_pages;
	if (target->alpha > t->alpha_next)
		pages += (uint64_t)(target->alpha - t->alpha_next) * t->layer_pages;
	return pages;
}

/* An account that owes pages gives layers, too, where its tenants' KV does not suffice. */
static void accounts_give_layers(const struct mm_view *v, struct mm_targets *targets)
{
	uint64_t gives[MM_CORE_ACCOUNTS_MAX] = { 0 };

	for (uint32_t i = 0; i < v->n_tenants; i++)
		gives[v->tenant[i].account] +=
			target_gives(&v->tenant[i], &targets->tenant[v->tenant[i].index]);
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		struct mm_target *target = &targets->tenant[t->index];
		uint64_t owes = v->account[t->account].owes, *given = &gives[t->account], more;
		uint32_t alpha = MM_MAX(target->alpha, t->alpha_next);

		if (!owes || !t->lends || alpha >= t->alpha_max)
			continue;
		more = owes > *given ? mm_div_up(owes - *given, t->layer_pages) : 0;
		if (!more)
			continue;
		*given -= target_gives(t, target);
		target->alpha = alpha + (uint32_t)MM_MIN(more, t->alpha_max - alpha);
		target->why = MM_WHY_OWES;
		*given += target_gives(t, target);
	}
}

static void policy_decide_market(const struct mm_view *v, struct mm_market_memory *memory,
				 struct mm_targets *targets)
{
	mm_market_decide(v, memory, targets);
	targets->as_needed = true;
	targets->chunks_for_layers = false;
	targets->keep_free = 0;
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		struct mm_target *target = &targets->tenant[v->tenant[i].index];

		if (!v->reversion)
			target->alpha = MM_MAX(target->alpha, v->tenant[i].alpha_next);
		target->kv_most = (uint32_t)MM_MIN(
			MM_MAX(chunks_assured(v, &v->tenant[i], target), target->kv_most),
			UINT32_MAX);
	}
	accounts_give_layers(v, targets);
}

static const struct mm_policy_ops policy_table[MM_POLICY_COUNT] = {
	/* Layers that the operator took by hand return under each policy. */
	[MM_POLICY_RECOMPUTE] = { .kv_static = true, .decide = policy_decide_static },
	[MM_POLICY_ELASTIC] = { .decide = policy_decide_elastic },
	[MM_POLICY_REMAP] = { .market = true,
			      .lends = true,
			      .kv_swaps = true,
			      .decide = policy_decide_market },
	[MM_POLICY_SWAP] = { .kv_static = true, .kv_swaps = true, .decide = policy_decide_static },
	[MM_POLICY_NAIVE] = { .lends = true, .decide = mm_naive_decide, .slots = mm_naive_slots },
	[MM_POLICY_NAIVE_BOUNDED] = { .lends = true,
				      .decide = mm_naive_decide_bounded,
				      .slots = mm_naive_slots },
};

const struct mm_policy_ops *mm_policy_get(enum mm_policy policy)
{
	return &policy_table[policy];
}
