/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/laws.h"

#include <string.h>

#include "libclient/base/base.h"

static uint64_t resident_of(const struct mm_view_tenant *t, uint32_t alpha)
{
	return t->fixed_pages + (uint64_t)(t->layers - MM_MIN(alpha, t->layers)) * t->layer_pages;
}

static bool view_works(const struct mm_view_tenant *t)
{
	return t->active || t->turn == MM_VIEW_WAITS || t->turn == MM_VIEW_HOLDS;
}

static uint32_t count_holders(const struct mm_view *view)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->n_tenants; i++)
		n += view->tenant[i].turn == MM_VIEW_HOLDS;
	return n;
}

bool laws_computes(const struct mm_view *view, const struct mm_targets *targets,
		   const struct mm_view_tenant *t)
{
	if (targets->memory_of != MM_NO_TENANT)
		return t->index == targets->memory_of;
	if (!view_works(t) || targets->beside || t->turn == MM_VIEW_NO_TURNS)
		return view_works(t);
	/* While turns close, those that end their last steps side by side compute. */
	if (count_holders(view) > 1)
		return true;
	return t->index == targets->turn_of || (t->turn == MM_VIEW_HOLDS && t->turn_ends);
}

/* Returns what a tenant has once it has released what it is asked for. */
static uint64_t kept_chunks(const struct mm_view_tenant *t, const struct mm_target *g)
{
	return MM_MIN(t->kv_held, g->kv_keep);
}

/* I1: layers and KV at target fit the pool and each account's max, or nothing more is given. */
static const char *sums_broken(const struct mm_view *view, const struct mm_targets *targets)
{
	static uint64_t of[MM_CORE_ACCOUNTS_MAX];
	static bool gives_of[MM_CORE_ACCOUNTS_MAX];
	uint64_t sum = 0, off = view->unused_mins + view->big_pages;
	bool gives = false;

	memset(of, 0, view->n_accounts * sizeof(*of));
	memset(gives_of, 0, view->n_accounts * sizeof(*gives_of));
	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		const struct mm_target *g = &targets->tenant[t->index];
		uint64_t most = MM_MAX((uint64_t)g->kv_most, kept_chunks(t, g));
		uint64_t pages = resident_of(t, g->alpha) + most * t->chunk_pages;

		sum += pages;
		of[t->account] += pages;
		gives = gives || g->kv_most > kept_chunks(t, g);
		gives_of[t->account] = gives_of[t->account] || g->kv_most > kept_chunks(t, g);
	}
	if (gives && sum + off > view->pages)
		return "I1: KV is given that does not fit the pool beside the layers at target";
	for (uint32_t i = 0; i < view->n_accounts; i++)
		if (gives_of[i] && of[i] > view->account[i].max_pages)
			return "I1: KV is given beyond an account's max";
	return NULL;
}

static const char *layers_broken(const struct mm_view_tenant *t, const struct mm_target *g)
{
	if ((!t->lends || !t->alpha_max) && g->alpha != t->alpha_next)
		return "I4: layers set by hand, or of no model, are changed";
	if (t->lends && t->alpha_max && g->alpha >= t->alpha_max && g->alpha > t->alpha_next)
		return "I4: more layers are to be away than may be";
	return NULL;
}

/* Returns whether @t's account may have no more, but what rounding to chunks leaves. */
static bool account_is_full(const struct mm_view *view, const struct mm_targets *targets,
			    const struct mm_view_tenant *t)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *u = &view->tenant[i];
		const struct mm_target *g = &targets->tenant[u->index];

		if (u->account == t->account)
			sum += resident_of(u, g->alpha) +
			       (MM_MAX((uint64_t)g->kv_most, kept_chunks(u, g)) + 1) *
				       u->chunk_pages;
	}
	return sum > view->account[t->account].max_pages;
}

/*
 * While memory rotates, one that waits for it may have what is left over: whose memory it is may
 * have all that it wants, as far as its account may.
 */
static bool may_have_the_rest(const struct mm_view *view, const struct mm_targets *targets,
			      const struct mm_view_tenant *t)
{
	if (targets->memory_of == MM_NO_TENANT || !(view_works(t) || t->waiting))
		return false;
	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *u = &view->tenant[i];
		uint64_t wanted = MM_MIN((uint64_t)u->kv_wanted + u->kv_queued, u->kv_limit);

		if (u->chunk_pages && laws_computes(view, targets, u) &&
		    targets->tenant[u->index].kv_most < wanted &&
		    !account_is_full(view, targets, u))
			return false;
	}
	return true;
}

static const char *chunks_broken(const struct mm_view *view, const struct mm_targets *targets,
				 const struct mm_view_tenant *t, const struct mm_target *g)
{
	uint32_t share = g->alpha < t->alpha_next ? t->kv_share / 2 : t->kv_share;

	if (g->kv_most > t->kv_limit)
		return "I2: more KV may be granted than the arena has";
	if (!t->gives && g->kv_keep != UINT32_MAX)
		return "I4: KV is asked of a tenant that does not give";
	if (g->kv_keep != UINT32_MAX && g->kv_keep >= t->kv_held)
		return "I4: KV is asked of a tenant that has less";
	if (!laws_computes(view, targets, t) && g->kv_most > t->kv_held &&
	    !may_have_the_rest(view, targets, t))
		return "I2: a tenant that does not compute is granted KV";
	if (g->kv_most > t->kv_held && g->kv_keep < t->kv_held)
		return "I2: a tenant is granted KV and asked for some at once";
	/* One that lacks layers gives of its own for them, down to half of its share. */
	if (targets->beside && laws_computes(view, targets, t) && g->kv_keep != UINT32_MAX &&
	    !view->account[t->account].owes && g->kv_keep < MM_MIN(share, t->kv_used))
		return "I4: KV in use is taken below a share side by side";
	return NULL;
}

/*
 * I7: nobody's steps are longer than the clause allows. What is away may exceed it by a part, and
 * stays while it was taken too recently.
 */
static const char *clause_broken(const struct mm_view *view, const struct mm_targets *targets,
				 const struct mm_view_tenant *t, const struct mm_target *g,
				 uint32_t computing)
{
	uint64_t clause = mm_value_clause(t);

	if (computing < 2 || !t->lends || !t->alpha_max || !laws_computes(view, targets, t))
		return NULL;
	if (g->why == MM_WHY_DWELL && g->alpha == t->alpha_next)
		return NULL;
	clause += g->alpha == t->alpha_next ? clause / MM_VALUE_STAY_PART : 0;
	return mm_value_slow(t, g->alpha) > clause ? "I7: steps are longer than the clause allows"
						   : NULL;
}

static bool lacks_kv(const struct mm_view_tenant *t)
{
	return t->hungry_permille || t->waiting || t->kv_queued || t->kv_wanted > t->kv_held;
}

/* I8: when nobody lacks KV, those who compute have all layers, and are asked for nothing. */
static const char *rest_broken(const struct mm_view *view, const struct mm_targets *targets)
{
	if (!targets->beside || view->big_pages)
		return NULL;
	for (uint32_t i = 0; i < view->n_tenants; i++)
		if (lacks_kv(&view->tenant[i]) || view->account[view->tenant[i].account].owes)
			return NULL;
	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		const struct mm_target *g = &targets->tenant[t->index];

		if (laws_computes(view, targets, t) && t->lends && t->alpha_max && g->alpha &&
		    g->why != MM_WHY_DWELL)
			return "I8: a tenant lends layers although nobody lacks KV";
	}
	return NULL;
}

/* I6: who lacks of its share gets it, or somebody beyond its share gives, or nobody can. */
static const char *entitled_broken(const struct mm_view *view, const struct mm_targets *targets)
{
	uint64_t missing = 0, over = 0, taken = 0, sum = view->unused_mins + view->big_pages;

	for (uint32_t i = 0; i < view->n_tenants; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		const struct mm_target *g = &targets->tenant[t->index];
		uint64_t part = MM_MIN(t->kv_share, MM_MIN(t->kv_wanted, t->kv_limit));
		uint64_t kept = kept_chunks(t, g);

		sum += resident_of(t, g->alpha) + kept * t->chunk_pages;
		taken += (t->kv_held - kept) * t->chunk_pages;
		if (laws_computes(view, targets, t) && part > t->kv_held)
			missing += (part - t->kv_held) * t->chunk_pages;
		if (t->gives && kept > t->kv_share)
			over += (kept - t->kv_share) * t->chunk_pages;
	}
	if (missing && sum + missing > view->pages && !taken && over >= view->n_tenants * 8u)
		return "I6: a tenant lacks its share, and nobody beyond its share is asked";
	return NULL;
}

const char *laws_broken(const struct mm_view *view, const struct mm_targets *targets)
{
	const char *broken = sums_broken(view, targets);
	uint32_t computing = 0;

	for (uint32_t i = 0; i < view->n_tenants; i++)
		computing += laws_computes(view, targets, &view->tenant[i]);
	for (uint32_t i = 0; i < view->n_tenants && !broken; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		const struct mm_target *g = &targets->tenant[t->index];

		broken = layers_broken(t, g);
		broken = broken ? broken : chunks_broken(view, targets, t, g);
		broken = broken ? broken : clause_broken(view, targets, t, g, computing);
	}
	broken = broken ? broken : rest_broken(view, targets);
	return broken ? broken : entitled_broken(view, targets);
}
