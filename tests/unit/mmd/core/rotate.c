/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants in turns: the holder's layers are resident, in place of those of the others. */
#undef NDEBUG
#include "libclient/base/base.h"
#include "tests/unit/mmd/core/story.h"

#define LAYERS      10
#define LAYER_PAGES 3
#define MODEL_PAGES (1 + LAYERS * LAYER_PAGES)
#define CHUNKS      24 /* of a page each */

static struct w_proc *a, *b;

static struct w_proc *in_turns(void)
{
	struct w_proc *p = tenant_with(0, LAYERS, LAYER_PAGES);

	w_kv_declare(w, p, 1, 1, 40, 5);
	w_turn_join(w, p, MM_TURN_QUANTUM, 200 * MM_NS_PER_MS, 0);
	w_run(w);
	return p;
}

static void turn_to(struct w_proc *p)
{
	w_turn_want(w, p);
	for (uint32_t i = 0; i < 5000 && !p->machine.turn.serial; i++)
		pass_ms(1);
	assert_true(p->machine.turn.serial && !p->machine.turn.ending);
}

/* Gives back the chunks that were reclaimed. */
static void gives_back(struct w_proc *p)
{
	while (p->reclaim && w_kv_release(w, p))
		;
	p->used_chunks = MM_MIN(p->used_chunks, p->held);
}

/* Runs steps until all layers of @p have returned, for which @other gives KV. */
static void runs_at_home(struct w_proc *p, struct w_proc *other)
{
	for (uint32_t i = 0; i < 40 && story_plan(p)->alpha; i++) {
		gives_back(other);
		story_steps(p, 5);
		w_stats(w, p, 1);
		pass_ms(10);
	}
	assert_int_equal(story_plan(p)->alpha, 0);
}

/*
 * There are @spare pages beside two models; the first one computes, and has KV in all of them and
 * in pages of the other's layers.
 */
static void two_in_turns(uint32_t spare)
{
	begin_with("mode=turns", 2 * MODEL_PAGES + spare);
	a = in_turns();
	b = in_turns();
	turn_to(a);
	w_kv_want(w, a, CHUNKS);
	for (uint32_t i = 0; i < 200; i++)
		pass_ms(1);
}

static void what_is_lent_comes_home_for_the_turn(void **state)
{
	uint32_t held;

	(void)state;
	two_in_turns(6);
	held = a->held;
	assert_true(held > 6);
	assert_int_equal(story_plan(a)->alpha, 0);
	assert_true(story_plan(b)->alpha > 0);
	a->used_chunks = held;
	w_stats(w, a, 1);
	turn_to(b);
	runs_at_home(b, a);
	assert_true(a->held >= 5); /* it has no swap space, so it keeps its share */
}

static uint64_t home_mean_ns(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t.turn_home_ns;
}

static void turn_give_back(struct w_proc *p)
{
	w_turn_done(w, p);
	w_run(w);
}

/* The time until layers are home is measured, and its mean follows each turn by a fourth. */
static void the_time_until_home_is_measured(void **state)
{
	uint64_t first, home;

	(void)state;
	two_in_turns(6);
	assert_int_equal(home_mean_ns(b), 0);
	a->used_chunks = a->held;
	w_stats(w, a, 1);
	turn_to(b);
	home = w->now_ns;
	runs_at_home(b, a);
	home = w->now_ns - home;
	turn_give_back(b);
	first = home_mean_ns(b);
	assert_in_range(first, 1, home + 20 * MM_NS_PER_MS);
	assert_true(story_plan(b)->alpha == 0);
	turn_to(b); /* nothing is away by now */
	turn_give_back(b);
	assert_int_equal(home_mean_ns(b), first - first / 4);
}

/* A turn that ended before its layers were home counts only if it was longer than the mean. */
static void a_turn_too_short_is_a_bound(void **state)
{
	uint64_t mean;

	(void)state;
	two_in_turns(2); /* so few that layers are away at each turn */
	w_turn_want(w, b);
	turn_give_back(a);
	assert_true(b->machine.turn.serial && story_plan(b)->alpha > 0);
	turn_give_back(b);
	mean = home_mean_ns(b);
	assert_in_range(mean, 1, MM_NS_PER_MS);
	b->frozen = true; /* it changes no plan, so its layers stay away */
	w_turn_want(w, b);
	pass_ms(100);
	b->frozen = false;
	w_run(w);
	assert_true(b->machine.turn.serial);
	turn_give_back(b);
	assert_in_range(home_mean_ns(b), 25 * MM_NS_PER_MS, 30 * MM_NS_PER_MS);
	mean = home_mean_ns(b);
	w_turn_want(w, b);
	w_run(w);
	assert_true(b->machine.turn.serial && story_plan(b)->alpha > 0);
	turn_give_back(b);
	assert_int_equal(home_mean_ns(b), mean);
}

/* KV that it had in its turn before counts when it comes back; what it demands beyond does not. */
static void the_time_until_kv_is_back_is_measured(void **state)
{
	struct w_proc *other;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, 2 * MODEL_PAGES);
	a = in_turns();
	other = w_join(w, 1, MM_FEAT_KNOWN);
	w_kv_declare(w, other, 1, 1, 40, 5);
	turn_to(a);
	w_kv_want(w, a, 4);
	pass_ms(50);
	assert_int_equal(a->held, 4);
	turn_give_back(a);
	assert_int_equal(home_mean_ns(a), 1); /* all was there, and it had no KV before */
	assert_true(w_kv_release(w, a) && w_kv_release(w, a));
	w_kv_want(w, other, 40);
	pass_ms(50);
	assert_int_equal(other->held, MODEL_PAGES - 2);
	w_kv_want(w, other, 0);
	w_kv_want(w, a, 4);
	turn_to(a);
	pass_ms(40);
	assert_int_equal(a->held, 2);
	assert_true(w_kv_release(w, other) && w_kv_release(w, other));
	pass_ms(60);
	assert_int_equal(a->held, 4);
	w_kv_want(w, a, 6);
	assert_true(w_kv_release(w, other) && w_kv_release(w, other));
	pass_ms(60);
	assert_int_equal(a->held, 6);
	turn_give_back(a);
	assert_in_range(home_mean_ns(a), 10 * MM_NS_PER_MS, 15 * MM_NS_PER_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_lent_comes_home_for_the_turn),
		TEST(the_time_until_home_is_measured),
		TEST(a_turn_too_short_is_a_bound),
		TEST(the_time_until_kv_is_back_is_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
