/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mmd/config/tune.h"
#include "tests/unit/mmd/core/story.h"

/* ---- reading ---- */

static void each_default_can_be_set(void **state)
{
	struct mm_core_opts none = { 0 };
	const struct mm_knob *k;
	uint32_t n = 0;

	(void)state;
	mm_knobs_set_defaults(&none);
	for (; (k = mm_knob_at(n)); n++) {
		struct mm_core_opts opts = { 0 };
		char text[80], error[MM_TUNE_ERROR_BYTES];

		if (k->names)
			snprintf(text, sizeof(text), "%s=%s", k->name, k->names[k->fallback - 1]);
		else
			snprintf(text, sizeof(text), "%s=%llu", k->name,
				 (unsigned long long)k->fallback);
		assert_int_equal(mm_knob_value(k, &opts), 0);
		assert_int_equal(mm_tune_parse(text, &opts, error), 0);
		assert_int_equal(mm_knob_value(k, &opts), k->fallback);
		assert_int_equal(mm_knob_value(k, &none), k->fallback);
		mm_knobs_set_defaults(&opts);
		assert_memory_equal(&opts, &none, sizeof(opts));
	}
	assert_true(n >= 8);
}

static void several_are_read_at_once(void **state)
{
	struct mm_core_opts opts = { .dwell_ns = 7, .idle_ns = 5 };
	char error[MM_TUNE_ERROR_BYTES];

	(void)state;
	assert_int_equal(
		mm_tune_parse("reversion=off,turn-cost=1000,dwell-ms=3600000", &opts, error), 0);
	assert_int_equal(opts.reversion, MM_SWITCH_OFF);
	assert_int_equal(opts.turn_cost_permille, 1000);
	assert_true(opts.dwell_ns == 3600 * MM_NS_PER_S);
	assert_true(opts.idle_ns == 5);
	mm_knobs_set_defaults(&opts);
	assert_true(opts.idle_ns == 5);
}

static const struct {
	const char *text, *names;
} refused[] = {
	{ "", "''" },
	{ ",", "''" },
	{ "turn-cost=500,", "''" },
	{ "turn-cost", "turn-cost" },
	{ "turn-cost=", "turn-cost" },
	{ "turn-cost=-1", "turn-cost" },
	{ "turn-cost=+1", "turn-cost" },
	{ "turn-cost= 1", "turn-cost" },
	{ "turn-cost=1x", "turn-cost" },
	{ "turn-cost=0", "turn-cost" },
	{ "turn-cost=1001", "turn-cost" },
	{ "turn-cost=18446744073709551617", "turn-cost" },
	{ "turn-cost=500=500", "turn-cost" },
	{ "turn-cost=500,dwell-ms=5,turn-cost=500", "turn-cost" },
	{ "Turn-cost=500", "'Turn-cost'" },
	{ "turn-costs=500", "'turn-costs'" },
	{ "turn=500", "'turn'" },
	{ "=500", "''" },
	{ "reversion=1", "reversion" },
	{ "reversion=of", "reversion" },
	{ "reversion=off ", "reversion" },
	{ "dwell-ms=3600001", "dwell-ms" },
	{ "time-scale=0", "time-scale" },
	{ "turn-cost=\x1b[31m\n", "turn-cost" },
	{ "a-key-that-is-longer-than-any-knob-could-ever-be-called\n=1", "a-key-that" },
};

static void what_is_wrong_is_named_and_changes_nothing(void **state)
{
	char long_one[2 * MM_TUNE_TEXT_BYTES], error[MM_TUNE_ERROR_BYTES];
	struct mm_core_opts opts = { .idle_ns = 5 }, same = opts;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(refused); i++) {
		memset(error, 'x', sizeof(error));
		assert_int_equal(mm_tune_parse(refused[i].text, &opts, error), -EINVAL);
		assert_non_null(memchr(error, '\0', sizeof(error)));
		assert_non_null(strstr(error, refused[i].names));
		for (const char *at = error; *at; at++)
			assert_true(*at >= ' ' && *at <= '~');
		assert_memory_equal(&opts, &same, sizeof(opts));
	}
	memset(long_one, 'c', sizeof(long_one));
	long_one[sizeof(long_one) - 1] = '\0';
	assert_int_equal(mm_tune_parse(long_one, &opts, error), -EINVAL);
}

static void the_core_takes_nothing_out_of_range(void **state)
{
	const struct mm_core_opts wrong[] = {
		{ .turn_cost_permille = 1001 },
		{ .reversion = 3 },
		{ .time_scale = 10001 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++) {
		struct mm_core_opts opts = wrong[i];
		struct mm_core *core = NULL;

		opts.pages = 10;
		opts.page_bytes = 4096;
		assert_int_equal(mm_core_create(&opts, &core), -EINVAL);
		assert_null(core);
	}
}

/* ---- effects ---- */

/* Two lenders, used one after the other, and a requester: 49 pages are free. */
static void begin_with_three(const char *knobs, struct w_proc **p)
{
	begin_with(knobs, 100);
	for (int i = 0; i < 3; i++)
		p[i] = tenant_with(0, i < 2 ? 10 : 4, 2);
	w_kv_declare(w, p[2], 1, 1, 100, 0);
	w_stats(w, p[0], 1);
	pass_ms(50);
	w_stats(w, p[1], 1);
	pass_ms(200);
}

static void without_reversion_nothing_goes_back(void **state)
{
	struct w_proc *p[3];

	(void)state;
	for (int off = 0; off < 2; off++) {
		begin_with_three(off ? "reversion=off" : "reversion=on", p);
		w_kv_want(w, p[2], 53);
		pass_ms(50);
		w_kv_want(w, p[2], 0);
		while (w_kv_release(w, p[2]))
			;
		for (int i = 0; i < 200; i++) {
			w_stats(w, p[1], 1);
			pass_ms(5);
		}
		assert_int_equal(story_plan(p[1])->alpha, off ? 2 : 0);
		if (!off)
			w_done(w);
	}
}

/* All times are ten times as long: a tenant is idle after one second, not after 100 ms. */
static void times_are_scaled(void **state)
{
	struct w_proc *p[3];

	(void)state;
	begin_with_three("time-scale=10", p);
	w_kv_want(w, p[2], 53);
	pass_ms(500);
	assert_int_equal(story_plan(p[0])->alpha + story_plan(p[1])->alpha, 0);
	pass_ms(600);
	assert_int_equal(story_plan(p[0])->alpha + story_plan(p[1])->alpha, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_reversion_nothing_goes_back),
		TEST(times_are_scaled),
		cmocka_unit_test(each_default_can_be_set),
		cmocka_unit_test(several_are_read_at_once),
		cmocka_unit_test(what_is_wrong_is_named_and_changes_nothing),
		cmocka_unit_test(the_core_takes_nothing_out_of_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
