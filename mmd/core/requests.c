/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/requests.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/cold.h"
#include "mmd/core/plan/hold.h"
#include "mmd/core/plan/unload.h"
#include "mmd/core/ladder.h"
#include "mmd/core/life.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/demand.h"

static int request_bye(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	t->bye = true;
	mm_c_life_end(c, t);
	mm_c_reply(c, t, msg, 0);
	return 0;
}

static int request_kv_declare(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	int r = mm_c_kv_declare(c, t, msg);

	if (!r)
		mm_c_demand_declare(c, t);
	mm_c_reply(c, t, msg, r);
	return 0;
}

static int request_kv_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (!t->kv.declared || msg->arg[0] > t->kv.chunks_max ||
	    (msg->arg[1] && !(t->features & MM_FEAT_COLD)))
		return MM_E_PROTOCOL;
	t->kv.first = (uint32_t)MM_MIN(msg->arg[1], (uint64_t)t->kv.chunks_max);
	mm_c_demand_set(c, t, (uint32_t)msg->arg[0]);
	t->demand->requests++;
	return 0;
}

static int request_kv_release(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint32_t chunk;

	if (!t->kv.declared || msg->arg[0] >= t->kv.chunks_max)
		return MM_E_PROTOCOL;
	chunk = (uint32_t)msg->arg[0];
	if (!mm_c_kv_holds(t, chunk))
		return MM_E_PROTOCOL;
	t->kv.releases++;
	if (mm_c_swap_uses_chunks(c, t, chunk, 1) || mm_c_kv_in_window(t, chunk, chunk + 1)) {
		mm_c_reply(c, t, msg, -EBUSY);
		return 0;
	}
	mm_c_kv_drop(c, t, chunk);
	mm_c_demand_released(t);
	mm_c_reply(c, t, msg, 0);
	return 0;
}

/* The plan that follows, of the tenant or the operator, waits for pages from now on. */
static int request_hold(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	t->lends->by_hand_ns = c->now_ns;
	return mm_c_hold_request(c, t, msg);
}

/* One that leaves less than the tenant must give would have to end as soon as it is in force. */
static int request_cold_window(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	const uint64_t chunks = msg->arg[1];

	if (chunks > t->plan.cold.chunks && chunks <= t->kv.held &&
	    !mm_c_ladder_has_window(c, t, (uint32_t)chunks)) {
		mm_c_reply(c, t, msg, -EBUSY);
		return 0;
	}
	return mm_c_cold_window(c, t, msg);
}

static int request_nop(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	(void)c;
	(void)t;
	(void)msg;
	return 0;
}

static const struct {
	int (*handle)(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
	uint32_t args;
	bool epoch, result;
} request_table[MM_OP_COUNT] = {
	[MM_OP_NOP] = { request_nop, 0, false, false },
	[MM_OP_KV_DECLARE] = { request_kv_declare, 4, false, false },
	[MM_OP_KV_WANT] = { request_kv_want, 2, false, false },
	[MM_OP_KV_RELEASE] = { request_kv_release, 1, false, false },
	[MM_OP_PARKED] = { mm_c_change_parked, 1, true, false },
	[MM_OP_MAPPED] = { mm_c_change_mapped, 1, true, false },
	[MM_OP_COMMITTED] = { mm_c_change_committed, 0, true, true },
	[MM_OP_RESYNC] = { mm_c_change_resync, 0, true, false },
	[MM_OP_BYE] = { request_bye, 0, false, false },
	[MM_OP_TURN_JOIN] = { mm_c_turn_join, 3, false, false },
	[MM_OP_TURN_WANT] = { mm_c_turn_want, 0, false, false },
	[MM_OP_TURN_DONE] = { mm_c_turn_done, 1, false, false },
	[MM_OP_MEM_ALLOC] = { mm_c_mem_alloc, 2, false, false },
	[MM_OP_MEM_FREE] = { mm_c_mem_free, 2, false, false },
	[MM_OP_HOLD] = { request_hold, 1, false, false },
	[MM_OP_UNLOAD] = { mm_c_unload_request, 0, false, false },
	[MM_OP_COLD_OPEN] = { mm_c_cold_open, 4, false, false },
	[MM_OP_COLD_WINDOW] = { request_cold_window, 2, false, false },
};

bool mm_c_request_is_well_formed(const struct mm_msg *msg)
{
	if (msg->opcode >= MM_OP_COUNT || !request_table[msg->opcode].handle)
		return false;
	if (msg->flags || msg->reserved || (msg->epoch && !request_table[msg->opcode].epoch))
		return false;
	if (msg->result && (!request_table[msg->opcode].result || msg->result > 0))
		return false;
	for (uint32_t i = request_table[msg->opcode].args; i < MM_ARRAY_SIZE(msg->arg); i++)
		if (msg->arg[i])
			return false;
	return true;
}

int mm_c_request_handle(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	return request_table[msg->opcode].handle(c, t, msg);
}
