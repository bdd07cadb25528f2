/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/market.h"

#include <stdlib.h>

struct mm_market *mm_market_create(uint32_t tenants, uint32_t accounts)
{
	struct mm_market *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->demand = calloc(tenants, sizeof(*m->demand));
	m->lends = calloc(tenants, sizeof(*m->lends));
	m->tenant_turn = calloc(tenants, sizeof(*m->tenant_turn));
	m->view.tenant = calloc(tenants, sizeof(*m->view.tenant));
	m->view.account = calloc(accounts, sizeof(*m->view.account));
	m->targets.tenant = calloc(tenants, sizeof(*m->targets.tenant));
	m->targets.memory_of = MM_NO_TENANT;
	/* No revision of the core equals this, so both are computed at first use. */
	m->expected.coming = m->sums.coming = UINT64_MAX;
	if (m->demand && m->lends && m->tenant_turn && m->view.tenant && m->view.account &&
	    m->targets.tenant)
		return m;
	mm_market_destroy(m);
	return NULL;
}

void mm_market_destroy(struct mm_market *m)
{
	if (!m)
		return;
	free(m->demand);
	free(m->lends);
	free(m->tenant_turn);
	free(m->view.tenant);
	free(m->view.account);
	free(m->targets.tenant);
	free(m);
}

void mm_market_attach(struct mm_market *m, struct mm_c_tenant *t, uint32_t index)
{
	t->demand = &m->demand[index];
	t->lends = &m->lends[index];
	t->turn = &m->tenant_turn[index];
}

void mm_market_join(struct mm_market *m, struct mm_c_tenant *t, uint32_t index, uint64_t now_ns)
{
	mm_market_attach(m, t, index);
	*t->demand = (struct mm_demand){ 0 };
	*t->lends = (struct mm_c_lends){ 0 };
	*t->turn = (struct mm_c_turn){ 0 };
	m->memory.taken_ns[index] = 0;
	m->memory.cold_cap[index] = 0;
	m->memory.cold_cut_ns[index] = m->memory.cold_used_ns[index] = 0;
	m->memory.cold_bid_ns[index] = m->memory.cold_mean[index] = 0;
	m->memory.memory_was_ns[index] = now_ns;
	if (m->memory.memory_of == index)
		m->memory.memory_of = MM_NO_TENANT;
	m->targets.tenant[index] =
		(struct mm_target){ .kv_most = UINT32_MAX, .kv_keep = UINT32_MAX };
}

void mm_market_unloaded(struct mm_c_tenant *t)
{
	struct mm_c_lends *l = t->lends;

	l->taken_ns = l->by_hand_ns = l->stuck_until_ns = 0;
	l->stuck_times = 0;
	l->earmark = (struct mm_c_earmark){ 0 };
	l->points = (struct mm_c_points){ 0 };
}
