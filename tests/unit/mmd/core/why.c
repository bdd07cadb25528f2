/* SPDX-License-Identifier: Apache-2.0 */
/* The core explains its last decision: it is what was done, and it follows what happens. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include "mmd/core/why.h"

#define CHUNKS 60

static struct mm_core_why why_of(const struct w_proc *p)
{
	struct mm_core_why why;

	assert_true(mm_core_why(w->core, p->tenant, &why));
	assert_int_equal(why.tenant, p->tenant);
	return why;
}

static struct mm_core_why_device why_device(void)
{
	struct mm_core_why_device why;

	mm_core_why_device(w->core, &why);
	return why;
}

/* One that is idle lends to one that lacks KV, and then gets its layers back. */
static void who_lends_and_why(void **state)
{
	struct w_proc *idle, *busy;
	struct mm_core_why why;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	idle = tenant_with(0, 10, 2); /* 21 pages */
	busy = tenant_with(1, 1, 8);  /* 9, none of which it can lend */
	w_kv_declare(w, busy, 1, 1, CHUNKS, 10);
	w_run(w);
	pass_ms(500);
	w_kv_want(w, busy, 40);
	pass_ms(1000);
	w_stats(w, busy, 1);
	pass_ms(5);
	why = why_of(idle);
	assert_true(why.decided);
	assert_int_equal(why.role, MM_WHY_NO_WORK);
	assert_int_equal(why.why, MM_WHY_IDLE);
	assert_int_equal(why.layers, 10);
	assert_true(why.alpha >= 1 && why.alpha_target >= why.alpha);
	assert_int_equal(why.alpha, story_plan(idle)->alpha);
	assert_int_equal(why.layer_bytes, 2 * w->opts.page_bytes);
	assert_int_equal(why.chunk_bytes, 0);
	assert_int_equal(why.kv_keep, UINT32_MAX);
	why = why_of(busy);
	assert_int_equal(why.role, MM_WHY_COMPUTES);
	assert_int_equal(why.alpha_target, 0);
	assert_int_equal(why.kv_held, busy->held);
	assert_int_equal(why.kv_wanted, 40);
	assert_int_equal(why.kv_share, 10);
	assert_true(why.kv_most >= 40);
	assert_int_equal(why_device().mode_why, MM_WHY_MODE_NOBODY);
	assert_true(why_device().decided && why_device().beside);
	assert_int_equal(why_device().working, 1);

	w_kv_want(w, busy, 0);
	while (w_kv_release(w, busy))
		w_run(w);
	pass_ms(3000);
	why = why_of(idle);
	assert_int_equal(why.alpha, 0);
	assert_int_equal(why.alpha_target, 0);
	assert_int_equal(why.why, MM_WHY_IDLE);
	assert_int_equal(why_of(busy).role, MM_WHY_NO_WORK);
	assert_int_equal(why_device().working, 0);
}

static void what_the_operator_sets_is_said(void **state)
{
	struct mm_core_why why;
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 10, 2);
	story_plan_by_hand(p, 3);
	pass_ms(100);
	why = why_of(p);
	assert_true(why.by_hand);
	assert_int_equal(why.alpha, 3);
	story_plan_by_hand(p, -1);
	assert_false(why_of(p).by_hand);
}

static void other_policies_say_that_they_compare_nothing(void **state)
{
	static const enum mm_policy policies[] = { MM_POLICY_RECOMPUTE, MM_POLICY_ELASTIC,
						   MM_POLICY_SWAP, MM_POLICY_NAIVE };
	struct w_proc *p;

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(policies); i++) {
		story_begin(policies[i], 60);
		p = tenant_with(0, 10, 2);
		pass_ms(20);
		assert_int_equal(why_of(p).why, MM_WHY_POLICY);
		assert_false(why_of(p).valued);
		assert_int_equal(why_device().mode_why, MM_WHY_MODE_POLICY);
		assert_int_equal(why_device().policy, policies[i]);
		story_teardown(NULL);
	}
	story_begin(MM_POLICY_REMAP, 60);
}

/* One that has come and declared nothing, one that is none, one that has left. */
static void who_is_not_there_is_not_explained(void **state)
{
	struct mm_core_why why;
	struct w_proc *p;
	uint32_t id;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	assert_false(mm_core_why(w->core, 12345, &why));
	p = w_join(w, 0, MM_FEAT_KNOWN);
	w_run(w);
	why = why_of(p);
	assert_false(why.model_ready);
	assert_int_equal(why.layers, 0);
	assert_int_equal(why.chunk_bytes, 0);
	id = p->tenant;
	w_bye(w, p);
	w_run(w);
	pass_ms(100);
	assert_false(mm_core_why(w->core, id, &why));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_lends_and_why),
		TEST(what_the_operator_sets_is_said),
		TEST(other_policies_say_that_they_compare_nothing),
		TEST(who_is_not_there_is_not_explained),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
