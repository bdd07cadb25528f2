/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cover - counts in which state of a plan's change which event came, and the state that followed
 *
 * Concept:    It watches the events that the world gives to the core, and counts (state before,
 *             event, state at the tenant's next event). The counts show which part of the table of
 *             a plan's change the histories have exercised. One function, cover_state(), derives
 *             the state from that of the core.
 * Ownership:  The caller owns struct cover; it watches one world at a time, from cover_watch() on.
 * Threading:  one thread.
 */
#pragma once

#include "tests/sim/world.h"

/* F: in full, P: in part. _DUE: decided, and waiting for room in the queue or for a control job. */
#define COVER_STATES(X) \
	X(NONE)         \
	X(LOAD)         \
	X(STEADY)       \
	X(PRELOAD)      \
	X(PREPARED)     \
	X(F_QUIESCE)    \
	X(F_SWITCH_DUE) \
	X(F_SWITCHED)   \
	X(P_SWITCH_DUE) \
	X(P_REPLAN)     \
	X(P_QUIESCE)    \
	X(P_RESUME_DUE) \
	X(P_WINDOW)     \
	X(DONE_DUE)     \
	X(KICKED)       \
	X(ENDING)       \
	X(GONE)

#define COVER_EVENTS(X)    \
	X(PARKED)          \
	X(PARKED_BROKEN)   \
	X(PARKED_DOWN)     \
	X(PARKED_STALE)    \
	X(MAPPED)          \
	X(COMMITTED)       \
	X(COMMITTED_ERROR) \
	X(RESYNC)          \
	X(BYE)             \
	X(KICKED)          \
	X(DISCONNECT)      \
	X(DEAD)            \
	X(COPY_DONE)       \
	X(COPY_FAILED)     \
	X(ACTIVATE_DONE)   \
	X(ACTIVATE_FAILED) \
	X(QUIESCE_DONE)    \
	X(QUIESCE_FAILED)  \
	X(REPLAN_DONE)     \
	X(REPLAN_FAILED)   \
	X(XFER_DOWN)       \
	X(XFER_UP)

#define COVER_STATE(name) COVER_##name,
enum cover_state { COVER_STATES(COVER_STATE) COVER_STATE_COUNT };
#undef COVER_STATE
#define COVER_EVENT(name) COVER_ON_##name,
enum cover_event { COVER_EVENTS(COVER_EVENT) COVER_EVENT_COUNT };
#undef COVER_EVENT

extern const char *const cover_state_name[COVER_STATE_COUNT];
extern const char *const cover_event_name[COVER_EVENT_COUNT];

struct cover_counts {
	uint64_t next[COVER_STATE_COUNT][COVER_EVENT_COUNT][COVER_STATE_COUNT];
	uint64_t kicked_with_job; /* kicks while a control job of the tenant ran */
	uint64_t null_changes;    /* null changes, which follow steps that broke off */
};

struct cover {
	struct cover_counts *counts;
	struct {
		bool pending; /* the state that follows the last event is not known yet */
		enum cover_state state;
		enum cover_event event;
		uint32_t tenant;
	} last[W_PROCS];
};

/* From now on @cover counts in @counts the events that @w gives to its core. */
void cover_watch(struct cover *cover, struct world *w, struct cover_counts *counts);
/* Counts events that are pending: no more events will follow. */
void cover_end(struct cover *cover, struct world *w);
/* Returns the state of the tenant. */
enum cover_state cover_state(const struct mm_core *core, uint32_t tenant);
/* Returns how often the event came in this state. */
uint64_t cover_times(const struct cover_counts *counts, enum cover_state state,
		     enum cover_event event);
/* Adds @counts to @sum. */
void cover_add(struct cover_counts *sum, const struct cover_counts *counts);
