/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_change - how a model's first plan arrives, and how one plan takes another one's place
 *
 * Concept:    One state per tenant, one table of rows (state, event, condition) -> (state, effect).
 *             An event is a fact that somebody reports: the market begins, pages are filled, the
 *             tenant parked, xfer ended a control job, the queue has room. What no row names cannot
 *             come about: from our own side it is an assertion, from a tenant a protocol error.
 *             change_rows.c is the table, change.c the effects.
 * Full, part: in full no step runs until the change is done; in part steps go on and only layers that are
 *             mapped elsewhere wait. Why the order is what it is: Documentation/protocol.md.
 * Queue:      states that wait for nothing but MM_CHANGE_ROOM are left within the event that led
 *             there, unless the queue is full. Then mm_core_next() settles again.
 * xfer:       which control job a tenant needs follows from the state and from the plan that xfer was told of:
 *             mm_c_change_control(). A job's end is reported; nobody else writes into struct mm_change.
 * Threading:  the core's.
 * Invariants: at most one row fits; every row's effect fits into MM_BURST_MAX actions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/book/book.h"
#include "mmd/core/plan/plan.h"
#include "mmd/core/plan/preload.h"

enum mm_change_state {
	MM_CHANGE_NONE, /* no model, or the tenant has ended */
	MM_CHANGE_LOAD, /* pages of a first plan are being filled */
	MM_CHANGE_STEADY,
	MM_CHANGE_PRELOAD,  /* layers that come home are being copied */
	MM_CHANGE_PREPARED, /* the tenant lets its steps end */
	MM_CHANGE_FULL_QUIESCE,
	MM_CHANGE_FULL_SWITCH,   /* for room */
	MM_CHANGE_FULL_SWITCHED, /* the tenant maps, no step runs */
	MM_CHANGE_FULL_DONE,     /* for room */
	MM_CHANGE_PART_SWITCH,   /* for room, and until no control job is under way */
	MM_CHANGE_PART_REPLAN,
	MM_CHANGE_PART_QUIESCE,
	MM_CHANGE_PART_RESUME, /* for room */
	MM_CHANGE_PART_WINDOW, /* the tenant maps while steps run */
	MM_CHANGE_PART_DONE,   /* for room */
	MM_CHANGE_STATES
};

enum mm_change_event {
	/* of our own side */
	MM_CHANGE_BEGIN,       /* next_set is chosen, its pages are reserved */
	MM_CHANGE_COPIED,      /* all of those are filled */
	MM_CHANGE_COPY_FAILED, /* one of them, and no copy is under way any more */
	MM_CHANGE_ROOM,        /* the queue has room for an effect */
	MM_CHANGE_END,         /* of the tenant */
	/* of xfer's: what a control job came to */
	MM_CHANGE_ACTIVATED,
	MM_CHANGE_ACTIVATE_FAILED,
	MM_CHANGE_REPLANNED,
	MM_CHANGE_REPLAN_FAILED,
	MM_CHANGE_QUIESCED,
	/* of the tenant's: with the epoch of the change that is under way */
	MM_CHANGE_PARKED,
	MM_CHANGE_MAPPED,
	MM_CHANGE_COMMITTED,
	MM_CHANGE_COMMIT_FAILED,
	MM_CHANGE_RESYNC,
	MM_CHANGE_EVENTS
};

/* What a row's condition may ask for. */
enum mm_change_fact {
	MM_CHANGE_FIRST = 1,       /* the model has had no plan yet */
	MM_CHANGE_COPIES = 2,      /* pages are to be filled before */
	MM_CHANGE_IN_PART = 4,     /* steps may go on: the tenant can, no step broke off */
	MM_CHANGE_CYCLES = 8,      /* m > 0: in the plan in force layers cycle */
	MM_CHANGE_WILL_CYCLE = 16, /* m' > 0: in the next one */
	MM_CHANGE_KICKED = 32      /* the tenant is: its connection is being closed */
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
	enum mm_change_state state; /* MM_CHANGE_STATES: any */
	enum mm_change_event event; /* MM_CHANGE_EVENTS: any but MM_CHANGE_END */
	uint32_t with, without;     /* enum mm_change_fact */
	enum mm_change_state next;  /* MM_CHANGE_STATES: the same */
	enum mm_change_effect effect;
};

const struct mm_change_row *mm_change_rows(uint32_t *ret_n);
/* NULL: cannot come about. */
const struct mm_change_row *mm_change_row(enum mm_change_state state, enum mm_change_event event,
					  uint32_t facts);
static inline bool mm_change_is_tenants(enum mm_change_event event)
{
	return event >= MM_CHANGE_PARKED;
}

/* For Documentation/protocol.md. */
extern const char *const mm_change_state_names[MM_CHANGE_STATES + 1];
extern const char *const mm_change_event_names[MM_CHANGE_EVENTS + 1];
extern const char *const mm_change_effect_names[MM_CHANGE_EFFECTS];
/* By bit; what it means that the fact does not hold. */
extern const char *const mm_change_fact_names[MM_CHANGE_FACTS];
extern const char *const mm_change_unfact_names[MM_CHANGE_FACTS];

/* ---- a tenant's (change.c) ---- */

struct mm_change {
	enum mm_change_state state;
	bool broken; /* a step broke off: a change in full must put the gates in order */
	uint64_t
		served_epoch; /* of the plan that xfer was told to serve; 0: of none since it came up */
	uint32_t mapped, open;         /* layers, from the first: it says; we let it */
	uint64_t home[MM_LAYER_WORDS]; /* layers that the change in part makes resident */

	struct mm_plan_set set, next_set;
	uint32_t next_alpha;
	struct mm_c_preload pre;
	uint64_t change_ns;   /* when the change under way began */
	uint64_t spent_ns;    /* its changes so far last until then, at one each opts.change_ns */
	uint64_t change_gain; /* pages that it sets free */
	uint64_t retry_ns;    /* no change before; after one failed */
};

/* 0; MM_E_PROTOCOL: a tenant's event, which no row names. */
int mm_c_change_event(struct mm_core *c, struct mm_c_tenant *t, enum mm_change_event event);
/* A change or a first plan is under way. */
static inline bool mm_c_changing(const struct mm_c_tenant *t)
{
	return t->change->state != MM_CHANGE_NONE && t->change->state != MM_CHANGE_STEADY;
}
/* All that has become possible without an event. */
void mm_c_change(struct mm_core *c, struct mm_c_tenant *t);
/* Begins a change to @alpha, with @slots as of mm_c_change_set(), if the pages that it needs are free and within
 * the budget. False: not now. */
bool mm_c_change_begin(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha, uint32_t slots,
		       uint64_t budget_pages);
/*
 * Has its plan not been changed too often of late? Whoever begins a change, for whatever reason,
 * waits until then.
 */
bool mm_c_change_may(const struct mm_core *c, const struct mm_c_tenant *t);
/* When a change that waits for that may begin; UINT64_MAX: none has to. */
uint64_t mm_c_change_deadline(const struct mm_core *c);
/* The tenant has ended. */
void mm_c_change_cancel(struct mm_core *c, struct mm_c_tenant *t);
/* Steps run while it maps: an ABORT would let them onto addresses where nothing is mapped. */
bool mm_c_change_in_window(const struct mm_c_tenant *t);

/* The control job that a tenant who lives needs; MM_XOP_NOP: none. */
enum mm_xop mm_c_change_control(const struct mm_c_tenant *t);
/* It ended. @job: as it was issued. */
void mm_c_change_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
			      int result);
/* A new xfer serves nobody. */
void mm_c_change_xfer_up(struct mm_c_tenant *t);
/* Requests: 0 or MM_E_PROTOCOL. */
int mm_c_change_parked(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_mapped(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_committed(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_resync(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
