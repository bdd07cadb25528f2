/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/protocol/cycle.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"

static struct mm_cycle_act *act_add(struct mm_cycle_acts *acts, enum mm_cycle_act_kind kind,
				    uint32_t cursor, uint32_t pos)
{
	mm_assert(acts->n < MM_CYCLE_ACTS_MAX);
	acts->act[acts->n] = (struct mm_cycle_act){ .kind = kind, .cursor = cursor, .pos = pos };
	return &acts->act[acts->n++];
}

static void cursor_add(struct mm_cycle_acts *acts, uint32_t cursor, enum mm_cursor_state state,
		       uint32_t pos)
{
	act_add(acts, MM_CYCLE_CURSOR, cursor, pos)->word = state;
}

static void gate_add(struct mm_cycle_acts *acts, uint32_t cursor, uint32_t pos, uint64_t word)
{
	act_add(acts, MM_CYCLE_GATE, cursor, pos)->word = (uint32_t)word;
}

/* ---- layers ---- */

struct cycle_pair {
	uint32_t n, cursor[2];
};

/* The cursors that @layer waits for: of its slot, of its class. */
static struct cycle_pair layer_pair(const struct mm_cycles *m, uint32_t layer)
{
	struct cycle_pair pair = { 0 };

	if (m->slot_of[layer] < MM_SLOTS_MAX)
		pair.cursor[pair.n++] = m->slot_of[layer];
	if (m->plan.cold.classes > 0)
		pair.cursor[pair.n++] = MM_CYCLE_CLASS(layer % m->plan.cold.classes);
	return pair;
}

static bool cursor_is(const struct mm_cycles *m, uint32_t cursor, uint32_t layer,
		      enum mm_cycle_state state)
{
	const struct mm_cycle *c = &m->cursor[cursor];

	return c->state == state && mm_cycle_layer(m, cursor, c->pos) == layer;
}

/* Those of the pair that are at @layer, in @state. */
static struct cycle_pair layer_pair_in(const struct mm_cycles *m, uint32_t layer,
				       enum mm_cycle_state state)
{
	const struct cycle_pair pair = layer_pair(m, layer);
	struct cycle_pair in = { 0 };

	for (uint32_t i = 0; i < pair.n; i++)
		if (cursor_is(m, pair.cursor[i], layer, state))
			in.cursor[in.n++] = pair.cursor[i];
	return in;
}

static uint32_t cursor_layer(const struct mm_cycles *m, uint32_t cursor)
{
	return mm_cycle_layer(m, cursor, m->cursor[cursor].pos);
}

static bool layer_landed(const struct mm_cycles *m, uint32_t layer)
{
	return layer_pair_in(m, layer, MM_CYCLE_LANDED).n == layer_pair(m, layer).n;
}

/* True if the tenant may not use @layer yet. */
static bool layer_closed(const struct mm_cycles *m, uint32_t layer, uint64_t open)
{
	return m->plan.closed[layer / 64] >> layer % 64 & 1 &&
	       open < MM_XPLAN_OPEN(m->plan.epoch, layer + 1);
}

/*
 * READY first: after a kill in between, the cursors are COPYING and the gate not EMPTY, so READY is
 * not written again.
 */
static void layer_hand_over(struct mm_cycles *m, uint32_t layer, struct mm_cycle_acts *acts)
{
	const struct cycle_pair pair = layer_pair(m, layer);

	gate_add(acts, pair.cursor[0], m->cursor[pair.cursor[0]].pos, MM_GATE_READY);
	for (uint32_t i = 0; i < pair.n; i++) {
		struct mm_cycle *c = &m->cursor[pair.cursor[i]];

		c->state = MM_CYCLE_HELD;
		cursor_add(acts, pair.cursor[i], MM_CUR_HELD, c->pos);
	}
	for (uint32_t i = 0; i < pair.n; i++) {
		struct mm_cycle *c = &m->cursor[pair.cursor[i]];

		if (c->fresh)
			act_add(acts, MM_CYCLE_COUNT, pair.cursor[i], c->pos);
		c->fresh = false;
	}
}

static void layer_try(struct mm_cycles *m, uint32_t layer, uint64_t open,
		      struct mm_cycle_acts *acts)
{
	if (layer_landed(m, layer) && !layer_closed(m, layer, open))
		layer_hand_over(m, layer, acts);
}

static void layer_bring_in(struct mm_cycles *m, uint32_t cursor, struct mm_cycle_acts *acts)
{
	m->cursor[cursor].state = MM_CYCLE_COPYING;
	act_add(acts, MM_CYCLE_COPY, cursor, m->cursor[cursor].pos);
}

/* ---- looking ---- */

bool mm_cycle_complete(const struct mm_cycles *m, uint32_t cursor)
{
	return layer_landed(m, cursor_layer(m, cursor));
}

/* The intent comes first: a new driver that resumes from it on finds that the occupant is void. */
static void cursor_advance(struct mm_cycles *m, uint32_t cursor, struct mm_cycle_acts *acts)
{
	struct mm_cycle *c = &m->cursor[cursor];

	c->pos = (c->pos + 1) % mm_cycle_length(&m->plan, cursor);
	cursor_add(acts, cursor, MM_CUR_COPYING, c->pos);
}

void mm_cycle_saw_gate(struct mm_cycles *m, uint32_t cursor, uint32_t low,
		       struct mm_cycle_acts *ret_acts)
{
	const struct mm_cycle *c = &m->cursor[cursor];
	uint32_t used = c->pos;
	struct cycle_pair pair;

	mm_assert(m->active && !c->stopped && c->state == MM_CYCLE_HELD);
	ret_acts->n = 0;
	if (mm_cycle_gate_idle(low))
		return;
	pair = layer_pair_in(m, cursor_layer(m, cursor), MM_CYCLE_HELD);
	for (uint32_t i = 0; i < pair.n; i++)
		cursor_advance(m, pair.cursor[i], ret_acts);
	gate_add(ret_acts, cursor, used, MM_GATE_EMPTY);
	for (uint32_t i = 0; i < pair.n; i++)
		layer_bring_in(m, pair.cursor[i], ret_acts);
}

void mm_cycle_saw_open(struct mm_cycles *m, uint32_t cursor, uint64_t open,
		       struct mm_cycle_acts *ret_acts)
{
	const struct mm_cycle *c = &m->cursor[cursor];

	mm_assert(m->active && !c->stopped && c->state == MM_CYCLE_LANDED);
	ret_acts->n = 0;
	layer_try(m, cursor_layer(m, cursor), open, ret_acts);
}

void mm_cycle_copied(struct mm_cycles *m, uint32_t cursor, bool complete, uint64_t open,
		     struct mm_cycle_acts *ret_acts)
{
	struct mm_cycle *c = &m->cursor[cursor];

	mm_assert(mm_cycle_copying(m, cursor));
	ret_acts->n = 0;
	if (c->state == MM_CYCLE_DROPPED || !complete) {
		c->state = MM_CYCLE_VOID;
		return;
	}
	c->state = MM_CYCLE_LANDED;
	c->fresh = true;
	layer_try(m, cursor_layer(m, cursor), open, ret_acts);
}

/* ---- plans ---- */

bool mm_cycle_cursor_fits(const struct mm_cycle_plan *plan, uint32_t cursor, uint64_t epoch,
			  uint32_t state, uint32_t pos)
{
	return epoch == plan->epoch && state <= MM_CUR_COPYING &&
	       pos < mm_cycle_length(plan, cursor);
}

static void plan_assert(const struct mm_cycle_plan *plan)
{
	const struct mm_cycle_cold *cold = &plan->cold;

	mm_assert(plan->n_slots <= MM_SLOTS_MAX);
	for (uint32_t s = 0; s < plan->n_slots; s++)
		mm_assert(plan->slot[s].n_layers >= 2 && plan->slot[s].n_pages > 0);
	mm_assert(cold->classes == 0 ||
		  (cold->classes >= 2 && cold->classes <= MM_COLD_CLASSES_MAX &&
		   plan->n_layers >= 2 * cold->classes && plan->n_layers <= MM_LAYERS_MAX &&
		   cold->n_pages > 0 && cold->unit_bytes > 0));
}

static void cycles_set_plan(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	m->plan = *plan;
	memset(m->slot_of, MM_SLOTS_MAX, sizeof(m->slot_of));
	for (uint32_t s = 0; s < plan->n_slots; s++)
		for (uint32_t i = 0; i < plan->slot[s].n_layers; i++) {
			mm_assert(plan->slot[s].layer[i] < MM_LAYERS_MAX);
			m->slot_of[plan->slot[s].layer[i]] = (uint8_t)s;
		}
}

static void cycles_put_in_force(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	mm_assert(!m->active && !mm_cycles_copying(m));
	plan_assert(plan);
	*m = (struct mm_cycles){ .active = true };
	cycles_set_plan(m, plan);
}

void mm_cycles_take_up(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	mm_assert(plan->cold.classes == 0);
	cycles_put_in_force(m, plan);
}

void mm_cycle_resume(struct mm_cycles *m, uint32_t slot, enum mm_cursor_state state, uint32_t pos,
		     uint32_t gate, uint32_t previous, struct mm_cycle_acts *ret_acts)
{
	struct mm_cycle *c = &m->cursor[slot];

	mm_assert(m->active && m->plan.cold.classes == 0);
	mm_assert(c->state == MM_CYCLE_VOID && pos < m->plan.slot[slot].n_layers);
	ret_acts->n = 0;
	*c = (struct mm_cycle){ .state = MM_CYCLE_HELD, .pos = pos };
	act_add(ret_acts, MM_CYCLE_NEW, slot, pos);
	if (state == MM_CUR_HELD)
		return;
	if (gate != MM_GATE_EMPTY) {
		/*
		 * READY was written before the kill, and the layer may be used up by now: not
		 * again.
		 */
		cursor_add(ret_acts, slot, MM_CUR_HELD, pos);
		return;
	}
	if (previous & MM_GATE_DONE)
		gate_add(ret_acts, slot, mm_cycle_before(m, slot, pos), MM_GATE_EMPTY);
	layer_bring_in(m, slot, ret_acts);
}

/*
 * Gates first, then the cursor's position, then its epoch: after a kill before that, the slot
 * begins here again.
 */
static void slot_begin(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *acts)
{
	struct mm_cycle *c = &m->cursor[slot];
	bool held = c->state == MM_CYCLE_HELD;

	c->pos = 0;
	c->stopped = false;
	act_add(acts, MM_CYCLE_GATES, slot, 0)->word =
		(uint32_t)(held ? MM_GATE_READY : MM_GATE_EMPTY);
	cursor_add(acts, slot, held ? MM_CUR_HELD : MM_CUR_COPYING, 0);
	act_add(acts, MM_CYCLE_EPOCH, slot, 0);
	if (c->state == MM_CYCLE_VOID)
		layer_bring_in(m, slot, acts);
}

static void slot_begin_anew(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *acts)
{
	bool in_place = m->plan.slot[slot].in_place;

	m->cursor[slot] = (struct mm_cycle){ .state = in_place ? MM_CYCLE_HELD : MM_CYCLE_VOID };
	act_add(acts, MM_CYCLE_NEW, slot, 0);
	slot_begin(m, slot, acts);
}

void mm_cycle_begin(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *ret_acts)
{
	mm_assert(m->active && m->plan.cold.classes == 0 && !mm_cycle_copying(m, slot));
	ret_acts->n = 0;
	slot_begin_anew(m, slot, ret_acts);
}

/* ---- plans with cold blocks ---- */

/* The cursors that are to copy are VOID from here on. */
static void cursor_resume(struct mm_cycles *m, uint32_t cursor, const struct mm_cycle_seen *seen,
			  const uint32_t *gate, struct mm_cycle_acts *acts)
{
	struct mm_cycle *c = &m->cursor[cursor];

	*c = (struct mm_cycle){ .state = MM_CYCLE_HELD, .pos = seen->pos };
	if (seen->state == MM_CUR_HELD)
		return;
	if (gate[cursor_layer(m, cursor)] == MM_GATE_EMPTY)
		c->state = MM_CYCLE_VOID;
	else /* READY was written before the kill. */
		cursor_add(acts, cursor, MM_CUR_HELD, c->pos);
}

/*
 * Once READY was written, both cursors of a layer hold it before either leaves; and once either has
 * left, both have before the gate is EMPTY. So each of these loops ends before the next begins.
 */
static void cursors_resume(struct mm_cycles *m, const struct mm_cycle_seen *seen, const bool *fits,
			   const uint32_t *gate, struct mm_cycle_acts *acts)
{
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (fits[c])
			cursor_resume(m, c, &seen[c], gate, acts);
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		if (!fits[c] || m->cursor[c].state != MM_CYCLE_HELD ||
		    !(gate[cursor_layer(m, c)] & MM_GATE_DONE))
			continue;
		cursor_advance(m, c, acts);
		m->cursor[c].state = MM_CYCLE_VOID;
	}
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		uint32_t before;

		if (!fits[c] || m->cursor[c].state != MM_CYCLE_VOID)
			continue;
		before = mm_cycle_before(m, c, m->cursor[c].pos);
		if (gate[mm_cycle_layer(m, c, before)] & MM_GATE_DONE)
			gate_add(acts, c, before, MM_GATE_EMPTY);
	}
}

void mm_cycles_serve(struct mm_cycles *m, const struct mm_cycle_plan *plan,
		     const struct mm_cycle_seen seen[MM_CYCLES_MAX], const uint32_t *gate,
		     struct mm_cycle_acts *ret_acts)
{
	bool fits[MM_CYCLES_MAX] = { false }, fits_any = false;

	mm_assert(plan->cold.classes > 0);
	cycles_put_in_force(m, plan);
	ret_acts->n = 0;
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		fits[c] = mm_cycle_has(plan, c) &&
			  mm_cycle_cursor_fits(plan, c, seen[c].epoch, seen[c].state, seen[c].pos);
		fits_any |= fits[c];
		if (mm_cycle_has(plan, c))
			act_add(ret_acts, MM_CYCLE_NEW, c, 0);
	}
	/* Once a cursor has the epoch, they have been emptied; and may have been used since. */
	if (!fits_any)
		act_add(ret_acts, MM_CYCLE_GATES_ALL, 0, 0)->word = (uint32_t)MM_GATE_EMPTY;
	cursors_resume(m, seen, fits, gate, ret_acts);
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		if (!mm_cycle_has(plan, c) || m->cursor[c].state == MM_CYCLE_HELD)
			continue;
		/* The rows are chosen anew, as of now. */
		cursor_add(ret_acts, c, MM_CUR_COPYING, m->cursor[c].pos);
		if (!fits[c])
			act_add(ret_acts, MM_CYCLE_EPOCH, c, 0);
	}
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(plan, c) && m->cursor[c].state == MM_CYCLE_VOID)
			layer_bring_in(m, c, ret_acts);
}

/* ---- replan ---- */

static bool pages_equal(const struct mm_cycle_slot *a, const struct mm_cycle_slot *b)
{
	return a->n_pages == b->n_pages &&
	       memcmp(a->page, b->page, a->n_pages * sizeof(a->page[0])) == 0;
}

static bool layers_equal(const struct mm_cycle_slot *a, const struct mm_cycle_slot *b)
{
	return a->n_layers == b->n_layers &&
	       memcmp(a->layer, b->layer, a->n_layers * sizeof(a->layer[0])) == 0;
}

static bool windows_equal(const struct mm_cycle_plan *a, const struct mm_cycle_plan *b)
{
	return a->n_layers == b->n_layers && a->cold.classes == b->cold.classes &&
	       a->cold.unit_bytes == b->cold.unit_bytes && a->cold.n_pages == b->cold.n_pages &&
	       memcmp(a->cold.page, b->cold.page, a->cold.n_pages * sizeof(a->cold.page[0])) == 0;
}

/* True if what is in the place of @cursor, or on its way, may be of use under @next. */
static bool cursor_comparable(const struct mm_cycles *m, const struct mm_cycle_plan *next,
			      uint32_t cursor)
{
	const struct mm_cycle *c = &m->cursor[cursor];

	if (!mm_cycle_has(&m->plan, cursor) || !mm_cycle_has(next, cursor) ||
	    c->state == MM_CYCLE_VOID || c->state == MM_CYCLE_DROPPED)
		return false;
	if (mm_cycle_is_class(cursor))
		return windows_equal(&m->plan, next);
	return m->plan.store == next->store &&
	       pages_equal(&m->plan.slot[cursor], &next->slot[cursor]);
}

/* True if nothing about @slot changes. */
static bool slot_stays(const struct mm_cycles *m, const struct mm_cycle_plan *next, uint32_t slot)
{
	return cursor_comparable(m, next, slot) &&
	       layers_equal(&m->plan.slot[slot], &next->slot[slot]);
}

static bool cursor_in_place(const struct mm_cycle_plan *plan, uint32_t cursor)
{
	return plan->cold.classes == 0 && plan->slot[cursor].in_place;
}

/* True if the layer that is there, or on its way, is the one that the next step needs first. */
static bool occupant_stays(const struct mm_cycles *m, const struct mm_cycle_plan *next,
			   uint32_t cursor, uint32_t gate)
{
	return cursor_comparable(m, next, cursor) && !cursor_in_place(next, cursor) &&
	       cursor_layer(m, cursor) == mm_cycle_layer_of(next, cursor, 0) &&
	       (m->cursor[cursor].state != MM_CYCLE_HELD || gate == MM_GATE_READY);
}

/* True if every cursor begins at its first layer under @next. */
static bool plan_anew(const struct mm_cycles *m, const struct mm_cycle_plan *next)
{
	return m->plan.cold.classes > 0 || next->cold.classes > 0;
}

/* False: a copy is under way that is of no use under @next. */
static bool cursors_stop(struct mm_cycles *m, const struct mm_cycle_plan *next,
			 const uint32_t *gate, struct mm_cycle_acts *acts)
{
	bool still = true;

	for (uint32_t s = 0; s < MM_CYCLES_MAX; s++) {
		struct mm_cycle *c = &m->cursor[s];

		if (!mm_cycle_has(&m->plan, s) || (!plan_anew(m, next) && slot_stays(m, next, s)))
			continue;
		c->stopped = true;
		if (!mm_cycle_copying(m, s) || occupant_stays(m, next, s, gate[s]))
			continue;
		still = false;
		if (c->state == MM_CYCLE_DROPPED)
			continue;
		c->state = MM_CYCLE_DROPPED;
		act_add(acts, MM_CYCLE_CANCEL, s, c->pos);
	}
	return still;
}

static void slots_go_over(struct mm_cycles *m, const struct mm_cycle_plan *next,
			  const uint32_t *gate, struct mm_cycle_acts *acts)
{
	bool stays[MM_SLOTS_MAX], occupied[MM_SLOTS_MAX];

	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		stays[s] = slot_stays(m, next, s);
		occupied[s] = occupant_stays(m, next, s, gate[s]);
	}
	cycles_set_plan(m, next);
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		if (s >= next->n_slots) {
			m->cursor[s] = (struct mm_cycle){ 0 };
		} else if (stays[s]) {
			m->cursor[s].stopped = false;
			act_add(acts, MM_CYCLE_EPOCH, s, m->cursor[s].pos);
		} else if (occupied[s]) {
			slot_begin(m, s, acts);
		} else {
			slot_begin_anew(m, s, acts);
		}
	}
}

/* Begins @cursor at its first layer, with what is there if @occupied; no copy, no READY yet. */
static void cursor_go_over(struct mm_cycles *m, uint32_t cursor, bool occupied,
			   struct mm_cycle_acts *acts)
{
	struct mm_cycle *c = &m->cursor[cursor];
	bool keeps = occupied && mm_cycle_is_class(cursor);

	if (!occupied) {
		bool in_place = cursor_in_place(&m->plan, cursor);

		*c = (struct mm_cycle){ .state = in_place ? MM_CYCLE_LANDED : MM_CYCLE_VOID };
		act_add(acts, MM_CYCLE_NEW, cursor, 0);
	} else if (c->state == MM_CYCLE_HELD) {
		c->state = MM_CYCLE_LANDED;
	}
	c->pos = 0;
	c->stopped = false;
	act_add(acts, keeps ? MM_CYCLE_KEEP : MM_CYCLE_CURSOR, cursor, 0)->word = MM_CUR_COPYING;
	act_add(acts, MM_CYCLE_EPOCH, cursor, 0);
}

/*
 * READY comes behind the last epoch. So a kill finds a cursor of the old epoch, which begins, and
 * none whose layer was handed over; or all cursors of the new one.
 */
static void cursors_go_over(struct mm_cycles *m, const struct mm_cycle_plan *next,
			    const uint32_t *gate, struct mm_cycle_acts *acts)
{
	bool occupied[MM_CYCLES_MAX];

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		occupied[c] = occupant_stays(m, next, c, gate[c]);
	cycles_set_plan(m, next);
	act_add(acts, MM_CYCLE_GATES_ALL, 0, 0)->word = (uint32_t)MM_GATE_EMPTY;
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		if (mm_cycle_has(next, c))
			cursor_go_over(m, c, occupied[c], acts);
		else
			m->cursor[c] = (struct mm_cycle){ 0 };
	}
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		if (!mm_cycle_has(next, c))
			continue;
		if (m->cursor[c].state == MM_CYCLE_VOID)
			layer_bring_in(m, c, acts);
		else if (m->cursor[c].state == MM_CYCLE_LANDED)
			layer_try(m, cursor_layer(m, c), 0, acts);
	}
}

int mm_cycles_replan(struct mm_cycles *m, const struct mm_cycle_plan *next,
		     const uint32_t gate[MM_CYCLES_MAX], struct mm_cycle_acts *ret_acts)
{
	mm_assert(m->active && next->epoch > m->plan.epoch);
	plan_assert(next);
	ret_acts->n = 0;
	if (!cursors_stop(m, next, gate, ret_acts))
		return -EINPROGRESS;
	if (plan_anew(m, next))
		cursors_go_over(m, next, gate, ret_acts);
	else
		slots_go_over(m, next, gate, ret_acts);
	return 0;
}

void mm_cycles_rebind(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	mm_assert(m->active && plan->epoch == m->plan.epoch && plan->n_slots == m->plan.n_slots);
	for (uint32_t s = 0; s < plan->n_slots; s++)
		mm_assert(layers_equal(&plan->slot[s], &m->plan.slot[s]) &&
			  pages_equal(&plan->slot[s], &m->plan.slot[s]));
	mm_assert(plan->cold.classes == m->plan.cold.classes);
	mm_assert(plan->cold.classes == 0 || windows_equal(plan, &m->plan));
	m->plan = *plan;
}

void mm_cycles_quiesce(struct mm_cycles *m, struct mm_cycle_acts *ret_acts)
{
	m->active = false;
	ret_acts->n = 0;
	for (uint32_t s = 0; s < MM_CYCLES_MAX; s++) {
		if (m->cursor[s].state != MM_CYCLE_COPYING)
			continue;
		m->cursor[s].state = MM_CYCLE_DROPPED;
		act_add(ret_acts, MM_CYCLE_CANCEL, s, m->cursor[s].pos);
	}
}

bool mm_cycles_copying(const struct mm_cycles *m)
{
	for (uint32_t s = 0; s < MM_CYCLES_MAX; s++)
		if (mm_cycle_copying(m, s))
			return true;
	return false;
}
