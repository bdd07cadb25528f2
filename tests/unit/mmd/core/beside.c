/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns that are open, so that tenants compute side by side, and the way from there to one holder.
 */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include "mmd/core/market/turn.h"

#define MEMBERS  3
#define GRACE_MS 2000

static int beside_setup(void **state)
{
	(void)state;
	story_begin(MM_POLICY_ELASTIC, 40);
	return 0;
}

/* A tenant that can compute. It runs no step, so a turn stays until w_turn_done(). */
static struct w_proc *member_of(uint32_t account, enum mm_turn_mode mode, uint32_t priority)
{
	struct w_proc *p = w_join(w, account, MM_FEAT_KNOWN);

	w_turn_join(w, p, mode, 50 * MM_NS_PER_MS, priority);
	w_kv_declare(w, p, 1, 1, 1, 0);
	w_kv_want(w, p, 1);
	w_run(w);
	assert_int_equal(p->held, 1);
	return p;
}

static void member_want(struct w_proc *p)
{
	w_turn_want(w, p);
	w_run(w);
}

static void member_done(struct w_proc *p)
{
	w_turn_done(w, p);
	w_run(w);
}

static void settle_ms(uint32_t ms)
{
	w_tick(w, ms * MM_NS_PER_MS);
	w_run(w);
}

static void turns_open(void)
{
	mm_c_turns_set(w->core, true, 0);
	settle_ms(0);
}

static void turns_close(void)
{
	mm_c_turns_set(w->core, false, 0);
	settle_ms(0);
}

static bool holds_turn(const struct w_proc *p)
{
	return p->machine.turn.serial && !p->machine.turn.ending;
}

/* Returns whether @p is to give a turn back because turns closed. */
static bool is_closing(const struct w_proc *p)
{
	for (uint32_t i = 0; i < w->core->tenants_end; i++)
		if (w->core->tenant[i].id == p->tenant)
			return w->core->tenant[i].turn->closing;
	return false;
}

/* Tenants of one account that all hold a turn. */
static void members_hold(struct w_proc **p)
{
	turns_open();
	for (uint32_t i = 0; i < MEMBERS; i++) {
		p[i] = member_of(0, MM_TURN_QUANTUM, 0);
		member_want(p[i]);
		assert_true(holds_turn(p[i]));
	}
}

static struct mm_core_tenant member_state(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t;
}

/* Each gets a turn of its own at once, and keeps it beyond its quantum although others came. */
static void all_compute_at_once(void **state)
{
	struct w_proc *p[MEMBERS];

	(void)state;
	members_hold(p);
	for (uint32_t i = 1; i < MEMBERS; i++)
		assert_true(p[i]->machine.turn.serial > p[i - 1]->machine.turn.serial);
	assert_int_equal(mm_core_deadline(w->core), UINT64_MAX);
	settle_ms(60000);
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(holds_turn(p[i]));
}

/* One that gives its turn back is idle at once, and the others go on. */
static void one_that_has_no_work_is_idle(void **state)
{
	struct w_proc *p[MEMBERS];
	uint64_t serial;

	(void)state;
	members_hold(p);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		w_stats(w, p[i], 1);
		assert_false(member_state(p[i]).idle);
	}
	serial = p[1]->machine.turn.serial;
	member_done(p[1]);
	assert_true(member_state(p[1]).idle);
	assert_true(holds_turn(p[0]) && !holds_turn(p[1]) && holds_turn(p[2]));
	member_want(p[1]);
	assert_true(holds_turn(p[1]) && p[1]->machine.turn.serial > serial);
	assert_false(member_state(p[1]).idle);
}

/* A tenant that cannot compute yet gets its turn when it can. */
static void one_without_a_model_waits(void **state)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);

	(void)state;
	turns_open();
	w_turn_join(w, p, MM_TURN_QUANTUM, 0, 0);
	member_want(p);
	assert_false(holds_turn(p));
	assert_true(member_state(p).idle && member_state(p).turn_wanted);
	w_model(w, p, 1, 3, 2, 1);
	w_run(w);
	assert_true(p->model_ready && holds_turn(p));
}

/* Tenants that wait when turns open get theirs, and the holder keeps the one that it has. */
static void opening_keeps_the_holder(void **state)
{
	struct w_proc *a = member_of(0, MM_TURN_QUANTUM, 0), *b = member_of(0, MM_TURN_QUANTUM, 0),
		      *c = member_of(1, MM_TURN_QUANTUM, 0);
	uint64_t serial;

	(void)state;
	member_want(a);
	member_want(b);
	member_want(c);
	assert_true(holds_turn(a) && !holds_turn(b) && !holds_turn(c));
	serial = a->machine.turn.serial;
	turns_open();
	assert_int_equal(a->machine.turn.serial, serial);
	assert_true(holds_turn(a) && holds_turn(b) && holds_turn(c));
}

/* All must give their turns back, and the next turn begins when none is left. */
static void closing_ends_all(void **state)
{
	struct w_proc *p[MEMBERS];

	(void)state;
	members_hold(p);
	assert_false(is_closing(p[0]));
	turns_close();
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(p[i]->machine.turn.ending && is_closing(p[i]));
	member_done(p[1]);
	member_want(p[1]);
	member_done(p[2]);
	member_want(p[2]);
	assert_true(p[0]->machine.turn.ending);
	assert_false(p[1]->machine.turn.serial || p[2]->machine.turn.serial);
	member_done(p[0]);
	assert_true(holds_turn(p[1]) && !is_closing(p[1])); /* it has waited longest */
	member_want(p[0]);
	assert_false(p[0]->machine.turn.serial || p[2]->machine.turn.serial);
	settle_ms(50);
	assert_true(p[1]->machine.turn.ending); /* by its quantum, as usual */
}

/* The order among those that wait is the usual one. */
static void closing_goes_by_priority(void **state)
{
	const struct mm_core_quota trusted = { .turn_priority_max = MM_TURN_PRIORITY_MAX };
	struct w_proc *low, *high;

	(void)state;
	turns_open();
	low = member_of(0, MM_TURN_QUANTUM, 0);
	high = member_of(0, MM_TURN_QUANTUM, 3);
	assert_int_equal(w_quota_set(w, 0, &trusted), MM_QUOTA_APPLIED);
	member_want(low);
	member_want(high);
	turns_close();
	member_done(low);
	member_want(low);
	settle_ms(10);
	member_want(high);
	member_done(high);
	assert_true(holds_turn(high) && !low->machine.turn.serial);
}

/* Those that do not give their turns back lose them after the grace, each of them. */
static void closing_takes_what_is_overdue(void **state)
{
	struct w_proc *p[MEMBERS];

	(void)state;
	members_hold(p);
	turns_close();
	member_done(p[2]);
	member_want(p[2]);
	settle_ms(GRACE_MS - 1);
	assert_false(p[2]->machine.turn.serial);
	assert_true(p[0]->machine.turn.ending && p[1]->machine.turn.ending);
	settle_ms(1);
	assert_true(holds_turn(p[2]));
	assert_false(p[0]->machine.turn.serial || p[1]->machine.turn.serial);
	assert_int_equal(member_state(p[0]).turns_overdue, 1);
	assert_int_equal(member_state(p[1]).turns_overdue, 1);
	assert_int_equal(member_state(p[2]).turns_overdue, 0);
	assert_int_equal(story_stats().turns_overdue, 2);
}

/* Nothing ends for one that computes alone when turns close. */
static void closing_spares_one_alone(void **state)
{
	struct w_proc *a = member_of(0, MM_TURN_QUANTUM, 0), *b = member_of(0, MM_TURN_QUANTUM, 0);

	(void)state;
	turns_open();
	member_want(a);
	settle_ms(1000);
	turns_close();
	assert_true(holds_turn(a));
	assert_int_equal(mm_core_deadline(w->core), UINT64_MAX);
	member_want(b);
	assert_true(a->machine.turn.ending && !b->machine.turn.serial); /* its quantum is over */
	member_done(a);
	assert_true(holds_turn(b));
}

/* Turns that open again while they close begin anew for those that gave theirs back. */
static void opening_while_closing(void **state)
{
	struct w_proc *p[MEMBERS];

	(void)state;
	members_hold(p);
	turns_close();
	member_done(p[0]);
	member_want(p[0]);
	assert_false(p[0]->machine.turn.serial);
	turns_open();
	assert_true(holds_turn(p[0]));
	member_done(p[1]);
	member_want(p[1]);
	assert_true(holds_turn(p[1]));
	settle_ms(GRACE_MS); /* the third was told to give its turn back, and has not */
	assert_false(p[2]->machine.turn.serial);
	assert_int_equal(member_state(p[2]).turns_overdue, 1);
	member_want(p[2]);
	assert_true(holds_turn(p[2]));
	assert_true(holds_turn(p[0]) && holds_turn(p[1]));
}

/* The end of one holder concerns no other, and its index may be used again. */
static void ends_of_holders(void **state)
{
	struct w_proc *p[MEMBERS], *q;

	(void)state;
	members_hold(p);
	w_bye(w, p[0]);
	w_run(w);
	w_kill(w, p[1]);
	w_run(w);
	assert_true(holds_turn(p[2]));
	assert_int_equal(story_stats().tenants, 1);
	q = member_of(0, MM_TURN_QUANTUM, 0);
	assert_false(q->machine.turn.serial);
	member_want(q);
	assert_true(holds_turn(q) && holds_turn(p[2]));
	w_turn_join(w, p[2], MM_TURN_NONE, 0, 0);
	w_run(w);
	turns_close();
	assert_true(holds_turn(q)); /* it is the only one by now */
}

/* A tenant gives back its own turn, and names no serial that it never got. */
static void serials_are_ones_own(void **state)
{
	struct w_proc *p[MEMBERS];
	struct mm_msg done = { .opcode = MM_OP_TURN_DONE };

	(void)state;
	members_hold(p);
	done.arg[0] = p[0]->machine.turn.serial;
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, p[1]->tenant, &done), 0);
	w_run(w);
	settle_ms(1000);
	turns_close();
	assert_true(p[0]->machine.turn.ending && p[1]->machine.turn.ending);
	done.arg[0] = p[2]->machine.turn.serial;
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, p[1]->tenant, &done),
			 MM_E_PROTOCOL);
}

/* Nobody is charged for time in which nobody waited. */
static void no_charge_while_open(void **state)
{
	struct w_proc *a = member_of(0, MM_TURN_QUANTUM, 0), *b;

	(void)state;
	turns_open();
	member_want(a);
	settle_ms(60000);
	b = member_of(1, MM_TURN_QUANTUM, 0);
	member_want(b);
	settle_ms(60000);
	turns_close();
	member_done(a);
	member_want(a);
	settle_ms(10);
	member_done(b);
	member_want(b);
	assert_true(holds_turn(a) && !b->machine.turn.serial);
}

/* Once closed, there is at most one holder, whoever requests turns and gives them back or not. */
static void closed_is_one_at_a_time(void **state)
{
	struct w_proc *p[MEMBERS];
	uint32_t had[MEMBERS] = { 0 };

	(void)state;
	members_hold(p);
	turns_close();
	settle_ms(GRACE_MS);
	for (uint32_t at = 0; at < 600; at++) {
		uint32_t holders = 0;

		for (uint32_t i = 0; i < MEMBERS; i++) {
			if (i && p[i]->machine.turn.ending) /* the first gives none back */
				w_turn_done(w, p[i]);
			if (!p[i]->machine.turn.serial && !p[i]->machine.turn.requested)
				w_turn_want(w, p[i]);
		}
		settle_ms(100);
		for (uint32_t i = 0; i < MEMBERS; i++) {
			holders += p[i]->machine.turn.serial != 0;
			had[i] += p[i]->machine.turn.serial != 0;
		}
		assert_int_equal(holders, 1);
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(had[i] > 50);
}

/* The length that is set counts beyond what an account may have, and above a drain's. */
static void a_length_that_is_set(void **state)
{
	struct w_proc *a = member_of(0, MM_TURN_QUANTUM, 0), *b = member_of(0, MM_TURN_DRAIN, 0);

	(void)state;
	mm_c_turns_set(w->core, false, 5 * MM_NS_PER_S);
	member_want(a);
	member_want(b);
	settle_ms(4999);
	assert_true(holds_turn(a));
	settle_ms(1);
	assert_true(a->machine.turn.ending);
	member_done(a);
	member_want(a);
	settle_ms(4999);
	assert_true(holds_turn(b));
	settle_ms(1);
	assert_true(b->machine.turn.ending);
	mm_c_turns_set(w->core, false, MM_NS_PER_MS);
	member_done(b);
	member_want(b);
	settle_ms(1);
	assert_true(a->machine.turn.ending); /* less than the quantum that it requested */
	member_done(a);
	member_want(a);
	settle_ms(1999);
	assert_true(holds_turn(b));
	settle_ms(1);
	assert_true(b->machine.turn.ending);
}

/* The knob says what is so, and what is set by the core does not count. */
static void the_knob_opens(void **state)
{
	struct w_proc *a, *b;

	(void)state;
	begin_with("mode=beside", 40);
	a = member_of(0, MM_TURN_QUANTUM, 0);
	b = member_of(0, MM_TURN_QUANTUM, 0);
	assert_true(story_stats().turns_beside);
	assert_int_equal(story_stats().turn_holder, MM_NO_TENANT);
	member_want(a);
	assert_int_equal(story_stats().turn_holder, a->tenant);
	member_want(b);
	assert_int_equal(story_stats().turn_holder, MM_NO_TENANT);
	turns_close();
	assert_true(holds_turn(a) && holds_turn(b) && story_stats().turns_beside);
}

static void the_knob_closes(void **state)
{
	struct w_proc *a, *b;

	(void)state;
	begin_with("mode=turns", 40);
	a = member_of(0, MM_TURN_QUANTUM, 0);
	b = member_of(0, MM_TURN_QUANTUM, 0);
	turns_open();
	member_want(a);
	member_want(b);
	assert_true(holds_turn(a) && !b->machine.turn.serial);
	assert_false(story_stats().turns_beside);
	assert_int_equal(story_stats().turn_holder, a->tenant);
}

#define BESIDE_TEST(f) cmocka_unit_test_setup_teardown(f, beside_setup, story_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BESIDE_TEST(all_compute_at_once),
		BESIDE_TEST(one_that_has_no_work_is_idle),
		BESIDE_TEST(one_without_a_model_waits),
		BESIDE_TEST(opening_keeps_the_holder),
		BESIDE_TEST(closing_ends_all),
		BESIDE_TEST(closing_goes_by_priority),
		BESIDE_TEST(closing_takes_what_is_overdue),
		BESIDE_TEST(closing_spares_one_alone),
		BESIDE_TEST(opening_while_closing),
		BESIDE_TEST(ends_of_holders),
		BESIDE_TEST(serials_are_ones_own),
		BESIDE_TEST(no_charge_while_open),
		BESIDE_TEST(closed_is_one_at_a_time),
		BESIDE_TEST(a_length_that_is_set),
		TEST(the_knob_opens),
		TEST(the_knob_closes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
