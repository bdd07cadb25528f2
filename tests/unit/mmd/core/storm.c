/* SPDX-License-Identifier: Apache-2.0 */
/* Causes of plans that would change for ever, and the bound of such changes. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#define US UINT64_C(1000)

static uint64_t n_steps;

static void stats_send(const struct w_proc *p, uint64_t step_ns, uint32_t waiting)
{
	struct mm_tenant_stats s = { .step_ns = step_ns,
				     .kv_chunks_used = p->held,
				     .running = 1,
				     .waiting = waiting,
				     .steps = n_steps,
				     .samples = n_steps,
				     .step_seq = 2 * n_steps };

	mm_core_on_stats(w->core, w->now_ns, p->tenant, &s);
	w_drain(w);
}

/*
 * Pages for 17 chunks of KV beside a model of six layers, whose transfers steps of @step_us hide as
 * long as all six cycle through two slots; four of them through one slot would be far too slow.
 */
static struct w_proc *engine_join(uint64_t step_us, uint64_t transfer_us)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);

	w_model(w, p, 1, 6, 8, 48);
	w_run(w);
	w_kv_declare(w, p, 3, 1, 60, 0);
	for (uint32_t i = 0; i < 50; i++)
		mm_core_on_streamed(w->core, p->tenant, transfer_us * US);
	for (uint32_t i = 0; i < 100; i++) {
		n_steps++;
		stats_send(p, step_us * US, 0);
	}
	w_kv_want(w, p, 17);
	w_run(w);
	return p;
}

/*
 * A tenth of a millisecond, in which xfer does ten jobs and each side handles three messages.
 */
static void pass_tenth(struct w_proc *p)
{
	w_tick(w, MM_NS_PER_MS / 10);
	for (uint32_t i = 0; i < 10; i++) {
		w_xfer_work(w, 1, 0);
		if (i < 3) {
			w_proc_event(w, p);
			w_proc_map(w, p);
		}
	}
}

/* Demands more than there is, and runs no step: only mmd causes changes. */
static void wants_too_much(struct w_proc *p, uint32_t ms)
{
	w_kv_want(w, p, 60);
	for (uint32_t i = 0; i < ms * 10; i++) {
		if (i % 40 == 0)
			stats_send(p, 0, 1);
		pass_tenth(p);
	}
}

#define ENGINE_PAGES (6 * 8 + 48 + 17 * 3)

/*
 * Four layers are taken since they are hidden. Three would be a set with one slot, which is not
 * hidden; if a decision concluded that four are too many, one would return, and then a fourth could
 * be taken again.
 */
static void layers_taken_while_hidden_stay_away(void **state)
{
	static const struct {
		uint64_t step_us, transfer_us;
	} times[] = { { 3743, 413 }, { 1669, 200 }, { 1623, 180 }, { 3516, 394 }, { 154, 20 } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(times); i++) {
		uint64_t before;
		struct w_proc *p;

		/* The dwell time is short, so that it does not end the changes. */
		begin_with("dwell-ms=1", ENGINE_PAGES);
		p = engine_join(times[i].step_us, times[i].transfer_us);
		before = story_stats().plan_changes;
		wants_too_much(p, 200);
		print_message(
			"steps of %u us, transfers of %u: %u plan changes, %u away, %u held\n",
			(uint32_t)times[i].step_us, (uint32_t)times[i].transfer_us,
			(uint32_t)(story_stats().plan_changes - before), story_plan(p)->alpha,
			p->held);
		assert_int_equal(story_plan(p)->alpha, 4);
		assert_in_range(story_stats().plan_changes - before, 1, 4);
		assert_true(p->held > 25);
		if (i + 1 < MM_ARRAY_SIZE(times))
			w_done(w);
	}
}

/* ---- the bound ---- */

static void begin_bounded(uint32_t each_ms)
{
	struct mm_core_opts opts = { .pages = 60,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .change_ns = each_ms * MM_NS_PER_MS };

	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

/* Sets another plan as soon as one is in force, for @ms. Returns how many changes there were. */
static uint64_t change_for_ms(struct w_proc *p, uint32_t ms)
{
	uint64_t before = story_stats().plan_changes, end = w->now_ns + ms * MM_NS_PER_MS;

	while (w->now_ns < end) {
		if (story_plan(p)->alpha == (uint32_t)MM_MAX(story_plan(p)->alpha_by_hand, 0))
			story_plan_by_hand(p, story_plan(p)->alpha ? 0 : 3);
		w_run(w);
		w_tick(w, MM_NS_PER_MS / 4);
	}
	return story_stats().plan_changes - before;
}

static void plans_change_so_often_and_not_more(void **state)
{
	struct w_proc *p;

	(void)state;
	begin_bounded(10);
	p = tenant_with(0, 6, 2);
	assert_int_equal(change_for_ms(p, 2), 8); /* all that were set */
	assert_int_equal(story_stats().plan_changes_limited, 0);
	assert_in_range(change_for_ms(p, 200), 27, 29); /* 16 - 8 at once, then one each 10 ms */
	assert_true(story_stats().plan_changes_limited >= 19);
	pass_ms(1000);
	assert_in_range(change_for_ms(p, 5), 16, 17);
}

/* The bound counts each tenant's changes separately. */
static void each_tenant_has_its_own(void **state)
{
	struct w_proc *p, *q;

	(void)state;
	begin_bounded(1000);
	p = tenant_with(0, 6, 2);
	q = tenant_with(0, 6, 2);
	assert_int_equal(change_for_ms(p, 20), 16);
	story_plan_by_hand(q, 2);
	w_run(w);
	assert_int_equal(story_plan(q)->alpha, 2);
}

/*
 * A change that waits is not lost: the core has a deadline when the next change may begin, and
 * begins it then.
 */
static void what_waits_is_done_when_it_may(void **state)
{
	uint64_t due;
	struct w_proc *p;

	(void)state;
	begin_bounded(1000);
	p = tenant_with(0, 6, 2);
	assert_int_equal(change_for_ms(p, 20), 16);
	story_plan_by_hand(p, 5);
	w_run(w);
	assert_int_equal(story_plan(p)->alpha, 0);
	due = mm_core_deadline(w->core);
	assert_in_range(due - w->now_ns, 1, 1000 * MM_NS_PER_MS);
	/* Statistics that arrive at that moment do not move the deadline. */
	w->now_ns = due;
	stats_send(p, 0, 0);
	assert_true(mm_core_deadline(w->core) <= w->now_ns);
	while (story_plan(p)->alpha != 5) {
		assert_true(w->now_ns <= due + MM_NS_PER_S);
		w_tick(w, mm_core_deadline(w->core) - MM_MIN(mm_core_deadline(w->core), w->now_ns));
		w_run(w);
	}
}

/* Statistics are the only events. */
static void a_step_that_broke_off_is_not_forgotten(void **state)
{
	struct w_proc *p;
	uint64_t due;

	(void)state;
	begin_bounded(1000);
	p = tenant_with(0, 6, 2);
	story_plan_by_hand(p, 2);
	w_run(w);
	for (uint32_t i = 0; i < 16; i++) {
		w_resync(w, p);
		w_run(w);
	}
	assert_true(p->machine.broken);
	due = w->now_ns + 1000 * MM_NS_PER_MS;
	while (w->now_ns < due) {
		w->now_ns = MM_MIN(w->now_ns + 30 * MM_NS_PER_MS, due + 5 * MM_NS_PER_MS);
		stats_send(p, 0, 0);
		assert_true(mm_core_deadline(w->core) <= due);
	}
	w_tick(w, 0);
	w_run(w);
	assert_false(p->machine.broken);
}

/*
 * The gates of a step that broke off are put in order as soon as a change may begin, before any
 * other change.
 */
static void steps_that_break_off_come_first(void **state)
{
	uint64_t before;
	struct w_proc *p;

	(void)state;
	begin_bounded(1000);
	p = tenant_with(0, 6, 2);
	story_plan_by_hand(p, 2);
	w_run(w);
	for (uint32_t i = 0; i < 15; i++) {
		before = story_stats().plan_changes;
		w_resync(w, p);
		w_run(w);
		assert_int_equal(story_stats().plan_changes, before + 1);
	}
	w_resync(w, p);
	story_plan_by_hand(p, 4);
	w_run(w);
	assert_true(p->machine.broken);
	w_tick(w, mm_core_deadline(w->core) - w->now_ns);
	while (p->machine.broken) {
		assert_int_equal(story_plan(p)->alpha, 2);
		w_tick(w, 10 * MM_NS_PER_MS);
		w_run(w);
	}
	assert_int_equal(story_plan(p)->alpha, 2);
	assert_int_equal(story_stats().plan_changes, before + 2);
	story_steps(p, 3);
	pass_ms(1100);
	assert_int_equal(story_plan(p)->alpha, 4);
}

/* The knob time-scale applies to the interval between changes, too. */
static void times_are_stretched_with_all_others(void **state)
{
	struct mm_core_opts opts = { .pages = 60,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .change_ns = 10 * MM_NS_PER_MS,
				     .time_scale = 5 };
	struct w_proc *p;

	(void)state;
	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
	p = tenant_with(0, 6, 2);
	assert_in_range(change_for_ms(p, 500), 24, 27);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(layers_taken_while_hidden_stay_away),
		TEST(plans_change_so_often_and_not_more),
		TEST(each_tenant_has_its_own),
		TEST(what_waits_is_done_when_it_may),
		TEST(steps_that_break_off_come_first),
		TEST(a_step_that_broke_off_is_not_forgotten),
		TEST(times_are_stretched_with_all_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
