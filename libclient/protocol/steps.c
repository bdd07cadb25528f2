/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/protocol/steps.h"

#include <errno.h>

#include "libclient/base/base.h"

void mm_steps_init(struct mm_steps *s, bool takes_partial)
{
	*s = (struct mm_steps){ .takes_partial = takes_partial };
}

void mm_steps_drop_plan(struct mm_steps *s, struct mm_steps_out *out)
{
	s->state = MM_STEPS_RUN;
	s->plan = s->next = (struct mm_steps_plan){ 0 };
	out->abort_gates |= s->abort_due;
	s->abort_due = false;
	out->wake = true;
}

/* ---- sending ---- */

/*
 * RESYNC before PARKED, so that the change that PARKED allows is one that puts all gates in order.
 * TURN_DONE is first, since other tenants wait for the turn.
 */
uint32_t mm_steps_messages(const struct mm_steps_out *out,
			   struct mm_msg ret_msgs[MM_STEPS_MESSAGES_MAX])
{
	uint32_t n = 0;

	if (out->turn_done)
		ret_msgs[n++] =
			(struct mm_msg){ .opcode = MM_OP_TURN_DONE, .arg = { out->turn_done } };
	if (out->resync_epoch)
		ret_msgs[n++] =
			(struct mm_msg){ .opcode = MM_OP_RESYNC, .epoch = out->resync_epoch };
	if (out->parked_epoch)
		ret_msgs[n++] =
			(struct mm_msg){ .opcode = MM_OP_PARKED,
					 .epoch = out->parked_epoch,
					 .arg = { out->parked_broken ? MM_PARKED_BROKEN : 0 } };
	if (out->turn_want)
		ret_msgs[n++] = (struct mm_msg){ .opcode = MM_OP_TURN_WANT };
	return n;
}

/* ---- plans ---- */

static void steps_park(struct mm_steps *s, struct mm_steps_out *out)
{
	if (s->state != MM_STEPS_DRAIN || s->open)
		return;
	s->state = MM_STEPS_PARKED;
	out->parked_epoch = s->next.epoch;
	out->parked_broken = s->broken;
}

static bool prepare_is_due(const struct mm_steps *s, uint64_t epoch)
{
	return epoch > s->plan.epoch && (s->state == MM_STEPS_RUN || epoch > s->next.epoch);
}

int mm_steps_on_prepare(struct mm_steps *s, uint64_t epoch, struct mm_steps_out *out)
{
	mm_assert(s->state != MM_STEPS_MAP && s->state != MM_STEPS_WINDOW);
	if (!prepare_is_due(s, epoch))
		return -EPROTO;
	s->state = MM_STEPS_DRAIN;
	s->next = (struct mm_steps_plan){ .epoch = epoch };
	steps_park(s, out);
	return 0;
}

/*
 * Without PREPARE, a plan may come while no step is open. A change in part lets steps go on; it may
 * come only when steps were parked for it and none was broken, since it leaves gates as they are.
 */
static bool switch_is_due(const struct mm_steps *s, uint64_t epoch, bool partial)
{
	if (epoch <= s->plan.epoch)
		return false;
	if (s->state == MM_STEPS_RUN)
		return !partial && !s->open;
	if (partial && (s->broken || !s->takes_partial))
		return false;
	return s->state != MM_STEPS_DRAIN && epoch == s->next.epoch;
}

int mm_steps_on_switch(struct mm_steps *s, const struct mm_steps_plan *plan, bool partial)
{
	mm_assert(s->state != MM_STEPS_MAP && s->state != MM_STEPS_WINDOW);
	if (!switch_is_due(s, plan->epoch, partial))
		return -EPROTO;
	s->state = MM_STEPS_MAP;
	s->next = *plan;
	s->partial = partial;
	return 0;
}

static void plan_put_in_force(struct mm_steps *s, enum mm_steps_state state,
			      struct mm_steps_out *out)
{
	mm_assert(!s->open);
	s->state = state;
	s->plan = s->next;
	s->broken = false;
	out->entered = out->wake = true;
}

/* The plan may have been dropped meanwhile; then no window opens. */
bool mm_steps_open_window(struct mm_steps *s, struct mm_steps_out *out)
{
	if (s->state != MM_STEPS_MAP || s->dead)
		return false;
	mm_assert(s->partial);
	plan_put_in_force(s, MM_STEPS_WINDOW, out);
	return true;
}

static void window_close(struct mm_steps *s, struct mm_steps_out *out)
{
	s->state = MM_STEPS_RUN;
	out->wake = true;
	out->abort_gates |= s->abort_due;
	s->abort_due = false;
}

void mm_steps_mapped(struct mm_steps *s, int result, struct mm_steps_out *out)
{
	if (s->state == MM_STEPS_WINDOW) {
		window_close(s, out);
	} else if (s->state == MM_STEPS_MAP && result) {
		s->state = MM_STEPS_FAILED;
	} else if (s->state == MM_STEPS_MAP) {
		mm_assert(!s->partial);
		plan_put_in_force(s, MM_STEPS_RUN, out);
	}
}

void mm_steps_on_dead(struct mm_steps *s, struct mm_steps_out *out)
{
	s->dead = true;
	s->abort_due = mm_steps_in_window(s);
	out->abort_gates |= !s->abort_due;
	out->wake = true;
}

/* ---- turns ---- */

static void turn_leave(struct mm_steps *s, struct mm_steps_out *out)
{
	if (s->open || !s->turn.serial)
		return;
	out->turn_done = s->turn.serial;
	s->turn.serial = 0;
	s->turn.ending = false;
	out->wake = true;
}

void mm_steps_on_turn_begin(struct mm_steps *s, uint64_t serial, struct mm_steps_out *out)
{
	s->turn.serial = serial;
	s->turn.requested = s->turn.used = s->turn.ending = false;
	out->wake = true;
}

bool mm_steps_on_turn_end(struct mm_steps *s, uint64_t serial, bool too_late,
			  struct mm_steps_out *out)
{
	if (!s->turn.serial || s->turn.serial != serial)
		return false;
	s->turn.ending = !too_late;
	if (too_late)
		s->turn.serial = 0;
	else if (s->turn.used) /* otherwise one step runs first: each turn makes progress */
		turn_leave(s, out);
	return true;
}

/*
 * mmd drops the request of a tenant that leaves, so one that joins again must request a turn again.
 */
void mm_steps_join_turns(struct mm_steps *s, enum mm_turn_mode mode, struct mm_steps_out *out)
{
	s->turn.mode = mode;
	if (mode == MM_TURN_NONE) {
		s->turn.serial = 0;
		s->turn.requested = s->turn.ending = false;
	}
	out->wake = true;
}

void mm_steps_request_turn(struct mm_steps *s, struct mm_steps_out *out)
{
	s->turn.requested = true;
	out->turn_want = true;
}

void mm_steps_turn_request_lost(struct mm_steps *s)
{
	s->turn.requested = false;
}

int mm_steps_yield_turn(struct mm_steps *s, struct mm_steps_out *out)
{
	if (s->open && s->turn.serial)
		return -EBUSY;
	turn_leave(s, out);
	return 0;
}

/* ---- steps ---- */

/* A change of the plan puts the gates in order that a broken step left aborted or out of order. */
enum mm_steps_may mm_steps_may_begin(const struct mm_steps *s, bool gates_aborted)
{
	const bool runs = s->state == MM_STEPS_RUN || s->state == MM_STEPS_WINDOW;
	/* Steps that overlap would keep a turn for ever that is to end with the last open one. */
	const bool ends = s->turn.ending && s->turn.used && s->open;

	if (mm_steps_lacks_turn(s) && !s->turn.requested)
		return MM_STEPS_MUST_REQUEST_TURN;
	return runs && !ends && !s->broken && !gates_aborted && !mm_steps_lacks_turn(s)
		       ? MM_STEPS_MAY
		       : MM_STEPS_MUST_WAIT;
}

void mm_steps_begin(struct mm_steps *s)
{
	mm_assert(mm_steps_may_begin(s, false) == MM_STEPS_MAY);
	s->turn.used = true;
	s->open++;
}

void mm_steps_end(struct mm_steps *s, bool broke_off, struct mm_steps_out *out)
{
	mm_assert(s->open);
	s->open--;
	s->broken |= broke_off;
	/* No plan changes while a step is open: the step ran under the plan in force. */
	if (broke_off)
		out->resync_epoch = s->plan.epoch;
	if (s->turn.ending)
		turn_leave(s, out);
	steps_park(s, out);
}
