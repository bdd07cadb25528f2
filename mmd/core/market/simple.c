/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/simple.h"

#include "libclient/base/base.h"

void mm_simple_begin(const struct mm_view *v, struct mm_targets *targets)
{
	targets->again_ns = UINT64_MAX;
	targets->beside = targets->as_needed = targets->chunks_for_layers = false;
	targets->turn_ns = targets->keep_free = 0;
	targets->memory_of = MM_NO_TENANT;
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		enum mm_cool_why why = t->cold_by_hand ? MM_COOL_BY_HAND : MM_COOL_OFF;

		targets->tenant[t->index] =
			(struct mm_target){ .alpha = t->alpha_next,
					    .kv_most = UINT32_MAX,
					    .kv_keep = UINT32_MAX,
					    .why = MM_WHY_POLICY,
					    .cold = t->cold_by_hand ? t->cold_limit : t->cold_floor,
					    .cold_why = t->cold_most ? why : MM_COOL_NONE };
	}
}

/* ---- taking ---- */

uint64_t mm_simple_may_give(const struct mm_view *v, const struct mm_view_tenant *t, uint64_t pages,
			    uint32_t account)
{
	const struct mm_view_account *a = &v->account[t->account];

	if (account != MM_SIMPLE_ALL || a->spare == UINT64_MAX)
		return UINT64_MAX;
	return a->spare / pages + mm_div_up(a->wants, pages);
}

/*
 * Returns how many chunks of @t are empty. @slack: @t may be active; then an eighth and one more
 * than it uses count as used, and a tenant with requests in its queue has none, since it will soon
 * fill them.
 */
static uint32_t empty_chunks_of(const struct mm_view_tenant *t, bool slack)
{
	uint32_t used = t->kv_used;

	if (!t->reclaims || (slack && t->waiting) || t->kv_wanted > t->kv_held)
		return 0;
	if (slack)
		used += used / 8 + 1;
	return used < t->kv_held ? t->kv_held - used : 0;
}

/* Reclaims empty chunks of @t. Returns how many pages will come. */
static uint64_t tenant_take_chunks(const struct mm_view *v, struct mm_targets *targets,
				   const struct mm_view_tenant *t, uint64_t short_pages,
				   uint32_t account, bool idle_only)
{
	struct mm_target *target = &targets->tenant[t->index];
	uint64_t chunks = empty_chunks_of(t, !idle_only);

	if (t->asked || !chunks || target->kv_keep != UINT32_MAX ||
	    (idle_only && !mm_view_is_idle(t)))
		return 0;
	chunks = MM_MIN(chunks, mm_div_up(short_pages, t->chunk_pages));
	chunks = MM_MIN(chunks, mm_simple_may_give(v, t, t->chunk_pages, account));
	if (!chunks)
		return 0;
	target->kv_keep = t->kv_held - (uint32_t)chunks;
	return t->gives * chunks * t->chunk_pages;
}

uint64_t mm_simple_take_chunks(const struct mm_view *v, struct mm_targets *targets,
			       uint64_t short_pages, uint32_t account, bool idle_only)
{
	uint64_t got = 0;

	for (uint32_t i = 0; i < v->n_tenants && got < short_pages; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];

		if (account == MM_SIMPLE_ALL || t->account == account)
			got += tenant_take_chunks(v, targets, t, short_pages - got, account,
						  idle_only);
	}
	return got;
}

uint64_t mm_simple_take_owed(const struct mm_view *v, struct mm_targets *targets)
{
	uint64_t owed[MM_CORE_ACCOUNTS_MAX], sum = 0;

	for (uint32_t i = 0; i < v->n_accounts; i++)
		owed[i] = v->account[i].owes + v->account[i].lacks;
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		uint64_t *left = &owed[t->account], got;

		if (!*left)
			continue;
		got = tenant_take_chunks(v, targets, t, *left, t->account, true);
		*left -= MM_MIN(got, *left);
		sum += got;
	}
	return sum;
}

/* ---- giving back ---- */

bool mm_simple_lends(const struct mm_view_tenant *t)
{
	return t->lends && !t->changing && !t->change_from_ns;
}

static bool returns_before(const struct mm_view_tenant *a, const struct mm_view_tenant *b)
{
	if (mm_view_is_idle(a) != mm_view_is_idle(b))
		return mm_view_is_idle(b);
	if (a->place != b->place)
		return a->place < b->place;
	return a->active_ns < b->active_ns;
}

const struct mm_view_tenant *mm_simple_next_to_return(const struct mm_view *v, uint64_t dwell_ns)
{
	const struct mm_view_tenant *best = NULL;

	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];

		if (mm_simple_lends(t) && t->alpha && v->now_ns - t->taken_ns >= dwell_ns &&
		    (!best || returns_before(t, best)))
			best = t;
	}
	return best;
}

void mm_simple_return(const struct mm_view_tenant *t, uint64_t keep_free,
		      struct mm_targets *targets)
{
	targets->keep_free = keep_free;
	targets->tenant[t->index].alpha = 0;
	targets->tenant[t->index].first = MM_FIRST_IDLE;
}

void mm_simple_give_back(const struct mm_view *v, struct mm_market_memory *memory,
			 struct mm_targets *targets)
{
	const struct mm_view_tenant *t = mm_simple_next_to_return(v, v->dwell_ns);

	if (!v->surplus)
		memory->surplus_ns = 0;
	else if (!memory->surplus_ns)
		memory->surplus_ns = MM_MAX(v->now_ns, 1);
	if (t && v->surplus && !v->needed && v->reversion &&
	    v->now_ns - memory->surplus_ns >= v->dwell_ns)
		mm_simple_return(t, v->free - v->surplus, targets);
}
