/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/mem.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/book/quota.h"

/* ---- what there is ---- */

uint64_t mm_c_mem_left(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_account *a = &c->account[t->account];
	uint64_t weights = 0, share;

	for (uint32_t i = 0; i < c->accounts_end; i++)
		if (c->account[i].used && c->account[i].tenants)
			weights += c->account[i].quota.weight;
	share = MM_MAX(c->ledger.pages * (uint64_t)a->quota.weight / weights, a->quota.min_pages);
	share = MM_MIN(share, a->quota.max_pages) / a->tenants;
	return share > t->mem.held ? share - t->mem.held : 0;
}

/* Returns the pages that are free, or will be without anybody's giving any. */
static uint64_t supply_soon(struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t made = c->create_retry_ns ? 0 : c->ledger.count[MM_PAGE_NONE];
	uint64_t supply = c->ledger.count[MM_PAGE_FREE] + c->ledger.inflight_all + made;
	uint64_t kept = mm_c_unused_mins(c) - mm_account_unused_min(&c->account[t->account]);

	return supply > kept ? supply - kept : 0;
}

/* ---- requests ---- */

static bool entries_are_free(const struct mm_c_tenant *t, uint32_t entry, uint32_t pages)
{
	for (uint32_t i = entry; i < entry + pages; i++)
		if (t->map[i])
			return false;
	return true;
}

/* Returns whether @msg names entries of the table that may be of this kind. */
static bool entries_are_valid(const struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint64_t first = MM_MAP_KV_BASE + (uint64_t)t->kv.chunks_max * t->kv.chunk_pages;

	return msg->arg[0] >= first && msg->arg[0] < MM_MAP_ENTRIES && msg->arg[1] &&
	       msg->arg[1] <= MM_MAP_ENTRIES - msg->arg[0];
}

int mm_c_mem_alloc(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint32_t entry = (uint32_t)msg->arg[0], pages = (uint32_t)msg->arg[1];

	if (!entries_are_valid(t, msg) || t->mem.wait.pages || !entries_are_free(t, entry, pages))
		return MM_E_PROTOCOL;
	t->mem.depth = MM_MAX(t->mem.depth, MM_MAP_ENTRIES - entry);
	t->mem.wait.entry = entry;
	t->mem.wait.pages = pages;
	t->mem.wait.user_data = msg->user_data;
	t->mem.wait.until_ns = c->now_ns + mm_c_time(c, MM_MEM_WAIT_NS);
	return 0;
}

int mm_c_mem_free(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint32_t entry = (uint32_t)msg->arg[0], pages = (uint32_t)msg->arg[1];

	if (!entries_are_valid(t, msg) || entry < MM_MAP_ENTRIES - t->mem.depth)
		return MM_E_PROTOCOL;
	for (uint32_t i = entry; i < entry + pages; i++)
		if (!t->map[i])
			return MM_E_PROTOCOL;
	for (uint32_t i = entry; i < entry + pages; i++) {
		mm_c_page_drop(c, t->map[i] - 1);
		mm_c_map_set(c, t, i, MM_NO_PAGE);
	}
	t->mem.held -= pages;
	mm_c_reply(c, t, msg, 0);
	return 0;
}

/* ---- settling ---- */

/* @there: pages that the tenant could have. */
static void mem_answer(struct mm_core *c, struct mm_c_tenant *t, int result, uint64_t there)
{
	const struct mm_msg reply = { .opcode = MM_EV_REPLY,
				      .result = result,
				      .user_data = t->mem.wait.user_data,
				      .arg = { MM_OP_MEM_ALLOC, there } };

	t->mem.wait.pages = 0;
	mm_c_event_send(c, t, &reply);
}

static void request_grant(struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t pages = t->mem.wait.pages;

	for (uint32_t i = 0; i < pages; i++) {
		uint32_t page = mm_c_page_reserve(c, t);

		mm_ledger_give(&c->ledger, page, MM_PAGE_MEM);
		mm_c_map_set(c, t, t->mem.wait.entry + i, page);
		mm_c_fds_send(c, t, page);
	}
	t->mem.held += pages;
	mem_answer(c, t, 0, pages);
}

void mm_c_mem_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	uint64_t left, room, there;

	if (!t->mem.wait.pages || t->kicked || !mm_c_burst(c))
		return;
	left = t->steer.drains ? 0 : mm_c_mem_left(c, t);
	room = mm_c_room_soon(c, t);
	there = MM_MIN(MM_MIN(left, room), supply_soon(c, t));
	/* A max of the whole pool forbids nothing: then the pool is full. */
	if (t->mem.wait.pages > left ||
	    (t->mem.wait.pages > room && c->account[t->account].quota.max_pages < c->ledger.pages))
		mem_answer(c, t, -EDQUOT, MM_MIN(left, room));
	else if (mm_c_reservable(c, t, t->mem.wait.pages))
		request_grant(c, t);
	else if (t->mem.wait.pages > there || c->now_ns >= t->mem.wait.until_ns)
		mem_answer(c, t, -ENOSPC, MM_MIN(there, mm_c_grantable(c, t->account)));
	else
		mm_c_pages_convert(c, t->account, t->mem.wait.pages);
}

uint64_t mm_c_mem_waiting(const struct mm_core *c)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t)
		sum += t->life == MM_LIFE_LIVE && !t->kicked ? t->mem.wait.pages : 0;
	return sum;
}

uint64_t mm_c_mem_deadline(const struct mm_core *c)
{
	uint64_t due = UINT64_MAX;

	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && !t->kicked && t->mem.wait.pages)
			due = MM_MIN(due, t->mem.wait.until_ns);
	return due;
}

/* ---- the end ---- */

void mm_c_mem_revoke(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t i = MM_MAP_ENTRIES - t->mem.depth; i < MM_MAP_ENTRIES; i++)
		if (t->map[i])
			mm_ledger_revoke(&c->ledger, t->map[i] - 1);
	t->mem.held = t->mem.wait.pages = 0;
}
