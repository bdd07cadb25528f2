/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_cycles - the cursors of one tenant's plan: which layer is where, and which comes next
 *
 * Concept:    A pure machine. A call passes in what was seen (the word of a gate, the end of a
 *             copy, a plan) and returns what is to be done, in order: struct mm_cycle_acts. The
 *             machine reads its own memory and the plan, and writes its own. Its driver has the
 *             gates, the cursors and the copies: mmd/xfer (shared memory and the device),
 *             tools/lab/mmsim and tests/sim (virtual time).
 * Cursors:    one per slot: whose weights are in it; while cold blocks are streamed, one more per
 *             class: for which of its layers the rows of cold blocks are in the window. A layer may
 *             wait for two cursors then. It gets READY when both have it, and both leave it
 *             together. All layers cycle then, and only classes look at gates.
 * Acts:       the driver performs the acts of a call one after the other, before it makes another
 *             call; but it may report the end of a copy while it performs MM_CYCLE_CANCEL. That
 *             report has acts of its own, so the caller has the memory for acts. A driver that
 *             keeps state of its own per cursor drops it on MM_CYCLE_NEW.
 * Kills:      a driver may die between any two acts. The gates and the cursors remain; the order of
 *             the acts lets mm_cycle_resume() or mm_cycles_serve() go on from there
 *             (Documentation/protocol.md; tests/model: gates.pml has a slot, cold.pml
 *             layers with two cursors, both with all kills).
 * Plans:      a plan here is a view: its lists of layers and pages are the driver's, and neither
 *             move nor change while the plan is in force. A copy that goes on over a replan reads
 *             the page list that it was begun with, so the driver copies the next plan over the old
 *             one and calls mm_cycles_rebind(); it never swaps two buffers.
 * Not here:   time, statistics, how a copy is made.
 * Ownership:  the driver owns struct mm_cycles; it holds no memory of its own.
 * Threading:  none of its own: one caller at a time.
 * Invariants: plans and the order of calls are mmd's own and asserted. A gate's word is the
 *             tenant's claim: any word is accepted, and causes acts on this tenant's memory only.
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

/* The window of cold blocks. Class k has the layers k, k + classes, ... */
struct mm_cycle_cold {
	uint32_t classes; /* 0: nothing is streamed; else each has two layers or more */
	uint32_t n_pages;
	uint64_t unit_bytes;
	const uint32_t *page;
};

struct mm_cycle_plan {
	uint64_t epoch, store;
	/* one bit per layer: set = no READY before the tenant has mapped it */
	const uint64_t *closed;
	uint32_t n_layers; /* of the model */
	uint32_t n_slots;
	struct mm_cycle_slot slot[MM_SLOTS_MAX];
	struct mm_cycle_cold cold; /* with it no slot counts as in place */
};

/* The cursors of a plan by index: of its slots, then from MM_SLOTS_MAX on of its classes. */
#define MM_CYCLES_MAX     (MM_SLOTS_MAX + MM_COLD_CLASSES_MAX)
#define MM_CYCLE_CLASS(k) (MM_SLOTS_MAX + (k))

static inline bool mm_cycle_is_class(uint32_t cursor)
{
	return cursor >= MM_SLOTS_MAX;
}

/* True if @plan has this cursor. */
static inline bool mm_cycle_has(const struct mm_cycle_plan *plan, uint32_t cursor)
{
	return mm_cycle_is_class(cursor) ? cursor - MM_SLOTS_MAX < plan->cold.classes
					 : cursor < plan->n_slots;
}

enum mm_cycle_state {
	MM_CYCLE_VOID,    /* not begun, or the copy was dropped or failed: no step may run on it */
	MM_CYCLE_HELD,    /* layer[pos] is there; its gate shows how far the tenant is with it */
	MM_CYCLE_COPYING, /* layer[pos] is being copied in */
	MM_CYCLE_DROPPED, /* the copy of layer[pos] was cancelled, its end not reported yet */
	/* layer[pos] is there, but has no READY: it is closed, or waits for its other cursor */
	MM_CYCLE_LANDED,
};

/* A cursor: of a slot, or of a class. */
struct mm_cycle {
	enum mm_cycle_state state;
	uint32_t pos;
	bool stopped; /* a replan waits: no copy begins */
	bool fresh;   /* layer[pos] was copied in and is not counted yet */
};

struct mm_cycles {
	bool active; /* the plan is served */
	struct mm_cycle_plan plan;
	struct mm_cycle cursor[MM_CYCLES_MAX];
	uint8_t slot_of[MM_LAYERS_MAX]; /* the slot of each layer of the plan, or MM_SLOTS_MAX */
};

/* Each act is on @cursor of struct mm_cycle_act. */
enum mm_cycle_act_kind {
	MM_CYCLE_NEW, /* drop the driver's state of the cursor; no copy of it is under way */
	/*
	 * write state (enum mm_cursor_state, in @word) and pos of the cursor in one store; release.
	 * COPYING for a class: choose the rows of the copy that follows; their version goes into
	 * the cursor behind that store
	 */
	MM_CYCLE_CURSOR,
	MM_CYCLE_EPOCH, /* write the plan's epoch into the cursor; release */
	MM_CYCLE_GATE,  /* write @word into the low half of the gate of layer[pos]; release */
	/*
	 * write EMPTY into the gates of all layers of the slot, then @word into layer[0]'s; release
	 */
	MM_CYCLE_GATES,
	/* begin to copy layer[pos] in; its end is reported later, also if there is nothing to do */
	MM_CYCLE_COPY,
	/* cancel the copy under way; its end is reported all the same, now or later */
	MM_CYCLE_CANCEL,
	MM_CYCLE_COUNT, /* count a layer that was streamed in and handed over: layer[pos] */
	/* as CURSOR, for a class whose rows stay as they are: its version is not written */
	MM_CYCLE_KEEP,
	/* write EMPTY into the gates of all layers that cycle (mm_cycles_gated()); release */
	MM_CYCLE_GATES_ALL,
};

struct mm_cycle_act {
	enum mm_cycle_act_kind kind;
	uint32_t cursor, pos;
	uint32_t word;
};

#define MM_CYCLE_ACTS_MAX (6 * MM_CYCLES_MAX + 1)

struct mm_cycle_acts {
	uint32_t n;
	struct mm_cycle_act act[MM_CYCLE_ACTS_MAX];
};

/* How many layers @cursor goes through under @plan. */
static inline uint32_t mm_cycle_length(const struct mm_cycle_plan *plan, uint32_t cursor)
{
	if (!mm_cycle_is_class(cursor))
		return plan->slot[cursor].n_layers;
	return (plan->n_layers - (cursor - MM_SLOTS_MAX) + plan->cold.classes - 1) /
	       plan->cold.classes;
}

/* The layer at position @pos of @cursor under @plan. */
static inline uint32_t mm_cycle_layer_of(const struct mm_cycle_plan *plan, uint32_t cursor,
					 uint32_t pos)
{
	if (!mm_cycle_is_class(cursor))
		return plan->slot[cursor].layer[pos];
	return cursor - MM_SLOTS_MAX + pos * plan->cold.classes;
}

static inline uint32_t mm_cycle_layer(const struct mm_cycles *m, uint32_t cursor, uint32_t pos)
{
	return mm_cycle_layer_of(&m->plan, cursor, pos);
}

/* The position of the layer that gives way when that of @pos is copied in. */
static inline uint32_t mm_cycle_before(const struct mm_cycles *m, uint32_t cursor, uint32_t pos)
{
	uint32_t length = mm_cycle_length(&m->plan, cursor);

	return (pos + length - 1) % length;
}

/* True if @layer cycles under the plan in force. */
static inline bool mm_cycles_gated(const struct mm_cycles *m, uint32_t layer)
{
	return m->plan.cold.classes > 0 || m->slot_of[layer] < MM_SLOTS_MAX;
}

/* ---- looking ---- */

enum mm_cycle_look {
	/* nothing to look at: the cursor is idle or waits for the end of a copy */
	MM_CYCLE_LOOK_NOWHERE,
	MM_CYCLE_LOOK_GATE, /* the low half of a gate; acquire */
	MM_CYCLE_LOOK_OPEN, /* the plan's open word; acquire */
};

/* True if all that the layer of @cursor waits for has landed, and it is not handed over. */
bool mm_cycle_complete(const struct mm_cycles *m, uint32_t cursor);

/* Returns what @cursor waits for. @ret_layer: the layer of the gate; written for LOOK_GATE only. */
static inline enum mm_cycle_look mm_cycle_look(const struct mm_cycles *m, uint32_t cursor,
					       uint32_t *ret_layer)
{
	const struct mm_cycle *c = &m->cursor[cursor];

	if (!m->active || c->stopped)
		return MM_CYCLE_LOOK_NOWHERE;
	/* The class of the slot's layer looks for both. */
	if (m->plan.cold.classes > 0 && !mm_cycle_is_class(cursor))
		return MM_CYCLE_LOOK_NOWHERE;
	switch (c->state) {
	case MM_CYCLE_HELD:
		*ret_layer = mm_cycle_layer(m, cursor, c->pos);
		return MM_CYCLE_LOOK_GATE;
	case MM_CYCLE_LANDED:
		return mm_cycle_complete(m, cursor) ? MM_CYCLE_LOOK_OPEN : MM_CYCLE_LOOK_NOWHERE;
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
void mm_cycle_saw_gate(struct mm_cycles *m, uint32_t cursor, uint32_t low,
		       struct mm_cycle_acts *ret_acts);

/* @open: the open word (MM_XPLAN_OPEN()), when mm_cycle_look() returned LOOK_OPEN. */
void mm_cycle_saw_open(struct mm_cycles *m, uint32_t cursor, uint64_t open,
		       struct mm_cycle_acts *ret_acts);

/**
 * mm_cycle_copied() - a copy has ended
 * @complete: all bytes are there; else the copy was cancelled or failed
 * @open:     the open word, read after the end of the copy was seen
 */
void mm_cycle_copied(struct mm_cycles *m, uint32_t cursor, bool complete, uint64_t open,
		     struct mm_cycle_acts *ret_acts);

/* ---- plans ---- */

/* True if @cursor of @plan can be resumed from one with these values. */
bool mm_cycle_cursor_fits(const struct mm_cycle_plan *plan, uint32_t cursor, uint64_t epoch,
			  uint32_t state, uint32_t pos);

/*
 * Puts @plan, which streams no cold blocks, in force; the driver then resumes or begins each of its
 * slots. No plan may be active and no copy under way.
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

/* A cursor as a new driver finds it. */
struct mm_cycle_seen {
	uint64_t epoch;
	uint32_t state, pos;
};

/**
 * mm_cycles_serve() - put a plan that streams cold blocks in force, from where its cursors stand
 * @plan: no plan is active and no copy under way
 * @seen: by cursor of the plan; one that does not fit begins at its first layer
 * @gate: low halves of the gates of all layers, each read once
 */
void mm_cycles_serve(struct mm_cycles *m, const struct mm_cycle_plan *plan,
		     const struct mm_cycle_seen seen[MM_CYCLES_MAX], const uint32_t *gate,
		     struct mm_cycle_acts *ret_acts);

/**
 * mm_cycles_replan() - change from the plan in force to the next
 * @next: of a later epoch; the tenant is parked and uses no layer of its slots
 * @gate: for each cursor of the plan in force, low half of the gate at its position
 *
 * A slot that keeps its pages and layers goes on. The copy into any other slot must end first,
 * unless it brings the layer that the next step needs first to the same pages; then the slot begins
 * at its first layer. If either plan streams cold blocks, no cursor goes on as it is: each begins
 * at its first layer, and keeps it if it has it, or is about to have it, in the same place.
 *
 * Return: 0: @next is in force. The driver moves it, calls mm_cycles_rebind(), and performs
 * @ret_acts. -EINPROGRESS: copies that are of no use must end first. The driver performs
 * @ret_acts and calls again: at once if there were any, else when a copy has ended.
 */
int mm_cycles_replan(struct mm_cycles *m, const struct mm_cycle_plan *next,
		     const uint32_t gate[MM_CYCLES_MAX], struct mm_cycle_acts *ret_acts);

/* @plan is the plan in force, at the place where it stays. */
void mm_cycles_rebind(struct mm_cycles *m, const struct mm_cycle_plan *plan);

/*
 * The plan is no longer served: no gate and no cursor is written, copies under way are cancelled.
 */
void mm_cycles_quiesce(struct mm_cycles *m, struct mm_cycle_acts *ret_acts);

static inline bool mm_cycle_copying(const struct mm_cycles *m, uint32_t cursor)
{
	return m->cursor[cursor].state == MM_CYCLE_COPYING ||
	       m->cursor[cursor].state == MM_CYCLE_DROPPED;
}

/* True while the end of any copy is still to be reported. */
bool mm_cycles_copying(const struct mm_cycles *m);
