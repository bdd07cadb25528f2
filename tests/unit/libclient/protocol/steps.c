/* SPDX-License-Identifier: Apache-2.0 */
/* When steps may run: each state with each event, from tables. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/protocol/steps.h"
#include "libclient/base/base.h"

/* The plan in force has epoch 4, the next one epoch 5. */
#define EPOCH 4

static const struct mm_steps_plan plan_next = { EPOCH + 1, 3, 6 };

static struct mm_steps steps;
static struct mm_steps_out out;

/* ---- plans ---- */

static void begin_steps(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		mm_steps_begin(&steps);
}

static void end_step(bool broke_off)
{
	mm_steps_end(&steps, broke_off, &out);
}

static void make_run(void)
{
	const struct mm_steps_plan plan = { EPOCH, 1, 2 };

	mm_steps_init(&steps, true);
	assert_int_equal(mm_steps_on_switch(&steps, &plan, false), 0);
	mm_steps_mapped(&steps, 0, &out);
}

static void make_run_step(void)
{
	make_run();
	begin_steps(1);
}

static void make_run_broken(void)
{
	make_run_step();
	end_step(true);
}

static void prepare_next(void)
{
	assert_int_equal(mm_steps_on_prepare(&steps, EPOCH + 1, &out), 0);
}

static void make_drain(void)
{
	make_run_step();
	prepare_next();
}

static void make_drain_two(void)
{
	make_run();
	begin_steps(2);
	prepare_next();
}

static void make_parked(void)
{
	make_run();
	prepare_next();
}

static void make_parked_broken(void)
{
	make_run_broken();
	prepare_next();
}

static void make_parked_plain(void)
{
	make_parked();
	steps.takes_partial = false;
}

static void make_map(void)
{
	make_parked();
	assert_int_equal(mm_steps_on_switch(&steps, &plan_next, false), 0);
}

static void make_map_part(void)
{
	make_parked();
	assert_int_equal(mm_steps_on_switch(&steps, &plan_next, true), 0);
}

static void make_map_part_dead(void)
{
	make_map_part();
	mm_steps_on_dead(&steps, &out);
}

static void make_window(void)
{
	make_map_part();
	assert_true(mm_steps_open_window(&steps, &out));
}

static void make_window_step(void)
{
	make_window();
	begin_steps(1);
}

static void make_window_dead(void)
{
	make_window_step();
	mm_steps_on_dead(&steps, &out);
}

static void make_failed(void)
{
	make_map();
	mm_steps_mapped(&steps, -ENOMEM, &out);
}

enum event {
	PREPARE_OLD,
	PREPARE_NEXT,
	PREPARE_LATER,
	SWITCH_OLD,
	SWITCH_NEXT,
	PART_NEXT,
	SWITCH_LATER,
	PART_LATER,
	OPEN_WINDOW,
	MAPPED,
	NOT_MAPPED,
	DEAD,
	BEGIN,
	END,
	END_BROKEN,
	FORGET,
	EVENTS
};

/*
 * For each event: "x": it is refused and changes nothing; "-": the driver may not report it then;
 * else the state that follows (run, drain, parked, map, window, failed) and what is wanted: Parked,
 * with the flag Broken, Sync (RESYNC), Entered, waKe, Abort.
 */
static const struct {
	const char *name;
	void (*make)(void);
	const char *then[EVENTS];
} table[] = {
	/*
	 *                      PREPARE          SWITCH, part               window, mapped    dead
	 */
	{ "run",
	  make_run,
	  { "x", "pP", "pP", "x", "m", "x", "m", "x", "x", "r", "r", "rAK", "r", "-", "-", "rK" } },
	{ "run, a step",
	  make_run_step,
	  { "x", "d", "d", "x", "x", "x", "x", "x", "x", "r", "r", "rAK", "r", "r", "rS", "rK" } },
	{ "run, broken",
	  make_run_broken,
	  { "x", "pPB", "pPB", "x", "m", "x", "m", "x", "x", "r", "r", "rAK", "x", "-", "-",
	    "rK" } },
	{ "drain",
	  make_drain,
	  { "x", "x", "d", "x", "x", "x", "x", "x", "x", "d", "d", "dAK", "x", "pP", "pPBS",
	    "rK" } },
	{ "drain, two steps",
	  make_drain_two,
	  { "x", "x", "d", "x", "x", "x", "x", "x", "x", "d", "d", "dAK", "x", "d", "dS", "rK" } },
	{ "parked",
	  make_parked,
	  { "x", "x", "pP", "x", "m", "m", "x", "x", "x", "p", "p", "pAK", "x", "-", "-", "rK" } },
	{ "parked, broken",
	  make_parked_broken,
	  { "x", "x", "pPB", "x", "m", "x", "x", "x", "x", "p", "p", "pAK", "x", "-", "-", "rK" } },
	{ "parked, no plan in part",
	  make_parked_plain,
	  { "x", "x", "pP", "x", "m", "x", "x", "x", "x", "p", "p", "pAK", "x", "-", "-", "rK" } },
	{ "map",
	  make_map,
	  { "-", "-", "-", "-", "-", "-", "-", "-", "-", "rEK", "f", "mAK", "x", "-", "-", "rK" } },
	{ "map in part",
	  make_map_part,
	  { "-", "-", "-", "-", "-", "-", "-", "-", "wEK", "-", "f", "mAK", "x", "-", "-", "rK" } },
	{ "map in part, dead",
	  make_map_part_dead,
	  { "-", "-", "-", "-", "-", "-", "-", "-", "x", "-", "f", "mAK", "x", "-", "-", "rK" } },
	{ "window",
	  make_window,
	  { "-", "-", "-", "-", "-", "-", "-", "-", "x", "rK", "rK", "wK", "w", "-", "-", "rK" } },
	{ "window, a step",
	  make_window_step,
	  { "-", "-", "-", "-", "-", "-", "-", "-", "x", "rK", "rK", "wK", "w", "w", "wS", "rK" } },
	{ "window, dead",
	  make_window_dead,
	  { "-", "-", "-", "-", "-", "-", "-", "-", "x", "rAK", "rAK", "wK", "w", "w", "wS",
	    "rAK" } },
	{ "failed",
	  make_failed,
	  { "x", "x", "pP", "x", "m", "m", "x", "x", "x", "f", "f", "fAK", "x", "-", "-", "rK" } },
};

static bool switch_goes(uint64_t epoch, bool partial)
{
	const struct mm_steps_plan plan = { epoch, 3, 6 };
	int r = mm_steps_on_switch(&steps, &plan, partial);

	assert_true(r == 0 || r == -EPROTO);
	return r == 0;
}

static bool prepare_goes(uint64_t epoch)
{
	int r = mm_steps_on_prepare(&steps, epoch, &out);

	assert_true(r == 0 || r == -EPROTO);
	return r == 0;
}

static bool step_begins(void)
{
	/* No step may begin while gates are aborted, in any state. */
	assert_int_not_equal(mm_steps_may_begin(&steps, true), MM_STEPS_MAY);
	if (mm_steps_may_begin(&steps, false) != MM_STEPS_MAY)
		return false;
	begin_steps(1);
	return true;
}

/* Return: whether the event was accepted. */
static bool event_happens(enum event event)
{
	switch (event) {
	case PREPARE_OLD:
	case PREPARE_NEXT:
	case PREPARE_LATER:
		return prepare_goes(EPOCH + event - PREPARE_OLD);
	case SWITCH_OLD:
		return switch_goes(EPOCH, false);
	case SWITCH_NEXT:
	case PART_NEXT:
		return switch_goes(EPOCH + 1, event == PART_NEXT);
	case SWITCH_LATER:
	case PART_LATER:
		return switch_goes(EPOCH + 2, event == PART_LATER);
	case OPEN_WINDOW:
		return mm_steps_open_window(&steps, &out);
	case MAPPED:
	case NOT_MAPPED:
		mm_steps_mapped(&steps, event == MAPPED ? 0 : -ENOMEM, &out);
		return true;
	case DEAD:
		mm_steps_on_dead(&steps, &out);
		return true;
	case BEGIN:
		return step_begins();
	case END:
	case END_BROKEN:
		end_step(event == END_BROKEN);
		return true;
	default:
		mm_steps_drop_plan(&steps, &out);
		return true;
	}
}

static char state_letter(void)
{
	static const char letters[MM_STEPS_STATES] = {
		[MM_STEPS_RUN] = 'r', [MM_STEPS_DRAIN] = 'd',  [MM_STEPS_PARKED] = 'p',
		[MM_STEPS_MAP] = 'm', [MM_STEPS_WINDOW] = 'w', [MM_STEPS_FAILED] = 'f',
	};

	return letters[steps.state];
}

static void assert_out(const char *want)
{
	assert_int_equal(out.parked_epoch != 0, strchr(want, 'P') != NULL);
	assert_int_equal(out.parked_broken, strchr(want, 'B') != NULL);
	assert_int_equal(out.resync_epoch, strchr(want, 'S') ? steps.plan.epoch : 0);
	assert_int_equal(out.entered, strchr(want, 'E') != NULL);
	assert_int_equal(out.wake, strchr(want, 'K') != NULL);
	assert_int_equal(out.abort_gates, strchr(want, 'A') != NULL);
	assert_true(!out.turn_done && !out.turn_want);
	if (out.parked_epoch)
		assert_int_equal(out.parked_epoch, steps.next.epoch);
}

static void assert_plan(enum event event)
{
	const struct mm_steps_plan none = { 0 };

	if (event == FORGET)
		assert_memory_equal(&steps.plan, &none, sizeof(none));
	if (out.entered)
		assert_memory_equal(&steps.plan, &plan_next, sizeof(plan_next));
	if (out.entered)
		assert_false(steps.broken);
	/* Checks the invariants of the header. */
	if (steps.state == MM_STEPS_PARKED || steps.state == MM_STEPS_MAP ||
	    steps.state == MM_STEPS_FAILED)
		assert_int_equal(steps.open, 0);
}

static void each_state_and_event(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(table); i++) {
		for (enum event event = 0; event < EVENTS; event++) {
			const char *then = table[i].then[event];
			struct mm_steps before;
			bool good;

			if (*then == '-')
				continue;
			table[i].make();
			before = steps;
			out = (struct mm_steps_out){ 0 };
			good = event_happens(event);
			if (good != (*then != 'x') || (good && state_letter() != *then))
				fail_msg("%s, event %d: '%c', not %s", table[i].name, (int)event,
					 good ? state_letter() : 'x', then);
			assert_out(*then == 'x' ? "" : then);
			assert_plan(event);
			if (*then == 'x')
				assert_memory_equal(&steps, &before, sizeof(steps));
		}
	}
}

/*
 * A step that was broken in the window of a plan stays so when the plan is mapped, until a change
 * in full.
 */
static void a_break_outlives_the_window(void **state)
{
	(void)state;
	make_window_step();
	end_step(true);
	mm_steps_mapped(&steps, 0, &out);
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MUST_WAIT);
	out = (struct mm_steps_out){ 0 };
	assert_true(prepare_goes(EPOCH + 2) && out.parked_broken);
	assert_false(switch_goes(EPOCH + 2, true));
	assert_true(switch_goes(EPOCH + 2, false));
	mm_steps_mapped(&steps, 0, &out);
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MAY);
}

/* A connection that ended before the window opened has aborted its gates: that plan is given up. */
static void no_window_for_the_dead(void **state)
{
	(void)state;
	make_map_part_dead();
	assert_false(mm_steps_open_window(&steps, &out));
	mm_steps_mapped(&steps, -ECONNRESET, &out);
	assert_int_equal(steps.state, MM_STEPS_FAILED);
	assert_int_equal(steps.plan.epoch, EPOCH);
}

/* ---- turns ---- */

#define SERIAL 7

enum turn { NONE, LACKS, ASKED, UNUSED, UNUSED_ENDS, STEP, STEP_ENDS, USED, LOST, TURNS };

static enum turn turn_of(void)
{
	if (steps.turn.mode == MM_TURN_NONE)
		return NONE;
	if (!steps.turn.serial)
		return steps.open ? LOST : steps.turn.requested ? ASKED : LACKS;
	if (steps.open)
		return steps.turn.ending ? STEP_ENDS : STEP;
	if (!steps.turn.used)
		return steps.turn.ending ? UNUSED_ENDS : UNUSED;
	assert_false(steps.turn.ending); /* the turn would have been returned */
	return USED;
}

static void make_turn(enum turn turn)
{
	make_run();
	if (turn == NONE)
		return;
	mm_steps_join_turns(&steps, MM_TURN_QUANTUM, &out);
	if (turn == LACKS)
		return;
	mm_steps_request_turn(&steps, &out);
	if (turn == ASKED)
		return;
	mm_steps_on_turn_begin(&steps, SERIAL, &out);
	if (turn == UNUSED_ENDS || turn == STEP_ENDS)
		mm_steps_on_turn_end(&steps, SERIAL, false, &out);
	if (turn >= STEP)
		begin_steps(1);
	if (turn == USED)
		end_step(false);
	if (turn == LOST)
		mm_steps_on_turn_end(&steps, SERIAL, true, &out);
}

enum turn_event {
	TURN_BEGIN,
	TURN_END,
	TURN_TOO_LATE,
	TURN_END_OTHER,
	LEAVE,
	YIELD,
	ASK,
	UNHEARD,
	STEP_BEGIN,
	STEP_END,
	TURN_EVENTS
};

/*
 * As above: the state that follows; REFUSED; DONE: the turn is returned as well; NEVER: the driver
 * may not report it.
 */
#define REFUSED 100
#define NEVER   101
#define DONE(t) (200 + (t))

static const int turns[TURNS][TURN_EVENTS] = {
	/*   BEGIN  END  too late  END, other  leave  yield  ask  unheard  step begins, ends */
	[NONE] = { NONE, REFUSED, REFUSED, REFUSED, NONE, NONE, NEVER, NEVER, NONE, NEVER },
	[LACKS] = { UNUSED, REFUSED, REFUSED, REFUSED, NONE, LACKS, ASKED, LACKS, REFUSED, NEVER },
	[ASKED] = { UNUSED, REFUSED, REFUSED, REFUSED, NONE, ASKED, NEVER, LACKS, REFUSED, NEVER },
	[UNUSED] = { UNUSED, UNUSED_ENDS, LACKS, REFUSED, NONE, DONE(LACKS), NEVER, NEVER, STEP,
		     NEVER },
	[UNUSED_ENDS] = { UNUSED, UNUSED_ENDS, LACKS, REFUSED, NONE, DONE(LACKS), NEVER, NEVER,
			  STEP_ENDS, NEVER },
	[STEP] = { STEP, STEP_ENDS, LOST, REFUSED, NONE, REFUSED, NEVER, NEVER, STEP, USED },
	[STEP_ENDS] = { STEP, STEP_ENDS, LOST, REFUSED, NONE, REFUSED, NEVER, NEVER, REFUSED,
			DONE(LACKS) },
	[USED] = { UNUSED, DONE(LACKS), LACKS, REFUSED, NONE, DONE(LACKS), NEVER, NEVER, STEP,
		   NEVER },
	[LOST] = { STEP, REFUSED, REFUSED, REFUSED, NONE, LOST, LOST, LOST, REFUSED, LACKS },
};

static bool turn_happens(enum turn_event event)
{
	switch (event) {
	case TURN_BEGIN:
		mm_steps_on_turn_begin(&steps, SERIAL, &out);
		return true;
	case TURN_END:
	case TURN_TOO_LATE:
		return mm_steps_on_turn_end(&steps, SERIAL, event == TURN_TOO_LATE, &out);
	case TURN_END_OTHER:
		return mm_steps_on_turn_end(&steps, SERIAL - 1, false, &out);
	case LEAVE:
		mm_steps_join_turns(&steps, MM_TURN_NONE, &out);
		return true;
	case YIELD:
		return mm_steps_yield_turn(&steps, &out) != -EBUSY;
	case ASK:
		mm_steps_request_turn(&steps, &out);
		return true;
	case UNHEARD:
		mm_steps_turn_request_lost(&steps);
		return true;
	case STEP_BEGIN:
		return step_begins();
	default:
		end_step(false);
		return true;
	}
}

static void each_turn_and_event(void **state)
{
	(void)state;
	for (enum turn turn = 0; turn < TURNS; turn++) {
		for (enum turn_event event = 0; event < TURN_EVENTS; event++) {
			const int then = turns[turn][event];
			struct mm_steps before;

			if (then == NEVER)
				continue;
			make_turn(turn);
			assert_int_equal(turn_of(), turn);
			before = steps;
			out = (struct mm_steps_out){ 0 };
			if (turn_happens(event) != (then != REFUSED))
				fail_msg("turn %d, event %d", (int)turn, (int)event);
			if (then == REFUSED)
				assert_memory_equal(&steps, &before, sizeof(steps));
			else if ((int)turn_of() != then % 200)
				fail_msg("turn %d, event %d: %d", (int)turn, (int)event,
					 (int)turn_of());
			assert_int_equal(out.turn_done, then >= DONE(0) ? SERIAL : 0);
			assert_int_equal(out.turn_want, then != REFUSED && event == ASK);
			assert_int_equal(out.wake,
					 event == TURN_BEGIN || event == LEAVE || then >= DONE(0));
			assert_true(!out.resync_epoch && !out.parked_epoch && !out.abort_gates);
		}
	}
}

/* A turn can be requested while a plan changes: it may have begun when the change is done. */
static void a_turn_is_asked_for_first(void **state)
{
	(void)state;
	make_parked();
	mm_steps_join_turns(&steps, MM_TURN_DRAIN, &out);
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MUST_REQUEST_TURN);
	mm_steps_request_turn(&steps, &out);
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MUST_WAIT);
	mm_steps_on_turn_begin(&steps, SERIAL, &out);
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MUST_WAIT);
	assert_true(switch_goes(EPOCH + 1, false));
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MUST_WAIT);
	mm_steps_mapped(&steps, 0, &out);
	assert_int_equal(mm_steps_may_begin(&steps, false), MM_STEPS_MAY);
}

/* When two steps are open, the end of the last one returns the turn. */
static void the_last_step_gives_the_turn_back(void **state)
{
	(void)state;
	make_turn(STEP);
	begin_steps(1);
	mm_steps_on_turn_end(&steps, SERIAL, false, &out);
	out = (struct mm_steps_out){ 0 };
	end_step(false);
	assert_int_equal(out.turn_done, 0);
	end_step(false);
	assert_int_equal(out.turn_done, SERIAL);
}

/*
 * Steps that overlap, two at a time, as they are submitted one behind the other: whatever comes
 * when, they keep neither a plan nor the end of a turn waiting beyond those that are open.
 */
static void overlapping_steps_keep_nothing_waiting(void **state)
{
	uint64_t rng = 88172645463325252u, serial = 0, epoch = EPOCH, allowed = 0, asked = 0;
	uint32_t parked = 0, given_back = 0, both = 0;

	(void)state;
	make_turn(NONE);
	mm_steps_join_turns(&steps, MM_TURN_QUANTUM, &out);
	epoch = steps.plan.epoch;
	for (uint32_t i = 0; i < 200000; i++) {
		const struct mm_steps_plan plan = { .epoch = epoch + 1 };

		rng ^= rng << 13;
		rng ^= rng >> 7;
		rng ^= rng << 17;
		out = (struct mm_steps_out){ 0 };
		switch (rng % 8) {
		case 0:
		case 1:
		case 2:
			if (steps.open == 2 || mm_steps_may_begin(&steps, false) != MM_STEPS_MAY)
				break;
			/* Those that were open when something had to end are all that there are. */
			assert_true(!asked && !(steps.turn.ending && steps.turn.used));
			mm_steps_begin(&steps);
			both += steps.open == 2;
			break;
		case 3:
		case 4:
			if (steps.open)
				mm_steps_end(&steps, false, &out);
			break;
		case 5:
			if (!asked && steps.state == MM_STEPS_RUN && !(rng >> 8 & 3)) {
				assert_int_equal(mm_steps_on_prepare(&steps, epoch + 1, &out), 0);
				asked = epoch + 1;
				allowed = steps.open;
			} else if (asked && steps.state == MM_STEPS_PARKED) {
				assert_int_equal(mm_steps_on_switch(&steps, &plan, false), 0);
				mm_steps_mapped(&steps, 0, &out);
				epoch++;
				asked = 0;
			}
			break;
		case 6:
			if (!steps.turn.serial)
				mm_steps_on_turn_begin(&steps, ++serial, &out);
			break;
		default:
			if (steps.turn.serial)
				mm_steps_on_turn_end(&steps, steps.turn.serial, false, &out);
			break;
		}
		if (asked) {
			assert_true(steps.open <= allowed);
			allowed = steps.open;
			assert_int_equal(steps.state == MM_STEPS_PARKED, !steps.open);
		}
		parked += out.parked_epoch != 0;
		given_back += out.turn_done != 0;
		/* The turn is given back with the last step, not later. */
		assert_true(!steps.turn.ending || !steps.turn.used || steps.open);
	}
	assert_true(parked > 1000 && given_back > 1000 && both > 1000);
}

/* ---- messages ---- */

/* The last step of a turn that ends breaks off while a plan is prepared. */
static void words_have_an_order(void **state)
{
	static const struct {
		enum mm_op opcode;
		uint64_t epoch;
	} order[] = { { MM_OP_TURN_DONE, 0 },
		      { MM_OP_RESYNC, EPOCH },
		      { MM_OP_PARKED, EPOCH + 1 },
		      { MM_OP_TURN_WANT, 0 } };
	struct mm_msg words[MM_STEPS_MESSAGES_MAX];

	(void)state;
	make_turn(STEP_ENDS);
	prepare_next();
	out = (struct mm_steps_out){ 0 };
	assert_int_equal(mm_steps_messages(&out, words), 0);
	end_step(true);
	mm_steps_request_turn(&steps, &out);
	assert_int_equal(mm_steps_messages(&out, words), MM_ARRAY_SIZE(order));
	for (size_t i = 0; i < MM_ARRAY_SIZE(order); i++) {
		assert_int_equal(words[i].opcode, order[i].opcode);
		assert_int_equal(words[i].epoch, order[i].epoch);
		assert_true(!words[i].flags && !words[i].result && !words[i].user_data);
	}
	assert_int_equal(words[0].arg[0], SERIAL);
	assert_int_equal(words[1].arg[0], 0);
	assert_int_equal(words[2].arg[0], MM_PARKED_BROKEN);
	make_parked();
	out = (struct mm_steps_out){ .parked_epoch = EPOCH + 1 };
	assert_int_equal(mm_steps_messages(&out, words), 1);
	assert_int_equal(words[0].arg[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_and_event),
		cmocka_unit_test(a_break_outlives_the_window),
		cmocka_unit_test(no_window_for_the_dead),
		cmocka_unit_test(each_turn_and_event),
		cmocka_unit_test(a_turn_is_asked_for_first),
		cmocka_unit_test(the_last_step_gives_the_turn_back),
		cmocka_unit_test(overlapping_steps_keep_nothing_waiting),
		cmocka_unit_test(words_have_an_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
