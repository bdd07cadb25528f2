/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/steer.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/model.h"

/* Its share and the min of its account stay. */
uint64_t mm_core_revocable(const struct mm_core *c, uint32_t tenant, uint32_t *ret_chunks)
{
	const struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	const struct mm_account *a;
	uint64_t beyond = 0;

	if (t && t->life == MM_LIFE_LIVE && t->kv.declared && t->kv.held > t->kv.share) {
		a = &c->account[t->account];
		if (a->charged > a->quota.min_pages)
			beyond = (a->charged - a->quota.min_pages) / t->kv.chunk_pages;
		beyond = MM_MIN(beyond, (uint64_t)(t->kv.held - t->kv.share));
	}
	if (ret_chunks)
		*ret_chunks = (uint32_t)beyond;
	return beyond * (t ? t->kv.chunk_pages : 0);
}

void mm_c_steer_drain(struct mm_core *c, struct mm_c_tenant *t, uint64_t until_ns)
{
	t->steer.drains = true;
	t->steer.drain_until_ns = until_ns;
	mm_c_demand_changed(c);
	if (t->features & MM_FEAT_LEAVE)
		mm_c_event_send(c, t,
				&(struct mm_msg){ .opcode = MM_EV_LEAVE, .arg = { until_ns } });
}

static void home_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->model == MM_C_MODEL_NONE || t->model == MM_C_MODEL_LEAVING)
		t->steer.pinned = t->steer.activates = false;
	if (!t->steer.activates)
		return;
	if ((!t->plan.alpha && t->change->state == MM_CHANGE_STEADY) ||
	    c->now_ns >= t->steer.activate_until_ns)
		t->steer.activates = false;
}

static void drain_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	if (!t->steer.drains || !mm_c_burst(c))
		return;
	if (t->model == MM_C_MODEL_WAITING)
		mm_c_model_refuse(c, t, -ENOSPC, MM_REFUSED_DEVICE);
	if (c->now_ns >= t->steer.drain_until_ns)
		mm_c_kick(c, t, "the operator drained it, and its time is over");
}

void mm_c_steer_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	home_settle(c, t);
	t->steer.revokes = mm_c_revoking(t) != 0;
	drain_settle(c, t);
}

uint64_t mm_c_steer_deadline(const struct mm_core *c)
{
	uint64_t due = UINT64_MAX;

	MM_FOREACH_TENANT(c, t) {
		if (t->life != MM_LIFE_LIVE || t->kicked)
			continue;
		if (t->steer.drains)
			due = MM_MIN(due, t->steer.drain_until_ns);
		if (t->steer.activates)
			due = MM_MIN(due, t->steer.activate_until_ns);
		if (mm_c_revoking(t))
			due = MM_MIN(due, MM_MAX(c->settled_ns, t->demand->reclaim_until_ns));
	}
	return due;
}
