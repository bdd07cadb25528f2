/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of streaming by the recent steps, and its effects: layers are taken and return, chunks
 * are reclaimed.
 */
#undef NDEBUG
#include <errno.h>

#include "mmd/core/book/emit.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/worth.h"
#include "tests/unit/mmd/core/story.h"

#define US UINT64_C(1000)

static uint64_t n_steps, n_samples;

/* Sends statistics of @p, after n_steps steps and n_samples samples. */
static void stats_send(struct w_proc *p, uint64_t step_ns, uint64_t stall_ns, uint32_t waiting)
{
	struct mm_tenant_stats s = { .step_ns = step_ns,
				     .stall_ns = stall_ns,
				     .kv_chunks_used = p->held,
				     .running = 1,
				     .waiting = waiting,
				     .steps = n_steps,
				     .samples = n_samples,
				     .step_seq = 2 * n_steps };

	mm_core_on_stats(w->core, w->now_ns, p->tenant, &s);
	w_drain(w);
}

/* Reports one more step of @step_ns, of which it waited at gates for @stall_ns. */
static void step_report(struct w_proc *p, uint64_t step_ns, uint64_t stall_ns, uint32_t waiting)
{
	n_steps++;
	n_samples++;
	stats_send(p, step_ns, stall_ns, waiting);
}

/* One model of 16 layers of 3 pages each, with transfers of 400 µs. */
static struct w_proc *one_model(void)
{
	struct w_proc *p = tenant_with(0, 16, 3);

	w_kv_declare(w, p, 1, 1, 100, 0);
	for (int i = 0; i < 300; i++)
		mm_core_on_streamed(w->core, p->tenant, 400 * US);
	w_run(w);
	return p;
}

static uint32_t alpha_of(struct w_proc *p, uint64_t short_us, uint32_t long_in_ten)
{
	for (uint32_t i = 0; i < 200; i++)
		step_report(p, i % 10 < long_in_ten ? 100000 * US : short_us * US, 0, 0);
	w_kv_want(w, p, 100);
	for (uint32_t i = 0; i < 60; i++) {
		step_report(p, i % 10 < long_in_ten ? 100000 * US : short_us * US, 0, 0);
		w_tick(w, 2 * MM_NS_PER_MS);
		w_run(w);
	}
	return story_plan(p)->alpha;
}

/*
 * Steps of 1.6 ms hide four transfers at most, steps of 100 ms all; by a mean of both all would be
 * hidden.
 */
static void long_steps_do_not_hide_what_short_ones_show(void **state)
{
	uint32_t some, none, all;

	(void)state;
	begin_with("cap=1000", 80);
	some = alpha_of(one_model(), 1600, 3);
	w_done(w);
	begin_with("cap=1000", 80);
	none = alpha_of(one_model(), 200, 3);
	w_done(w);
	begin_with("cap=1000", 80);
	all = alpha_of(one_model(), 1600, 10);
	assert_int_equal(none, 0);
	assert_in_range(some, 1, 3);
	assert_true(all >= 10);
}

/* Most steps are short, and have no measured stall; the few with a sample are long. */
static void only_samples_count(void **state)
{
	struct w_proc *p;

	(void)state;
	begin_with("cap=1000", 80);
	p = one_model();
	for (uint32_t i = 0; i < 200; i++) {
		step_report(p, 100000 * US, 0, 0);
		for (uint32_t k = 0; k < 9; k++, n_steps++)
			stats_send(p, 200 * US, 0, 0);
	}
	w_kv_want(w, p, 100);
	for (uint32_t i = 0; i < 60; i++, n_steps++) {
		stats_send(p, 200 * US, 0, 0);
		w_tick(w, 2 * MM_NS_PER_MS);
		w_run(w);
	}
	assert_true(story_plan(p)->alpha >= 10);
}

/* The higher the tolerated cost, the more layers are taken. */
static void what_is_tolerated_is_a_knob(void **state)
{
	uint32_t little, much;

	(void)state;
	begin_with("slow=1", 80);
	little = alpha_of(one_model(), 1600, 0);
	w_done(w);
	begin_with("slow=900,link=1000", 80);
	much = alpha_of(one_model(), 1600, 0);
	assert_true(little < much);
}

/*
 * With time-scale 4 the device's clock, which measures stalls, is four times slower than the
 * host's: 1200 us of it are 4800 us of a step's 6400 us.
 */
static void stalls_are_of_the_devices_time(void **state)
{
	struct w_proc *p;

	(void)state;
	begin_with("cap=1000,time-scale=4", 80);
	p = one_model();
	for (uint32_t i = 0; i < 200; i++)
		step_report(p, 6400 * US, 1200 * US, 0);
	w_kv_want(w, p, 100);
	for (uint32_t i = 0; i < 60; i++) {
		step_report(p, 6400 * US, 1200 * US, 0);
		w_tick(w, 8 * MM_NS_PER_MS);
		w_run(w);
	}
	assert_in_range(story_plan(p)->alpha, 1, 4);
}

/* For a tenant that stalls most of the time, KV in use beyond shares is reclaimed. */
static void who_stalls_most_of_the_time_is_relieved(void **state)
{
	(void)state;
	for (int off = 0; off < 2; off++) {
		struct w_proc *p;
		uint32_t asked = 0, before;

		begin_with(off ? "cap=1000,recall=off" : "cap=1000", 80);
		p = one_model();
		before = alpha_of(p, 3200, 0);
		assert_true(before > 1);
		for (uint32_t i = 0; i < 1200; i++) {
			step_report(p, 1200 * US, 1000 * US, 5);
			w_tick(w, 2 * MM_NS_PER_MS);
			w_run(w);
			asked += p->reclaim;
			while (p->reclaim && w_kv_release(w, p))
				;
			w_kv_want(w, p, 100);
		}
		assert_int_equal(asked != 0, !off);
		assert_int_equal(story_plan(p)->alpha < before, !off);
		if (!off)
			w_done(w);
	}
}

/* When demand rises, layers are taken before it is there. */
static void what_will_be_demanded_is_taken_ahead(void **state)
{
	(void)state;
	for (int off = 0; off < 2; off++) {
		struct w_proc *lends, *requester;

		begin_with(off ? "forecast=off" : "forecast=on,ahead-ms=1000", 80);
		lends = tenant_with(0, 10, 2);
		requester = tenant_with(0, 4, 2);
		w_kv_declare(w, requester, 1, 1, 100, 0);
		pass_ms(300);
		for (uint32_t chunks = 1; chunks <= 45; chunks++) {
			w_kv_want(w, requester, chunks);
			pass_ms(20);
		}
		assert_int_equal(requester->denials, 0);
		assert_int_equal(story_plan(lends)->alpha != 0, !off);
		if (!off)
			w_done(w);
	}
}

/*
 * The number of layers that may be away and the number that is worthwhile are kept separately: one
 * is not returned for the other.
 */
static void what_may_be_away_is_not_what_is_worthwhile(void **state)
{
	struct mm_c_tenant *t;
	uint32_t may, worthwhile;
	struct w_proc *p;

	(void)state;
	begin_with("cap=1000,slow=900,link=1000", 80);
	p = one_model();
	alpha_of(p, 1600, 0);
	t = mm_c_tenant(w->core, p->tenant);
	mm_c_caps_void(t);
	may = mm_c_alpha_cap(w->core, t, 2);
	mm_c_caps_void(t);
	worthwhile = mm_c_alpha_worthwhile(w->core, t, 1000);
	assert_int_not_equal(may, worthwhile);
	mm_c_caps_void(t);
	assert_int_equal(mm_c_alpha_cap(w->core, t, 2), may);
	assert_int_equal(mm_c_alpha_worthwhile(w->core, t, 1000), worthwhile);
	assert_int_equal(mm_c_alpha_cap(w->core, t, 2), may);
}

/* When demands change, the sums are computed anew at once. */
static void what_is_waited_for_is_summed_anew(void **state)
{
	struct mm_core_quota q = { .min_pages = 4 };
	struct mm_c_tenant *t;
	struct w_proc *p;

	(void)state;
	begin_with("cap=1000", 40);
	w_account_add(w, 1, 1, &q);
	p = w_join(w, 1, MM_FEAT_KNOWN);
	w_kv_declare(w, p, 1, 1, 40, 0);
	w_kv_want(w, p, 6);
	w_run(w);
	assert_int_equal(p->held, 6);
	t = mm_c_tenant(w->core, p->tenant);
	/*
	 * The tenant may give two pages beyond the min, and three for those that it waits for.
	 */
	p->want = t->demand->wanted = 9;
	mm_c_supply_changed(w->core);
	assert_int_equal(mm_c_may_give(w->core, t, 1, MM_DOMAIN_NONE), 2 + 3);
	mm_c_kv_grant(w->core, t);
	assert_int_equal(mm_c_may_give(w->core, t, 1, MM_DOMAIN_NONE), 3 + 2);
	mm_c_kick(w->core, t, "for the test");
	assert_int_equal(mm_c_may_give(w->core, t, 1, MM_DOMAIN_NONE), 3);
	w_drain(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(long_steps_do_not_hide_what_short_ones_show),
		TEST(only_samples_count),
		TEST(what_is_tolerated_is_a_knob),
		TEST(stalls_are_of_the_devices_time),
		TEST(who_stalls_most_of_the_time_is_relieved),
		TEST(what_will_be_demanded_is_taken_ahead),
		TEST(what_may_be_away_is_not_what_is_worthwhile),
		TEST(what_is_waited_for_is_summed_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
