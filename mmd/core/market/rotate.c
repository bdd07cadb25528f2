/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/rotate.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/worth.h"

/* ---- lending ---- */

/* Layers that are away, or will be after the change under way. */
static uint32_t layers_lent(const struct mm_c_tenant *t)
{
	return mm_c_is_changing(t) ? t->change->next_alpha : t->plan.alpha;
}

static uint64_t lent_pages(const struct mm_c_tenant *t)
{
	return layers_lent(t) * mm_c_layer_pages(t);
}

/* The most layers of @t that may be away: all but one, within the cap. */
static uint32_t lend_max(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t cap = (uint64_t)t->n_layers * c->opts.lend_max_permille / 1000;

	return (uint32_t)MM_MIN(cap, t->sets->alpha_max - 1);
}

/*
 * Gets the pages that are lent, and the most that may be lent: what all tenants but the one with
 * the most can lend, so that any of them can have the next turn.
 */
static void lending_sums(const struct mm_core *c, uint64_t *ret_lent, uint64_t *ret_most)
{
	uint64_t most = 0;

	*ret_lent = *ret_most = 0;
	MM_FOREACH_TENANT(c, t) {
		uint64_t lends;

		if (!mm_c_rotates(c, t))
			continue;
		lends = lend_max(c, t) * mm_c_layer_pages(t);
		*ret_most += lends;
		/* The last layers need pages before their slots' come free. */
		most = MM_MAX(most, lends + MM_SLOTS_MAX * mm_c_layer_pages(t));
		*ret_lent += lent_pages(t);
	}
	*ret_most -= MM_MIN(most, *ret_most);
}

uint64_t mm_c_turns_may_lend(const struct mm_core *c, const struct mm_c_tenant *lender)
{
	uint64_t lent, most, per;

	if (!mm_c_rotates(c, lender))
		return UINT64_MAX;
	per = mm_c_layer_pages(lender);
	lending_sums(c, &lent, &most);
	return most > lent ? (most - lent) / per * per : 0;
}

/* Pages that the return of all layers of @t needs; those of its slots come free only afterwards. */
static uint64_t return_pages(const struct mm_c_tenant *t)
{
	uint32_t lent = layers_lent(t);

	return lent ? (lent + t->plan.beta) * mm_c_layer_pages(t) : 0;
}

/*
 * True in the first MM_TURN_STRETCH_NS of a turn. After that nothing is kept for layers of @t,
 * which then computes without them, only more slowly.
 */
static bool tenant_awaits_layers(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return mm_c_rotates(c, t) &&
	       c->now_ns - c->market->turn.begun_ns < mm_c_time(c, MM_TURN_STRETCH_NS);
}

static uint64_t rotating_kv_pages(const struct mm_core *c)
{
	uint64_t held = 0;

	MM_FOREACH_TENANT(c, t)
		if (mm_c_rotates(c, t))
			held += (uint64_t)t->kv.held * t->kv.chunk_pages;
	return held;
}

/*
 * Pages that the return of @t's unprofitable layers needs: those whose memory is worth less as KV
 * than the longer steps cost.
 */
static uint64_t unprofitable_pages(const struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t lent = layers_lent(t), worthwhile;

	if (!lent || mm_c_is_changing(t))
		return 0;
	worthwhile = mm_c_alpha_worthwhile(c, t, rotating_kv_pages(c));
	if (lent <= worthwhile)
		return 0;
	/* If all layers return, pages of the slots come free only afterwards. */
	return (lent - worthwhile + (worthwhile ? 0 : t->plan.beta)) * mm_c_layer_pages(t);
}

/* Pages to keep for layers of @t, which is the holder or the next one; NULL: none. */
static uint64_t missing_pages_of(const struct mm_core *c, struct mm_c_tenant *t)
{
	if (!t || !mm_c_rotates(c, t) || c->now_ns < t->change->retry_ns)
		return 0;
	if (tenant_awaits_layers(c, t))
		return return_pages(t);
	return t == c->market->turn.holder ? unprofitable_pages(c, t) : 0;
}

uint64_t mm_c_turns_kept(const struct mm_core *c)
{
	uint64_t lent, most, missing = missing_pages_of(c, c->market->turn.holder);

	if (c->opts.turn_prefetch == MM_SWITCH_ON)
		missing += missing_pages_of(c, mm_c_turn_next(c));
	if (!missing || mm_c_any_without_kv(c))
		return 0;
	lending_sums(c, &lent, &most);
	return lent > most ? MM_MIN(lent - most, missing) : 0;
}

/* Takes @short_pages of layers of idle tenants for @t, which is the holder or the next one. */
static uint64_t take_layers_for(struct mm_core *c, const struct mm_c_tenant *t,
				uint64_t short_pages)
{
	struct mm_c_tenant *order[MM_CORE_TENANTS_MAX];
	uint32_t n = mm_c_lenders(c, order);
	uint64_t got = 0;

	for (uint32_t i = 0; i < n && got < short_pages; i++)
		if (order[i] != t && mm_c_idle(c, order[i]) && mm_c_lends_by_itself(c, order[i]))
			got += mm_c_take_up_to(c, order[i], lend_max(c, order[i]),
					       short_pages - got, MM_DOMAIN_NONE, false);
	return got;
}

/* Returns @t's part, by its share, of the KV memory of all tenants that rotate. */
static uint64_t kv_part_pages(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t held = 0, shares = 0;

	MM_FOREACH_TENANT(c, u)
		if (mm_c_rotates(c, u) && u->kv.declared) {
			held += (uint64_t)u->kv.held * u->kv.chunk_pages;
			shares += (uint64_t)u->kv.share * u->kv.chunk_pages;
		}
	return shares ? held * ((uint64_t)t->kv.share * t->kv.chunk_pages) / shares : 0;
}

uint64_t mm_c_take_parts(struct mm_core *c, uint64_t short_pages, bool dry_run)
{
	const struct mm_c_tenant *t = c->market->turn.holder;
	uint64_t got = 0, part, held;

	if (!t || c->opts.turn_parts != MM_SWITCH_ON || !mm_c_rotates(c, t))
		return 0;
	part = kv_part_pages(c, t);
	held = (uint64_t)t->kv.held * t->kv.chunk_pages;
	if (held >= part)
		return 0;
	short_pages = MM_MIN(short_pages, part - held);
	MM_FOREACH_TENANT(c, u) {
		uint64_t over, responsive = mm_c_kv_is_responsive(u);

		if (u == t || !mm_c_rotates(c, u) || !(u->features & MM_FEAT_RECLAIM) ||
		    got >= short_pages || c->now_ns < u->demand->reclaim_until_ns)
			continue;
		part = kv_part_pages(c, u);
		held = (uint64_t)u->kv.held * u->kv.chunk_pages;
		over = held > part ? MM_MIN(held - part, short_pages - got) / u->kv.chunk_pages : 0;
		if (!over || (!dry_run && !mm_c_burst(c)))
			continue;
		if (!dry_run)
			mm_c_kv_reclaim(c, u, (uint32_t)over);
		got += responsive * over * u->kv.chunk_pages;
	}
	return got;
}

static uint64_t kv_over_share(const struct mm_c_tenant *t)
{
	return t->kv.held > t->kv.share ? t->kv.held - t->kv.share : 0;
}

/*
 * Reclaims KV in use for layers of @t, where taking other tenants' layers does not suffice: from
 * the tenants that wait, then from @t itself, down to their shares. If none has more than its
 * share, all layers of the holder have room.
 */
static uint64_t kv_reclaim_for(struct mm_core *c, const struct mm_c_tenant *t, uint64_t short_pages)
{
	uint64_t got = 0;

	for (int own = 0; own <= 1; own++)
		MM_FOREACH_TENANT(c, u) {
			uint64_t chunks;

			if ((u == t) != own || !mm_c_rotates(c, u) || got >= short_pages ||
			    !(u->features & MM_FEAT_RECLAIM))
				continue;
			chunks = MM_MIN(kv_over_share(u),
					mm_div_up(short_pages - got, u->kv.chunk_pages));
			if (!chunks)
				continue;
			got += chunks * u->kv.chunk_pages;
			if (c->now_ns >= u->demand->reclaim_until_ns && mm_c_burst(c))
				mm_c_kv_reclaim(c, u, (uint32_t)chunks);
		}
	return got;
}

uint64_t mm_c_bring_home(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept)
{
	uint64_t have = mm_c_free_pages(c) > kept ? mm_c_free_pages(c) - kept : 0;
	uint64_t missing = return_pages(t), coming = mm_c_supply(c) - mm_c_free_pages(c);
	uint64_t unprofitable = c->opts.recall == MM_SWITCH_ON ? unprofitable_pages(c, t) : 0;
	bool waits = have < missing && (unprofitable || tenant_awaits_layers(c, t));

	mm_c_pages_convert(c, t->account, MM_MIN(missing, have));
	if (waits && have + coming < missing)
		coming += take_layers_for(c, t, missing - have - coming);
	if (have + coming < unprofitable)
		coming += kv_reclaim_for(c, t, unprofitable - have - coming);
	if (waits && coming)
		return MM_MIN(missing, have + coming);
	if (mm_c_return_layers(c, t, have, 0))
		return 0;
	if (t == c->market->turn.holder && !t->turn->home_ns)
		t->turn->home_ns = c->now_ns; /* no more layers can return now */
	if (missing > have + c->ledger.inflight_all)
		mm_c_take_chunks(c, missing - have, MM_DOMAIN_NONE, false, false);
	return 0;
}

void mm_c_prefetch(struct mm_core *c, uint64_t kept_pages)
{
	struct mm_c_tenant *t = mm_c_turn_next(c);
	uint64_t missing, have, coming, more = 0;

	if (!t || c->opts.turn_prefetch != MM_SWITCH_ON || !mm_c_rotates(c, t) ||
	    !mm_c_lends_by_itself(c, t))
		return;
	if (!t->plan.alpha)
		return;
	missing = return_pages(t);
	have = mm_c_free_pages(c) > kept_pages ? mm_c_free_pages(c) - kept_pages : 0;
	coming = mm_c_supply(c) - mm_c_free_pages(c);
	if (c->market->kv_unmet)
		have = MM_MIN(have, mm_c_turns_kept(c));
	if (have + coming < missing)
		more = take_layers_for(c, t, missing - have - coming);
	if (have >= missing || (!(coming + more) && have >= missing / 2))
		mm_c_return_layers(c, t, have, 0);
}

void mm_c_note_home(struct mm_core *c)
{
	const struct mm_c_tenant *t = c->market->turn.holder;

	if (t && !t->turn->home_ns && !mm_c_is_changing(t) && !t->plan.alpha)
		t->turn->home_ns = c->now_ns;
}
