/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/demand.h"

#include "libclient/base/base.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/book/emit.h"

/* Chunks that @t demands and does not hold, whether or not it may have them now. */
static void demand_waits(const struct mm_core *c, struct mm_c_tenant *t)
{
	const uint32_t want = MM_MIN(t->demand->wanted, t->demand->wanted_max);

	mm_c_tally_waits(c, t, want > t->kv.held ? want - t->kv.held : 0);
}

void mm_c_demand_declare(const struct mm_core *c, struct mm_c_tenant *t)
{
	t->demand->wanted_max = t->kv.chunks_max;
	if (!c->market->policy->kv_static)
		return;
	t->demand->wanted = t->demand->wanted_max = t->kv.share;
	t->demand->answered = true;
	demand_waits(c, t);
}

void mm_c_kv_requeue(struct mm_core *c, struct mm_c_tenant *t)
{
	t->demand->since_ns = c->now_ns;
	t->demand->kept_ns = 0;
	t->demand->order = ++c->market->kv_orders;
}

/* If no tenant of @t's account waits, the account begins to wait. */
static void account_wait_begin(struct mm_core *c, const struct mm_c_tenant *t)
{
	MM_FOREACH_TENANT(c, other)
		if (other->account == t->account && mm_c_kv_unmet(other))
			return;
	mm_account_wait(&c->account[t->account], c->served);
}

void mm_c_demand_set(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks)
{
	account_wait_begin(c, t);
	if (t->demand->wanted <= t->kv.held)
		mm_c_kv_requeue(c, t);
	mm_c_demand_change(c, t, chunks);
	t->demand->answered = false;
	t->demand->error = 0;
}

void mm_c_demand_change(const struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks)
{
	t->demand->wanted = chunks;
	demand_waits(c, t);
}

void mm_c_demand_released(struct mm_c_tenant *t)
{
	t->demand->wanted -= t->demand->wanted != 0;
	t->demand->reclaim_left -= t->demand->reclaim_left != 0;
	t->demand->unresponsive = false;
}

void mm_c_kv_grant(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_assert(mm_c_kv_due(c, t));
	mm_c_kv_give(c, t);
	mm_c_tally_granted(c, t);
	mm_c_kv_requeue(c, t);
	mm_account_serve(&c->account[t->account], t->kv.chunk_pages, &c->served);
}

uint32_t mm_c_kv_unmet(const struct mm_c_tenant *t)
{
	uint32_t want = MM_MIN(t->demand->wanted, t->demand->wanted_max);

	if (t->kv.grouped)
		want = MM_MIN(want, t->kv.most);
	if (t->life != MM_LIFE_LIVE || t->kicked || !t->kv.declared || t->steer.drains)
		return 0;
	return want > t->kv.held ? want - t->kv.held : 0;
}

uint32_t mm_c_kv_due(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t most = c->market->targets.tenant[mm_c_index(c, t)].kv_most;
	uint32_t unmet = mm_c_kv_unmet(t);

	if (t->steer.revokes)
		most = MM_MIN(most, t->steer.revoke_keep);
	/* A rank of a group gets one chunk after the other, as the group offers them. */
	if (t->kv.grouped)
		unmet = MM_MIN(unmet, t->kv.offer != MM_NO_CHUNK);
	return most > t->kv.held ? MM_MIN(unmet, most - t->kv.held) : 0;
}

void mm_c_kv_deny(struct mm_core *c, struct mm_c_tenant *t, int error)
{
	if (t->demand->answered ||
	    (t->demand->denied_ns && c->now_ns < t->demand->denied_ns + mm_c_time(c, MM_DENY_NS)))
		return;
	if (!mm_c_burst(c))
		return;
	mm_c_kv_deny_now(c, t, error);
}

void mm_c_kv_deny_now(struct mm_core *c, struct mm_c_tenant *t, int error)
{
	t->demand->answered = true;
	t->demand->denied_ns = c->now_ns;
	t->demand->error = error;
	c->stats.denials++;
	mm_c_tally_add(c, t, denials, 1);
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_KV_DENIED,
					  .result = error,
					  .arg = { t->demand->wanted, t->kv.held } });
}

bool mm_c_kv_is_responsive(const struct mm_c_tenant *t)
{
	return !t->demand->reclaim_left || t->demand->reclaim_left < t->demand->reclaim_last;
}

/*
 * @chunks replace what is left of an earlier reclaim. Releases that are on their way count towards
 * them.
 */
void mm_c_kv_reclaim_until(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks,
			   uint64_t until_ns)
{
	t->demand->unresponsive = !mm_c_kv_is_responsive(t);
	t->demand->reclaim_left = t->demand->reclaim_last = chunks;
	t->demand->reclaim_until_ns = until_ns;
	t->demand->reclaims++;
	mm_c_supply_changed(c);
	c->stats.reclaims++;
	mm_c_tally_add(c, t, reclaims, 1);
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM,
					  .arg = { chunks, until_ns, t->kv.releases + 1 } });
}

void mm_c_kv_reclaim(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks)
{
	mm_c_kv_reclaim_until(c, t, chunks, c->now_ns + c->opts.reclaim_ns);
}
