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
	uint64_t got = 0;

	mm_simple_begin(v, targets);
	for (uint32_t i = 0; i < v->n_accounts; i++)
		got += mm_simple_take_chunks(v, targets, v->account[i].owes + v->account[i].lacks,
					     i, true);
	mm_simple_take_chunks(v, targets, v->short_pages, MM_SIMPLE_ALL, true);
	if (!got)
		mm_simple_give_back(v, memory, targets);
}

/*
 * Returns how many chunks @t may have whatever is decided: what is free of its account's min, and
 * one if it has none, since it cannot do anything without.
 */
static uint64_t chunks_assured(const struct mm_view *v, const struct mm_view_tenant *t)
{
	const struct mm_view_account *a = &v->account[t->account];
	uint64_t own = a->min_pages > a->charged ? a->min_pages - a->charged : 0;

	if (!t->chunk_pages)
		return 0;
	return MM_MAX(t->kv_held + own / t->chunk_pages, 1);
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

		target->kv_most = (uint32_t)MM_MIN(
			MM_MAX(chunks_assured(v, &v->tenant[i]), target->kv_most), UINT32_MAX);
	}
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
