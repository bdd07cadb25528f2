/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mortal - a core that dies at bad moments, beside a twin that never does
 *
 * Concept:    Each event is written to a journal, then happens to the core and to its twin. Now and
 *             then the core is lost, behind an event or between two actions, and is restored from
 *             its last image and the journal, as mmd's is. Each action that it takes out, and each
 *             result of an event, must be the twin's; where no action is left, its image must be
 *             the twin's, too. The world is the same as without deaths: they draw their own random
 *             numbers.
 * Ownership:  The world owns it.
 * Threading:  one thread.
 */
#pragma once

#include "mmd/core/event.h"
#include "tests/sim/world.h"

struct w_odds {
	uint64_t event, action; /* dies with a probability of 1 in so many; 0: never */
	uint64_t image;         /* an image is made likewise, where no action is left */
};

struct w_mortality {
	uint64_t events, actions;           /* deaths */
	uint64_t images, replayed, dropped; /* events and actions of replays */
};

/* Makes the core of @w mortal; it has had no event yet. */
void w_mortal_begin(struct world *w, const struct w_odds *odds, uint64_t seed);
/* Ends it, and gets what has happened. */
void w_mortal_end(struct world *w, struct w_mortality *ret);

/* Lets an event happen to the core of @w, at the world's time. */
struct mm_event_result w_event(struct world *w, struct mm_event event);
/* Takes out the next action. */
bool w_next(struct world *w, struct mm_action *ret_action);
/* Opens turns or closes them, as the controller does. An image follows, since it is no event. */
void w_turns_set(struct world *w, bool beside, uint64_t quantum_ns);
/* Sets a plan as the operator does. Returns what mm_core_plan_set() does. */
int w_plan_set(struct world *w, const struct w_proc *p, int32_t alpha, uint32_t slots);
/* Steers a tenant as the operator does. Returns what mm_core_steer() does. */
int w_steer(struct world *w, const struct w_proc *p, enum mm_steer how, uint64_t until_ns);
