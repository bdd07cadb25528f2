/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of tenants and of the device: each finds its tenant, calls the room that it concerns, and
 * settles.
 */
#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/model.h"
#include "mmd/core/book/health.h"
#include "mmd/core/life.h"
#include "mmd/core/requests.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/settle.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/book/upkeep.h"

int mm_core_on_join(struct mm_core *c, uint64_t now_ns, const struct mm_core_join *join,
		    uint32_t *ret_tenant)
{
	struct mm_c_tenant *t;

	mm_c_event_begin(c, now_ns);
	t = mm_c_life_begin(c, join);
	if (!t)
		return MM_E_FULL;
	*ret_tenant = t->id;
	return 0;
}

void mm_core_on_disconnect(struct mm_core *c, uint64_t now_ns, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, now_ns);
	if (!t || !t->connected)
		return;
	t->connected = false;
	t->revoke_at_ns = c->now_ns + c->opts.revoke_ns;
	if (!t->bye && t->model != MM_C_MODEL_NONE && !mm_c_change_in_window(t))
		mm_c_emit(c, MM_ACT_ABORT, t);
	mm_c_life_end(c, t);
	mm_c_settle(c, now_ns);
}

void mm_core_on_dead(struct mm_core *c, uint64_t now_ns, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, now_ns);
	if (!t)
		return;
	t->connected = false;
	t->dead = true;
	mm_c_life_end(c, t);
	mm_c_settle(c, now_ns);
}

int mm_core_on_request(struct mm_core *c, uint64_t now_ns, uint32_t tenant,
		       const struct mm_msg *msg)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	int r;

	mm_c_event_begin(c, now_ns);
	if (!t || t->kicked)
		return 0;
	if (!mm_c_request_is_well_formed(msg))
		return MM_E_PROTOCOL;
	/*
	 * BYE gave everything up, including a plan change under way. Other threads of the tenant
	 * may have sent an answer (PARKED, MAPPED, COMMITTED) or a request at the same moment,
	 * which then follows the BYE in the ring.
	 */
	if (t->life != MM_LIFE_LIVE)
		return 0;
	r = mm_c_request_handle(c, t, msg);
	mm_c_settle(c, now_ns);
	return r;
}

void mm_core_on_stats(struct mm_core *c, uint64_t now_ns, uint32_t tenant,
		      const struct mm_tenant_stats *stats)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, now_ns);
	if (!t || t->life != MM_LIFE_LIVE)
		return;
	mm_c_suspect_clear(c, t, stats->steps);
	mm_c_load_report(c, t, stats);
	if (t->sets->alpha_max && mm_c_load_claim(c, t))
		mm_c_sets_claim(t);
}

void mm_core_on_streamed(struct mm_core *c, uint32_t tenant, uint64_t layer_ns)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, c->now_ns);
	if (t && t->n_layers && layer_ns)
		mm_c_load_streamed(t, mm_c_sets_largest_ns(t, layer_ns));
}

void mm_core_on_cold_live(struct mm_core *c, uint32_t tenant, uint32_t live)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, c->now_ns);
	if (t && t->cold.classes)
		t->cold.live = MM_MIN(live, t->cold.entries_max);
}

/* ---- models ---- */

enum mm_refusal mm_core_model_fits(const struct mm_core *c, uint32_t tenant, uint64_t pages,
				   uint64_t *ret_max_pages)
{
	const struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	return t ? mm_c_model_fits(c, t, pages, ret_max_pages) : MM_REFUSED_NO;
}

int mm_core_on_model(struct mm_core *c, uint64_t now_ns, uint32_t tenant, uint64_t store,
		     uint64_t store_bytes, const struct mm_core_group *groups, uint32_t n_groups)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	(void)store_bytes;
	mm_c_event_begin(c, now_ns);
	if (t && t->model != MM_C_MODEL_NONE)
		return MM_E_PROTOCOL;
	if (!t || t->life != MM_LIFE_LIVE) {
		if (t)
			t->has_store = true; /* dropped when its index is freed */
		return 0;
	}
	mm_c_model_offer(c, t, store, groups, n_groups);
	mm_c_settle(c, now_ns);
	return 0;
}

/* ---- swap ---- */

int mm_core_on_swap_open(struct mm_core *c, uint64_t now_ns, uint32_t tenant, uint64_t bytes)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, now_ns);
	if (!t || t->life != MM_LIFE_LIVE || t->kicked || !t->kv.declared || !bytes)
		return -EINVAL;
	return mm_c_swap_open(c, t, bytes);
}

void mm_core_on_swap_failed(struct mm_core *c, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	mm_c_event_begin(c, c->now_ns);
	if (t)
		t->swap->bytes = 0;
}

int mm_core_on_swap(struct mm_core *c, uint64_t now_ns, uint32_t tenant, const struct mm_msg *msg,
		    const struct mm_swap_piece *pieces)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);
	int r;

	mm_c_event_begin(c, now_ns);
	if (!t || t->kicked || t->life != MM_LIFE_LIVE)
		return 0; /* behind a BYE, like other requests */
	r = mm_c_swap_list(c, t, msg, pieces);
	if (!r)
		mm_c_settle(c, now_ns);
	return r;
}

/* ---- the device ---- */

void mm_core_on_memory_error(struct mm_core *c, uint64_t now_ns)
{
	mm_c_event_begin(c, now_ns);
	mm_c_suspect(c);
	mm_c_settle(c, now_ns);
}

void mm_core_on_page_unheld(struct mm_core *c, uint64_t now_ns, uint32_t page)
{
	mm_assert(page < c->ledger.pages);
	mm_c_event_begin(c, now_ns);
	mm_c_unheld(c, page);
	/* It is on its way before anybody is to give a page for the min that it was kept for. */
	mm_c_retry_quarantine(c);
	mm_c_settle(c, now_ns);
}
