/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant that holds its model: its layers come home, whoever has sent them away, and stay. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include <errno.h>

static int hold(struct w_proc *p, uint64_t how)
{
	return w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_HOLD, .arg = { how } });
}

static bool is_held(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t.model_held;
}

static void layers_come_home_and_stay(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 3);
	pass_ms(100);
	assert_int_equal(story_plan(p)->alpha, 3);
	assert_int_equal(hold(p, 1), 0);
	assert_int_equal(p->hold_answers, 0);
	pass_ms(200);
	assert_int_equal(p->hold_answers, 1);
	assert_int_equal(p->hold_result, 0);
	assert_int_equal(story_plan(p)->alpha, 0);
	assert_true(is_held(p));
	/* The operator's plan waits. */
	story_plan_by_hand(p, 4);
	pass_ms(200);
	story_steps(p, 3);
	assert_int_equal(story_plan(p)->alpha, 0);
	assert_int_equal(story_plan(p)->alpha_by_hand, 4);
	assert_int_equal(hold(p, 1), 0);
	pass_ms(5);
	assert_int_equal(p->hold_result, -EALREADY);
	assert_int_equal(hold(p, 0), 0);
	pass_ms(200);
	assert_int_equal(p->hold_result, 0);
	assert_false(is_held(p));
	assert_int_equal(story_plan(p)->alpha, 4);
}

/* Takes layers for another tenant's KV unless they are held. */
static void nobody_gets_layers_that_are_held(void **state)
{
	struct w_proc *p, *other;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	p = tenant_with(0, 8, 3);
	other = w_join(w, 1, MM_FEAT_KNOWN);
	w_kv_declare(w, other, 1, 1, 60, 0);
	assert_int_equal(hold(p, 1), 0);
	pass_ms(50);
	assert_int_equal(p->hold_result, 0);
	w_kv_want(w, other, 30);
	w_stats(w, other, 1);
	pass_ms(2000);
	assert_int_equal(story_plan(p)->alpha, 0);
	assert_true(other->held < 30);
	assert_int_equal(hold(p, 0), 0);
	pass_ms(2000);
	w_kv_want(w, other, 30);
	pass_ms(2000);
	assert_true(story_plan(p)->alpha > 0);
	assert_int_equal(other->held, 30);
}

static void a_hold_that_waits_is_withdrawn(void **state)
{
	struct w_proc *p, *other;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 4);
	pass_ms(200);
	other = w_join(w, 1, MM_FEAT_KNOWN);
	w_kv_declare(w, other, 1, 1, 60, 0);
	w_kv_want(w, other, 40);
	pass_ms(50);
	/* The other tenant has all that is free, and gives nothing back. */
	assert_int_equal(hold(p, 1), 0);
	pass_ms(300);
	assert_int_equal(p->hold_answers, 0);
	assert_int_equal(hold(p, 0), 0);
	pass_ms(5);
	assert_int_equal(p->hold_answers, 1); /* to the withdrawal */
	while (w_kv_release(w, other))
		;
	w_kv_want(w, other, 0);
	pass_ms(500);
	assert_int_equal(p->hold_answers, 1);
	assert_int_equal(story_plan(p)->alpha, 4);
}

/* Chunks that were given back just now are still the account's while they are scrubbed. */
static void pages_on_their_way_are_room(void **state)
{
	struct w_proc *p, *other;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 4);
	pass_ms(200);
	other = w_join(w, 0, MM_FEAT_KNOWN);
	w_kv_declare(w, other, 1, 1, 60, 0);
	w_kv_want(w, other, 40);
	pass_ms(50);
	assert_int_equal(hold(p, 1), 0);
	pass_ms(5);
	assert_int_equal(p->hold_result, -EDQUOT);
	w_kv_want(w, other, 0);
	while (w_kv_release(w, other))
		;
	assert_int_equal(hold(p, 1), 0);
	pass_ms(500);
	assert_int_equal(p->hold_result, 0);
	assert_int_equal(story_plan(p)->alpha, 0);
}

static void what_is_refused(void **state)
{
	struct w_proc *p, *none;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	none = w_join(w, 1, MM_FEAT_KNOWN);
	assert_int_equal(hold(none, 1), 0);
	pass_ms(5);
	assert_int_equal(none->hold_result, -ENOENT);
	assert_int_equal(hold(none, 0), 0);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 3);
	pass_ms(200);
	/* From now on its account has what it uses, and no more. */
	w_quota_set(w, 0, &(struct mm_core_quota){ .max_pages = 25 - 3 * 3 + 6 });
	assert_int_equal(hold(p, 1), 0);
	pass_ms(5);
	assert_int_equal(p->hold_result, -EDQUOT);
	assert_false(is_held(p));
	w_quota_set(w, 0, &(struct mm_core_quota){ .max_pages = 60 });
	assert_int_equal(hold(p, 1), 0);
	pass_ms(200);
	assert_int_equal(p->hold_result, 0);
	p->hostile = true;
	assert_int_equal(hold(p, 2), MM_E_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(layers_come_home_and_stay),
		TEST(nobody_gets_layers_that_are_held),
		TEST(a_hold_that_waits_is_withdrawn),
		TEST(pages_on_their_way_are_room),
		TEST(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
