/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that would change for ever: what begins it, and what bounds it. */
#undef NDEBUG
#include "mmd/core/tune.h"
#include "tests/unit/core/story.h"

#define US UINT64_C(1000)

static void begin_with(const char *knobs, uint32_t pages)
{
	struct mm_core_opts opts = { .pages = pages,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP };
	char error[MM_TUNE_ERROR_BYTES];

	assert_int_equal(mm_tune_parse(knobs, &opts, error), 0);
	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

static uint64_t n_steps;

static void say(const struct w_proc *p, uint64_t step_ns, uint32_t waiting)
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
 * Pages for 17 chunks of KV beside a model of six layers, whose transfers steps of @step_us hide as long as all six
 * cycle through two slots; four of them through one slot would be far too slow.
 */
static struct w_proc *engine(uint64_t step_us, uint64_t transfer_us)
{
	struct w_proc *p = w_join(w, 0, MM_FEAT_KNOWN);

	w_model(w, p, 1, 6, 8, 48);
	w_run(w);
	w_kv_declare(w, p, 3, 1, 60, 0);
	for (uint32_t i = 0; i < 50; i++)
		mm_core_on_streamed(w->core, p->tenant, transfer_us * US);
	for (uint32_t i = 0; i < 100; i++) {
		n_steps++;
		say(p, step_us * US, 0);
	}
	w_kv_want(w, p, 17);
	w_run(w);
	return p;
}

/* xfer and the tenant take their time: ten jobs and three messages each in a tenth of a millisecond. */
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

/* It wants more than there is, and takes no step meanwhile: all that happens, mmd does. */
static void wants_too_much(struct w_proc *p, uint32_t ms)
{
	w_kv_want(w, p, 60);
	for (uint32_t i = 0; i < ms * 10; i++) {
		if (i % 40 == 0)
			say(p, 0, 1);
		pass_tenth(p);
	}
}

#define ENGINE_PAGES (6 * 8 + 48 + 17 * 3)

/*
 * Four layers were taken because they hide. Three of four were looked at as a set of one slot, which does not: so
 * four were too many, and one came home; then three were so few that a fourth could be taken.
 */
static void what_was_taken_because_it_hides_stays_away(void **state)
{
	static const struct {
		uint64_t step_us, transfer_us;
	} times[] = { { 3743, 413 }, { 1669, 200 }, { 1623, 180 }, { 3516, 394 }, { 154, 20 } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(times); i++) {
		uint64_t before;
		struct w_proc *p;

		/* Nothing but this is to end it. */
		begin_with("dwell-ms=1", ENGINE_PAGES);
		p = engine(times[i].step_us, times[i].transfer_us);
		before = stats().plan_changes;
		wants_too_much(p, 200);
		print_message(
			"steps of %u us, transfers of %u: %u plan changes, %u away, %u held\n",
			(uint32_t)times[i].step_us, (uint32_t)times[i].transfer_us,
			(uint32_t)(stats().plan_changes - before), plan(p)->alpha, p->held);
		assert_int_equal(plan(p)->alpha, 4);
		assert_in_range(stats().plan_changes - before, 1, 4);
		assert_true(p->held > 25);
		if (i + 1 < MM_ARRAY_SIZE(times))
			w_done(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_taken_because_it_hides_stays_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
