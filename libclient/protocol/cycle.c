/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/protocol/cycle.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"

static struct mm_cycle_act *act_add(struct mm_cycle_acts *acts, enum mm_cycle_act_kind kind,
				    uint32_t slot, uint32_t pos)
{
	mm_assert(acts->n < MM_CYCLE_ACTS_MAX);
	acts->act[acts->n] = (struct mm_cycle_act){ .kind = kind, .slot = slot, .pos = pos };
	return &acts->act[acts->n++];
}

static void cursor_add(struct mm_cycle_acts *acts, uint32_t slot, enum mm_cursor_state state,
		       uint32_t pos)
{
	act_add(acts, MM_CYCLE_CURSOR, slot, pos)->word = state;
}

static void gate_add(struct mm_cycle_acts *acts, uint32_t slot, uint32_t pos, uint64_t word)
{
	act_add(acts, MM_CYCLE_GATE, slot, pos)->word = (uint32_t)word;
}

/* ---- looking ---- */

/* True if the tenant may not use the layer at the slot's position yet. */
static bool layer_closed(const struct mm_cycles *m, uint32_t slot, uint64_t open)
{
	uint32_t layer = mm_cycle_layer(m, slot, m->slot[slot].pos);

	return m->plan.closed[layer / 64] >> layer % 64 & 1 &&
	       open < MM_XPLAN_OPEN(m->plan.epoch, layer + 1);
}

/*
 * READY first: after a kill in between, the cursor is COPYING and the gate not EMPTY, so READY is
 * not written again.
 */
static void layer_hand_over(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *acts)
{
	struct mm_cycle *c = &m->slot[slot];

	c->state = MM_CYCLE_HELD;
	gate_add(acts, slot, c->pos, MM_GATE_READY);
	cursor_add(acts, slot, MM_CUR_HELD, c->pos);
	act_add(acts, MM_CYCLE_COUNT, slot, c->pos);
}

static void layer_bring_in(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *acts)
{
	m->slot[slot].state = MM_CYCLE_COPYING;
	act_add(acts, MM_CYCLE_COPY, slot, m->slot[slot].pos);
}

void mm_cycle_saw_gate(struct mm_cycles *m, uint32_t slot, uint32_t low,
		       struct mm_cycle_acts *ret_acts)
{
	struct mm_cycle *c = &m->slot[slot];
	uint32_t used = c->pos;

	mm_assert(m->active && !c->stopped && c->state == MM_CYCLE_HELD);
	ret_acts->n = 0;
	if (mm_cycle_gate_idle(low))
		return;
	c->pos = (used + 1) % m->plan.slot[slot].n_layers;
	/* Intent first: a new driver that resumes from here on finds that the occupant is void. */
	cursor_add(ret_acts, slot, MM_CUR_COPYING, c->pos);
	gate_add(ret_acts, slot, used, MM_GATE_EMPTY);
	layer_bring_in(m, slot, ret_acts);
}

void mm_cycle_saw_open(struct mm_cycles *m, uint32_t slot, uint64_t open,
		       struct mm_cycle_acts *ret_acts)
{
	const struct mm_cycle *c = &m->slot[slot];

	mm_assert(m->active && !c->stopped && c->state == MM_CYCLE_LANDED);
	ret_acts->n = 0;
	if (!layer_closed(m, slot, open))
		layer_hand_over(m, slot, ret_acts);
}

void mm_cycle_copied(struct mm_cycles *m, uint32_t slot, bool complete, uint64_t open,
		     struct mm_cycle_acts *ret_acts)
{
	struct mm_cycle *c = &m->slot[slot];

	mm_assert(mm_cycle_copying(m, slot));
	ret_acts->n = 0;
	if (c->state == MM_CYCLE_DROPPED || !complete)
		c->state = MM_CYCLE_VOID;
	else if (layer_closed(m, slot, open))
		c->state = MM_CYCLE_LANDED;
	else
		layer_hand_over(m, slot, ret_acts);
}

/* ---- plans ---- */

bool mm_cycle_cursor_fits(const struct mm_cycle_plan *plan, uint32_t slot, uint64_t epoch,
			  uint32_t state, uint32_t pos)
{
	return epoch == plan->epoch && state <= MM_CUR_COPYING && pos < plan->slot[slot].n_layers;
}

static void plan_assert(const struct mm_cycle_plan *plan)
{
	mm_assert(plan->n_slots <= MM_SLOTS_MAX);
	for (uint32_t s = 0; s < plan->n_slots; s++)
		mm_assert(plan->slot[s].n_layers >= 2 && plan->slot[s].n_pages > 0);
}

void mm_cycles_take_up(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	mm_assert(!m->active && !mm_cycles_copying(m));
	plan_assert(plan);
	*m = (struct mm_cycles){ .active = true, .plan = *plan };
}

void mm_cycle_resume(struct mm_cycles *m, uint32_t slot, enum mm_cursor_state state, uint32_t pos,
		     uint32_t gate, uint32_t previous, struct mm_cycle_acts *ret_acts)
{
	struct mm_cycle *c = &m->slot[slot];

	mm_assert(m->active && c->state == MM_CYCLE_VOID && pos < m->plan.slot[slot].n_layers);
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
	struct mm_cycle *c = &m->slot[slot];
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

	m->slot[slot] = (struct mm_cycle){ .state = in_place ? MM_CYCLE_HELD : MM_CYCLE_VOID };
	act_add(acts, MM_CYCLE_NEW, slot, 0);
	slot_begin(m, slot, acts);
}

void mm_cycle_begin(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *ret_acts)
{
	mm_assert(m->active && !mm_cycle_copying(m, slot));
	ret_acts->n = 0;
	slot_begin_anew(m, slot, ret_acts);
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

/* True if the occupant of @slot, or the layer on its way, may be of use under @next. */
static bool slot_comparable(const struct mm_cycles *m, const struct mm_cycle_plan *next,
			    uint32_t slot)
{
	const struct mm_cycle *c = &m->slot[slot];

	return slot < m->plan.n_slots && slot < next->n_slots && m->plan.store == next->store &&
	       c->state != MM_CYCLE_VOID && c->state != MM_CYCLE_DROPPED &&
	       pages_equal(&m->plan.slot[slot], &next->slot[slot]);
}

/* True if nothing about @slot changes. */
static bool slot_stays(const struct mm_cycles *m, const struct mm_cycle_plan *next, uint32_t slot)
{
	return slot_comparable(m, next, slot) &&
	       layers_equal(&m->plan.slot[slot], &next->slot[slot]);
}

/*
 * True if the layer that is in the slot, or on its way, is the one that the next step needs first.
 */
static bool occupant_stays(const struct mm_cycles *m, const struct mm_cycle_plan *next,
			   uint32_t slot, uint32_t gate)
{
	const struct mm_cycle *c = &m->slot[slot];

	return slot_comparable(m, next, slot) && !next->slot[slot].in_place &&
	       mm_cycle_layer(m, slot, c->pos) == next->slot[slot].layer[0] &&
	       (c->state != MM_CYCLE_HELD || gate == MM_GATE_READY);
}

/* False: a copy is under way into a slot that changes. */
static bool slots_stop(struct mm_cycles *m, const struct mm_cycle_plan *next, const uint32_t *gate,
		       struct mm_cycle_acts *acts)
{
	bool still = true;

	for (uint32_t s = 0; s < m->plan.n_slots; s++) {
		struct mm_cycle *c = &m->slot[s];

		if (slot_stays(m, next, s))
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
	m->plan = *next;
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		if (s >= next->n_slots) {
			m->slot[s] = (struct mm_cycle){ 0 };
		} else if (stays[s]) {
			m->slot[s].stopped = false;
			act_add(acts, MM_CYCLE_EPOCH, s, m->slot[s].pos);
		} else if (occupied[s]) {
			slot_begin(m, s, acts);
		} else {
			slot_begin_anew(m, s, acts);
		}
	}
}

int mm_cycles_replan(struct mm_cycles *m, const struct mm_cycle_plan *next,
		     const uint32_t gate[MM_SLOTS_MAX], struct mm_cycle_acts *ret_acts)
{
	mm_assert(m->active && next->epoch > m->plan.epoch);
	plan_assert(next);
	ret_acts->n = 0;
	if (!slots_stop(m, next, gate, ret_acts))
		return -EINPROGRESS;
	slots_go_over(m, next, gate, ret_acts);
	return 0;
}

void mm_cycles_rebind(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	mm_assert(m->active && plan->epoch == m->plan.epoch && plan->n_slots == m->plan.n_slots);
	for (uint32_t s = 0; s < plan->n_slots; s++)
		mm_assert(layers_equal(&plan->slot[s], &m->plan.slot[s]) &&
			  pages_equal(&plan->slot[s], &m->plan.slot[s]));
	m->plan = *plan;
}

void mm_cycles_quiesce(struct mm_cycles *m, struct mm_cycle_acts *ret_acts)
{
	m->active = false;
	ret_acts->n = 0;
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		if (m->slot[s].state != MM_CYCLE_COPYING)
			continue;
		m->slot[s].state = MM_CYCLE_DROPPED;
		act_add(ret_acts, MM_CYCLE_CANCEL, s, m->slot[s].pos);
	}
}

bool mm_cycles_copying(const struct mm_cycles *m)
{
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		if (mm_cycle_copying(m, s))
			return true;
	return false;
}
