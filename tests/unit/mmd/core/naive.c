/* SPDX-License-Identifier: Apache-2.0 */
/* mirage's Algorithm 1, where it differs from the policy remap. */
#undef NDEBUG
#include <errno.h>

#include "tests/unit/mmd/core/story.h"

static struct w_proc *lender[2], *requester;

/* Models use 2 * 21 and 9 of 100 pages, so 49 are free. The second lender was used last. */
static void three_tenants(enum mm_policy policy)
{
	story_begin(policy, 100);
	lender[0] = tenant_with(0, 10, 2);
	lender[1] = tenant_with(0, 10, 2);
	requester = tenant_with(0, 4, 2);
	w_kv_declare(w, requester, 1, 1, 100, 0);
	w_stats(w, lender[0], 1);
	pass_ms(50);
	w_stats(w, lender[1], 1);
	pass_ms(200);
}

/* Demands @chunks, and runs all that happens without time passing. */
static uint32_t take_one(uint32_t chunks)
{
	uint64_t before = story_stats().plan_changes;

	w_kv_want(w, requester, chunks);
	w_run(w);
	return (uint32_t)(story_stats().plan_changes - before);
}

static void a_layer_at_a_time(void **state)
{
	(void)state;
	three_tenants(MM_POLICY_NAIVE);
	assert_int_equal(take_one(49), 0);
	assert_int_equal(take_one(50), 1);
	assert_int_equal(story_plan(lender[1])->alpha, 1);
	assert_int_equal(take_one(51), 0);
	assert_int_equal(take_one(52), 1);
	assert_int_equal(story_plan(lender[1])->alpha, 2);
	/* The layers that remap would take in one change are taken one change each. */
	w_kv_want(w, requester, 59);
	w_run(w);
	pass_ms(100);
	assert_int_equal(story_plan(lender[1])->alpha, 5);
	assert_int_equal(story_stats().plan_changes, 5);
}

static void inactive_ones_to_the_last_then_active_ones_without_bound(void **state)
{
	(void)state;
	three_tenants(MM_POLICY_NAIVE);
	for (uint32_t chunks = 50; chunks <= 49 + 18; chunks++) {
		w_kv_want(w, requester, chunks);
		pass_ms(20);
		assert_int_equal(story_plan(lender[1])->alpha, (chunks - 48) / 2);
		assert_int_equal(story_plan(lender[0])->alpha, 0);
	}
	w_kv_want(w, requester, 49 + 36);
	pass_ms(300);
	assert_int_equal(story_plan(lender[1])->alpha, 9);
	assert_int_equal(story_plan(lender[0])->alpha, 9);
	/* The requester is active; that it cannot hide its streaming does not count. */
	mm_core_on_streamed(w->core, requester->tenant, MM_NS_PER_S);
	w_kv_want(w, requester, 100);
	for (uint32_t i = 0; i < 100; i++) {
		w_stats(w, requester, 1);
		pass_ms(5);
		story_steps(requester, 1);
	}
	assert_int_equal(story_plan(requester)->alpha, 3);
	assert_int_equal(requester->denied, -ENOSPC);
}

/* A layer returns as soon as as many pages are free: no dwell time, no reserve. */
static void back_at_once(void **state)
{
	(void)state;
	three_tenants(MM_POLICY_NAIVE);
	w_kv_want(w, requester, 55);
	pass_ms(100);
	assert_int_equal(story_plan(lender[1])->alpha, 3);
	w_kv_want(w, requester, 51);
	while (requester->held > 52)
		w_kv_release(w, requester);
	w_run(w);
	assert_int_equal(story_plan(lender[1])->alpha, 2);
	/* From two slots to one, two layers return before the pages of a slot are free. */
	while (requester->held > 49)
		w_kv_release(w, requester);
	w_run(w);
	assert_int_equal(story_plan(lender[1])->alpha, 1);
}

/* An inactive model's layers are bounded by its longest step. */
static void bounded_by_a_prefill(void **state)
{
	(void)state;
	three_tenants(MM_POLICY_NAIVE_BOUNDED);
	story_steps(lender[1], 3);
	w_stats(w, lender[1], 1); /* a step: 1.1 ms */
	mm_core_on_streamed(w->core, lender[1]->tenant, 250000);
	story_steps(lender[0], 3);
	w_stats(w, lender[0], 1);
	mm_core_on_streamed(w->core, lender[0]->tenant, MM_NS_PER_S);
	pass_ms(200);
	w_kv_want(w, requester, 100);
	pass_ms(300);
	/* Four transfers of 250 µs fit; three layers away would need five, through two slots. */
	assert_int_equal(story_plan(lender[1])->alpha, 2);
	assert_int_equal(story_plan(lender[1])->m, 3);
	assert_int_equal(story_plan(lender[0])->alpha, 0);
	assert_int_equal(requester->denied, -ENOSPC);
}

/*
 * There is one slot while the transfers of m = alpha + 1 layers fit beside the others' computing.
 */
static void slots_by_the_fewest_transfers_that_fit(void **state)
{
	(void)state;
	story_begin(MM_POLICY_NAIVE, 80);
	requester = tenant_with(0, 10, 3);
	story_steps(requester, 3);
	w_stats(w, requester, 1); /* a layer: 110 µs */
	mm_core_on_streamed(w->core, requester->tenant, 160000);
	story_plan_by_hand(requester, 3); /* 4 * 160 <= 6 * 110 */
	story_steps(requester, 15);
	assert_int_equal(story_plan(requester)->beta, 1);
	for (int i = 0; i < 40; i++)
		mm_core_on_streamed(w->core, requester->tenant, 160000);
	story_plan_by_hand(requester, 4); /* 5 * 160 > 5 * 110 */
	story_steps(requester, 15);
	assert_int_equal(story_plan(requester)->beta, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_layer_at_a_time),
		TEST(inactive_ones_to_the_last_then_active_ones_without_bound),
		TEST(back_at_once),
		TEST(bounded_by_a_prefill),
		TEST(slots_by_the_fewest_transfers_that_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
