/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/life.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/market/market.h"
#include "mmd/core/book/mem.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/plan/plans.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/turn.h"

/* ---- joining ---- */

/* Initializes everything but the tables, which belong to the index for good. */
static void life_tenant_init(struct mm_core *c, struct mm_c_tenant *t,
			     const struct mm_core_join *join)
{
	uint32_t index = mm_c_index(c, t);
	uint32_t *own = t->own, *map = t->map;

	memset(map, 0, t->map_end * sizeof(*map));
	memset(map + MM_MAP_KV_BASE, 0, t->kv_map_end * sizeof(*map));
	memset(t, 0, sizeof(*t));
	t->own = own;
	t->map = map;
	mm_plans_join(c->plans, t, index);
	mm_market_join(c->market, t, index, c->now_ns / MM_MAX(c->opts.time_scale, 1u));
	t->id = index | (uint32_t)c->opts.tag << MM_TENANT_TAG_SHIFT |
		(uint32_t)c->generation[index]++ << MM_TENANT_GENERATION_SHIFT;
	t->life = MM_LIFE_LIVE;
	t->features = join->features;
	t->connected = t->attached = true;
	t->plan.alpha_by_hand = -1;
	t->load.active_ns = t->load.stepped_ns = c->now_ns;
}

struct mm_c_tenant *mm_c_life_begin(struct mm_core *c, const struct mm_core_join *join)
{
	struct mm_c_tenant *t = c->tenant;
	struct mm_account *a;

	while (t < c->tenant + c->opts.tenants_max && t->life != MM_LIFE_NONE)
		t++;
	if (t == c->tenant + c->opts.tenants_max)
		return NULL;
	a = mm_c_account_of(c, join);
	if (!a)
		return NULL;
	a->tenants++;
	life_tenant_init(c, t, join);
	t->account = (uint32_t)(a - c->account);
	mm_c_tally_add(c, t, joins, 1);
	c->tenants_end = MM_MAX(c->tenants_end, mm_c_index(c, t) + 1);
	return t;
}

/* ---- ending ---- */

/* Each page that the tenant may still map is REVOKING until there is proof that it does not. */
static void tenant_revoke_pages(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_change_cancel(c, t);
	mm_c_swap_end(t);
	mm_c_mem_revoke(c, t);
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

void mm_c_life_end(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->life != MM_LIFE_LIVE)
		return;
	tenant_revoke_pages(c, t);
	t->life = MM_LIFE_ENDING;
	t->demand->wanted = t->kv.held = 0;
}

static void tenant_on_proof(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_page_list *list = &c->ledger.revoking[mm_c_index(c, t)];

	while (list->head != MM_NO_PAGE)
		mm_c_page_drop(c, list->head);
	t->life = MM_LIFE_PROVEN;
}

static void tenant_free(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_account *a = &c->account[t->account];

	mm_c_turn_leave(c, t);
	if (t->has_store)
		mm_c_emit(c, MM_ACT_MODEL_DROP, t);
	mm_c_emit(c, MM_ACT_TENANT_FREE, t);
	a->tenants--;
	if (!a->tenants)
		a->left_at = ++c->departures;
	t->life = MM_LIFE_NONE;
	while (c->tenants_end && c->tenant[c->tenants_end - 1].life == MM_LIFE_NONE)
		c->tenants_end--;
}

void mm_c_life(struct mm_core *c, struct mm_c_tenant *t)
{
	/* A tenant without pages needs no proof, and must not be killed for the lack of it. */
	bool proof = t->bye || t->dead || c->ledger.revoking[mm_c_index(c, t)].head == MM_NO_PAGE;

	if (t->life == MM_LIFE_LIVE)
		return;
	if (t->life == MM_LIFE_ENDING && proof && !t->attached)
		tenant_on_proof(c, t);
	if (t->life == MM_LIFE_PROVEN && !t->connected && !t->copies && mm_c_burst(c))
		tenant_free(c, t);
}
