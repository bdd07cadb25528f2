/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/home.h"

#include "libclient/base/base.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/market/rotate.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/worth.h"

#define SEVERE_PERMILLE 1000 /* stalls per computing time from which KV in use is reclaimed */
#define RECALL_DWELLS   5    /* times dwell_ns between two such reclaims */
#define OVERDRAWN_MORE  4    /* times the tolerance, beyond which layers return */

/*
 * True for dwell_ns after layers returned because too many were away: until then none are taken
 * again.
 */
static bool overdrawn_return_recent(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->lends->overdrawn_return_ns && !mm_c_off_turn(c, t) &&
	       c->now_ns - t->lends->overdrawn_return_ns < c->opts.dwell_ns;
}

uint64_t mm_c_take_layers(struct mm_core *c, struct mm_c_tenant *t, uint64_t short_pages,
			  uint32_t account, bool dry_run)
{
	uint32_t cap, more;

	if (mm_c_off_turn(c, t))
		short_pages = MM_MIN(short_pages, mm_c_turns_may_lend(c, t));
	if (!mm_c_lends_by_itself(c, t) || (!dry_run && overdrawn_return_recent(c, t)))
		return 0;
	cap = mm_c_alpha_cap(c, t, 1);
	more = mm_c_layers_short(c, t, cap, short_pages, account);
	/*
	 * A number of layers below the cap may stream worse than the cap itself, so that they would
	 * have to return soon. Then all up to the cap are taken, or none.
	 */
	if (more && t->plan.alpha + more < cap &&
	    !mm_c_alpha_is_hidden(c, t, t->plan.alpha + more)) {
		more = mm_c_layers_short(c, t, cap, (cap - t->plan.alpha) * mm_c_layer_pages(t),
					 account);
		more = t->plan.alpha + more == cap ? more : 0;
	}
	return mm_c_layers_take(c, t, more, dry_run);
}

/*
 * Returns whether @t is active and more of its layers are away than it can hide: it lent them while
 * it was idle. *ret_cap: how many it can hide.
 */
static bool tenant_is_overdrawn(struct mm_core *c, struct mm_c_tenant *t, uint32_t *ret_cap)
{
	if (!mm_c_lends_by_itself(c, t) || !t->plan.alpha || mm_c_idle(c, t))
		return false;
	*ret_cap = mm_c_alpha_cap(c, t, OVERDRAWN_MORE);
	if (t->plan.alpha <= *ret_cap)
		return false;
	*ret_cap = mm_c_alpha_cap(c, t, 1);
	return t->plan.alpha > *ret_cap;
}

static uint64_t over_share_pages(const struct mm_c_tenant *t)
{
	return t->kv.held > t->kv.share ? (uint64_t)(t->kv.held - t->kv.share) * t->kv.chunk_pages
					: 0;
}

/* Reclaims chunks, in use or not, from the tenant that holds most beyond its share. */
static void kv_recall(struct mm_core *c, uint64_t short_pages)
{
	struct mm_c_tenant *most = NULL;
	uint64_t pages;

	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && !t->kicked && t->features & MM_FEAT_RECLAIM &&
		    c->now_ns >= t->demand->reclaim_until_ns && mm_c_kv_is_responsive(t) &&
		    (!most || over_share_pages(t) > over_share_pages(most)))
			most = t;
	pages = most ? MM_MIN(over_share_pages(most), short_pages) : 0;
	pages = pages ? mm_div_up(pages, most->kv.chunk_pages) : 0;
	if (!pages || !mm_c_may_give(c, most, most->kv.chunk_pages, MM_DOMAIN_NONE) ||
	    !mm_c_burst(c))
		return;
	c->market->recalled_ns = c->now_ns;
	mm_c_kv_reclaim(c, most, (uint32_t)pages);
}

/*
 * This precedes KV demands. Pages for a layer or two of each overdrawn tenant are kept back, since
 * demands would use each page as it comes. KV in use is reclaimed only while stalls make a tenant's
 * steps twice as long, no more than those pages at a time, and RECALL_DWELLS apart: what other
 * tenants must then compute again soon costs more than the stalls.
 */
uint64_t mm_c_return_overdrawn(struct mm_core *c, uint64_t kept_pages)
{
	uint64_t kept = kept_pages;

	MM_FOREACH_TENANT(c, t) {
		uint64_t have = mm_c_free_pages(c) > kept ? mm_c_free_pages(c) - kept : 0;
		uint64_t missing;
		uint32_t cap;

		if (!tenant_is_overdrawn(c, t, &cap))
			continue;
		if (mm_c_rotates(c, t)) {
			kept += mm_c_bring_home(c, t, kept);
			continue;
		}
		if (mm_c_return_layers(c, t, have, cap)) {
			t->lends->overdrawn_return_ns = MM_MAX(c->now_ns, 1);
			continue;
		}
		missing = (uint64_t)(t->plan.alpha - cap + t->plan.beta) * mm_c_layer_pages(t);
		mm_c_pages_convert(c, t->account, MM_MIN(missing, have));
		if (missing > have + c->ledger.inflight_all)
			mm_c_take_chunks(c, missing - have, MM_DOMAIN_NONE, false, false);
		missing = MM_MIN(missing, (t->plan.beta + 1) * mm_c_layer_pages(t));
		kept += missing;
		if (c->opts.recall == MM_SWITCH_ON && mm_c_supply(c) < kept &&
		    t->load.stall_permille >= SEVERE_PERMILLE &&
		    c->now_ns - c->market->recalled_ns >= RECALL_DWELLS * c->opts.dwell_ns)
			kv_recall(c, kept - mm_c_supply(c));
	}
	mm_c_note_home(c);
	return mm_c_any_without_kv(c) ? 0 : kept - kept_pages;
}

void mm_c_give_back(struct mm_core *c, uint64_t surplus_pages)
{
	struct mm_c_tenant *t = mm_c_next_to_return(c, c->opts.dwell_ns);

	if (!t)
		return;
	if (surplus_pages && c->market->surplus_ns &&
	    c->now_ns - c->market->surplus_ns >= c->opts.dwell_ns) {
		mm_c_pages_convert(c, t->account,
				   MM_MIN(surplus_pages, t->plan.m * mm_c_layer_pages(t)));
		mm_c_return_layers(c, t, surplus_pages, 0);
	}
}
