/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_cycles - the slots of one tenant's plan: which layer is in each, and which comes next
 *
 * Concept:    A pure machine. A call passes in what was seen (the word of a gate, the end of a
 *             copy, a plan) and returns what is to be done, in order: struct mm_cycle_acts. The
 *             machine reads its own memory and the plan, and writes its own. Its driver has the
 *             gates, the cursors and the copies: mmd/xfer (shared memory and the device),
 *             tools/lab/mmsim and tests/sim (virtual time).
 * Acts:       the driver performs the acts of a call one after the other, before it makes another
 *             call; but it may report the end of a copy while it performs MM_CYCLE_CANCEL. That
 *             report has acts of its own, so the caller has the memory for acts. A driver that
 *             keeps state of its own per slot drops it on MM_CYCLE_NEW.
 * Kills:      a driver may die between any two acts. The gates and the cursors remain; the order of
 *             the acts lets mm_cycle_resume() go on from there (Documentation/protocol.md;
 *             tests/model/gates.pml has a slot with all kills).
 * Plans:      a plan here is a view: its lists of layers and pages are the driver's, and neither
 *             move nor change while the plan is in force. A copy that goes on over a replan reads
 *             the page list that it was begun with, so the driver copies the next plan over the old
 *             one and calls mm_cycles_rebind(); it never swaps two buffers.
 * Not here:   time, statistics, how a copy is made.
 * Ownership:  the driver owns struct mm_cycles; it holds no memory of its own.
 * Threading:  none of its own: one caller at a time.
 * Invariants: plans and the order of calls are mmd's own and asserted. A gate's word is the
 *             tenant's claim: any word is accepted, and causes acts on this tenant's slots only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/protocol/xplan.h"

struct mm_cycle_slot {
	const uint16_t *layer; /* in order of execution */
	const uint32_t *page;
	uint32_t n_layers, n_pages;
	bool in_place; /* a new slot that has layer[0] in it already */
};

struct mm_cycle_plan {
	uint64_t epoch, store;
	/* one bit per layer: set = no READY before the tenant has mapped it */
	const uint64_t *closed;
	uint32_t n_slots;
	struct mm_cycle_slot slot[MM_SLOTS_MAX];
};

enum mm_cycle_state {
	MM_CYCLE_VOID, /* not begun, or the copy was dropped or failed: no step may run on it */
	MM_CYCLE_HELD, /* layer[pos] is in the slot; its gate shows how far the tenant is with it */
	MM_CYCLE_COPYING, /* layer[pos] is being copied in */
	MM_CYCLE_DROPPED, /* the copy of layer[pos] was cancelled, its end not reported yet */
	MM_CYCLE_LANDED,  /* layer[pos] is in the slot, but closed: no READY yet */
};

/* A slot. */
struct mm_cycle {
	enum mm_cycle_state state;
	uint32_t pos;
	bool stopped; /* a replan waits: no copy begins */
};

struct mm_cycles {
	bool active; /* the plan is served */
	struct mm_cycle_plan plan;
	struct mm_cycle slot[MM_SLOTS_MAX];
};

/* Each act is on @slot of struct mm_cycle_act. */
enum mm_cycle_act_kind {
	MM_CYCLE_NEW, /* drop the driver's state of the slot; no copy into it is under way */
	/*
	 * write state (enum mm_cursor_state, in @word) and pos of the cursor in one store; release
	 */
	MM_CYCLE_CURSOR,
	MM_CYCLE_EPOCH, /* write the plan's epoch into the cursor; release */
	MM_CYCLE_GATE,  /* write @word into the low half of the gate of layer[pos]; release */
	/*
	 * write EMPTY into the gates of all layers of the slot, then @word into layer[0]'s; release
	 */
	MM_CYCLE_GATES,
	MM_CYCLE_COPY, /* begin to copy layer[pos] in */
	/* cancel the copy under way; its end is reported all the same, now or later */
	MM_CYCLE_CANCEL,
	MM_CYCLE_COUNT, /* count a layer that was streamed in and handed over: layer[pos] */
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

/* The layer at position @pos of @slot. */
static inline uint32_t mm_cycle_layer(const struct mm_cycles *m, uint32_t slot, uint32_t pos)
{
	return m->plan.slot[slot].layer[pos];
}

/* The position of the layer that leaves the slot when that of @pos is copied in. */
static inline uint32_t mm_cycle_before(const struct mm_cycles *m, uint32_t slot, uint32_t pos)
{
	uint32_t n_layers = m->plan.slot[slot].n_layers;

	return (pos + n_layers - 1) % n_layers;
}

/* ---- looking ---- */

enum mm_cycle_look {
	/* nothing to look at: the slot is idle or waits for the end of a copy */
	MM_CYCLE_LOOK_NOWHERE,
	MM_CYCLE_LOOK_GATE, /* the low half of a gate; acquire */
	MM_CYCLE_LOOK_OPEN, /* the plan's open word; acquire */
};

/* Returns what @slot waits for. @ret_layer: the layer of the gate; written for LOOK_GATE only. */
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
 * True if mm_cycle_saw_gate() would return no acts for this word of a gate, so that a driver that
 * polls often need not call it.
 */
static inline bool mm_cycle_gate_idle(uint32_t low)
{
	return !(low & MM_GATE_DONE);
}

/* @low: low half of the gate that mm_cycle_look() named. No acts: nothing is to be done yet. */
void mm_cycle_saw_gate(struct mm_cycles *m, uint32_t slot, uint32_t low,
		       struct mm_cycle_acts *ret_acts);

/* @open: the open word (MM_XPLAN_OPEN()), when mm_cycle_look() returned LOOK_OPEN. */
void mm_cycle_saw_open(struct mm_cycles *m, uint32_t slot, uint64_t open,
		       struct mm_cycle_acts *ret_acts);

/**
 * mm_cycle_copied() - a copy has ended
 * @complete: all bytes are there; else the copy was cancelled or failed
 * @open:     the open word, read after the end of the copy was seen
 */
void mm_cycle_copied(struct mm_cycles *m, uint32_t slot, bool complete, uint64_t open,
		     struct mm_cycle_acts *ret_acts);

/* ---- plans ---- */

/* True if slot @slot of @plan can be resumed from a cursor with these values. */
bool mm_cycle_cursor_fits(const struct mm_cycle_plan *plan, uint32_t slot, uint64_t epoch,
			  uint32_t state, uint32_t pos);

/*
 * Puts @plan in force; the driver then resumes or begins each of its slots. No plan may be active
 * and no copy under way.
 */
void mm_cycles_take_up(struct mm_cycles *m, const struct mm_cycle_plan *plan);

/**
 * mm_cycle_resume() - go on in a slot from its cursor, which fits
 * @gate:     low half of the gate of layer[pos]
 * @previous: low half of the gate of the layer before it; read after @gate
 */
void mm_cycle_resume(struct mm_cycles *m, uint32_t slot, enum mm_cursor_state state, uint32_t pos,
		     uint32_t gate, uint32_t previous, struct mm_cycle_acts *ret_acts);

/* Begins the slot at its first layer, whatever its cursor says. */
void mm_cycle_begin(struct mm_cycles *m, uint32_t slot, struct mm_cycle_acts *ret_acts);

/**
 * mm_cycles_replan() - change from the plan in force to the next
 * @next: of a later epoch; the tenant is parked and uses no layer of its slots
 * @gate: for each slot of the plan in force, low half of the gate at its position
 *
 * A slot that keeps its pages and layers goes on. The copy into any other slot must end first,
 * unless it brings the layer that the next step needs first to the same pages; then the slot begins
 * at its first layer.
 *
 * Return: 0: @next is in force. The driver moves it, calls mm_cycles_rebind(), and performs
 * @ret_acts. -EINPROGRESS: copies into slots that change must end first. The driver performs
 * @ret_acts and calls again: at once if there were any, else when a copy has ended.
 */
int mm_cycles_replan(struct mm_cycles *m, const struct mm_cycle_plan *next,
		     const uint32_t gate[MM_SLOTS_MAX], struct mm_cycle_acts *ret_acts);

/* @plan is the plan in force, at the place where it stays. */
void mm_cycles_rebind(struct mm_cycles *m, const struct mm_cycle_plan *plan);

/*
 * The plan is no longer served: no gate and no cursor is written, copies under way are cancelled.
 */
void mm_cycles_quiesce(struct mm_cycles *m, struct mm_cycle_acts *ret_acts);

static inline bool mm_cycle_copying(const struct mm_cycles *m, uint32_t slot)
{
	return m->slot[slot].state == MM_CYCLE_COPYING || m->slot[slot].state == MM_CYCLE_DROPPED;
}

/* True while the end of any copy is still to be reported. */
bool mm_cycles_copying(const struct mm_cycles *m);
