/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/state.h"

#include <errno.h>
#include <string.h>

#include "mm/base.h"
#include "mmd/core/market.h"
#include "mmd/core/swap.h"
#include "mmd/core/wish.h"
#include "mmd/core/tell.h"

/* ---- joining ---- */

/* Everything but the tables, which are the index's for good. */
static void tenant_init(struct mm_core *c, struct mm_c_tenant *t, const struct mm_core_join *join)
{
	uint32_t index = mm_c_index(c, t);
	uint32_t *own = t->own, *map = t->map;
	struct mm_c_preload pre = t->pre;
	struct mm_c_sets *sets = t->sets;

	memset(map, 0, t->map_end * sizeof(*map));
	memset(map + MM_MAP_KV_BASE, 0, t->kv_map_end * sizeof(*map));
	memset(t, 0, sizeof(*t));
	t->own = own;
	t->map = map;
	t->pre.entry = pre.entry;
	t->pre.page = pre.page;
	t->sets = sets;
	mm_market_join(c->market, t, index);
	t->id = index | (uint32_t)c->opts.tag << MM_TENANT_TAG_SHIFT |
		(uint32_t)c->generation[index]++ << MM_TENANT_GENERATION_SHIFT;
	t->life = MM_LIFE_LIVE;
	t->features = join->features;
	t->connected = t->attached = true;
	t->plan.alpha_by_hand = -1;
	t->load.active_ns = t->load.stepped_ns = c->now_ns;
}

int mm_core_on_join(struct mm_core *c, uint64_t now_ns, const struct mm_core_join *join,
		    uint32_t *ret_tenant)
{
	struct mm_c_tenant *t = c->tenant;
	struct mm_account *a;

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	while (t < c->tenant + c->opts.tenants_max && t->life != MM_LIFE_NONE)
		t++;
	if (t == c->tenant + c->opts.tenants_max)
		return MM_E_FULL;
	a = mm_c_account_of(c, join);
	if (!a)
		return MM_E_FULL;
	a->tenants++;
	tenant_init(c, t, join);
	t->account = (uint32_t)(a - c->account);
	c->tenants_end = MM_MAX(c->tenants_end, mm_c_index(c, t) + 1);
	*ret_tenant = t->id;
	return 0;
}

/* ---- ending ---- */

/* Every page that it may still map waits for the proof that it does not. */
static void revoke_all(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_change_cancel(c, t);
	mm_c_swap_end(t);
	for (uint32_t i = 0; i < t->entries; i++)
		if (t->own[i] != MM_NO_PAGE)
			mm_ledger_revoke(&c->ledger, t->own[i]);
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		for (uint32_t i = 0; i < t->plan.slot[s].n_pages; i++)
			mm_ledger_revoke(&c->ledger, t->slot_page[s][i]);
	for (uint32_t chunk = 0; chunk < t->kv.chunks_max; chunk++) {
		if (!mm_c_kv_holds(t, chunk))
			continue;
		for (uint32_t i = 0; i < t->kv.chunk_pages; i++)
			mm_ledger_revoke(&c->ledger, mm_c_kv_chunk_page(t, chunk, i));
	}
}

static void end(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->life != MM_LIFE_LIVE)
		return;
	revoke_all(c, t);
	t->life = MM_LIFE_ENDING;
	t->wish->want = t->kv.held = 0;
}

void mm_core_on_disconnect(struct mm_core *c, uint64_t now_ns, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	if (!t || !t->connected)
		return;
	t->connected = false;
	t->revoke_at_ns = c->now_ns + c->opts.revoke_ns;
	if (!t->bye && t->model != MM_MODEL_NONE && !mm_c_change_in_window(t))
		mm_c_emit(c, MM_ACT_ABORT, t);
	end(c, t);
	mm_c_settle(c, now_ns);
}

void mm_core_on_dead(struct mm_core *c, uint64_t now_ns, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	if (!t)
		return;
	t->connected = false;
	t->dead = true;
	end(c, t);
	mm_c_settle(c, now_ns);
}

static void proven(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_page_list *list = &c->ledger.revoking[mm_c_index(c, t)];

	while (list->head != MM_NO_PAGE)
		mm_c_drop(c, list->head);
	t->life = MM_LIFE_PROVEN;
}

static void forget(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_account *a = &c->account[t->account];

	if (t->has_store)
		mm_c_emit(c, MM_ACT_MODEL_DROP, t);
	mm_c_emit(c, MM_ACT_FORGET, t);
	a->tenants--;
	if (!a->tenants)
		a->left_at = ++c->departures;
	t->life = MM_LIFE_NONE;
	while (c->tenants_end && c->tenant[c->tenants_end - 1].life == MM_LIFE_NONE)
		c->tenants_end--;
}

void mm_c_life(struct mm_core *c, struct mm_c_tenant *t)
{
	/* Who holds no page has nothing to prove, and must not be killed for it. */
	bool proof = t->bye || t->dead || c->ledger.revoking[mm_c_index(c, t)].head == MM_NO_PAGE;

	if (t->life == MM_LIFE_LIVE)
		return;
	if (t->life == MM_LIFE_ENDING && proof && !t->attached)
		proven(c, t);
	if (t->life == MM_LIFE_PROVEN && !t->connected && !t->copies && mm_c_burst(c))
		forget(c, t);
}

/* ---- requests ---- */

static int bye(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	t->bye = true;
	end(c, t);
	mm_c_reply(c, t, msg, 0);
	return 0;
}

static int kv_declare(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	int r = mm_c_kv_declare(c, t, msg);

	if (!r)
		mm_c_wish_declare(c, t);
	mm_c_reply(c, t, msg, r);
	return 0;
}

static int kv_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (!t->kv.declared || msg->arg[0] > t->kv.chunks_max)
		return MM_E_PROTOCOL;
	mm_c_wish_set(c, t, (uint32_t)msg->arg[0]);
	return 0;
}

static int kv_release(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint32_t chunk;

	if (!t->kv.declared || msg->arg[0] >= t->kv.chunks_max)
		return MM_E_PROTOCOL;
	chunk = (uint32_t)msg->arg[0];
	if (!mm_c_kv_holds(t, chunk))
		return MM_E_PROTOCOL;
	t->kv.releases++;
	if (mm_c_swap_names(c, t, chunk)) {
		mm_c_reply(c, t, msg, -EBUSY);
		return 0;
	}
	mm_c_kv_drop(c, t, chunk);
	mm_c_wish_released(t);
	mm_c_reply(c, t, msg, 0);
	return 0;
}

static int nop(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
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
} requests[MM_OP_COUNT] = {
	[MM_OP_NOP] = { nop, 0, false, false },
	[MM_OP_KV_DECLARE] = { kv_declare, 4, false, false },
	[MM_OP_KV_WANT] = { kv_want, 1, false, false },
	[MM_OP_KV_RELEASE] = { kv_release, 1, false, false },
	[MM_OP_PARKED] = { mm_c_change_parked, 1, true, false },
	[MM_OP_MAPPED] = { mm_c_change_mapped, 1, true, false },
	[MM_OP_COMMITTED] = { mm_c_change_committed, 0, true, true },
	[MM_OP_RESYNC] = { mm_c_change_resync, 0, true, false },
	[MM_OP_BYE] = { bye, 0, false, false },
	[MM_OP_TURN_JOIN] = { mm_c_turn_join, 3, false, false },
	[MM_OP_TURN_WANT] = { mm_c_turn_want, 0, false, false },
	[MM_OP_TURN_DONE] = { mm_c_turn_done, 1, false, false },
};

static bool well_formed(const struct mm_msg *msg)
{
	if (msg->opcode >= MM_OP_COUNT || !requests[msg->opcode].handle)
		return false;
	if (msg->flags || msg->reserved || (msg->epoch && !requests[msg->opcode].epoch))
		return false;
	if (msg->result && (!requests[msg->opcode].result || msg->result > 0))
		return false;
	for (uint32_t i = requests[msg->opcode].args; i < MM_ARRAY_SIZE(msg->arg); i++)
		if (msg->arg[i])
			return false;
	return true;
}

int mm_core_on_request(struct mm_core *c, uint64_t now_ns, uint32_t tenant,
		       const struct mm_msg *msg)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	int r;

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	if (!t || t->kicked)
		return 0;
	if (!well_formed(msg))
		return MM_E_PROTOCOL;
	/*
	 * Its BYE gave everything up, a plan change under way included. Its other threads may have answered that
	 * (PARKED, MAPPED, COMMITTED) or asked for something in the same moment, and their words come behind it.
	 */
	if (t->life != MM_LIFE_LIVE)
		return 0;
	r = requests[msg->opcode].handle(c, t, msg);
	mm_c_settle(c, now_ns);
	return r;
}

/* ---- statistics ---- */

void mm_core_on_stats(struct mm_core *c, uint64_t now_ns, uint32_t tenant,
		      const struct mm_tenant_stats *stats)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	if (!t || t->life != MM_LIFE_LIVE)
		return;
	mm_c_acquit(c, t, stats->steps);
	mm_c_load_report(c, t, stats);
	if (t->alpha_max && mm_c_load_claim(c, t))
		mm_c_sets_claim(t);
}

void mm_core_on_streamed(struct mm_core *c, uint32_t tenant, uint64_t layer_ns)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (t && layer_ns)
		mm_c_load_streamed(t, mm_c_sets_largest_ns(t, layer_ns));
}
