/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the change of a plan: which state and effect follow which state and event.
 * tests/model/plan.pml has it with the tenant's threads and xfer.
 */
#include "mmd/core/plan/change_rows.h"

#include <stddef.h>

#include "libclient/base/base.h"

#define ANY MM_CHANGE_STATES

#define FIRST      MM_CHANGE_FIRST
#define COPIES     MM_CHANGE_COPIES
#define IN_PART    MM_CHANGE_IN_PART
#define CYCLES     MM_CHANGE_CYCLES
#define WILL_CYCLE MM_CHANGE_WILL_CYCLE
#define UNLOAD     MM_CHANGE_UNLOAD

#define ROW(state, event, with, without, next, effect)                                 \
	{                                                                              \
		MM_CHANGE_##state, MM_CHANGE_##event, with, without, MM_CHANGE_##next, \
			MM_CHANGE_DO_##effect                                          \
	}

/* clang-format off */
static const struct mm_change_row change_table[] = {
	ROW(NONE, BEGIN, FIRST, 0, LOAD, NOTHING),

	ROW(LOAD, COPIED, 0, 0, FULL_SWITCH, NOTHING),
	ROW(LOAD, COPY_FAILED, 0, 0, NONE, REFUSE),

	ROW(STEADY, BEGIN, COPIES, 0, PRELOAD, NOTHING),
	ROW(STEADY, BEGIN, 0, COPIES, PREPARED, PREPARE),
	ROW(STEADY, ACTIVATED, 0, 0, STEADY, NOTHING),
	ROW(STEADY, ACTIVATE_FAILED, 0, 0, STEADY, KICK_AND_ABORT),
	ROW(STEADY, RESYNC, 0, 0, STEADY, NOTE_BROKEN),

	ROW(PRELOAD, COPIED, 0, 0, PREPARED, PREPARE),
	ROW(PRELOAD, COPY_FAILED, 0, 0, STEADY, GIVE_UP),
	ROW(PRELOAD, ACTIVATED, 0, 0, PRELOAD, NOTHING),
	ROW(PRELOAD, ACTIVATE_FAILED, 0, 0, PRELOAD, KICK_AND_ABORT),
	ROW(PRELOAD, RESYNC, 0, 0, PRELOAD, NOTE_BROKEN),

	ROW(PREPARED, PARKED, CYCLES, IN_PART, FULL_QUIESCE, NOTHING),
	ROW(PREPARED, PARKED, 0, IN_PART | CYCLES, FULL_SWITCH, NOTHING),
	ROW(PREPARED, PARKED, IN_PART, 0, PART_SWITCH, NOTHING),
	ROW(PREPARED, ACTIVATED, 0, 0, PREPARED, NOTHING),
	ROW(PREPARED, ACTIVATE_FAILED, 0, 0, PREPARED, KICK_AND_ABORT),
	ROW(PREPARED, RESYNC, 0, 0, PREPARED, NOTE_BROKEN),

	/*
	 * A change in full puts the gates in order, so a RESYNC for a step that broke off before
	 * the SWITCH needs nothing more; no step runs before COMMITTED.
	 */
	ROW(FULL_QUIESCE, ACTIVATED, 0, 0, FULL_QUIESCE, NOTHING),
	ROW(FULL_QUIESCE, ACTIVATE_FAILED, 0, 0, FULL_QUIESCE, KICK_AND_ABORT),
	ROW(FULL_QUIESCE, QUIESCED, 0, 0, FULL_SWITCH, NOTHING),
	ROW(FULL_QUIESCE, RESYNC, 0, 0, FULL_QUIESCE, NOTHING),

	ROW(FULL_SWITCH, ROOM, 0, UNLOAD, FULL_SWITCHED, SWITCH_FULL),
	ROW(FULL_SWITCH, ROOM, UNLOAD, 0, FULL_SWITCHED, SWITCH_EMPTY),
	ROW(FULL_SWITCH, RESYNC, 0, FIRST, FULL_SWITCH, NOTHING),

	ROW(FULL_SWITCHED, ACTIVATED, 0, 0, FULL_SWITCHED, NOTHING),
	ROW(FULL_SWITCHED, ACTIVATE_FAILED, 0, 0, FULL_SWITCHED, KICK_AND_ABORT),
	ROW(FULL_SWITCHED, COMMITTED, 0, 0, FULL_DONE, RETURN),
	ROW(FULL_SWITCHED, COMMIT_FAILED, 0, 0, FULL_SWITCHED, KICK_UNMAPPED),
	ROW(FULL_SWITCHED, RESYNC, 0, FIRST, FULL_SWITCHED, NOTHING),

	ROW(FULL_DONE, ROOM, FIRST, UNLOAD, STEADY, FINISH_FIRST),
	ROW(FULL_DONE, ROOM, 0, FIRST | UNLOAD, STEADY, FINISH),
	ROW(FULL_DONE, ROOM, UNLOAD, 0, NONE, FINISH_EMPTY),
	ROW(FULL_DONE, ACTIVATED, 0, 0, FULL_DONE, NOTHING),
	ROW(FULL_DONE, ACTIVATE_FAILED, 0, 0, FULL_DONE, KICK_AND_ABORT),
	ROW(FULL_DONE, RESYNC, 0, FIRST, FULL_DONE, NOTE_BROKEN),

	/*
	 * A change in part leaves the gates as they are, so a change in full must follow a step
	 * that broke off.
	 */
	ROW(PART_SWITCH, ROOM, CYCLES | WILL_CYCLE, 0, PART_REPLAN, SWITCH_PART),
	ROW(PART_SWITCH, ROOM, CYCLES, WILL_CYCLE, PART_QUIESCE, SWITCH_PART),
	ROW(PART_SWITCH, ROOM, WILL_CYCLE, CYCLES, PART_RESUME, SWITCH_PART),
	ROW(PART_SWITCH, ACTIVATED, 0, 0, PART_SWITCH, NOTHING),
	ROW(PART_SWITCH, ACTIVATE_FAILED, 0, 0, PART_SWITCH, KICK_AND_ABORT),
	ROW(PART_SWITCH, RESYNC, 0, 0, PART_SWITCH, NOTE_BROKEN),

	ROW(PART_REPLAN, REPLANNED, 0, 0, PART_RESUME, NOTHING),
	ROW(PART_REPLAN, REPLAN_FAILED, 0, 0, PART_REPLAN, KICK_AND_ABORT),
	ROW(PART_REPLAN, RESYNC, 0, 0, PART_REPLAN, NOTE_BROKEN),

	ROW(PART_QUIESCE, QUIESCED, 0, 0, PART_RESUME, NOTHING),
	ROW(PART_QUIESCE, RESYNC, 0, 0, PART_QUIESCE, NOTE_BROKEN),

	ROW(PART_RESUME, ROOM, 0, 0, PART_WINDOW, RESUME),
	ROW(PART_RESUME, ACTIVATED, 0, 0, PART_RESUME, NOTHING),
	ROW(PART_RESUME, ACTIVATE_FAILED, 0, 0, PART_RESUME, KICK_AND_ABORT),
	ROW(PART_RESUME, RESYNC, 0, 0, PART_RESUME, NOTE_BROKEN),

	/*
	 * Only the tenant may write ABORT now, once it has mapped the layers that its steps wait
	 * for.
	 */
	ROW(PART_WINDOW, MAPPED, 0, 0, PART_WINDOW, NOTHING),
	ROW(PART_WINDOW, ROOM, 0, 0, PART_WINDOW, OPEN),
	ROW(PART_WINDOW, ACTIVATED, 0, 0, PART_WINDOW, NOTHING),
	ROW(PART_WINDOW, ACTIVATE_FAILED, 0, 0, PART_WINDOW, KICK_UNSERVED),
	ROW(PART_WINDOW, COMMITTED, 0, 0, PART_DONE, RETURN),
	ROW(PART_WINDOW, COMMIT_FAILED, 0, 0, PART_WINDOW, KICK_UNMAPPED),
	ROW(PART_WINDOW, RESYNC, 0, 0, PART_WINDOW, NOTE_BROKEN),

	ROW(PART_DONE, ROOM, 0, 0, STEADY, FINISH_PART),
	ROW(PART_DONE, ACTIVATED, 0, 0, PART_DONE, NOTHING),
	ROW(PART_DONE, ACTIVATE_FAILED, 0, 0, PART_DONE, KICK_UNSERVED),
	ROW(PART_DONE, RESYNC, 0, 0, PART_DONE, NOTE_BROKEN),

	/* From the kick to the end of the connection, nothing more begins for the tenant. */
	{ ANY, MM_CHANGE_EVENTS, MM_CHANGE_KICKED, 0, ANY, MM_CHANGE_DO_NOTHING },
	{ ANY, MM_CHANGE_END, 0, 0, MM_CHANGE_NONE, MM_CHANGE_DO_END },
};
/* clang-format on */

const struct mm_change_row *mm_change_rows(uint32_t *ret_n)
{
	*ret_n = MM_ARRAY_SIZE(change_table);
	return change_table;
}

static bool row_matches(const struct mm_change_row *r, enum mm_change_event event, uint32_t facts)
{
	if (facts & MM_CHANGE_KICKED && event != MM_CHANGE_END)
		return r->event == MM_CHANGE_EVENTS;
	return r->event == event;
}

const struct mm_change_row *mm_change_row(enum mm_change_state state, enum mm_change_event event,
					  uint32_t facts)
{
	for (const struct mm_change_row *r = change_table;
	     r < change_table + MM_ARRAY_SIZE(change_table); r++)
		if ((r->state == state || r->state == ANY) && row_matches(r, event, facts) &&
		    (facts & r->with) == r->with && !(facts & r->without))
			return r;
	return NULL;
}

const char *const mm_change_state_names[] = {
	[MM_CHANGE_NONE] = "none",
	[MM_CHANGE_LOAD] = "load",
	[MM_CHANGE_STEADY] = "steady",
	[MM_CHANGE_PRELOAD] = "preload",
	[MM_CHANGE_PREPARED] = "prepared",
	[MM_CHANGE_FULL_QUIESCE] = "full: quiesce",
	[MM_CHANGE_FULL_SWITCH] = "full: switch",
	[MM_CHANGE_FULL_SWITCHED] = "full: switched",
	[MM_CHANGE_FULL_DONE] = "full: done",
	[MM_CHANGE_PART_SWITCH] = "part: switch",
	[MM_CHANGE_PART_REPLAN] = "part: replan",
	[MM_CHANGE_PART_QUIESCE] = "part: quiesce",
	[MM_CHANGE_PART_RESUME] = "part: resume",
	[MM_CHANGE_PART_WINDOW] = "part: window",
	[MM_CHANGE_PART_DONE] = "part: done",
	[MM_CHANGE_STATES] = "any",
};

const char *const mm_change_event_names[] = {
	[MM_CHANGE_BEGIN] = "begun",
	[MM_CHANGE_COPIED] = "all copied",
	[MM_CHANGE_COPY_FAILED] = "a copy failed, none runs",
	[MM_CHANGE_ROOM] = "room",
	[MM_CHANGE_END] = "the tenant ends",
	[MM_CHANGE_ACTIVATED] = "ACTIVATE done",
	[MM_CHANGE_ACTIVATE_FAILED] = "ACTIVATE failed",
	[MM_CHANGE_REPLANNED] = "REPLAN done",
	[MM_CHANGE_REPLAN_FAILED] = "REPLAN failed",
	[MM_CHANGE_QUIESCED] = "QUIESCE done",
	[MM_CHANGE_PARKED] = "PARKED",
	[MM_CHANGE_MAPPED] = "MAPPED",
	[MM_CHANGE_COMMITTED] = "COMMITTED",
	[MM_CHANGE_COMMIT_FAILED] = "COMMITTED with an error",
	[MM_CHANGE_RESYNC] = "RESYNC",
	[MM_CHANGE_EVENTS] = "anything but the tenant's end",
};

const char *const mm_change_effect_names[] = {
	[MM_CHANGE_DO_NOTHING] = "",
	[MM_CHANGE_DO_PREPARE] = "fds of the pages; PREPARE(e+1)",
	[MM_CHANGE_DO_REFUSE] = "pages dropped; MODEL_READY with an error; the store dropped",
	[MM_CHANGE_DO_GIVE_UP] = "pages dropped; no change for a second",
	[MM_CHANGE_DO_SWITCH_FULL] =
		"the plan e+1 is in force; table; all gates; plan region and cursors; SWITCH",
	[MM_CHANGE_DO_SWITCH_PART] =
		"the plan e+1 is in force; table; gates of new cyclers; plan region",
	[MM_CHANGE_DO_SWITCH_EMPTY] = "the table is empty; SWITCH without a plan",
	[MM_CHANGE_DO_RESUME] = "gates of layers that come home EMPTY; SWITCH in part",
	[MM_CHANGE_DO_OPEN] = "layers that are mapped are let in",
	[MM_CHANGE_DO_RETURN] = "pages that left are dropped",
	[MM_CHANGE_DO_FINISH] = "",
	[MM_CHANGE_DO_FINISH_PART] = "the other layers are let in",
	[MM_CHANGE_DO_FINISH_FIRST] = "MODEL_READY",
	[MM_CHANGE_DO_FINISH_EMPTY] = "the store dropped",
	[MM_CHANGE_DO_NOTE_BROKEN] = "a change in full has to follow",
	[MM_CHANGE_DO_KICK_UNMAPPED] = "kicked",
	[MM_CHANGE_DO_KICK_UNSERVED] = "kicked",
	[MM_CHANGE_DO_KICK_AND_ABORT] = "ABORT; kicked",
	[MM_CHANGE_DO_END] = "what was reserved for it is dropped",
};

const char *const mm_change_fact_names[] = { "first plan",    "copies needed",     "in part",
					     "layers cycle",  "layers will cycle", "kicked",
					     "the model goes" };
const char *const mm_change_unfact_names[] = { "not the first plan", "none needed",   "in full",
					       "no layer cycles",    "no layer will", "not kicked",
					       "the model stays" };
