/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_cycles - the slots of one tenant's plan: which layer is in each, and which comes next
 *
 * Concept:    A pure machine. It is told what was seen (the word of a gate, the end of a copy, a
 *             plan) and returns what is to be done, in order: struct mm_cycle_acts. It reads its
 *             own memory and the plan, and writes its own. Its driver has the gates, the cursors
 *             and the copies: mmd/xfer (shared memory and the device), tools/lab/mmsim and
 *             tests/sim (virtual time).
 * Acts:       the driver performs the acts of a call one after the other, before it makes another
 *             call; but it may report the end of a copy while it performs MM_CYCLE_CANCEL. That
 *             call has acts of its own, so acts lie with the caller. A driver that keeps something
 *             per slot drops it on MM_CYCLE_NEW.
 * Kills:      a driver may die between any two acts. What is left are the gates and the cursors;
 *             the order of the acts is what lets mm_cycle_resume() go on from there
 *             (Documentation/protocol.md).
 * Plans:      views: the lists of layers and pages are the driver's, and stay where they are and as
 *             they are while the plan is in force. A copy that goes on over a replan reads the page
 *             list that it was begun with, so the driver copies the next plan over the old one and
 *             says so (mm_cycles_rebind()); it never swaps two buffers.
 * Not here:   time, statistics, how a copy is made.
 * Threading:  none of its own: one caller at a time.
 * Invariants: plans and calls are our own and asserted. A gate's word is the tenant's claim: any
 *             word is taken, and leads to nothing but acts on this tenant's slots.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/protocol/xplan.h"

struct mm_cycle_slot {
	const uint16_t *layer; /* in order of execution */
	const uint32_t *page;
	uint32_t n_layers, n_pages;
	bool in_place; /* a new slot, in which layer[0] is already */
};

struct mm_cycle_plan {
	uint64_t epoch, store;
	const uint64_t *closed; /* a bit per layer: no READY before the tenant has mapped it */
	uint32_t n_slots;
	struct mm_cycle_slot slot[MM_SLOTS_MAX];
};

enum mm_cycle_state {
	MM_CYCLE_VOID, /* not begun, or the copy was dropped or failed: nobody may run on it */
	MM_CYCLE_HELD, /* layer[pos] is in the slot; its gate says what the tenant does with it */
	MM_CYCLE_COPYING, /* layer[pos] is being brought in */
	MM_CYCLE_DROPPED, /* that copy was cancelled, its end not reported yet */
	MM_CYCLE_LANDED,  /* layer[pos] is in, but closed: no READY yet */
};

struct mm_cycle { /* a slot */
	enum mm_cycle_state state;
	uint32_t pos;
	bool stopped; /* a replan waits: nothing is begun */
};

struct mm_cycles {
	bool active; /* the plan is served */
	struct mm_cycle_plan plan;
	struct mm_cycle slot[MM_SLOTS_MAX];
};

/* Each is an act on @slot. */
enum mm_cycle_act_kind {
	MM_CYCLE_NEW, /* what the driver keeps of the slot is void; no copy into it is under way */
	MM_CYCLE_CURSOR, /* state (enum mm_cursor_state, in @word) and pos of the cursor: one store, release */
	MM_CYCLE_EPOCH, /* of the cursor := the plan's; release */
	MM_CYCLE_GATE,  /* low half of the gate of layer[pos] := @word; release */
	MM_CYCLE_GATES, /* of all layers of the slot := EMPTY, then of layer[0] := @word; release */
	MM_CYCLE_COPY,  /* begin to bring layer[pos] in */
	MM_CYCLE_CANCEL, /* the copy under way; its end is reported all the same, now or later */
	MM_CYCLE_COUNT,  /* layer[pos] was streamed in and handed over */
};

struct mm_cycle_act {
	enum mm_cycle_act_kind kind;
	uint32_t slot, pos;
	uint32_t word;
};

#define MM_CYCLE_ACTS_MAX (5 * MM_SLOTS_MAX)

struct mm_cycle_acts {
	uint32_t n;
	struct mm_cycle_act act[MM_CYCLE_ACTS_MAX];
};

/* The layer at a position of a slot: of an act, of the slot itself. */
static inline uint32_t mm_cycle_layer(const struct mm_cycles *m, uint32_t slot, uint32_t pos)
{
	return m->plan.slot[slot].layer[pos];
}

/* The position whose layer leaves the slot as that of @pos comes in. */
static inline uint32_t mm_cycle_before(const struct mm_cycles *m, uint32_t slot, uint32_t pos)
{
	uint32_t n_layers = m->plan.slot[slot].n_layers;

	return (pos + n_layers - 1) % n_layers;
}

/* ---- looking ---- */

enum mm_cycle_look {
	MM_CYCLE_LOOK_NOWHERE, /* nothing is waited for, or the end of a copy */
	MM_CYCLE_LOOK_GATE,    /* low half of a gate; acquire */
	MM_CYCLE_LOOK_OPEN,    /* the plan's open word; acquire */
};

/* Tells what a slot waits for. @ret_layer: whose gate; written for LOOK_GATE alone. */
static inline enum mm_cycle_look mm_cycle_look(const struct mm_cycles *m, uint32_t slot,
					       uint32_t *ret_layer)
{
	const struct mm_cycle *c = &m->slot[slot];

	if (!m->active || c->stopped)
		return MM_CYCLE_LOOK_NOWHERE;
	switch (c->state) {
	case MM_CYCLE_HELD:
		*ret_layer = mm_cycle_layer(m, slot, c->pos);
		return MM_CYCLE_LOOK_GATE;
	case MM_CYCLE_LANDED:
		return MM_CYCLE_LOOK_OPEN;
	case MM_CYCLE_VOID:
	case MM_CYCLE_COPYING:
	case MM_CYCLE_DROPPED:
		break;
	}
	return MM_CYCLE_LOOK_NOWHERE;
}

/*
 * Does nothing follow from this word of a gate? Who looks often need not ask mm_cycle_saw_gate()
 * then.
 */
static inline bool mm_cycle_gate_idle(uint32_t low)
{
	return !(low & MM_GATE_DONE);
}

/* The low half of the gate that mm_cycle_look() names. No acts: nothing is to be done yet. */
void mm_cycle_saw_gate(struct mm_cycles *m, uint32_t slot, uint32_t low,
		       struct mm_cycle_acts *ret_acts);

/* The open word (MM_XPLAN_OPEN()) that mm_cycle_look() asks for. */
void mm_cycle_saw_open(struct mm_cycles *m, uint32_t slot, uint64_t open,
		       struct mm_cycle_acts *ret_acts);

/**
 * mm_cycle_copied() - a copy has ended
 * @complete: all bytes are there; else it was cancelled, or it failed
 * @open:     the open word, read after the end was seen
 */
void mm_cycle_copied(struct mm_cycles *m, uint32_t slot, bool complete, uint64_t open,
		     struct mm_cycle_acts *ret_acts);

/* ---- plans ---- */

/* May slot @slot of @plan be resumed from a cursor that says this? */
bool mm_cycle_cursor_fits(const struct mm_cycle_plan *plan, uint32_t slot, uint64_t epoch,
			  uint32_t state, uint32_t pos);

/*
 * @plan is in force; then each of its slots is resumed or begun. None was, and no copy is under
 * way.
 */
void mm_cycles_take_up(struct mm_cycles *m, const struct mm_cycle_plan *plan);

/**
 * mm_cycle_resume() - go on from a cursor that fits
 * @gate:     low half of the gate of layer[pos]
 * @previous: of the layer before it; read after @gate
 */
void mm_cycle_resume(struct mm_cycles *m, uint32_t slot, enum mm_cursor_state state, uint32_t pos,
		     uint32_t gate, uint32_t previous, struct mm_cycle_acts *ret_acts);

/* At the first layer, whatever the cursor says. */
void mm_cycle_begin(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *ret_acts);

/**
 * mm_cycles_replan() - from the plan in force to the next
 * @next: of a later epoch; the tenant is parked and uses no layer of its slots
 * @gate: for each slot of the plan in force, low half of the gate at its position
 *
 * A slot whose pages and layers stay goes on as it is. Else nothing may be on its way into it,
 * unless it is the first layer that is needed, on the same pages; then it begins at its first
 * layer.
 *
 * Return: 0: @next is in force. The driver moves it, says so (mm_cycles_rebind()), and performs
 * @ret_acts. -EINPROGRESS: copies into slots that change must end first. The driver performs
 * @ret_acts and asks again: at once if there were any, else when a copy has ended.
 */
int mm_cycles_replan(struct mm_cycles *m, const struct mm_cycle_plan *next,
		     const uint32_t gate[MM_SLOTS_MAX], struct mm_cycle_acts *ret_acts);

/* @plan is the plan in force, where it stays. */
void mm_cycles_rebind(struct mm_cycles *m, const struct mm_cycle_plan *plan);

/*
 * The plan is not served any more: no gate and no cursor is written, copies under way are dropped.
 */
void mm_cycles_quiesce(struct mm_cycles *m, struct mm_cycle_acts *ret_acts);

static inline bool mm_cycle_copying(const struct mm_cycles *m, uint32_t slot)
{
	return m->slot[slot].state == MM_CYCLE_COPYING || m->slot[slot].state == MM_CYCLE_DROPPED;
}

/* Is the end of any copy still to be reported? */
bool mm_cycles_copying(const struct mm_cycles *m);
