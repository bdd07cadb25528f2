/* SPDX-License-Identifier: Apache-2.0 */
/* One core's side of a group: what the group reads of a rank's arena, and what it orders. */
#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/settle.h"

int mm_core_rank_begin(struct mm_core *c, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (!t || t->life != MM_LIFE_LIVE || t->kicked)
		return -EINVAL;
	if (t->kv.declared || t->turn->mode != MM_TURN_NONE)
		return -EBUSY;
	t->kv.grouped = true;
	t->kv.offer = MM_NO_CHUNK;
	t->kv.most = UINT32_MAX;
	return 0;
}

bool mm_core_kv(const struct mm_core *c, uint32_t tenant, struct mm_core_kv *ret_kv)
{
	const struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (!t || t->life != MM_LIFE_LIVE)
		return false;
	*ret_kv = (struct mm_core_kv){
		.chunks_max = t->kv.declared ? t->kv.chunks_max : 0,
		.held = t->kv.held,
		.wanted = t->demand->wanted,
		.demands = t->demand->requests,
		.reclaims = t->demand->reclaims,
		.reclaim = t->demand->reclaim_left,
		.reclaim_until_ns = t->demand->reclaim_until_ns,
		.releases = t->kv.releases,
		.denied = t->demand->error,
		.map = t->kv.held_map,
	};
	return true;
}

static void rank_demand_set(struct mm_core *c, struct mm_c_tenant *t,
			    const struct mm_core_rank *order)
{
	uint32_t wanted = MM_MIN(order->wanted, t->kv.chunks_max);

	if (order->wants_anew)
		mm_c_demand_set(c, t, wanted);
	else
		mm_c_demand_change(c, t, wanted);
}

void mm_core_rank_order(struct mm_core *c, uint64_t now_ns, uint32_t tenant,
			const struct mm_core_rank *order)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, now_ns);
	if (!t || t->life != MM_LIFE_LIVE || t->kicked || !t->kv.declared)
		return;
	mm_assert(t->kv.grouped);
	mm_assert(order->offer == MM_NO_CHUNK || order->offer < t->kv.chunks_max);
	t->kv.offer = order->offer;
	/* The order before this one, to another rank of this core, may have led to its grant. */
	if (order->offer != MM_NO_CHUNK && mm_c_kv_holds(t, order->offer))
		t->kv.offer = MM_NO_CHUNK;
	t->kv.most = order->most;
	rank_demand_set(c, t, order);
	if (order->deny)
		mm_c_kv_deny_now(c, t, order->deny);
	if (order->reclaim) {
		mm_c_kv_reclaim_until(c, t, order->reclaim, order->reclaim_until_ns);
		t->demand->reclaims--;
	}
	mm_c_settle(c, now_ns);
}
