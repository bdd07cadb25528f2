/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_change - how a model gets its first plan, and how one plan replaces another
 *
 * Concept:    One state per tenant, and one table of rows (state, event, condition) -> (state,
 *             effect). An event is a reported fact: the market begins a change, pages are filled,
 *             the tenant has parked, xfer ended a control job, the queue has room. An event without
 *             a row cannot happen: from mmd itself it fails an assertion, from a tenant it is a
 *             protocol error. change_rows.c has the table, change.c the effects.
 * Full, part: In a change in full no step runs until the change is done. In a change in part steps
 *             go on, and only layers that are mapped elsewhere wait. Documentation/protocol.md
 *             gives the reasons for the order of events.
 * Queue:      A state that waits only for MM_CHANGE_ROOM is left within the event that led to it,
 *             unless the queue is full; then mm_core_next() settles again.
 * xfer:       The state, and the plan that xfer serves, determine the control job that a tenant
 *             needs: mm_c_change_control(). Only reported ends of jobs change struct mm_change.
 * Threading:  core thread only.
 * Invariants: At most one row matches; the effect of every row fits into MM_BURST_MAX actions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/book/book.h"
#include "mmd/core/plan/plan.h"
#include "mmd/core/plan/preload.h"

enum mm_change_state {
	MM_CHANGE_NONE, /* no model, or the tenant has ended */
	MM_CHANGE_LOAD, /* the pages of a first plan are being filled */
	MM_CHANGE_STEADY,
	MM_CHANGE_PRELOAD,  /* the layers that return home are being copied */
	MM_CHANGE_PREPARED, /* PREPARE was sent; the tenant ends its steps */
	MM_CHANGE_FULL_QUIESCE,
	MM_CHANGE_FULL_SWITCH,   /* waits for room in the queue */
	MM_CHANGE_FULL_SWITCHED, /* the tenant maps; no step runs */
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
	MM_CHANGE_CYCLES = 8,      /* m > 0: layers cycle in the plan in force */
	MM_CHANGE_WILL_CYCLE = 16, /* m' > 0: layers cycle in the next plan */
	MM_CHANGE_KICKED = 32      /* the connection of the tenant is being closed */
};
#define MM_CHANGE_FACTS 6

enum mm_change_effect {
	MM_CHANGE_DO_NOTHING,
	MM_CHANGE_DO_PREPARE,
	MM_CHANGE_DO_REFUSE,
	MM_CHANGE_DO_GIVE_UP,
	MM_CHANGE_DO_SWITCH_FULL,
	MM_CHANGE_DO_SWITCH_PART,
	MM_CHANGE_DO_RESUME,
	MM_CHANGE_DO_OPEN,
	MM_CHANGE_DO_RETURN,
	MM_CHANGE_DO_FINISH,
	MM_CHANGE_DO_FINISH_PART,
	MM_CHANGE_DO_FINISH_FIRST,
	MM_CHANGE_DO_NOTE_BROKEN,
	MM_CHANGE_DO_KICK_UNMAPPED,
	MM_CHANGE_DO_KICK_UNSERVED,
	MM_CHANGE_DO_KICK_AND_ABORT,
	MM_CHANGE_DO_END,
	MM_CHANGE_EFFECTS
};

/* ---- the table (change_rows.c) ---- */

struct mm_change_row {
	enum mm_change_state state; /* MM_CHANGE_STATES: any state */
	enum mm_change_event event; /* MM_CHANGE_EVENTS: any event except MM_CHANGE_END */
	uint32_t with, without;     /* bits of enum mm_change_fact */
	enum mm_change_state next;  /* MM_CHANGE_STATES: the state stays as it is */
	enum mm_change_effect effect;
};

const struct mm_change_row *mm_change_rows(uint32_t *ret_n);
/* Returns the row that matches; NULL: the event cannot happen in this state. */
const struct mm_change_row *mm_change_row(enum mm_change_state state, enum mm_change_event event,
					  uint32_t facts);
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

/* ---- the change of one tenant (change.c) ---- */

struct mm_change {
	enum mm_change_state state;
	bool broken; /* a step broke off: a change in full must put the gates in order */
	/* epoch of the plan that xfer serves; 0: it serves none */
	uint64_t served_epoch;
	/* numbers of layers, from the first: mapped as the tenant reports, opened by the core */
	uint32_t mapped, open;
	/* bit per layer that the change in part makes resident */
	uint64_t home[MM_LAYER_WORDS];

	struct mm_plan_set set, next_set;
	uint32_t next_alpha;
	struct mm_c_preload pre;
	uint64_t change_ns; /* start of the change that is under way */
	/* token bucket: the changes so far are paid for until then, at one per opts.change_ns */
	uint64_t spent_ns;
	uint64_t change_gain; /* pages that the change sets free */
	uint64_t retry_ns;    /* after a change failed: the next one begins no earlier */
};

/* Returns 0, or MM_E_PROTOCOL for an event of a tenant that has no row. */
int mm_c_change_event(struct mm_core *c, struct mm_c_tenant *t, enum mm_change_event event);
/* True while a change or a first plan is under way. */
static inline bool mm_c_changing(const struct mm_c_tenant *t)
{
	return t->change->state != MM_CHANGE_NONE && t->change->state != MM_CHANGE_STEADY;
}
/* Performs everything that has become possible without an event. */
void mm_c_change(struct mm_core *c, struct mm_c_tenant *t);
/*
 * Begins the first plan of the waiting model: its pages are preloaded. Returns false if they are
 * not free.
 */
bool mm_c_model_begin(struct mm_core *c, struct mm_c_tenant *t);
/*
 * Begins a change to @alpha, with @slots as for mm_c_change_set(), if the pages that it needs are
 * free and within the budget. Returns false if it cannot begin now.
 */
bool mm_c_change_begin(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha, uint32_t slots,
		       uint64_t budget_pages);
/*
 * True if the plan of the tenant was not changed too often recently. Every change waits for this,
 * whatever its reason.
 */
bool mm_c_change_may(const struct mm_core *c, const struct mm_c_tenant *t);
/*
 * Returns when the first change that is waiting because of mm_c_change_may() may begin; UINT64_MAX:
 * none waits.
 */
uint64_t mm_c_change_deadline(const struct mm_core *c);
/* Ends the change because the tenant has ended. */
void mm_c_change_cancel(struct mm_core *c, struct mm_c_tenant *t);
/*
 * True while steps run and the tenant maps. An ABORT would then let steps pass to addresses where
 * nothing is mapped.
 */
bool mm_c_change_in_window(const struct mm_c_tenant *t);

/* Returns the control job that a live tenant needs; MM_XOP_NOP: none. */
enum mm_xop mm_c_change_control(const struct mm_c_tenant *t);
/* Handles the end of a control job. @job: as it was issued. */
void mm_c_change_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
			      int result);
/* Notes that xfer is new, and serves no plan. */
void mm_c_change_xfer_up(struct mm_c_tenant *t);
/* Requests of the tenant. Each returns 0 or MM_E_PROTOCOL. */
int mm_c_change_parked(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_mapped(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_committed(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_resync(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
