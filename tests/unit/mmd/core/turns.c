/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporal sharing: which tenant has the turn, for how long, and what follows if it is not given
 * back.
 */
#undef NDEBUG
#include <errno.h>

#include "tests/unit/mmd/core/story.h"

static int setup(void **state)
{
	(void)state;
	begin_with("mode=turns", 40);
	return 0;
}

/*
 * The tenant runs no step. Since a turn lasts for one step at least, a turn that is to be given
 * back stays until w_turn_done().
 */
static struct w_proc *joined_to(uint32_t account, enum mm_turn_mode mode, uint32_t quantum_ms,
				uint32_t priority)
{
	struct w_proc *p = w_join(w, account, MM_FEAT_KNOWN);

	w_turn_join(w, p, mode, quantum_ms * MM_NS_PER_MS, priority);
	w_run(w);
	return p;
}

/* Gives @p a chunk, without which it could not compute. */
static struct w_proc *with_chunk(struct w_proc *p)
{
	w_kv_declare(w, p, 1, 1, 1, 0);
	w_kv_want(w, p, 1);
	w_run(w);
	assert_int_equal(p->held, 1);
	return p;
}

static struct w_proc *tenant_in_turns(enum mm_turn_mode mode, uint32_t quantum_ms,
				      uint32_t priority)
{
	return with_chunk(joined_to(0, mode, quantum_ms, priority));
}

static void turn_want(struct w_proc *p)
{
	w_turn_want(w, p);
	w_run(w);
}

/* All at once: story.h's pass_ms() goes by steps of 5 ms. */
static void tick_ms(uint32_t ms)
{
	w_tick(w, ms * MM_NS_PER_MS);
	w_run(w);
}

static uint64_t deadline_ms(void)
{
	return (mm_core_deadline(w->core) - w->now_ns) / MM_NS_PER_MS;
}

/* The operator grants the account the largest quantum and priority. */
static void account_trust(uint32_t account)
{
	const struct mm_core_quota quota = { .turn_quantum_max_ns = MM_TURN_QUANTUM_LIMIT_NS,
					     .turn_priority_max = MM_TURN_PRIORITY_MAX };

	assert_int_equal(w_quota_set(w, account, &quota), MM_QUOTA_APPLIED);
}

static void one_at_a_time(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 50, 0),
		      *b = tenant_in_turns(MM_TURN_QUANTUM, 50, 0);

	(void)state;
	turn_want(a);
	assert_true(a->machine.turn.serial && !a->machine.turn.ending);
	turn_want(b);
	assert_false(b->machine.turn.serial);
	assert_in_range(deadline_ms(), 45, 50);
	tick_ms(44);
	assert_false(a->machine.turn.ending);
	tick_ms(6);
	assert_true(a->machine.turn.ending && !b->machine.turn.serial);
	w_turn_done(w, a);
	w_run(w);
	assert_true(!a->machine.turn.serial && b->machine.turn.serial);
}

/* A holder keeps the turn while no other tenant waits. */
static void alone_it_keeps_the_turn(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 50, 0);

	(void)state;
	turn_want(a);
	tick_ms(60000);
	assert_true(a->machine.turn.serial && !a->machine.turn.ending);
	turn_want(tenant_in_turns(MM_TURN_QUANTUM, 50, 0));
	assert_true(a->machine.turn.ending);
}

static void drain_outlasts_a_quantum(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_DRAIN, 50, 0),
		      *b = tenant_in_turns(MM_TURN_QUANTUM, 50, 0);

	(void)state;
	account_trust(0);
	turn_want(a);
	turn_want(b);
	tick_ms(5000);
	assert_true(a->machine.turn.serial && !a->machine.turn.ending);
	tick_ms(5000);
	assert_true(a->machine.turn.ending); /* the drain is bounded, too */
}

static void the_higher_priority_interrupts(void **state)
{
	struct w_proc *low = tenant_in_turns(MM_TURN_QUANTUM, 500, 0);
	struct w_proc *high = tenant_in_turns(MM_TURN_QUANTUM, 500, 3);

	(void)state;
	account_trust(0);
	turn_want(low);
	turn_want(high);
	assert_true(low->machine.turn.ending);
	w_turn_done(w, low);
	w_run(w);
	assert_true(high->machine.turn.serial);
}

/*
 * Two tenants of high priority alternate; waiting raises the rank of the low one, and then its turn
 * is not interrupted.
 */
static void waiting_raises(void **state)
{
	struct w_proc *high[] = { tenant_in_turns(MM_TURN_QUANTUM, 100, 2),
				  tenant_in_turns(MM_TURN_QUANTUM, 100, 2) };
	struct w_proc *low = tenant_in_turns(MM_TURN_QUANTUM, 100, 0);

	(void)state;
	account_trust(0);
	turn_want(high[0]);
	turn_want(high[1]);
	turn_want(low);
	for (int i = 0; i < 50 && !low->machine.turn.serial; i++) {
		tick_ms(100);
		for (int h = 0; h < 2; h++) {
			if (!high[h]->machine.turn.ending)
				continue;
			w_turn_done(w, high[h]);
			w_turn_want(w, high[h]);
			w_run(w);
		}
	}
	assert_true(low->machine.turn.serial && !low->machine.turn.ending);
	tick_ms(99);
	assert_false(low->machine.turn.ending);
	tick_ms(1);
	assert_true(low->machine.turn.ending);
}

static void overdue_is_passed_over(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 50, 0),
		      *b = tenant_in_turns(MM_TURN_QUANTUM, 50, 0);
	struct mm_core_tenant t;

	(void)state;
	turn_want(a);
	turn_want(b);
	tick_ms(50);
	a->frozen = true;
	tick_ms(1999);
	assert_false(b->machine.turn.serial);
	tick_ms(1);
	assert_true(b->machine.turn.serial);
	assert_true(mm_core_tenant(w->core, a->tenant, &t) && t.turns_overdue == 1);
	a->frozen = false;
	w_run(w);
	assert_false(a->machine.turn.serial);
	w_turn_done(w, a); /* late, without effect */
	w_run(w);
	assert_true(b->machine.turn.serial);
}

/*
 * A tenant whose turn was taken away is the last although it has waited longest, but it does get a
 * turn.
 */
static void overdue_costs_rank(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 50, 0),
		      *b = tenant_in_turns(MM_TURN_QUANTUM, 50, 0),
		      *c = tenant_in_turns(MM_TURN_QUANTUM, 50, 0);

	(void)state;
	turn_want(a);
	turn_want(b);
	tick_ms(50);
	tick_ms(2000); /* a does not answer */
	assert_true(!a->machine.turn.serial && b->machine.turn.serial);
	turn_want(a);
	tick_ms(10);
	turn_want(c);
	w_turn_done(w, b);
	w_run(w);
	assert_true(!a->machine.turn.serial && c->machine.turn.serial);
	tick_ms(1900);
	assert_false(c->machine.turn.ending); /* the one that waits does not end the turn early */
	tick_ms(4000);
	assert_true(c->machine.turn.ending);
	w_turn_done(w, c);
	w_run(w);
	assert_true(a->machine.turn.serial);
}

static void death_and_leaving_pass_it_on(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_DRAIN, 0, 0),
		      *b = tenant_in_turns(MM_TURN_DRAIN, 0, 0),
		      *c = tenant_in_turns(MM_TURN_DRAIN, 0, 0);

	(void)state;
	turn_want(a);
	turn_want(b);
	turn_want(c);
	w_kill(w, a);
	w_run(w);
	assert_true(b->machine.turn.serial && !c->machine.turn.serial);
	w_turn_join(w, b, MM_TURN_NONE, 0, 0);
	w_run(w);
	assert_true(c->machine.turn.serial);
}

static void who_waits_counts_as_idle(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 50, 0),
		      *b = tenant_in_turns(MM_TURN_QUANTUM, 50, 0);
	struct mm_core_tenant t;

	(void)state;
	w_stats(w, a, 1);
	w_stats(w, b, 1);
	turn_want(a);
	turn_want(b);
	assert_true(mm_core_tenant(w->core, a->tenant, &t) && !t.idle && !t.turn_wanted);
	assert_true(mm_core_tenant(w->core, b->tenant, &t) && t.idle && t.turn_wanted);
}

/* Claims of work count only while the tenant also runs steps. */
static void silence_is_idleness(void **state)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);
	struct mm_core_tenant t;

	(void)state;
	for (int i = 0; i < 19; i++) {
		tick_ms(100);
		w_stats(w, p, 5);
		assert_true(mm_core_tenant(w->core, p->tenant, &t) && !t.idle);
	}
	for (int i = 0; i < 4; i++) {
		tick_ms(100);
		w_stats(w, p, 5);
	}
	assert_true(mm_core_tenant(w->core, p->tenant, &t) && t.idle);
	p->steps++;
	w_stats(w, p, 5);
	assert_true(mm_core_tenant(w->core, p->tenant, &t) && !t.idle);
}

/* Its quantum and priority are bounded by its account, also after a change by the operator. */
static void the_account_bounds_it(void **state)
{
	const struct mm_core_quota quota = { .turn_quantum_max_ns = 6 * MM_NS_PER_S,
					     .turn_priority_max = 3 };
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 60000, 0),
		      *b = tenant_in_turns(MM_TURN_DRAIN, 0, 7);

	(void)state;
	turn_want(a);
	turn_want(b);
	tick_ms(1999);
	assert_false(a->machine.turn.ending); /* nor is it interrupted */
	tick_ms(1);
	assert_true(a->machine.turn.ending);
	w_turn_done(w, a);
	w_run(w);
	assert_true(b->machine.turn.serial);
	turn_want(a);
	assert_int_equal(w_quota_set(w, 0, &quota), MM_QUOTA_APPLIED);
	tick_ms(5999);
	assert_false(b->machine.turn.ending);
	tick_ms(1);
	assert_true(b->machine.turn.ending);
	w_turn_done(w, b);
	w_run(w);
	w_turn_done(w, a);
	turn_want(a);
	assert_true(a->machine.turn.serial && !a->machine.turn.ending);
	turn_want(b);
	assert_true(a->machine.turn.ending); /* now for the higher priority */
	assert_null(mm_core_quota_check(w->core, 1000, &quota));
	assert_non_null(mm_core_quota_check(
		w->core, 1000,
		&(struct mm_core_quota){ .turn_priority_max = MM_TURN_PRIORITY_MAX + 1 }));
	assert_non_null(mm_core_quota_check(
		w->core, 1000,
		&(struct mm_core_quota){ .turn_quantum_max_ns = MM_TURN_QUANTUM_LIMIT_NS + 1 }));
}

/* ---- tenants that demand more than their part ---- */

#define GREEDY 4

/*
 * Runs for @seconds, in steps of 50 ms. Greedy tenants request the turn whenever they do not have
 * it; they give it back at the end of their grace with @yield, otherwise never. @p gives it back as
 * soon as it must. Returns for how many ms @p had the turn.
 */
static uint32_t held_ms(struct w_proc *p, struct w_proc **greedy, bool yield, uint32_t seconds)
{
	uint32_t ms = 0;

	for (uint32_t at = 0; at < seconds * 1000; at += 50) {
		for (uint32_t i = 0; i < GREEDY; i++) {
			if (!greedy[i]->machine.turn.serial && !greedy[i]->machine.turn.requested)
				w_turn_want(w, greedy[i]);
			if (yield && greedy[i]->machine.turn.ending)
				w_turn_done(w, greedy[i]);
		}
		if (p->machine.turn.ending)
			w_turn_done(w, p);
		if (!p->machine.turn.serial && !p->machine.turn.requested)
			w_turn_want(w, p);
		tick_ms(50);
		ms += p->machine.turn.serial ? 50 : 0;
	}
	return ms;
}

static void greedy_join(struct w_proc **greedy, uint32_t account, uint32_t accounts, bool chunk)
{
	for (uint32_t i = 0; i < GREEDY; i++) {
		greedy[i] = joined_to(account + i % accounts, MM_TURN_QUANTUM, 60000, 7);
		if (chunk)
			with_chunk(greedy[i]);
		w_turn_want(w, greedy[i]);
		w_run(w);
	}
}

/* Four tenants without a page, of another account or of the same one. */
static void who_can_compute_nothing_has_no_turn(void **state)
{
	struct w_proc *greedy[GREEDY], *p;
	struct mm_core_tenant t;

	(void)state;
	greedy_join(greedy, 0, 2, false);
	p = joined_to(1, MM_TURN_QUANTUM, 200, 0);
	w_model(w, p, 1, 3, 2, 1);
	w_run(w);
	assert_true(p->model_ready);
	assert_in_range(held_ms(p, greedy, false, 70), 69900, 70000);
	for (uint32_t i = 0; i < GREEDY; i++)
		assert_true(mm_core_tenant(w->core, greedy[i]->tenant, &t) && t.turns == 0);
}

/* A tenant gets no turn before its model is ready, and one then. */
static void a_model_brings_the_turn(void **state)
{
	struct w_proc *p = joined_to(0, MM_TURN_QUANTUM, 200, 0);

	(void)state;
	turn_want(p);
	assert_false(p->machine.turn.serial);
	w_model(w, p, 1, 3, 2, 1);
	assert_false(p->machine.turn.serial);
	w_run(w);
	assert_true(p->model_ready && p->machine.turn.serial);
}

/* A tenant without a model that demands KV gets a turn, since it will compute with the KV. */
static void a_demand_for_kv_suffices(void **state)
{
	struct w_proc *p = joined_to(0, MM_TURN_QUANTUM, 200, 0);

	(void)state;
	w_kv_declare(w, p, 50, 1, 1, 0); /* more than there is */
	turn_want(p);
	assert_false(p->machine.turn.serial);
	w_kv_want(w, p, 1);
	w_run(w);
	assert_true(p->machine.turn.serial && !p->held);
}

/*
 * Four tenants of an account have together as much time as one of another account, whether they
 * give their turns back or not.
 */
static void accounts_share_alike(void **state)
{
	struct w_proc *greedy[GREEDY], *p;

	(void)state;
	greedy_join(greedy, 0, 1, true);
	p = with_chunk(joined_to(1, MM_TURN_QUANTUM, 200, 0));
	assert_in_range(held_ms(p, greedy, true, 70), 32000, 38000);
	assert_in_range(held_ms(p, greedy, false, 70), 32000, 60000);
}

/* Tenants of an account have equal shares, too. */
static void tenants_share_alike(void **state)
{
	struct w_proc *greedy[GREEDY], *p;

	(void)state;
	greedy_join(greedy, 0, 1, true);
	p = with_chunk(joined_to(0, MM_TURN_QUANTUM, 200, 0));
	assert_in_range(held_ms(p, greedy, true, 200), 35000, 44000);
	/*
	 * Turns that are taken away are charged: a tenant that gives its turns back has more than a
	 * fifth.
	 */
	assert_in_range(held_ms(p, greedy, false, 100), 30000, 80000);
}

static void weights_share(void **state)
{
	const struct mm_core_quota heavy = { .weight = 300 }, light = { .weight = 100 };
	struct w_proc *greedy[GREEDY], *p;

	(void)state;
	w_account_add(w, 0, 0, &light);
	w_account_add(w, 1, 1, &heavy);
	greedy_join(greedy, 0, 1, true);
	p = with_chunk(joined_to(1, MM_TURN_QUANTUM, 200, 0));
	assert_in_range(held_ms(p, greedy, true, 100), 70000, 80000);
}

/*
 * Both request the turn whenever they do not have it, and give it back when they must. Returns for
 * how many ms @b had it.
 */
static uint32_t two_alternate(struct w_proc *a, struct w_proc *b, uint32_t seconds)
{
	struct w_proc *both[] = { a, b };
	uint32_t ms = 0;

	for (uint32_t at = 0; at < seconds * 1000; at += 50) {
		for (uint32_t i = 0; i < MM_ARRAY_SIZE(both); i++) {
			if (both[i]->machine.turn.ending)
				w_turn_done(w, both[i]);
			if (!both[i]->machine.turn.serial && !both[i]->machine.turn.requested)
				w_turn_want(w, both[i]);
		}
		tick_ms(50);
		ms += b->machine.turn.serial ? 50 : 0;
	}
	return ms;
}

/* Charges by a small weight are bounded again when the weight is raised. */
static void a_weight_that_is_raised_starves_nobody(void **state)
{
	const struct mm_core_quota light = { .weight = 10 }, usual = { .weight = 100 },
				   heavy = { .weight = 1000 };
	struct w_proc *a, *b;

	(void)state;
	w_account_add(w, 0, 0, &light);
	w_account_add(w, 1, 1, &usual);
	a = with_chunk(joined_to(0, MM_TURN_QUANTUM, 50, 0));
	b = with_chunk(joined_to(1, MM_TURN_QUANTUM, 2000, 0));
	two_alternate(a, b, 600);
	for (uint32_t i = 0; i < 1000 && !a->machine.turn.serial; i++)
		two_alternate(a, b, 1);
	assert_true(a->machine.turn.serial);
	assert_int_equal(w_quota_set(w, 0, &heavy), MM_QUOTA_APPLIED);
	assert_in_range(two_alternate(a, b, 60), 5000, 55000);
}

/* Once its model is refused, a tenant may compute with its KV; turns are settled before that. */
static void a_refused_model_brings_the_turn(void **state)
{
	struct w_proc *q = w_join(w, 1, 0), *p;

	(void)state;
	w_kv_declare(w, q, 1, 1, 35, 0);
	w_kv_want(w, q, 35);
	w_run(w);
	assert_int_equal(q->held, 35);
	p = with_chunk(joined_to(0, MM_TURN_QUANTUM, 200, 0));
	w_model(w, p, 1, 3, 2, 1);
	w_turn_want(w, p);
	w_run(w);
	assert_false(p->machine.turn.serial);
	for (uint32_t i = 0; i < 100000 && mm_core_deadline(w->core) != UINT64_MAX; i++) {
		uint64_t due = mm_core_deadline(w->core);

		w_tick(w, due > w->now_ns ? due - w->now_ns : 0);
		w_run(w);
	}
	assert_true(p->machine.turn.serial && !p->model_ready);
}

static void malformed_joins_are_refused(void **state)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);
	const struct mm_msg bad[] = {
		{ .opcode = MM_OP_TURN_JOIN, .arg = { MM_TURN_MODES } },
		{ .opcode = MM_OP_TURN_JOIN, .arg = { 1, 0, MM_TURN_PRIORITY_MAX + 1 } },
		{ .opcode = MM_OP_TURN_DONE, .arg = { 1 } },
	};

	(void)state;
	p->hostile = true;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++)
		assert_int_equal(mm_core_on_request(w->core, w->now_ns, p->tenant, &bad[i]),
				 MM_E_PROTOCOL);
}

/*
 * One thread requests a turn while another one leaves: the request follows the leave, and is
 * dropped.
 */
static void a_request_behind_leaving_is_dropped(void **state)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);

	(void)state;
	w_turn_join(w, p, MM_TURN_QUANTUM, 0, 0);
	w_turn_join(w, p, MM_TURN_NONE, 0, 0);
	w_turn_want(w, p);
	assert_true(p->connected);
	w_run(w);
	assert_int_equal(p->machine.turn.serial, 0);
}

/*
 * At the begin of its turn the holder is not denied: memory may be on its way, and it would give
 * the turn back. If none comes for a second, it is.
 */
static void a_holder_awaits_memory_at_first(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 50, 0),
		      *b = joined_to(0, MM_TURN_QUANTUM, 50, 0);

	(void)state;
	w_kv_declare(w, b, 1, 1, 40, 0);
	turn_want(a);
	turn_want(b);
	w_kv_want(w, b, 40);
	w_run(w);
	tick_ms(50);
	assert_int_equal(b->denied, -ENOSPC); /* it waits for its turn */
	w_turn_done(w, a);
	w_run(w);
	assert_true(b->machine.turn.serial);
	w_kv_want(w, b, 40);
	tick_ms(900);
	assert_int_equal(b->denied, 0);
	tick_ms(200);
	assert_int_equal(b->denied, -ENOSPC);
}

/* A turn moves memory: who gives its turns back at once has one for each whole one of another. */
static void turns_given_back_at_once_do_not_multiply(void **state)
{
	struct w_proc *a = tenant_in_turns(MM_TURN_QUANTUM, 200, 0),
		      *b = tenant_in_turns(MM_TURN_QUANTUM, 200, 0);
	uint32_t turns = 0;

	(void)state;
	turn_want(a);
	turn_want(b);
	for (uint32_t ms = 0; ms < 60000; ms++) {
		if (b->machine.turn.serial) {
			turns++;
			w_turn_done(w, b);
			w_turn_want(w, b);
		}
		if (a->machine.turn.ending) {
			w_turn_done(w, a);
			w_turn_want(w, a);
		}
		w_run(w);
		tick_ms(1);
	}
	assert_in_range(turns, 1, 301);
}

#define TURN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, story_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TURN_TEST(one_at_a_time),
		TURN_TEST(alone_it_keeps_the_turn),
		TURN_TEST(drain_outlasts_a_quantum),
		TURN_TEST(the_higher_priority_interrupts),
		TURN_TEST(waiting_raises),
		TURN_TEST(overdue_is_passed_over),
		TURN_TEST(overdue_costs_rank),
		TURN_TEST(death_and_leaving_pass_it_on),
		TURN_TEST(who_waits_counts_as_idle),
		TURN_TEST(silence_is_idleness),
		TURN_TEST(the_account_bounds_it),
		TURN_TEST(who_can_compute_nothing_has_no_turn),
		TURN_TEST(a_model_brings_the_turn),
		TURN_TEST(a_demand_for_kv_suffices),
		TURN_TEST(accounts_share_alike),
		TURN_TEST(tenants_share_alike),
		TURN_TEST(weights_share),
		TURN_TEST(a_weight_that_is_raised_starves_nobody),
		TURN_TEST(a_refused_model_brings_the_turn),
		TURN_TEST(malformed_joins_are_refused),
		TURN_TEST(a_request_behind_leaving_is_dropped),
		TURN_TEST(a_holder_awaits_memory_at_first),
		TURN_TEST(turns_given_back_at_once_do_not_multiply),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
