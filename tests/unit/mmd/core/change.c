/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every event in every state of a plan's change, under each condition that a row depends on: an
 * event that the table has leads to the state and has the effects of its row. Any other event is a
 * protocol error if it comes from a tenant, and an assertion otherwise.
 */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/requests.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/settle.h"
#include "mmd/core/book/emit.h"
#include "tests/unit/mmd/core/story.h"

#define ALL_FACTS   (1u << MM_CHANGE_FACTS)
#define USUAL_FACTS (MM_CHANGE_IN_PART | MM_CHANGE_CYCLES | MM_CHANGE_WILL_CYCLE)
#define AWAY        3 /* layers, of eight */

/* ---- the table by itself ---- */

static bool row_fits(const struct mm_change_row *r, enum mm_change_state state,
		     enum mm_change_event event, uint32_t facts)
{
	bool matches = facts & MM_CHANGE_KICKED && event != MM_CHANGE_END
			       ? r->event == MM_CHANGE_EVENTS
			       : r->event == event;

	return (r->state == state || r->state == MM_CHANGE_STATES) && matches &&
	       (facts & r->with) == r->with && !(facts & r->without);
}

static void at_most_one_row_fits(void **state)
{
	uint32_t n;
	const struct mm_change_row *rows = mm_change_rows(&n);

	(void)state;
	for (uint32_t s = 0; s < MM_CHANGE_STATES; s++)
		for (uint32_t e = 0; e < MM_CHANGE_EVENTS; e++)
			for (uint32_t f = 0; f < ALL_FACTS; f++) {
				uint32_t fitting = 0;

				for (uint32_t i = 0; i < n; i++)
					fitting += row_fits(&rows[i], s, e, f);
				assert_in_range(fitting, 0, 1);
				assert_int_equal(fitting, mm_change_row(s, e, f) != NULL);
			}
}

/* Each state can be reached, and left without the tenant's end; each event and effect is in use. */
static void nothing_is_left_over(void **state)
{
	bool reached[MM_CHANGE_STATES] = { [MM_CHANGE_NONE] = true };
	bool left[MM_CHANGE_STATES] = { false }, used[MM_CHANGE_EFFECTS] = { false };
	bool heard[MM_CHANGE_EVENTS + 1] = { false };
	uint32_t n;
	const struct mm_change_row *rows = mm_change_rows(&n);

	(void)state;
	for (uint32_t pass = 0; pass < MM_CHANGE_STATES; pass++)
		for (uint32_t i = 0; i < n; i++)
			if (rows[i].state < MM_CHANGE_STATES)
				reached[rows[i].next] |= reached[rows[i].state];
	for (uint32_t i = 0; i < n; i++) {
		used[rows[i].effect] = heard[rows[i].event] = true;
		if (rows[i].state < MM_CHANGE_STATES)
			left[rows[i].state] |= rows[i].next != rows[i].state;
	}
	for (uint32_t s = 0; s < MM_CHANGE_STATES; s++)
		assert_true(reached[s] && left[s]);
	for (uint32_t i = 0; i < MM_CHANGE_EFFECTS; i++)
		assert_true(used[i] && mm_change_effect_names[i]);
	for (uint32_t i = 0; i <= MM_CHANGE_EVENTS; i++)
		assert_true(heard[i] && mm_change_event_names[i]);
}

/* ---- a tenant in a state ---- */

struct seen {
	bool map, gate, plan, open, abort, kick, drop;
	uint64_t job;   /* the last one */
	uint32_t event; /* the last one's opcode */
	uint64_t flags; /* of SWITCH */
};

static struct seen take_out(void)
{
	struct seen seen = { 0 };
	struct mm_action a;

	while (mm_core_next(w->core, &a)) {
		seen.map |= a.kind == MM_ACT_MAP;
		seen.gate |= a.kind == MM_ACT_GATE;
		seen.plan |= a.kind == MM_ACT_PLAN;
		seen.open |= a.kind == MM_ACT_OPEN;
		seen.abort |= a.kind == MM_ACT_ABORT;
		seen.kick |= a.kind == MM_ACT_KICK;
		seen.drop |= a.kind == MM_ACT_MODEL_DROP;
		if (a.kind == MM_ACT_JOB)
			seen.job = a.msg.user_data;
		if (a.kind != MM_ACT_EVENT)
			continue;
		seen.event = a.msg.opcode;
		seen.flags = a.msg.arg[2];
	}
	return seen;
}

/* A tenant with a model in @state; its plan and its next plan are as @facts demand. */
static struct mm_c_tenant *put_into(enum mm_change_state state, enum mm_change_event event,
				    uint32_t facts)
{
	struct mm_c_tenant *t;
	struct w_proc *p;

	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 2);
	if (facts & MM_CHANGE_CYCLES) {
		story_plan_by_hand(p, AWAY);
		w_run(w);
	}
	t = mm_c_tenant(w->core, p->tenant);
	assert_int_equal(t->change->state, MM_CHANGE_STEADY);
	assert_int_equal(!!t->plan.m, !!(facts & MM_CHANGE_CYCLES));
	if (facts & MM_CHANGE_FIRST)
		t->model = state == MM_CHANGE_FULL_DONE || state == MM_CHANGE_FULL_SWITCHED
				   ? MM_C_MODEL_SWITCHED
				   : MM_C_MODEL_LOADING;
	t->change->next_set = (struct mm_plan_set){ 0 };
	t->change->next_cold = (struct mm_core_cold){ 0 };
	t->change->next_alpha = facts & MM_CHANGE_WILL_CYCLE ? AWAY : 0;
	if (t->plan.m && t->change->next_alpha)
		t->change->next_set = t->change->set;
	else if (t->change->next_alpha)
		mm_c_change_set(w->core, t, AWAY, 1, UINT64_MAX, &t->change->next_set);
	if (facts & MM_CHANGE_COPIES && event == MM_CHANGE_BEGIN) {
		t->change->pre.n = 1;
		t->change->pre.entry[0] = 0;
		t->change->pre.page[0] = mm_c_page_reserve(w->core, t);
	}
	t->change->broken = !(facts & MM_CHANGE_IN_PART);
	t->change->state = state;
	t->kicked = facts & MM_CHANGE_KICKED;
	t->change->mapped = 2;
	t->change->home[0] = 1;
	t->change->served_epoch = t->plan.epoch;
	t->change->unload = facts & MM_CHANGE_UNLOAD;
	if (t->change->unload && state == MM_CHANGE_FULL_DONE) {
		t->model = MM_C_MODEL_LEAVING;
		t->change->served_epoch = 0;
	}
	return t;
}

static void expect_effect(const struct mm_c_tenant *t, const struct mm_change_row *row,
			  uint32_t facts)
{
	struct seen s = take_out();
	bool kick = row->effect == MM_CHANGE_DO_KICK_UNMAPPED ||
		    row->effect == MM_CHANGE_DO_KICK_UNSERVED ||
		    row->effect == MM_CHANGE_DO_KICK_AND_ABORT;
	bool full = row->effect == MM_CHANGE_DO_SWITCH_FULL;
	bool part = row->effect == MM_CHANGE_DO_SWITCH_PART;
	uint32_t event = full ? MM_EV_SWITCH : MM_EV_NOP;

	switch (row->effect) {
	case MM_CHANGE_DO_PREPARE:
		event = MM_EV_PREPARE;
		break;
	case MM_CHANGE_DO_REFUSE:
	case MM_CHANGE_DO_FINISH_FIRST:
		event = MM_EV_MODEL_READY;
		break;
	case MM_CHANGE_DO_RESUME:
	case MM_CHANGE_DO_SWITCH_EMPTY:
		event = MM_EV_SWITCH;
		break;
	default:
		break;
	}
	assert_int_equal(s.event, event);
	assert_int_equal(s.flags, row->effect == MM_CHANGE_DO_RESUME         ? MM_SWITCH_PARTIAL
				  : row->effect == MM_CHANGE_DO_SWITCH_EMPTY ? MM_SWITCH_EMPTY
									     : 0);
	assert_int_equal(s.drop, row->effect == MM_CHANGE_DO_FINISH_EMPTY ||
					 row->effect == MM_CHANGE_DO_REFUSE);
	assert_int_equal(s.kick, kick);
	assert_int_equal(t->kicked, kick || facts & MM_CHANGE_KICKED);
	assert_int_equal(s.abort, row->effect == MM_CHANGE_DO_KICK_AND_ABORT);
	assert_int_equal(s.plan, (full || part) && facts & MM_CHANGE_WILL_CYCLE && t->plan.m != 0);
	assert_true(s.gate || !full);
	if (row->effect == MM_CHANGE_DO_NOTE_BROKEN)
		assert_true(t->change->broken);
	if (row->effect == MM_CHANGE_DO_END || full)
		assert_false(t->change->broken);
	if (row->effect == MM_CHANGE_DO_END)
		assert_true(!t->change->mapped && !t->change->open && !t->change->home[0] &&
			    !t->change->served_epoch);
	if (row->effect == MM_CHANGE_DO_SWITCH_EMPTY)
		assert_true(s.map && !t->plan.m && !t->entries);
	if (row->effect == MM_CHANGE_DO_OPEN)
		assert_int_equal(t->change->open, 2);
	if (row->effect == MM_CHANGE_DO_FINISH_PART)
		assert_int_equal(t->change->open, t->n_layers);
}

static void expect_protocol_error(struct mm_c_tenant *t, enum mm_change_event event)
{
	static const uint16_t op[MM_CHANGE_EVENTS] = {
		[MM_CHANGE_PARKED] = MM_OP_PARKED,
		[MM_CHANGE_MAPPED] = MM_OP_MAPPED,
		[MM_CHANGE_COMMITTED] = MM_OP_COMMITTED,
		[MM_CHANGE_COMMIT_FAILED] = MM_OP_COMMITTED,
		[MM_CHANGE_RESYNC] = MM_OP_RESYNC,
	};
	struct mm_msg msg = { .opcode = op[event],
			      .epoch = t->plan.epoch + (event == MM_CHANGE_PARKED),
			      .result = event == MM_CHANGE_COMMIT_FAILED ? -ENOMEM : 0 };

	if (event == MM_CHANGE_RESYNC)
		msg.epoch = 0;
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, t->id, &msg), MM_E_PROTOCOL);
}

static void expect_assertion(struct mm_c_tenant *t, enum mm_change_event event)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL);
		prctl(PR_SET_DUMPABLE, 0);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
		mm_c_change_event(w->core, t, event);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void row_check_one(enum mm_change_state state, enum mm_change_event event, uint32_t facts)
{
	const struct mm_change_row *row = mm_change_row(state, event, facts);
	struct mm_c_tenant *t = put_into(state, event, facts);

	if (row) {
		assert_int_equal(mm_c_change_event(w->core, t, event), 0);
		assert_int_equal(t->change->state,
				 row->next == MM_CHANGE_STATES ? state : row->next);
		expect_effect(t, row, facts);
	} else if (mm_change_is_tenants(event)) {
		assert_int_equal(mm_c_change_event(w->core, t, event), MM_E_PROTOCOL);
		assert_int_equal(t->change->state, state);
		expect_protocol_error(t, event);
	} else {
		expect_assertion(t, event);
	}
	w_done(w);
}

/* Facts on which the rows of this state and event depend. */
static uint32_t facts_asked(enum mm_change_state state, enum mm_change_event event)
{
	uint32_t n, asked = 0;
	const struct mm_change_row *rows = mm_change_rows(&n);

	for (uint32_t i = 0; i < n; i++)
		if (row_fits(&rows[i], state, event, rows[i].with))
			asked |= rows[i].with | rows[i].without;
	return asked;
}

/* A model that is not ready yet cannot go. */
static bool facts_are_possible(uint32_t facts)
{
	return !(facts & MM_CHANGE_UNLOAD) || !(facts & MM_CHANGE_FIRST);
}

static void every_event_in_every_state(void **state)
{
	(void)state;
	for (uint32_t s = 0; s < MM_CHANGE_STATES; s++)
		for (uint32_t e = 0; e < MM_CHANGE_EVENTS; e++) {
			uint32_t asked = facts_asked(s, e);

			for (uint32_t f = 0; f < ALL_FACTS; f++)
				if (!(f & ~asked) && facts_are_possible(f))
					row_check_one(s, e, f | (USUAL_FACTS & ~asked));
		}
}

/* ---- control jobs ---- */

static void xfer_is_asked_for_what_the_state_needs(void **state)
{
	static const struct {
		enum mm_change_state state;
		enum mm_xop told, not_told;
	} wants[] = {
		{ MM_CHANGE_NONE, MM_XOP_NOP, MM_XOP_NOP },
		{ MM_CHANGE_LOAD, MM_XOP_NOP, MM_XOP_NOP },
		{ MM_CHANGE_STEADY, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_PRELOAD, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_PREPARED, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_FULL_QUIESCE, MM_XOP_QUIESCE, MM_XOP_QUIESCE },
		{ MM_CHANGE_FULL_SWITCH, MM_XOP_NOP, MM_XOP_NOP },
		{ MM_CHANGE_FULL_SWITCHED, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_FULL_DONE, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_PART_SWITCH, MM_XOP_NOP, MM_XOP_NOP },
		{ MM_CHANGE_PART_REPLAN, MM_XOP_NOP, MM_XOP_REPLAN },
		{ MM_CHANGE_PART_QUIESCE, MM_XOP_QUIESCE, MM_XOP_QUIESCE },
		{ MM_CHANGE_PART_RESUME, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_PART_WINDOW, MM_XOP_NOP, MM_XOP_ACTIVATE },
		{ MM_CHANGE_PART_DONE, MM_XOP_NOP, MM_XOP_ACTIVATE },
	};
	struct mm_c_tenant *t = put_into(MM_CHANGE_STEADY, MM_CHANGE_END, MM_CHANGE_CYCLES);

	(void)state;
	assert_int_equal(MM_ARRAY_SIZE(wants), MM_CHANGE_STATES);
	for (uint32_t i = 0; i < MM_CHANGE_STATES; i++) {
		t->change->state = wants[i].state;
		t->change->served_epoch = t->plan.epoch;
		assert_int_equal(mm_c_change_control(t), wants[i].told);
		mm_c_change_xfer_up(t);
		assert_int_equal(mm_c_change_control(t), wants[i].not_told);
	}
	t->change->state = MM_CHANGE_STEADY;
	t->plan.m = 0;
	assert_int_equal(mm_c_change_control(t), MM_XOP_NOP);
}

/* If xfer does not know the tenant, it serves nothing of it. */
static void a_quiesce_is_done_whatever_it_came_to(void **state)
{
	const struct mm_msg job = { .opcode = MM_XOP_QUIESCE };
	struct mm_c_tenant *t = put_into(MM_CHANGE_PART_QUIESCE, MM_CHANGE_QUIESCED, USUAL_FACTS);

	(void)state;
	mm_c_change_control_done(w->core, t, &job, -ENOENT);
	assert_int_equal(t->change->state, MM_CHANGE_PART_RESUME);
	t->change->state = MM_CHANGE_FULL_QUIESCE;
	mm_c_change_control_done(w->core, t, &job, -EIO);
	assert_int_equal(t->change->state, MM_CHANGE_FULL_SWITCH);
	assert_int_equal(t->change->served_epoch, 0);
	assert_false(t->kicked);
}

/* ---- steps that broke off ---- */

/* Like mm_core_on_request(), but the queue may have actions. */
static void request_handle(struct mm_c_tenant *t, enum mm_op op, uint64_t epoch)
{
	const struct mm_msg msg = { .opcode = (uint16_t)op, .epoch = epoch };

	assert_int_equal(mm_c_request_handle(w->core, t, &msg), 0);
	mm_c_settle(w->core, w->now_ns);
}

static void queue_fill(void)
{
	while (mm_c_burst(w->core))
		mm_c_emit(w->core, MM_ACT_NONE, NULL);
}

/*
 * After COMMITTED steps run, though the change has not ended: one that breaks off is of the new
 * plan.
 */
static void a_step_behind_committed_is_mended(void **state)
{
	struct mm_c_tenant *t = put_into(MM_CHANGE_FULL_SWITCHED, MM_CHANGE_RESYNC,
					 MM_CHANGE_IN_PART | MM_CHANGE_CYCLES);

	(void)state;
	queue_fill();
	request_handle(t, MM_OP_COMMITTED, t->plan.epoch);
	request_handle(t, MM_OP_RESYNC, 0);
	assert_int_equal(t->change->state, MM_CHANGE_FULL_DONE);
	assert_int_equal(take_out().event, MM_EV_PREPARE);
	assert_int_equal(t->change->state, MM_CHANGE_PREPARED);
	request_handle(t, MM_OP_PARKED, t->plan.epoch + 1);
	assert_int_equal(t->change->state, MM_CHANGE_FULL_QUIESCE);
}

/*
 * The RESYNC of a thread that was delayed has the epoch of an earlier plan: the change from that
 * plan has put the gates in order.
 */
static void a_late_resync_differs_from_a_true_one(void **state)
{
	struct mm_c_tenant *t = put_into(MM_CHANGE_STEADY, MM_CHANGE_RESYNC, USUAL_FACTS);
	const struct mm_msg ahead = { .opcode = MM_OP_RESYNC, .epoch = t->plan.epoch + 1 };

	(void)state;
	assert_true(t->plan.epoch > 1);
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, t->id, &ahead), MM_E_PROTOCOL);
	request_handle(t, MM_OP_RESYNC, t->plan.epoch - 1);
	assert_int_equal(t->change->state, MM_CHANGE_STEADY);
	assert_false(t->change->broken);
	request_handle(t, MM_OP_RESYNC, t->plan.epoch);
	assert_int_equal(t->change->state, MM_CHANGE_PREPARED);
}

/* ---- a tenant that is kicked ---- */

/*
 * A change in part waits for an ACTIVATE, which fails, so that the tenant is kicked: the new plan
 * is not put in force.
 */
static void nothing_is_begun_for_the_kicked(void **state)
{
	struct mm_c_tenant *t = put_into(MM_CHANGE_PREPARED, MM_CHANGE_PARKED, USUAL_FACTS);
	uint64_t epoch = t->plan.epoch, activate;
	struct seen seen;

	(void)state;
	mm_core_on_xfer_up(w->core, w->now_ns, 2);
	activate = take_out().job;
	request_handle(t, MM_OP_PARKED, epoch + 1);
	assert_int_equal(t->change->state, MM_CHANGE_PART_SWITCH);
	assert_int_equal(mm_core_on_job_done(w->core, w->now_ns, activate, -EIO), 0);
	seen = take_out();
	assert_true(seen.abort && seen.kick);
	assert_false(seen.map || seen.gate || seen.plan || seen.job || seen.event);
	assert_int_equal(t->plan.epoch, epoch);
	assert_int_equal(mm_c_change_control(t), MM_XOP_NOP);
	mm_core_on_xfer_up(w->core, w->now_ns, 3);
	assert_false(take_out().job);
}

/* ---- the front door ---- */

/*
 * The shell performs all actions of an event before it reports the next one, except the end of
 * xfer.
 */
static void no_event_comes_while_actions_wait(void **state)
{
	struct mm_c_tenant *t = put_into(MM_CHANGE_STEADY, MM_CHANGE_END, USUAL_FACTS);
	pid_t child;
	int status;

	(void)state;
	mm_c_emit(w->core, MM_ACT_NONE, t);
	mm_core_on_xfer_down(w->core, w->now_ns);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL);
		prctl(PR_SET_DUMPABLE, 0);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
		mm_core_on_tick(w->core, w->now_ns);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	take_out();
	mm_core_on_tick(w->core, w->now_ns);
	w_done(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_most_one_row_fits),
		cmocka_unit_test(nothing_is_left_over),
		cmocka_unit_test(every_event_in_every_state),
		TEST(xfer_is_asked_for_what_the_state_needs),
		TEST(a_quiesce_is_done_whatever_it_came_to),
		TEST(a_step_behind_committed_is_mended),
		TEST(a_late_resync_differs_from_a_true_one),
		TEST(nothing_is_begun_for_the_kicked),
		TEST(no_event_comes_while_actions_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
