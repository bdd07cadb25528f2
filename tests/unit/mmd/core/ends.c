/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants that end at bad moments, in the world of tests/sim, which checks every step of it. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

static int setup(void **state)
{
	(void)state;
	story_begin(MM_POLICY_REMAP, 8);
	return 0;
}

/* The tenant waits only for xfer to detach it: it has no deadline. */
static void test_end_without_pages_while_xfer_is_away(void **state)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);

	(void)state;
	assert_non_null(p);
	w_xfer_kill(w, false);
	w_disconnect(w, p);
	for (int i = 0; i < 4; i++) {
		w_tick(w, 60 * MM_NS_PER_S);
		assert_true(mm_core_deadline(w->core) > w->now_ns);
	}
	assert_true(p->used);
	w_xfer_up(w);
	w_run(w);
	assert_false(p->used);
	assert_true(p->alive); /* a tenant without pages is not killed */
}

/*
 * An engine ends while mmd changes its plan: the library's service thread answers PREPARE while BYE
 * is being sent, so that its answer follows the BYE, as messages of other threads may. The BYE
 * counts, and the messages behind it are no protocol errors.
 */
static void test_messages_behind_a_bye(void **state)
{
	static const struct mm_msg words[] = {
		{ .opcode = MM_OP_PARKED, .epoch = 2 },
		{ .opcode = MM_OP_MAPPED, .epoch = 2, .arg = { 1 } },
		{ .opcode = MM_OP_COMMITTED, .epoch = 2 },
		{ .opcode = MM_OP_RESYNC },
		{ .opcode = MM_OP_KV_RELEASE, .arg = { 0 } },
		{ .opcode = MM_OP_KV_WANT, .arg = { 1 } },
		{ .opcode = MM_OP_TURN_WANT },
		{ .opcode = MM_OP_BYE },
	};
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);
	uint32_t max;

	(void)state;
	w_model(w, p, 1, 4, 1, 1);
	w_run(w);
	w_kv_declare(w, p, 1, 1, 2, 0);
	w_kv_want(w, p, 1);
	w_run(w);
	assert_int_equal(mm_core_plan_set(w->core, w->now_ns, p->tenant, 2, 1, &max), 0);
	w_drain(w);
	assert_int_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_PREPARED);
	for (uint32_t i = 0; i < w->opts.pages; i++)
		w->page[i].holders = 0;
	assert_int_equal(w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_BYE }), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(words); i++) {
		print_message("%u\n", words[i].opcode);
		assert_int_equal(mm_core_on_request(w->core, w->now_ns, p->tenant, &words[i]), 0);
	}
	w_disconnect(w, p);
	w_run(w);
	assert_false(p->used);
	assert_true(p->alive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_end_without_pages_while_xfer_is_away, setup,
						story_teardown),
		cmocka_unit_test_setup_teardown(test_messages_behind_a_bye, setup, story_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
