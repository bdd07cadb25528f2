/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change_rows - the table of the change of a plan: states, events, conditions and effects
 *
 * Concept:    A row names the state and the effect that follow a state and an event, if the
 *             condition holds. change.h explains the machine; Documentation/protocol.md shows the
 *             table.
 * Ownership:  constant data.
 * Threading:  any.
 * Invariants: At most one row matches.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum mm_change_state {
	MM_CHANGE_NONE, /* no model, or the tenant has ended */
	MM_CHANGE_LOAD, /* the pages of a first plan are being filled */
	MM_CHANGE_STEADY,
	MM_CHANGE_PRELOAD,  /* the layers that return home are being copied */
	MM_CHANGE_PREPARED, /* PREPARE was sent; the tenant ends its steps */
	MM_CHANGE_FULL_QUIESCE,
	MM_CHANGE_FULL_SWITCH,   /* waits for room in the queue */
	MM_CHANGE_FULL_SWITCHED, /* the tenant maps, or unmaps its model; no step runs */
	MM_CHANGE_FULL_DONE,     /* waits for room in the queue */
	MM_CHANGE_PART_SWITCH,   /* waits for room in the queue, and until no control job runs */
	MM_CHANGE_PART_REPLAN,
	MM_CHANGE_PART_QUIESCE,
	MM_CHANGE_PART_RESUME, /* waits for room in the queue */
	MM_CHANGE_PART_WINDOW, /* the tenant maps while steps run */
	MM_CHANGE_PART_DONE,   /* waits for room in the queue */
	MM_CHANGE_STATES
};

enum mm_change_event {
	/* reported by the core itself */
	MM_CHANGE_BEGIN,       /* next_set is chosen and its pages are reserved */
	MM_CHANGE_COPIED,      /* all of these pages are filled */
	MM_CHANGE_COPY_FAILED, /* a page could not be filled, and no copy runs any more */
	MM_CHANGE_ROOM,        /* the queue has room for an effect */
	MM_CHANGE_END,         /* the tenant ends */
	/* reported by xfer: the result of a control job */
	MM_CHANGE_ACTIVATED,
	MM_CHANGE_ACTIVATE_FAILED,
	MM_CHANGE_REPLANNED,
	MM_CHANGE_REPLAN_FAILED,
	MM_CHANGE_QUIESCED,
	/* requests of the tenant, with the epoch of the change that is under way */
	MM_CHANGE_PARKED,
	MM_CHANGE_MAPPED,
	MM_CHANGE_COMMITTED,
	MM_CHANGE_COMMIT_FAILED,
	MM_CHANGE_RESYNC,
	MM_CHANGE_EVENTS
};

/* Facts that the condition of a row may require. */
enum mm_change_fact {
	MM_CHANGE_FIRST = 1,  /* the model has had no plan yet */
	MM_CHANGE_COPIES = 2, /* pages must be filled before the change */
	/* steps may go on: the tenant supports it, and no step broke off */
	MM_CHANGE_IN_PART = 4,
	/* m > 0, or cold blocks are streamed: layers cycle in the plan in force, in the next one */
	MM_CHANGE_CYCLES = 8,
	MM_CHANGE_WILL_CYCLE = 16,
	MM_CHANGE_KICKED = 32, /* the connection of the tenant is being closed */
	MM_CHANGE_UNLOAD = 64  /* the change ends the model */
};
#define MM_CHANGE_FACTS 7

enum mm_change_effect {
	MM_CHANGE_DO_NOTHING,
	MM_CHANGE_DO_PREPARE,
	MM_CHANGE_DO_REFUSE,
	MM_CHANGE_DO_GIVE_UP,
	MM_CHANGE_DO_SWITCH_FULL,
	MM_CHANGE_DO_SWITCH_PART,
	MM_CHANGE_DO_SWITCH_EMPTY,
	MM_CHANGE_DO_RESUME,
	MM_CHANGE_DO_OPEN,
	MM_CHANGE_DO_RETURN,
	MM_CHANGE_DO_FINISH,
	MM_CHANGE_DO_FINISH_PART,
	MM_CHANGE_DO_FINISH_FIRST,
	MM_CHANGE_DO_FINISH_EMPTY,
	MM_CHANGE_DO_NOTE_BROKEN,
	MM_CHANGE_DO_KICK_UNMAPPED,
	MM_CHANGE_DO_KICK_UNSERVED,
	MM_CHANGE_DO_KICK_AND_ABORT,
	MM_CHANGE_DO_END,
	MM_CHANGE_EFFECTS
};

struct mm_change_row {
	enum mm_change_state state; /* MM_CHANGE_STATES: any state */
	enum mm_change_event event; /* MM_CHANGE_EVENTS: any event except MM_CHANGE_END */
	uint32_t with, without;     /* bits of enum mm_change_fact */
	enum mm_change_state next;  /* MM_CHANGE_STATES: the state stays as it is */
	enum mm_change_effect effect;
};

/* Returns all rows. */
const struct mm_change_row *mm_change_rows(uint32_t *ret_n);
/* Returns the row that matches; NULL: the event cannot happen in this state. */
const struct mm_change_row *mm_change_row(enum mm_change_state state, enum mm_change_event event,
					  uint32_t facts);
/* True for an event that is a request of the tenant. */
static inline bool mm_change_is_tenants(enum mm_change_event event)
{
	return event >= MM_CHANGE_PARKED;
}

/* Names that Documentation/protocol.md uses. */
extern const char *const mm_change_state_names[MM_CHANGE_STATES + 1];
extern const char *const mm_change_event_names[MM_CHANGE_EVENTS + 1];
extern const char *const mm_change_effect_names[MM_CHANGE_EFFECTS];
/* Indexed by bit: a fact that holds, and a fact that does not. */
extern const char *const mm_change_fact_names[MM_CHANGE_FACTS];
extern const char *const mm_change_unfact_names[MM_CHANGE_FACTS];
