/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/settle.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/cold.h"
#include "mmd/core/plan/control.h"
#include "mmd/core/plan/hold.h"
#include "mmd/core/plan/unload.h"
#include "mmd/core/market/controller.h"
#include "mmd/core/market/market.h"
#include "mmd/core/ladder.h"
#include "mmd/core/life.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/steer.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/book/upkeep.h"

static void tenant_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->life == MM_LIFE_NONE)
		return;
	if (t->life == MM_LIFE_LIVE)
		mm_c_change_settle(c, t);
	if (t->life == MM_LIFE_LIVE)
		mm_c_steer_settle(c, t);
	if (t->life == MM_LIFE_LIVE)
		mm_c_cold_settle(c, t, mm_c_ladder_window_ns(c, t));
	if (t->life == MM_LIFE_LIVE)
		mm_c_hold_settle(c, t);
	if (t->life == MM_LIFE_LIVE && mm_c_unload_settle(c, t))
		mm_market_unloaded(t);
	if (t->life == MM_LIFE_LIVE)
		mm_c_swap_settle(c, t);
	if (t->life == MM_LIFE_LIVE)
		mm_c_mem_settle(c, t);
	mm_c_control_settle(c, t);
	mm_c_life(c, t);
}

/* Begins with another tenant each time, so that all get their share of the job slots. */
static void tenants_settle(struct mm_core *c)
{
	uint32_t end = c->tenants_end;

	c->copy_next = end ? (c->copy_next + 1) % end : 0;
	for (uint32_t i = c->copy_next; i < end; i++)
		tenant_settle(c, &c->tenant[i]);
	for (uint32_t i = 0; i < MM_MIN(c->copy_next, end); i++)
		tenant_settle(c, &c->tenant[i]);
}

static void alpha_sum_update(struct mm_core *c)
{
	uint32_t sum = 0;

	MM_FOREACH_TENANT(c, t)
		sum += t->life == MM_LIFE_LIVE ? t->plan.alpha : 0;
	c->stats.alpha_sum_max = MM_MAX(c->stats.alpha_sum_max, sum);
}

void mm_c_event_begin(struct mm_core *c, uint64_t now_ns)
{
	mm_assert(mm_queue_is_empty(&c->queue));
	c->now_ns = MM_MAX(c->now_ns, now_ns);
}

void mm_c_settle(struct mm_core *c, uint64_t now_ns)
{
	c->now_ns = MM_MAX(c->now_ns, now_ns);
	c->settled_ns = c->now_ns;
	c->queue.again = false;
	tenants_settle(c);
	mm_c_turns(c);
	mm_c_supply_changed(c);
	mm_c_controller(c);
	mm_c_ladder(c);
	mm_c_turns_measure(c);
	tenants_settle(c);
	mm_c_retry_quarantine(c);
	mm_c_mins_guard(c);
	mm_c_accounts_recycle(c);
	mm_c_scrub_all(c);
	mm_c_create_all(c);
	alpha_sum_update(c);
}

bool mm_core_next(struct mm_core *c, struct mm_action *ret_action)
{
	while (!mm_queue_take(&c->queue, ret_action)) {
		if (!c->queue.again)
			return false;
		mm_c_settle(c, c->now_ns);
	}
	return true;
}

void mm_core_on_tick(struct mm_core *c, uint64_t now_ns)
{
	mm_c_event_begin(c, now_ns);
	mm_c_settle(c, now_ns);
}

uint64_t mm_core_deadline(const struct mm_core *c)
{
	uint64_t due = MM_MIN(mm_c_controller_deadline(c), mm_c_turn_deadline(c));

	due = MM_MIN(due, mm_c_change_deadline(c));
	due = MM_MIN(due, mm_c_mem_deadline(c));
	due = MM_MIN(due, mm_c_cold_deadline(c));
	if (c->create_retry_ns)
		due = MM_MIN(due, c->create_retry_ns);
	for (uint32_t i = c->ledger.quarantine.head; i != MM_NO_PAGE; i = c->ledger.page[i].next)
		if (!c->ledger.page[i].poisoned) {
			due = MM_MIN(due, c->quarantine_retry_ns);
			break;
		}
	due = MM_MIN(due, mm_c_ladder_deadline(c));
	due = MM_MIN(due, mm_c_steer_deadline(c));
	return due;
}
