/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/controller.h"

#include "libclient/base/base.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/big.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/grant.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/look.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/reconcile.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/plan/change.h"

#define SETTLE_NS (10 * MM_NS_PER_MS) /* between settlings while a tenant waits or lends */

/* ---- when to decide ---- */

static bool decision_is_due(struct mm_core *c)
{
	struct mm_market *m = c->market;
	uint64_t situation = mm_market_situation(c);
	bool changed = situation != m->situation;

	m->situation = situation;
	return changed || c->now_ns >= m->targets.again_ns ||
	       (mm_market_is_busy(c) &&
		c->now_ns - m->targets.decided_ns >= mm_c_time(c, MM_LOOK_NS));
}

static void controller_decide(struct mm_core *c)
{
	struct mm_market *m = c->market;

	mm_market_look(c);
	m->policy->decide(&m->view, &m->memory, &m->targets);
	m->targets.decided_ns = c->now_ns;
	for (uint32_t i = 0; i < m->view.n_tenants; i++) {
		const struct mm_view_tenant *v = &m->view.tenant[i];

		/* After a limit by hand the market begins anew. */
		c->tenant[v->index].cold.offered =
			v->cold_by_hand ? 0 : m->targets.tenant[v->index].cold;
	}
	if (m->targets.again_ns < UINT64_MAX / c->opts.time_scale)
		m->targets.again_ns = mm_c_time(c, m->targets.again_ns);
	if (m->policy->market)
		mm_c_turns_set(c, m->targets.beside, mm_c_time(c, m->targets.turn_ns));
	mm_c_demand_changed(c);
}

/* ---- one pass ---- */

void mm_c_controller(struct mm_core *c)
{
	uint64_t big = mm_c_big_demands_serve(c), mem = mm_c_mem_waiting(c);
	uint64_t home, need, unused, supply;

	if (c->market->policy->market && decision_is_due(c))
		controller_decide(c);
	home = mm_c_layers_return(c, big + mem);
	mm_c_kv_demands_serve(c, big + mem, home);
	if (!c->market->policy->market)
		controller_decide(c);
	mm_c_memory_take(c);
	need = mm_c_needed(c);
	unused = mm_c_unused_mins(c) + (mm_c_any_without_kv(c) ? 0 : home);
	supply = mm_c_supply(c);
	supply = supply > unused ? supply - unused : 0;
	big = c->market->big_kept - c->market->big_mins;
	mm_c_kv_demands_deny(c, supply > big ? supply - big : 0);
	mm_c_layers_return_surplus(c, big + mem + home);
	mm_c_homes_note(c);
	c->market->unmet = need;
}

uint64_t mm_c_controller_deadline(const struct mm_core *c)
{
	const struct mm_market *m = c->market;
	uint64_t due = m->policy->market ? m->targets.again_ns : UINT64_MAX;
	bool settle = m->unmet != 0;

	MM_FOREACH_TENANT(c, t)
		settle |= t->life == MM_LIFE_LIVE &&
			  (mm_c_demand_is_big(c, t) ||
			   (t->plan.alpha && mm_c_alpha_by_hand(t) < 0) || mm_c_kv_unmet(t) ||
			   (t->demand->wanted > t->kv.held && !t->demand->answered) ||
			   c->settled_ns < t->change->retry_ns);
	/*
	 * The interval begins at the last settling: statistics arrive more often, and would
	 * postpone it for ever if it began now.
	 */
	if (settle)
		due = MM_MIN(due, c->settled_ns + mm_c_time(c, SETTLE_NS));
	if (m->policy->market && mm_market_is_busy(c))
		due = MM_MIN(due, m->targets.decided_ns + mm_c_time(c, MM_LOOK_NS));
	return due;
}
