/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/state.h"

#include "mm/base.h"

uint32_t mm_c_room(const struct mm_core *c)
{
	return MM_QUEUE_MAX - c->queue_tail;
}

bool mm_c_burst(struct mm_core *c)
{
	if (mm_c_room(c) > MM_BURST_MAX)
		return true;
	c->again = true;
	return false;
}

struct mm_action *mm_c_emit(struct mm_core *c, enum mm_action_kind kind,
			    const struct mm_c_tenant *t)
{
	struct mm_action *a;

	mm_assert(c->queue_tail < MM_QUEUE_MAX);
	a = &c->queue[c->queue_tail++];
	*a = (struct mm_action){ .kind = kind,
				 .tenant = t ? t->id : MM_NOBODY,
				 .page = MM_NO_PAGE };
	return a;
}

void mm_c_event(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *msg)
{
	mm_c_emit(c, MM_ACT_EVENT, t)->msg = *msg;
}

void mm_c_reply(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *request,
		int result)
{
	mm_c_event(c, t,
		   &(struct mm_msg){ .opcode = MM_EV_REPLY,
				     .result = result,
				     .user_data = request->user_data,
				     .arg = { request->opcode } });
}

void mm_c_map(struct mm_core *c, struct mm_c_tenant *t, uint32_t entry, uint32_t page)
{
	struct mm_action *a;
	uint32_t value = page == MM_NO_PAGE ? 0 : page + 1;

	if (t->map[entry] == value)
		return;
	t->map[entry] = value;
	if (entry < MM_MAP_KV_BASE)
		t->map_end = MM_MAX(t->map_end, entry + 1);
	else
		t->kv_map_end = MM_MAX(t->kv_map_end, entry - MM_MAP_KV_BASE + 1);
	a = mm_c_emit(c, MM_ACT_MAP, t);
	a->entry = entry;
	a->page = page;
}

void mm_c_fds(struct mm_core *c, const struct mm_c_tenant *t, uint32_t page)
{
	mm_c_emit(c, MM_ACT_FDS, t)->page = page;
}

void mm_c_kick(struct mm_core *c, struct mm_c_tenant *t, const char *reason)
{
	if (t->kicked || !t->connected)
		return;
	t->kicked = true;
	mm_c_sum_anew(c);
	c->stats.kicks++;
	mm_c_emit(c, MM_ACT_KICK, t)->reason = reason;
}

bool mm_core_next(struct mm_core *c, struct mm_action *ret_action)
{
	while (c->queue_head == c->queue_tail) {
		c->queue_head = c->queue_tail = 0;
		if (!c->again)
			return false;
		mm_c_settle(c, c->now_ns);
	}
	*ret_action = c->queue[c->queue_head++];
	return true;
}
