/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/draft.h"

#include "libclient/base/base.h"

static uint64_t kv_pages(const struct mm_view_tenant *t, uint64_t chunks)
{
	return chunks * t->chunk_pages;
}

/* One whose requests wait for memory or for a turn has work as well as one that runs some. */
static bool tenant_works(const struct mm_view_tenant *t)
{
	return t->active || t->turn == MM_VIEW_WAITS || t->turn == MM_VIEW_HOLDS;
}

void mm_draft_begin(struct mm_draft *d, const struct mm_view *view)
{
	uint64_t off = view->unused_mins + view->big_pages;

	d->view = view;
	d->rotates = false;
	d->cold_pages = 0;
	d->n = view->n_tenants;
	d->pages = view->pages > off ? view->pages - off : 0;
	d->working = d->joined = 0;
	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_view_tenant *t = &view->tenant[i];
		uint64_t want = MM_MIN((uint64_t)t->kv_wanted + t->kv_queued, t->kv_limit);
		struct mm_draft_row row = { .t = t, .works = tenant_works(t) };

		row.held = kv_pages(t, t->kv_held);
		row.want = kv_pages(t, MM_MAX(want, t->kv_held));
		row.part = MM_MIN(row.want, kv_pages(t, t->kv_share));
		d->row[i] = row;
		d->working += row.works;
		d->joined += row.works && t->turn != MM_VIEW_NO_TURNS;
	}
}

static enum mm_role role_of(const struct mm_draft *d, const struct mm_draft_row *row,
			    uint32_t turn_of)
{
	const struct mm_view_tenant *t = row->t;

	if (!row->works)
		return MM_ROLE_IDLE;
	if (d->rotates)
		return t->index == turn_of ? MM_ROLE_COMPUTES : MM_ROLE_WAITS;
	if (d->beside || t->turn == MM_VIEW_NO_TURNS || t->index == turn_of)
		return MM_ROLE_COMPUTES;
	/* The last of those that computed side by side ends its step. */
	if (t->turn == MM_VIEW_HOLDS && t->turn_ends)
		return MM_ROLE_COMPUTES;
	return t->turn == MM_VIEW_AWAY ? MM_ROLE_IDLE : MM_ROLE_WAITS;
}

void mm_draft_roles(struct mm_draft *d, bool beside, uint32_t turn_of)
{
	d->beside = beside;
	d->computing = d->waiting = 0;
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		row->role = role_of(d, row, turn_of);
		row->alpha = row->t->alpha_next;
		row->alpha_least = 0;
		row->keep = row->level = row->held;
		row->low = row->high = 0;
		row->why = MM_WHY_STAYS;
		row->worth = row->worth_more = 0;
		row->valued = false;
		row->value = (struct mm_value){ 0 };
		d->computing += row->role == MM_ROLE_COMPUTES;
		d->waiting += row->role == MM_ROLE_WAITS;
	}
}

uint64_t mm_draft_resident(const struct mm_draft_row *row, uint32_t alpha)
{
	uint64_t layers = row->t->layers;

	return row->t->fixed_pages + (layers - MM_MIN(alpha, layers)) * row->t->layer_pages;
}

uint32_t mm_draft_lends(const struct mm_draft_row *row)
{
	return row->t->lends && row->t->alpha_max ? row->t->alpha_max - 1 : 0;
}

void mm_draft_order(struct mm_draft *d, enum mm_role role, mm_draft_before *before)
{
	d->orders = 0;
	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].role == role)
			d->order[d->orders++] = (uint16_t)i;
	/* Shell's sort: the gaps are short of n^2 in practice, and need no memory. */
	for (uint32_t gap = d->orders / 2; gap; gap /= 2)
		for (uint32_t i = gap; i < d->orders; i++) {
			uint16_t at = d->order[i];
			uint32_t k = i;

			for (; k >= gap; k -= gap) {
				uint16_t other = d->order[k - gap];
				const struct mm_draft_row *a = &d->row[at], *b = &d->row[other];

				if (!before(a, b) && (before(b, a) || at > other))
					break;
				d->order[k] = other;
			}
			d->order[k] = at;
		}
}
