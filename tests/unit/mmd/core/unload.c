/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant gives its model back, and loads another; its arena stays. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include <errno.h>

static uint64_t pages_free(void)
{
	return story_stats().pages[MM_PAGE_FREE];
}

static struct mm_core_tenant tenant_look(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t;
}

static int request_send(struct w_proc *p, enum mm_op op, uint64_t arg)
{
	return w_send(w, p, &(struct mm_msg){ .opcode = (uint16_t)op, .arg = { arg } });
}

/* Whatever cycles, all pages come back; the arena, its demand and the place in turns stay. */
static void pages_come_back_and_the_arena_stays(void **state)
{
	struct w_proc *p;

	(void)state;
	for (int32_t alpha = 0; alpha <= 4; alpha += 2) {
		story_begin(MM_POLICY_REMAP, 60);
		p = tenant_with(0, 8, 3);
		w_kv_declare(w, p, 1, 1, 20, 1);
		w_kv_want(w, p, 10);
		w_stats(w, p, 1);
		pass_ms(50);
		story_plan_by_hand(p, alpha);
		pass_ms(200);
		story_steps(p, 3);
		assert_int_equal(story_plan(p)->alpha, alpha);
		assert_int_equal(p->held, 10);
		assert_true(w_unload(w, p));
		pass_ms(50);
		assert_int_equal(p->unloads, 1);
		assert_int_equal(pages_free(), 50);
		assert_int_equal(tenant_look(p).pages_param + tenant_look(p).pages_slot, 0);
		assert_false(tenant_look(p).model_ready);
		assert_int_equal(p->held, 10);
		assert_int_equal(w->acts_of[MM_ACT_MODEL_DROP], 1);
		assert_null(mm_core_plan(w->core, p->tenant));
		if (alpha < 4)
			story_teardown(NULL);
	}
}

/* Others of its size follow, larger ones and smaller ones, and their layers may be lent, too. */
static void models_follow_each_other(void **state)
{
	static const uint32_t layers[] = { 8, 4, 12, 3, 8 };
	struct w_proc *p;
	uint32_t alpha;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	for (uint32_t i = 0; i < 5; i++) {
		assert_true(w_unload(w, p));
		pass_ms(50);
		assert_int_equal(p->unloads, i + 1);
		assert_int_equal(pages_free(), 60);
		w_model(w, p, 2 + i, layers[i], 3, 1);
		pass_ms(100);
		assert_true(p->model_ready);
		/* The operator's plan was for the model before. */
		assert_int_equal(story_plan(p)->alpha_by_hand, -1);
		assert_int_equal(story_plan(p)->alpha, 0);
		assert_int_equal(tenant_look(p).pages_param, 1 + 3 * layers[i]);
		alpha = layers[i] > 3 ? 2 : 1;
		story_plan_by_hand(p, (int32_t)alpha);
		pass_ms(200);
		story_steps(p, 3);
		assert_int_equal(story_plan(p)->alpha, alpha);
	}
}

static void a_plan_change_ends_first(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	story_plan_by_hand(p, 4);
	assert_int_not_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_STEADY);
	assert_true(w_unload(w, p));
	w_xfer_kill(w, true);
	pass_ms(5);
	w_xfer_up(w);
	pass_ms(100);
	assert_int_equal(p->unloads, 1);
	assert_int_equal(pages_free(), 60);
}

/* A tenant that does not unmap keeps its pages, and is charged for them; others go on. */
static void pages_wait_for_the_answer(void **state)
{
	struct w_proc *p, *other;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	other = tenant_with(1, 4, 3);
	assert_true(w_unload(w, p));
	p->frozen = true;
	pass_ms(2000);
	assert_int_equal(p->unloads, 0);
	assert_int_equal(pages_free(), 60 - 25 - 13);
	assert_int_equal(w->acts_of[MM_ACT_MODEL_DROP], 0);
	story_steps(other, 5);
	/* It ends: the proof is its death. */
	w_kill(w, p);
	pass_ms(100);
	assert_int_equal(pages_free(), 60 - 13);
	assert_int_equal(w->acts_of[MM_ACT_MODEL_DROP], 1);
}

/* If its account must give pages, a tenant that does not unmap the model is killed in the end. */
static void who_owes_pages_must_answer(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 3);
	p->hostile = true;
	assert_int_equal(request_send(p, MM_OP_UNLOAD, 0), 0);
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_PARKED, .epoch = p->machine.plan.epoch + 1 });
	/* It runs no more, though it is not stopped: nothing of what comes is read. */
	p->head = p->tail;
	w_quota_set(w, 0, &(struct mm_core_quota){ .max_pages = 10 });
	for (uint32_t i = 0; i < 100 && p->alive; i++) {
		w_tick(w, MM_NS_PER_S / 10);
		while (w_xfer_work(w, 4, 0))
			;
	}
	assert_false(p->alive);
	assert_int_equal(w->acts_of[MM_ACT_KILL], 1);
	pass_ms(100);
	assert_int_equal(pages_free(), 60);
}

static void the_end_may_come_at_any_moment(void **state)
{
	(void)state;
	for (uint32_t events = 0; events < 30; events++) {
		struct w_proc *p;

		story_begin(MM_POLICY_REMAP, 60);
		p = tenant_with(0, 8, 3);
		story_plan_by_hand(p, 3);
		pass_ms(200);
		assert_true(w_unload(w, p));
		for (uint32_t i = 0; i < events; i++)
			if (!w_proc_event(w, p))
				w_xfer_work(w, 1, 0);
		if (events % 2)
			w_disconnect(w, p);
		w_kill(w, p);
		pass_ms(300);
		assert_int_equal(pages_free(), 60);
		assert_int_equal(story_stats().tenants, 0);
		assert_int_equal(w->acts_of[MM_ACT_MODEL_DROP], 1);
		if (events < 29)
			story_teardown(NULL);
	}
}

static void what_is_refused(void **state)
{
	struct w_proc *p, *none;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	none = w_join(w, 1, MM_FEAT_KNOWN);
	assert_int_equal(request_send(none, MM_OP_UNLOAD, 0), 0);
	pass_ms(5);
	assert_int_equal(none->unload_result, -ENOENT);
	p = tenant_with(0, 8, 3);
	assert_int_equal(request_send(p, MM_OP_HOLD, 1), 0);
	pass_ms(50);
	assert_true(tenant_look(p).model_held);
	assert_int_equal(request_send(p, MM_OP_UNLOAD, 0), 0);
	pass_ms(5);
	assert_int_equal(p->unload_result, -EBUSY);
	assert_true(tenant_look(p).model_ready);
	assert_int_equal(request_send(p, MM_OP_HOLD, 0), 0);
	/* The second request takes the place of the first. Nothing is held any more. */
	assert_true(w_unload(w, p));
	assert_int_equal(request_send(p, MM_OP_UNLOAD, 0), 0);
	assert_int_equal(request_send(p, MM_OP_HOLD, 1), 0);
	pass_ms(50);
	assert_int_equal(p->hold_result, -ENOENT);
	assert_int_equal(p->unloads, 1);
	assert_int_equal(request_send(p, MM_OP_UNLOAD, 0), 0);
	pass_ms(5);
	assert_int_equal(p->unload_result, -ENOENT);
	/* There is no number of a model that it could name. */
	p->hostile = true;
	assert_int_equal(request_send(p, MM_OP_UNLOAD, 7), MM_E_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_come_back_and_the_arena_stays),
		TEST(models_follow_each_other),
		TEST(a_plan_change_ends_first),
		TEST(pages_wait_for_the_answer),
		TEST(who_owes_pages_must_answer),
		TEST(the_end_may_come_at_any_moment),
		TEST(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
