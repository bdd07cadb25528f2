/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of xfer: which rows of cold blocks are copied, and where in the window they lie. */
#include <string.h>

#include "tests/sim/world.h"

static uint32_t window_pages(const struct w_proc *p, const struct mm_core_cold *cold)
{
	return cold->classes ? cold->chunks * p->chunk_pages : 0;
}

static bool windows_begin_together(const struct mm_core_cold *a, const struct mm_core_cold *b)
{
	return a->classes && b->classes && a->first == b->first && a->unit_bytes == b->unit_bytes &&
	       a->classes == b->classes;
}

void w_classes_plan(struct world *w, struct w_proc *p, bool served)
{
	const struct mm_core_plan *plan = mm_core_plan(w->core, p->tenant);
	const uint32_t pages = window_pages(p, &plan->cold);

	mm_assert(pages <= W_WINDOW);
	for (uint32_t i = 0; i < pages; i++)
		p->region_window[i] = mm_core_cold_page(w->core, p->tenant, i);
	mm_assert(mm_core_cold_page(w->core, p->tenant, pages) == MM_NO_PAGE);
	/* Elsewhere lies what nobody knows. */
	if (!windows_begin_together(&p->region.cold, &plan->cold))
		memset(p->cold.unit, 0, sizeof(p->cold.unit));
	for (uint32_t k = 0; k < plan->cold.classes && !served; k++)
		p->cursor[MM_CYCLE_CLASS(k)] =
			(struct w_cursor){ .epoch = plan->epoch, .state = MM_CUR_COPYING };
}

struct mm_cycle_cold w_classes_view(const struct w_proc *p, const struct mm_core_plan *plan,
				    const uint32_t *page)
{
	return (struct mm_cycle_cold){ .classes = plan->cold.classes,
				       .n_pages = window_pages(p, &plan->cold),
				       .unit_bytes = plan->cold.unit_bytes,
				       .page = page };
}

/*
 * The version first, then the bits: rows have all that was live in it. The lowest come first. The
 * bits are several words: half of them may be read before others change. A read that began before
 * what is acknowledged by now has ended.
 */
void w_class_choose(struct w_proc *p, uint32_t cursor)
{
	struct w_cold *cold = &p->cold;
	struct w_copy *copy = &p->copy[cursor];
	const bool torn = cold->torn && cold->version_before >= cold->acked;
	uint64_t left = cold->streamed;

	cold->torn -= torn;
	copy->version = torn ? cold->version_before : cold->version;
	copy->window = p->plan.cold;
	copy->chosen = true;
	for (uint32_t e = 0; e < W_COLD; e++) {
		const bool live = torn && e < W_COLD / 2 ? cold->live_before[e] : cold->live[e];
		const bool row = e < p->plan.cold.entries && live && left;

		copy->row[e] = row ? cold->generation[e] : 0;
		left -= row;
	}
}

void w_class_note(struct w_proc *p, uint32_t cursor)
{
	uint64_t least = UINT64_MAX;

	p->cursor[cursor].version = p->copy[cursor].version;
	for (uint32_t k = 0; k < p->plan.cold.classes; k++)
		least = MM_MIN(least, p->cursor[MM_CYCLE_CLASS(k)].version);
	p->cold.acked = MM_MAX(p->cold.acked, least);
}

/* Whatever is streamed into a window, the tenant holds it as KV. */
static void assert_window_held(const struct world *w, const struct w_proc *p)
{
	for (uint32_t i = 0; i < window_pages(p, &p->plan.cold); i++) {
		const uint32_t page = p->plan_window[i];
		uint32_t owner;

		mm_assert(mm_core_page(w->core, page, &owner) == MM_PAGE_KV ||
			  mm_core_page(w->core, page, &owner) == MM_PAGE_REVOKING);
		mm_assert(owner == p->tenant);
	}
}

void w_class_write(const struct world *w, struct w_proc *p, uint32_t cursor, bool half)
{
	const struct w_copy *copy = &p->copy[cursor];
	const uint32_t layer = mm_cycle_layer(&p->cycles, cursor, p->cycles.cursor[cursor].pos);

	assert_window_held(w, p);
	if (!windows_begin_together(&copy->window, &p->region.cold))
		return;
	for (uint32_t e = 0; e < W_COLD; e++) {
		const uint32_t unit = copy->window.classes * e + layer;

		if (!copy->row[e])
			continue;
		mm_assert(unit < W_UNITS);
		p->cold.unit[unit] = half ? (struct w_unit){ 0 }
					  : (struct w_unit){ .entry = e,
							     .layer = layer,
							     .generation = copy->row[e] };
	}
}
