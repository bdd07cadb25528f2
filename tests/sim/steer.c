/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator steers tenants: each of them at any time, whatever the tenant is doing. What was
 * promised is checked as far as no other event can break it.
 */
#include "libclient/base/base.h"
#include "tests/sim/history.h"

static struct mm_core_tenant tenant_now(const struct world *w, const struct w_proc *p)
{
	struct mm_core_tenant t = { 0 };

	mm_core_tenant(w->core, p->tenant, &t);
	return t;
}

static uint32_t layers_away(const struct world *w, const struct w_proc *p)
{
	const struct mm_core_plan *plan = mm_core_plan(w->core, p->tenant);

	return plan ? plan->alpha : 0;
}

/* A revoke takes as much as the question said, and never of an account's min. */
static void order_revoke(struct world *w, struct w_proc *p)
{
	uint32_t chunks;
	uint64_t pages = mm_core_revocable(w->core, p->tenant, &chunks);
	struct mm_core_tenant before = tenant_now(w, p);
	struct mm_core_account a;

	if (w_steer(w, p, MM_STEER_REVOKE, 0))
		return;
	h_count(H_REVOKES, chunks != 0);
	mm_assert(mm_core_account_find(w->core, before.account, &a));
	mm_assert(!chunks || a.charged >= a.quota.min_pages + pages);
	mm_assert(tenant_now(w, p).revoking_chunks <= chunks);
}

static void order_drain(struct world *w, struct w_proc *p)
{
	bool cancels = tenant_now(w, p).drains && w_below(w, 2);
	uint64_t until_ns = w_below(w, 2) ? UINT64_MAX : w->now_ns + w_below(w, 50) * MM_NS_PER_MS;

	if (w_steer(w, p, cancels ? MM_STEER_UNDRAIN : MM_STEER_DRAIN, until_ns))
		return;
	h_count(cancels ? H_DRAINS_CANCELLED : H_DRAINS, 1);
	h_count(H_DRAINS_ENDED, !cancels && until_ns <= w->now_ns);
	mm_assert(tenant_now(w, p).drains != cancels);
}

static void order_home(struct world *w, struct w_proc *p, bool pin)
{
	uint32_t away = layers_away(w, p);
	int r = w_steer(w, p, pin ? MM_STEER_PIN : MM_STEER_ACTIVATE, 0);

	mm_assert(!r || r == MM_E_STALE || away);
	h_count(H_HOMES_REFUSED, r == MM_E_QUOTA || r == MM_E_FULL);
	h_count(pin ? H_PINS : H_ACTIVATES, !r);
	h_count(pin ? H_PINS_AWAY : H_ACTIVATES_DONE, !r && away);
}

void h_steer_event(struct world *w, struct w_proc *p)
{
	struct mm_core_tenant t;

	if (!p->used || w_below(w, 6))
		return;
	t = tenant_now(w, p);
	h_count(H_REVOKES_DONE, p->revoking && !t.revoking_chunks && t.kv_chunks);
	p->revoking = t.revoking_chunks;
	switch (w_below(w, 8)) {
	case 0:
	case 1:
	case 2:
		order_revoke(w, p);
		break;
	case 3:
		order_drain(w, p);
		break;
	case 4:
		order_home(w, p, false);
		break;
	case 5:
		order_home(w, p, true);
		break;
	default:
		w_steer(w, p, w_below(w, 2) ? MM_STEER_UNPIN : MM_STEER_UNDRAIN, 0);
		break;
	}
	w_drain(w);
}

void h_steer_end(struct world *w)
{
	W_FOREACH(w, p) {
		struct mm_core_tenant t = tenant_now(w, p);

		if (!p->used || !(t.drains || t.model_pinned))
			continue;
		w_steer(w, p, MM_STEER_UNDRAIN, 0);
		w_drain(w);
		w_steer(w, p, MM_STEER_UNPIN, 0);
		w_drain(w);
	}
}
