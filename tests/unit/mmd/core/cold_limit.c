/* SPDX-License-Identifier: Apache-2.0 */
/* A limit of cold blocks that fell: when it counts, so that no step misses what it reads. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include "mmd/core/knobs.h"
#include "mmd/core/why.h"

#define PAGE    4096u
#define LAYERS  8u
#define UNIT    1024u
#define ENTRIES 5u

static void world_begin(void)
{
	struct mm_core_opts opts = { .pages = 60,
				     .page_bytes = PAGE,
				     .policy = MM_POLICY_REMAP,
				     .swap_max_bytes = 64 * PAGE };

	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

/* A tenant with a window and a limit of 4, of which a step is open. */
static struct w_proc *tenant_in_step(uint64_t features)
{
	struct w_proc *p;
	uint32_t max;

	world_begin();
	p = tenant_that(features, 0, LAYERS, 1);
	w_kv_declare(w, p, 1, 1, 20, 1);
	w_kv_want(w, p, 8);
	w_run(w);
	assert_int_equal(w_swap_open(w, p, 10 * PAGE), 0);
	w_cold_open(w, p, UNIT, ENTRIES, 4);
	w_run(w);
	w_cold_window(w, p, 0, 8);
	pass_ms(20);
	assert_true(p->cold.window_answers == 1 && !p->cold.window_result);
	assert_int_equal(p->cold.streamed, 4);
	assert_true(w_proc_step(w, p) && p->machine.open);
	assert_int_equal(mm_core_cold_set(w->core, w->now_ns, p->tenant, 1, &max), 0);
	w_drain(w);
	w_run(w);
	assert_true(p->cold.limit == 1 && p->cold.deadline_ns > w->now_ns);
	return p;
}

static void step_finish(struct w_proc *p)
{
	for (uint32_t i = 0; i < 1000 && p->machine.open; i++) {
		w_proc_step(w, p);
		w_xfer_stream(w, p);
	}
	assert_false(p->machine.open);
}

static const uint32_t deadline_ms = MM_RECLAIM_TIMEOUT_NS / MM_NS_PER_MS + 10;

static void a_limit_counts_when_the_tenant_is_parked(void **state)
{
	struct mm_core_why why;

	(void)state;
	for (uint32_t full = 0; full < 2; full++) {
		struct w_proc *p =
			tenant_in_step(full ? MM_FEAT_KNOWN & ~MM_FEAT_PARTIAL : MM_FEAT_KNOWN);
		const uint64_t epoch = story_plan(p)->epoch;

		pass_ms(deadline_ms);
		assert_int_equal(p->cold.streamed, 4);
		assert_int_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_PREPARED);
		/* It is not waited for busily. */
		assert_true(mm_core_deadline(w->core) > w->now_ns);
		pass_ms(10 * deadline_ms);
		assert_int_equal(p->cold.streamed, 4);
		step_finish(p);
		pass_ms(20);
		assert_int_equal(p->cold.streamed, 1);
		assert_int_equal(story_plan(p)->epoch, epoch + 1);
		assert_int_equal(story_plan(p)->cold.chunks, 8);
		assert_true(mm_core_why(w->core, p->tenant, &why) && !why.cold.falls);
		pass_ms(deadline_ms);
		assert_int_equal(story_plan(p)->epoch, epoch + 1);
		w_done(w);
	}
	world_begin();
}

/* A change that is under way takes it along, and one that ends the window, too. */
static void a_limit_is_taken_along(void **state)
{
	(void)state;
	for (uint32_t ends = 0; ends < 2; ends++) {
		struct w_proc *p = tenant_in_step(MM_FEAT_KNOWN);
		const uint64_t epoch = story_plan(p)->epoch;

		if (ends)
			w_cold_window(w, p, 0, 0);
		else
			story_plan_by_hand(p, 2);
		pass_ms(deadline_ms);
		assert_int_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_PREPARED);
		assert_int_equal(p->cold.streamed, 4);
		step_finish(p);
		pass_ms(20);
		assert_int_equal(p->cold.streamed, 1);
		assert_int_equal(story_plan(p)->epoch, epoch + 1);
		w_done(w);
	}
	world_begin();
}

/* A change that parks it before the deadline leaves it as it is, and the time without xfer. */
static void a_limit_is_not_early(void **state)
{
	struct w_proc *p = tenant_in_step(MM_FEAT_KNOWN);

	(void)state;
	story_plan_by_hand(p, 2);
	pass_ms(20);
	step_finish(p);
	pass_ms(20);
	assert_int_equal(story_plan(p)->alpha, 2);
	assert_int_equal(p->cold.streamed, 4);
	w_xfer_kill(w, false);
	w_tick(w, 2 * MM_RECLAIM_TIMEOUT_NS);
	w_run(w);
	w_xfer_up(w);
	w_run(w);
	assert_int_equal(p->cold.streamed, 4);
	pass_ms(deadline_ms);
	assert_int_equal(p->cold.streamed, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_limit_counts_when_the_tenant_is_parked),
		TEST(a_limit_is_taken_along),
		TEST(a_limit_is_not_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
