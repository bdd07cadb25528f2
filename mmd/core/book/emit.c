/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/emit.h"

#include "libclient/base/base.h"

struct mm_c_tenant *mm_c_tenant(const struct mm_core *c, uint32_t id)
{
	uint32_t index = MM_TENANT_INDEX(id);
	struct mm_c_tenant *t;

	if (index >= c->tenants_end)
		return NULL;
	t = &c->tenant[index];
	return t->life != MM_LIFE_NONE && t->id == id ? t : NULL;
}

bool mm_c_burst(struct mm_core *c)
{
	return mm_queue_burst(&c->queue);
}

struct mm_action *mm_c_emit(struct mm_core *c, enum mm_action_kind kind,
			    const struct mm_c_tenant *t)
{
	return mm_queue_add(&c->queue, kind, t ? t->id : MM_NO_TENANT);
}

void mm_c_event_send(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *msg)
{
	mm_c_emit(c, MM_ACT_EVENT, t)->msg = *msg;
}

void mm_c_reply(struct mm_core *c, const struct mm_c_tenant *t, const struct mm_msg *request,
		int result)
{
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_REPLY,
					  .result = result,
					  .user_data = request->user_data,
					  .arg = { request->opcode } });
}

void mm_c_map_set(struct mm_core *c, struct mm_c_tenant *t, uint32_t entry, uint32_t page)
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

void mm_c_fds_send(struct mm_core *c, const struct mm_c_tenant *t, uint32_t page)
{
	mm_c_emit(c, MM_ACT_FDS, t)->page = page;
}

void mm_c_kick(struct mm_core *c, struct mm_c_tenant *t, const char *reason)
{
	if (t->kicked || !t->connected)
		return;
	t->kicked = true;
	mm_c_demand_changed(c);
	c->stats.kicks++;
	mm_c_tally_add(c, t, kicks, 1);
	mm_c_emit(c, MM_ACT_KICK, t)->reason = reason;
}

/* ---- xfer ---- */

bool mm_c_job_room(const struct mm_core *c)
{
	return mm_jobs_room(&c->jobs);
}

uint32_t mm_c_job_issue(struct mm_core *c, uint32_t tenant, const struct mm_msg *msg)
{
	uint32_t id = tenant == MM_NO_OWNER ? MM_NO_TENANT : c->tenant[tenant].id;
	uint32_t job;

	mm_assert(c->xfer_up);
	job = mm_jobs_add(&c->jobs, tenant, id, msg);
	mm_jobs_push(&c->jobs, job, &c->queue, c->now_ns);
	return job;
}
