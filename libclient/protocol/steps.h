/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps - when the steps of a tenant may run: changes of its plan, broken steps, turns
 *
 * Concept:    A pure machine. Its driver passes in what happened (an event of mmd, a call of the
 *             engine, a mapping that is done), and the machine adds to struct mm_steps_out what is
 *             to be sent and done in consequence. A step is a number to it, and so is a layer;
 *             threads, streams, gates, mappings and times are the driver's. libclient drives it,
 *             and mmsim and tests/sim in virtual time.
 *
 *             RUN --PREPARE--> DRAIN --last step ends--> PARKED --SWITCH--> MAP --mapped--> RUN
 *                                                                            |               ^
 *                                    a plan in part: steps go on meanwhile   +--> WINDOW ----+
 *
 *             FAILED follows MAP when the plan could not be mapped: mmd decides, with another
 *             SWITCH or the end. The first plan of a model has no PREPARE: its SWITCH comes in RUN.
 * Ownership:  the driver owns struct mm_steps, may read any member, and changes it only by the
 *             functions below.
 * Sends:      one mm_steps_out is sent in the order of mm_steps_messages(). A driver with threads
 *             decides under its lock and sends after it has released the lock, so the messages of
 *             two calls may arrive in either order. The protocol allows that: a PARKED that
 *             overtakes a RESYNC has the flag BROKEN.
 * Threading:  the driver's lock.
 * Trust:      an event of mmd at the wrong time is -EPROTO, and changes nothing. Wrong calls of the
 *             driver are asserted.
 * Invariants: no step is open in PARKED, MAP and FAILED; steps begin in RUN and WINDOW only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"

enum mm_steps_state {
	MM_STEPS_RUN,    /* steps may begin */
	MM_STEPS_DRAIN,  /* PREPARE came while steps were open: no step begins */
	MM_STEPS_PARKED, /* PARKED is to be sent, or was */
	/* SWITCH came: the plan is being mapped, or about to be, and no step runs */
	MM_STEPS_MAP,
	MM_STEPS_WINDOW, /* the plan is being mapped while steps run */
	MM_STEPS_FAILED, /* the plan could not be mapped */
	MM_STEPS_STATES
};

/* A plan as SWITCH names it. */
struct mm_steps_plan {
	uint64_t epoch;
	uint32_t away, cycling; /* numbers of layers */
};

struct mm_steps {
	enum mm_steps_state state;
	bool takes_partial;        /* the tenant and mmd agreed on changes in part */
	bool partial;              /* MAP: the change is in part, a window may open */
	struct mm_steps_plan plan; /* the plan in force; epoch 0: there is none */
	struct mm_steps_plan next; /* not RUN: the plan that PREPARE or SWITCH named */
	uint32_t open;             /* open steps */
	bool broken;               /* a step was broken since the gates were last put in order */
	bool dead;                 /* the connection has ended */
	bool abort_due;            /* WINDOW: abort the gates when the plan is mapped */
	struct {
		enum mm_turn_mode mode;
		uint64_t serial; /* the serial of this tenant's turn; 0: it has none */
		bool requested;  /* TURN_WANT was sent, and no turn has begun since */
		bool used;       /* a step ran, or runs, in the turn */
		/* the turn is returned when the open step ends, or the first one */
		bool ending;
	} turn;
};

/* The sum of what calls want done. All zeroes: nothing is to be sent or done. */
struct mm_steps_out {
	/* requests to mmd: see mm_steps_messages() */
	uint64_t turn_done;    /* serial of the turn that is returned; 0: none */
	uint64_t resync_epoch; /* epoch of the plan under which a broken step ran; 0: none */
	uint64_t parked_epoch; /* epoch of PARKED; 0: not parked */
	bool parked_broken;
	bool turn_want;
	/* for the driver to do, under its lock */
	bool entered; /* the plan is in force, and steps may run under it */
	bool wake;    /* wake threads that wait for mm_steps_may_begin() or the end of the window */
	bool abort_gates; /* abort the gates of all layers now */
};

/* ---- making ---- */

void mm_steps_init(struct mm_steps *s, bool takes_partial);
/* The model was refused, or given back: there is no plan any more; another may be loaded. */
void mm_steps_drop_plan(struct mm_steps *s, struct mm_steps_out *out);

/* ---- sending ---- */

#define MM_STEPS_MESSAGES_MAX 4
/*
 * Writes the requests that @out stands for to @ret_msgs, in the order to be sent. Return: how
 * many.
 */
uint32_t mm_steps_messages(const struct mm_steps_out *out,
			   struct mm_msg ret_msgs[MM_STEPS_MESSAGES_MAX]);

/* ---- events of mmd; one at a time, and none while one of its plans is being mapped ---- */

int mm_steps_on_prepare(struct mm_steps *s, uint64_t epoch, struct mm_steps_out *out);

/**
 * mm_steps_on_switch() - a plan is to be mapped
 * @partial: steps may run before all of it is mapped
 *
 * On success the driver maps the plan. In full: it maps all of it, sends COMMITTED, then calls
 * mm_steps_mapped(). In part: it reads the layers that cycle, calls mm_steps_open_window(), maps
 * layer by layer, calls mm_steps_mapped(), sends COMMITTED.
 *
 * Return: 0; -EPROTO: not at this time, not this plan, or not in part.
 */
int mm_steps_on_switch(struct mm_steps *s, const struct mm_steps_plan *plan, bool partial);
void mm_steps_on_turn_begin(struct mm_steps *s, uint64_t serial, struct mm_steps_out *out);
/*
 * @too_late: the turn is another tenant's already. False: @serial is not this tenant's turn any
 * more, and the engine need not be informed.
 */
bool mm_steps_on_turn_end(struct mm_steps *s, uint64_t serial, bool too_late,
			  struct mm_steps_out *out);
/* The connection has ended; may be called at any time. */
void mm_steps_on_dead(struct mm_steps *s, struct mm_steps_out *out);

/* ---- mapping ---- */

/*
 * False: gates were aborted, so streams do not wait for gates and nothing may be mapped; the change
 * has failed.
 */
bool mm_steps_open_window(struct mm_steps *s, struct mm_steps_out *out);
/* @result: 0, or why not all of the plan is mapped. */
void mm_steps_mapped(struct mm_steps *s, int result, struct mm_steps_out *out);
/* True while a plan is being mapped while steps run; gates may not be aborted then. */
static inline bool mm_steps_in_window(const struct mm_steps *s)
{
	return s->state == MM_STEPS_WINDOW;
}

/* ---- steps ---- */

enum mm_steps_may {
	MM_STEPS_MAY,
	MM_STEPS_MUST_WAIT,         /* until the next @out->wake */
	MM_STEPS_MUST_REQUEST_TURN, /* call mm_steps_request_turn() first */
};

/* @gates_aborted: a gate has ABORT, which only a change of the plan clears. */
enum mm_steps_may mm_steps_may_begin(const struct mm_steps *s, bool gates_aborted);
/* mm_steps_may_begin() must have returned MM_STEPS_MAY. */
void mm_steps_begin(struct mm_steps *s);
/* @broke_off: layers that cycle were not run, or not in order. */
void mm_steps_end(struct mm_steps *s, bool broke_off, struct mm_steps_out *out);

/* ---- turns ---- */

/* True if the tenant takes turns and the turn is not its own. */
static inline bool mm_steps_lacks_turn(const struct mm_steps *s)
{
	return s->turn.mode != MM_TURN_NONE && !s->turn.serial;
}

/* mmd has let the tenant join the turns, or leave them. */
void mm_steps_join_turns(struct mm_steps *s, enum mm_turn_mode mode, struct mm_steps_out *out);
void mm_steps_request_turn(struct mm_steps *s, struct mm_steps_out *out);
/*
 * TURN_WANT could not be sent: the next mm_steps_may_begin() requires mm_steps_request_turn()
 * again.
 */
void mm_steps_turn_request_lost(struct mm_steps *s);
/* Returns the turn, if there is one. Return: 0; -EBUSY: a step is open in it, it stays. */
int mm_steps_yield_turn(struct mm_steps *s, struct mm_steps_out *out);
