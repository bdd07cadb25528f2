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
#include "mmd/core/plan/change.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"

/*
 * §5.4: the fewest transfers that fit, so one slot while (4) holds. If nothing was measured, one
 * slot while it is the looser one.
 */
uint32_t mm_naive_slots(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha)
{
	uint64_t n = t->n_layers, m = (uint64_t)alpha + 1;
	uint64_t t_c_ns = t->load.t_c_ns, t_t_ns = mm_c_transfer_ns(c, t);

	if (!t_c_ns || !t_t_ns)
		return m * (m + 1) < n ? 1 : 2;
	return t_t_ns <= UINT64_MAX / m && t_t_ns * m <= t_c_ns * (n - m) ? 1 : 2;
}

/*
 * §5.3: the computing time of the present token of an active model, of a prefill of an inactive
 * one.
 */
static uint64_t naive_compute_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return mm_c_idle(c, t) ? t->load.longest_ns : t->load.t_c_ns * t->n_layers;
}

static uint32_t naive_bounded_max(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t t_t_ns = mm_c_transfer_ns(c, t);
	uint64_t m_max = t_t_ns ? naive_compute_ns(c, t) / t_t_ns : 0;
	uint32_t alpha = (uint32_t)MM_MIN(m_max, t->sets->alpha_max);

	while (alpha) {
		uint32_t beta = mm_c_alpha_possible(t, alpha, 2) ? mm_naive_slots(c, t, alpha) : 1;

		if (mm_plan_cycling(alpha, beta) <= m_max)
			break;
		alpha--;
	}
	return alpha;
}

/* True while a layer is being taken for this shortage; until it comes no other one is taken. */
static bool naive_layer_is_coming(const struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && t->model == MM_C_MODEL_READY &&
		    mm_c_is_changing(t) && t->change->change_gain &&
		    c->now_ns - t->change->change_ns < mm_c_time(c, MM_CHANGE_SLOW_NS))
			return true;
	return false;
}

static uint64_t naive_take_layers(struct mm_core *c, uint64_t short_pages, uint32_t account,
				  bool dry_run, bool bounded)
{
	struct mm_c_tenant *order[MM_CORE_TENANTS_MAX];
	uint64_t got = mm_c_take_chunks(c, short_pages, account, true, dry_run);
	uint32_t n = mm_c_lenders(c, order);

	if (!dry_run && naive_layer_is_coming(c))
		return got;
	for (uint32_t i = 0; i < n && got < short_pages; i++) {
		struct mm_c_tenant *t = order[i];
		uint64_t layers;
		uint32_t max;

		if (!mm_c_of_account(t, account) || !mm_c_lends_by_itself(c, t))
			continue;
		max = bounded ? naive_bounded_max(c, t) : t->sets->alpha_max;
		if (!dry_run)
			max = MM_MIN(max, t->plan.alpha + 1);
		layers = mm_c_take_up_to(c, t, max, short_pages - got, account, dry_run);
		got += layers;
		if (layers && !dry_run)
			break;
	}
	return got;
}

uint64_t mm_naive_take(struct mm_core *c, uint64_t short_pages, uint32_t account, bool dry_run)
{
	return naive_take_layers(c, short_pages, account, dry_run, false);
}

uint64_t mm_naive_take_bounded(struct mm_core *c, uint64_t short_pages, uint32_t account,
			       bool dry_run)
{
	return naive_take_layers(c, short_pages, account, dry_run, true);
}

void mm_naive_give_back(struct mm_core *c, uint64_t surplus_pages)
{
	struct mm_c_tenant *t = mm_c_next_to_return(c, 0);
	uint64_t have = mm_c_free_pages(c), mins = mm_c_unused_mins(c);

	(void)surplus_pages; /* it leaves a part of the pool free, which this algorithm does not */
	if (!t)
		return;
	have = have > mins ? have - mins : 0;
	mm_c_pages_convert(c, t->account, MM_MIN(have, t->plan.m * mm_c_layer_pages(t)));
	if (!mm_c_return_layers(c, t, have, 0))
		mm_c_take_chunks(c, t->plan.m * mm_c_layer_pages(t), MM_DOMAIN_NONE, false, false);
}
