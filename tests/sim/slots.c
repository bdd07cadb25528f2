/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots and classes of xfer: drives mm_cycles in the time of the world, and checks what must
 * hold whatever the machine decides.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world.h"
#include "tests/sim/mortal.h"

/* acts that one act within a REPLAN counts for, because REPLANs are rare */
#define REPLAN_COUNTS_FOR 16

/* ---- checks that do not depend on the machine ---- */

/*
 * No step has been let pass to what is in the slot, and no gate has a change that xfer has not
 * read.
 */
static void assert_unread(const struct w_proc *p, uint32_t c)
{
	for (uint32_t i = 0; i < mm_cycle_length(&p->cycles.plan, c); i++)
		mm_assert(p->hostile ||
			  (uint32_t)p->gate[mm_cycle_layer(&p->cycles, c, i)] == MM_GATE_EMPTY);
}

static void assert_layer_in(const struct world *w, const struct w_proc *p, uint32_t s,
			    uint32_t layer)
{
	uint32_t first = p->entry[1 + layer];

	for (uint32_t i = 0; i < p->entry[2 + layer] - first; i++)
		mm_assert(p->hostile || w_bytes_are(w, p->plan_page[s][i], p, first + i));
}

/* ---- acts ---- */

static uint32_t layer_at(const struct w_proc *p, const struct mm_cycle_act *act)
{
	return mm_cycle_layer(&p->cycles, act->cursor, act->pos);
}

static void gate_put(struct world *w, struct w_proc *p, const struct mm_cycle_act *act)
{
	uint32_t layer = layer_at(p, act);
	uint64_t *gate = &p->gate[layer], high = *gate & ~UINT64_C(0xffffffff);

	mm_assert(p->hostile || !high);
	if (act->word == MM_GATE_READY) {
		mm_assert(p->hostile || *gate == MM_GATE_EMPTY);
		if (!mm_cycle_is_class(act->cursor))
			assert_layer_in(w, p, act->cursor, layer);
	}
	*gate = high | act->word;
}

static uint64_t cut_next(struct world *w)
{
	w->cut_rng ^= w->cut_rng << 13;
	w->cut_rng ^= w->cut_rng >> 7;
	w->cut_rng ^= w->cut_rng << 17;
	return 1 + (w->cut_rng >> 11) % (2 * w->cut_each);
}

/* Returns false if xfer is killed here, before the act. */
static bool act_may(struct world *w, const struct mm_cycle_act *act)
{
	uint64_t counts_for = w->replanning ? REPLAN_COUNTS_FOR : 1;

	if (!w->cut_in || (w->cut_in -= MM_MIN(w->cut_in, counts_for)))
		return true;
	w->cut_in = cut_next(w);
	w->cuts[act->kind]++;
	w_xfer_kill(w, false);
	return false;
}

/* Returns false if xfer was killed between two of the gates. */
static bool gates_put(struct world *w, struct w_proc *p, const struct mm_cycle_act *act)
{
	const struct mm_core_slot *slot = &p->plan.slot[act->cursor];

	if (act->word == MM_GATE_READY)
		assert_layer_in(w, p, act->cursor, slot->layer[0]);
	for (uint32_t i = slot->n_layers; i-- > 0;) {
		uint64_t *gate = &p->gate[slot->layer[i]];

		mm_assert(p->hostile || !(*gate & MM_GATE_RESIDENT));
		*gate = (*gate & ~UINT64_C(0xffffffff)) | (i ? MM_GATE_EMPTY : act->word);
		if (i && !act_may(w, act))
			return false;
	}
	return true;
}

/* Returns false if xfer was killed between two of the gates. */
static bool gates_all_empty(struct world *w, struct w_proc *p, const struct mm_cycle_act *act)
{
	for (uint32_t l = 0; l < p->plan.n_layers; l++) {
		if (!mm_cycles_gated(&p->cycles, l))
			continue;
		mm_assert(p->hostile || !(p->gate[l] & MM_GATE_RESIDENT));
		p->gate[l] = (p->gate[l] & ~UINT64_C(0xffffffff)) | MM_GATE_EMPTY;
		if (!act_may(w, act))
			return false;
	}
	return true;
}

/* Returns false if xfer was killed between the rows' choice, the state and the version. */
static bool cursor_put(struct world *w, struct w_proc *p, const struct mm_cycle_act *act)
{
	struct w_cursor *cursor = &p->cursor[act->cursor];
	const bool rows = mm_cycle_is_class(act->cursor) && act->kind == MM_CYCLE_CURSOR &&
			  act->word == MM_CUR_COPYING;

	if (rows) {
		w_class_choose(p, act->cursor);
		if (!act_may(w, act))
			return false;
	}
	w->rows_kept += act->kind == MM_CYCLE_KEEP;
	cursor->state = act->word;
	cursor->pos = act->pos;
	if (!rows)
		return true;
	if (!act_may(w, act))
		return false;
	w_class_note(p, act->cursor);
	return true;
}

static bool copy_end(struct world *w, struct w_proc *p, uint32_t s, bool complete);

static bool act_perform(struct world *w, struct w_proc *p, const struct mm_cycle_act *act)
{
	struct w_cursor *cursor = &p->cursor[act->cursor];
	struct w_copy *copy = &p->copy[act->cursor];

	switch (act->kind) {
	case MM_CYCLE_NEW:
		*copy = (struct w_copy){ .set_up = true };
		if (!mm_cycle_is_class(act->cursor))
			memcpy(copy->page, p->plan_page[act->cursor], sizeof(copy->page));
		return true;
	case MM_CYCLE_CURSOR:
	case MM_CYCLE_KEEP:
		return cursor_put(w, p, act);
	case MM_CYCLE_EPOCH:
		cursor->epoch = p->plan.epoch;
		return true;
	case MM_CYCLE_GATE:
		gate_put(w, p, act);
		return true;
	case MM_CYCLE_GATES:
		return gates_put(w, p, act);
	case MM_CYCLE_GATES_ALL:
		return gates_all_empty(w, p, act);
	case MM_CYCLE_COPY:
		mm_assert(copy->set_up && copy->chosen == mm_cycle_is_class(act->cursor));
		copy->written = copy->chosen = false;
		return true;
	case MM_CYCLE_CANCEL:
		return copy_end(w, p, act->cursor, false);
	case MM_CYCLE_COUNT:
		p->streamed[act->cursor]++;
		w_event(w, (struct mm_event){ .kind = MM_EVENT_STREAMED,
					      .tenant = p->tenant,
					      .layer_ns = 50000 + w_below(w, 100000) });
		return true;
	}
	return false;
}

/*
 * Returns false if xfer was killed before all acts were performed: what it knew of its slots is
 * lost.
 */
static bool acts_perform(struct world *w, struct w_proc *p, const struct mm_cycle_acts *acts)
{
	for (uint32_t i = 0; i < acts->n; i++) {
		if (!act_may(w, &acts->act[i]))
			return false;
		if (!act_perform(w, p, &acts->act[i]))
			return false;
	}
	return true;
}

/* ---- copies ---- */

static bool copy_end(struct world *w, struct w_proc *p, uint32_t s, bool complete)
{
	struct mm_cycle_acts acts;

	mm_cycle_copied(&p->cycles, s, complete, p->open, &acts);
	return acts_perform(w, p, &acts);
}

static void slot_write(struct world *w, struct w_proc *p, uint32_t s, enum w_kind kind)
{
	uint32_t layer = mm_cycle_layer(&p->cycles, s, p->cycles.cursor[s].pos);
	uint32_t first = p->entry[1 + layer];

	assert_unread(p, s);
	if (mm_cycle_is_class(s)) {
		w_class_write(w, p, s, kind == W_GARBAGE);
		return;
	}
	for (uint32_t i = 0; i < p->entry[2 + layer] - first; i++)
		w->page[p->copy[s].page[i]].bytes = (struct w_bytes){ kind, p->store, first + i };
}

/* Writes half of the layer, then the rest. */
static void copy_go_on(struct world *w, struct w_proc *p, uint32_t s)
{
	struct w_copy *copy = &p->copy[s];

	slot_write(w, p, s, copy->written ? W_LAYER : W_GARBAGE);
	if (copy->written)
		copy_end(w, p, s, true);
	else
		copy->written = true;
}

/* ---- streaming ---- */

/*
 * In histories by jobs, gate values that a hostile tenant writes while a layer is streamed in only
 * hold the copy up: the random numbers of these histories depend on that. In histories by acts the
 * machine handles all of them.
 */
static bool copy_is_held_up(const struct w_proc *p, uint32_t s)
{
	const struct mm_cycle *c = &p->cycles.cursor[s];

	return c->state != MM_CYCLE_HELD &&
	       !(p->gate[mm_cycle_layer(&p->cycles, s, c->pos)] & MM_GATE_EMPTY);
}

static void slot_stream(struct world *w, struct w_proc *p, uint32_t s)
{
	struct mm_cycle_acts acts = { 0 };
	uint32_t layer;

	if (!w->by_acts && copy_is_held_up(p, s))
		return;
	if (mm_cycle_copying(&p->cycles, s)) {
		copy_go_on(w, p, s);
		return;
	}
	switch (mm_cycle_look(&p->cycles, s, &layer)) {
	case MM_CYCLE_LOOK_NOWHERE:
		break;
	case MM_CYCLE_LOOK_GATE:
		mm_cycle_saw_gate(&p->cycles, s, (uint32_t)p->gate[layer], &acts);
		break;
	case MM_CYCLE_LOOK_OPEN:
		mm_cycle_saw_open(&p->cycles, s, p->open, &acts);
		break;
	}
	acts_perform(w, p, &acts);
}

void w_xfer_stream(struct world *w, struct w_proc *p)
{
	for (uint32_t c = 0; c < MM_CYCLES_MAX && w->xfer_up && p->cycles.active; c++)
		if (mm_cycle_has(&p->cycles.plan, c))
			slot_stream(w, p, c);
}

/* ---- plans ---- */

static struct mm_cycle_plan plan_view(const struct w_proc *p, const struct mm_core_plan *plan,
				      const uint32_t (*page)[W_ENTRIES], const uint32_t *window)
{
	struct mm_cycle_plan view = { .epoch = plan->epoch,
				      .store = p->store,
				      .closed = plan->closed,
				      .n_layers = plan->n_layers,
				      .n_slots = plan->beta,
				      .cold = w_classes_view(p, plan, window) };

	for (uint32_t s = 0; s < plan->beta; s++)
		view.slot[s] = (struct mm_cycle_slot){ .layer = plan->slot[s].layer,
						       .page = page[s],
						       .n_layers = plan->slot[s].n_layers,
						       .n_pages = plan->slot[s].n_pages,
						       .in_place = plan->slot[s].in_place };
	return view;
}

/* Takes the region as it is now as the plan in force. */
static struct mm_cycle_plan plan_take(struct w_proc *p)
{
	p->plan = p->region;
	memcpy(p->plan_page, p->region_page, sizeof(p->plan_page));
	memcpy(p->plan_window, p->region_window, sizeof(p->plan_window));
	return plan_view(p, &p->plan, p->plan_page, p->plan_window);
}

/* In histories by jobs, gate values of a hostile tenant do not count: see copy_is_held_up(). */
static void slot_resume(const struct world *w, struct w_proc *p, uint32_t s,
			struct mm_cycle_acts *acts)
{
	const struct w_cursor *cursor = &p->cursor[s];
	uint32_t before = mm_cycle_before(&p->cycles, s, cursor->pos);
	uint64_t gate = p->gate[mm_cycle_layer(&p->cycles, s, cursor->pos)];
	uint64_t previous = p->gate[mm_cycle_layer(&p->cycles, s, before)];

	if (p->hostile && !w->by_acts) {
		gate = MM_GATE_EMPTY;
		previous = 0;
	}
	mm_cycle_resume(&p->cycles, s, (enum mm_cursor_state)cursor->state, cursor->pos,
			(uint32_t)gate, (uint32_t)previous, acts);
}

static void cursors_serve(struct world *w, struct w_proc *p, const struct mm_cycle_plan *view)
{
	struct mm_cycle_seen seen[MM_CYCLES_MAX];
	uint32_t gate[W_GROUPS] = { 0 };
	struct mm_cycle_acts acts;

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		seen[c] = (struct mm_cycle_seen){ .epoch = p->cursor[c].epoch,
						  .state = p->cursor[c].state,
						  .pos = p->cursor[c].pos };
	for (uint32_t l = 0; l < view->n_layers; l++)
		gate[l] = (uint32_t)p->gate[l];
	mm_cycles_serve(&p->cycles, view, seen, gate, &acts);
	acts_perform(w, p, &acts);
}

/* Slots whose cursors are of this epoch continue there, the others begin with their first layer. */
static void plan_serve(struct world *w, struct w_proc *p)
{
	const struct mm_cycle_plan view = plan_take(p);
	struct mm_cycle_acts acts;

	if (view.cold.classes) {
		cursors_serve(w, p, &view);
		return;
	}
	mm_cycles_take_up(&p->cycles, &view);
	for (uint32_t s = 0; s < view.n_slots; s++) {
		const struct w_cursor *cursor = &p->cursor[s];

		if (mm_cycle_cursor_fits(&view, s, cursor->epoch, cursor->state, cursor->pos))
			slot_resume(w, p, s, &acts);
		else
			mm_cycle_begin(&p->cycles, s, &acts);
		if (!acts_perform(w, p, &acts))
			return;
	}
}

void w_slots_activate(struct world *w, struct w_proc *p, uint64_t epoch)
{
	mm_assert(epoch == p->region.epoch);
	for (uint32_t s = 0; s < p->region.beta; s++)
		mm_assert(p->cursor[s].epoch == epoch);
	for (uint32_t k = 0; k < p->region.cold.classes; k++)
		mm_assert(p->cursor[MM_CYCLE_CLASS(k)].epoch == epoch);
	if (!p->cycles.active)
		plan_serve(w, p);
	mm_assert(p->plan.epoch == epoch);
}

/*
 * In histories by jobs, an occupant that could stay is streamed again: their random numbers depend
 * on that.
 */
static void occupants_drop(struct world *w, struct w_proc *p, const struct mm_cycle_acts *acts)
{
	for (uint32_t i = 0; i < acts->n; i++) {
		struct mm_cycle_acts anew;
		uint32_t s = acts->act[i].cursor;

		if (acts->act[i].kind != MM_CYCLE_GATES ||
		    (i && acts->act[i - 1].kind == MM_CYCLE_NEW))
			continue;
		if (mm_cycle_copying(&p->cycles, s))
			copy_end(w, p, s, false);
		mm_cycle_begin(&p->cycles, s, &anew);
		acts_perform(w, p, &anew);
	}
}

static void plan_go_over(struct world *w, struct w_proc *p)
{
	const struct mm_cycle_plan next =
		plan_view(p, &p->region, p->region_page, p->region_window);
	struct mm_cycle_acts acts;
	int r;

	do {
		uint32_t gate[MM_CYCLES_MAX] = { 0 };

		for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
			if (mm_cycle_has(&p->cycles.plan, c))
				gate[c] = (uint32_t)p->gate[mm_cycle_layer(
					&p->cycles, c, p->cycles.cursor[c].pos)];
		r = mm_cycles_replan(&p->cycles, &next, gate, &acts);
		if (r == 0) {
			const struct mm_cycle_plan view = plan_take(p);

			mm_cycles_rebind(&p->cycles, &view);
		}
		if (!acts_perform(w, p, &acts))
			return;
	} while (r == -EINPROGRESS);
	if (!w->by_acts)
		occupants_drop(w, p, &acts);
}

void w_slots_replan(struct world *w, struct w_proc *p, uint64_t epoch)
{
	mm_assert(epoch == p->region.epoch && (p->hostile || w_is_parked(p)));
	w->replanning = true;
	if (!p->cycles.active)
		plan_serve(w, p);
	else if (p->plan.epoch != epoch)
		plan_go_over(w, p);
	w->replanning = false;
}

void w_slots_quiesce(struct world *w, struct w_proc *p)
{
	struct mm_cycle_acts acts;

	mm_cycles_quiesce(&p->cycles, &acts);
	acts_perform(w, p, &acts);
}

void w_slots_drop(struct w_proc *p)
{
	p->cycles = (struct mm_cycles){ 0 };
	memset(p->copy, 0, sizeof(p->copy));
}

void w_cuts_begin(struct world *w, uint64_t seed, uint64_t acts)
{
	w->by_acts = true;
	w->cut_rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 3;
	w->cut_each = acts;
	w->cut_in = cut_next(w);
}

void w_cuts_end(struct world *w)
{
	w->cut_in = 0;
}
