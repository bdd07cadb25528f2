/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps - when the steps of a tenant may run: changes of its plan, steps that break off, turns
 *
 * Concept:    A pure machine. Its driver tells it what came (an event of mmd's, a call of the
 *             engine's, a mapping that is done), and it adds to struct mm_steps_out what is to be
 *             said and done about that. A step is a number to it, and so is a layer; threads,
 *             streams, gates, mappings and times are the driver's. libclient drives it, and mmsim
 *             and tests/sim in virtual time.
 *
 *             RUN --PREPARE--> DRAIN --last step ends--> PARKED --SWITCH--> MAP --mapped--> RUN
 *                                                                            |               ^
 *                                    a plan in part: steps go on meanwhile   +--> WINDOW ----+
 *
 *             FAILED follows MAP when the plan could not be mapped: mmd decides, with another
 *             SWITCH or the end. The first plan of a model has no PREPARE: its SWITCH comes in RUN.
 * Ownership:  the driver owns struct mm_steps, reads any field, and writes none but by the
 *             functions below.
 * Sends:      one mm_steps_out is said in the order of mm_steps_words(). A driver with threads
 *             decides under its lock and sends after it let go of it, so that what two calls say
 *             may arrive in either order. The protocol allows that: a PARKED that overtakes a
 *             RESYNC has the flag BROKEN.
 * Threading:  the driver's lock.
 * Trust:      what mmd says at the wrong time is -EPROTO, and changes nothing. What the driver must
 *             not do is asserted.
 * Invariants: no step is open in PARKED, MAP and FAILED; no step begins but in RUN and WINDOW.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"

enum mm_steps_state {
	MM_STEPS_RUN,    /* steps may begin */
	MM_STEPS_DRAIN,  /* PREPARE came while steps were open: none begins */
	MM_STEPS_PARKED, /* PARKED was said */
	MM_STEPS_MAP,    /* SWITCH came: it is being mapped, or about to be, and no step runs */
	MM_STEPS_WINDOW, /* it is being mapped while steps run */
	MM_STEPS_FAILED, /* it could not be mapped */
	MM_STEPS_STATES
};

struct mm_steps_plan { /* as SWITCH names it */
	uint64_t epoch;
	uint32_t away, cycling; /* layers */
};

struct mm_steps {
	enum mm_steps_state state;
	bool takes_partial;        /* plans in part were agreed on */
	bool partial;              /* MAP: a window may open */
	struct mm_steps_plan plan; /* in force; epoch 0: there is none */
	struct mm_steps_plan next; /* not RUN: the one that PREPARE or SWITCH named */
	uint32_t open;             /* steps */
	bool broken;               /* a step broke off since the gates were last put in order */
	bool dead;                 /* the connection is over */
	bool abort_due;            /* WINDOW: gates are to be aborted when it is mapped */
	struct {
		enum mm_turn_mode mode;
		uint64_t serial; /* of the turn that is ours; 0: none is */
		bool asked;      /* for one, and nothing came yet */
		bool used;       /* a step ran, or runs, in it */
		bool ending;     /* it goes back when the open step ends, or the first one */
	} turn;
};

/* The sum of what calls want done. All zeroes: nothing is to be said or done. */
struct mm_steps_out {
	/* to be said to mmd: mm_steps_words() */
	uint64_t turn_done;    /* serial; 0: not */
	uint64_t resync_epoch; /* of the plan that a step that broke off ran under; 0: none did */
	uint64_t parked_epoch; /* 0: not */
	bool parked_broken;
	bool turn_want;
	/* to be done here, under the lock */
	bool entered; /* the plan is in force, and steps may run under it */
	bool wake; /* whoever waits for mm_steps_may_begin() or the end of the window looks again */
	bool abort_gates; /* of all layers, now */
};

/* ---- making ---- */

void mm_steps_init(struct mm_steps *s, bool takes_partial);
/* Its model was refused: there is no plan any more, another model may come. */
void mm_steps_forget_plan(struct mm_steps *s, struct mm_steps_out *out);

/* ---- saying ---- */

#define MM_STEPS_WORDS_MAX 4
/* Return: how many requests @out stands for; they are in @ret_words, in the order to be sent. */
uint32_t mm_steps_words(const struct mm_steps_out *out,
			struct mm_msg ret_words[MM_STEPS_WORDS_MAX]);

/* ---- what mmd says; one event at a time, and none while one of its plans is being mapped ---- */

int mm_steps_on_prepare(struct mm_steps *s, uint64_t epoch, struct mm_steps_out *out);

/**
 * mm_steps_on_switch() - a plan is to be mapped
 * @partial: steps may run before all of it is
 *
 * On success the driver maps. In full: all of it, then says COMMITTED, then calls
 * mm_steps_mapped(). In part: reads what cycles, calls mm_steps_open_window(), maps layer by layer,
 * calls mm_steps_mapped(), says COMMITTED.
 *
 * Return: 0; -EPROTO: not now, not that plan, or not in part.
 */
int mm_steps_on_switch(struct mm_steps *s, const struct mm_steps_plan *plan, bool partial);
void mm_steps_on_turn_begin(struct mm_steps *s, uint64_t serial, struct mm_steps_out *out);
/*
 * @too_late: it is somebody else's already. False: that turn is not ours any more, and the engine
 * need not know.
 */
bool mm_steps_on_turn_end(struct mm_steps *s, uint64_t serial, bool too_late,
			  struct mm_steps_out *out);
/* The connection is over: may come at any time. */
void mm_steps_on_dead(struct mm_steps *s, struct mm_steps_out *out);

/* ---- mapping ---- */

/*
 * False: gates were aborted; nothing may be mapped under streams that run free, and it has failed.
 */
bool mm_steps_open_window(struct mm_steps *s, struct mm_steps_out *out);
/* @result: 0, or why not all of the plan is mapped. */
void mm_steps_mapped(struct mm_steps *s, int result, struct mm_steps_out *out);
/* A plan is being mapped while steps run: gates may not be aborted. */
static inline bool mm_steps_in_window(const struct mm_steps *s)
{
	return s->state == MM_STEPS_WINDOW;
}

/* ---- steps ---- */

enum mm_steps_may {
	MM_STEPS_MAY,
	MM_STEPS_MUST_WAIT,     /* until the next @out->wake */
	MM_STEPS_MUST_ASK_TURN, /* mm_steps_ask_turn() first */
};

/* @gates_aborted: a gate has ABORT, which only a change of the plan takes away. */
enum mm_steps_may mm_steps_may_begin(const struct mm_steps *s, bool gates_aborted);
/* It may. */
void mm_steps_begin(struct mm_steps *s);
/* @broke_off: layers that cycle were not run, or not in their turn. */
void mm_steps_end(struct mm_steps *s, bool broke_off, struct mm_steps_out *out);

/* ---- turns ---- */

/* It takes turns, and this one is somebody else's. */
static inline bool mm_steps_lacks_turn(const struct mm_steps *s)
{
	return s->turn.mode != MM_TURN_NONE && !s->turn.serial;
}

/* mmd has taken it into its turns, or let it out of them. */
void mm_steps_join_turns(struct mm_steps *s, enum mm_turn_mode mode, struct mm_steps_out *out);
void mm_steps_ask_turn(struct mm_steps *s, struct mm_steps_out *out);
/* To be called when TURN_WANT could not be sent: the next mm_steps_ask_turn() asks again. */
void mm_steps_turn_unheard(struct mm_steps *s);
/* Gives the turn back, if there is one. Return: 0; -EBUSY: a step is open in it, it stays. */
int mm_steps_yield_turn(struct mm_steps *s, struct mm_steps_out *out);
