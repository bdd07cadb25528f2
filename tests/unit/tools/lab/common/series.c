/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/common/series.h"

static struct mm_series series_make(const double *values, uint32_t n)
{
	struct mm_series s = { 0 };

	for (uint32_t i = 0; i < n; i++)
		mm_series_add(&s, values[i]);
	return s;
}

static void test_empty(void **state)
{
	struct mm_series none = { 0 };
	const struct mm_summary summary = mm_series_summary(&none);

	(void)state;
	assert_int_equal(summary.n, 0);
	assert_true(summary.median == 0 && summary.p10 == 0 && summary.p90 == 0);
	assert_int_equal(mm_series_pairs(&none, &none).n, 0);
	mm_series_done(&none);
}

/* A series grows with many unsorted values, and keeps their order. */
static void test_summary(void **state)
{
	struct mm_series s = { 0 };
	struct mm_summary summary;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		mm_series_add(&s, (double)(i * 7 % 1000 + 1));
	summary = mm_series_summary(&s);
	assert_int_equal(summary.n, 1000);
	assert_true(summary.median == 500 && summary.p10 == 100 && summary.p90 == 900);
	for (uint32_t i = 0; i < 1000; i++)
		assert_true(s.at[i] == (double)(i * 7 % 1000 + 1));
	mm_series_done(&s);
	assert_int_equal(s.n, 0);
}

static void test_one_value(void **state)
{
	struct mm_series s = series_make((double[]){ 3 }, 1);
	const struct mm_summary summary = mm_series_summary(&s);

	(void)state;
	assert_true(summary.n == 1 && summary.median == 3 && summary.p10 == 3 && summary.p90 == 3);
	mm_series_done(&s);
}

/* Pairs cancel out a drift of both sides, and leave out references that are not above 0. */
static void test_pairs(void **state)
{
	struct mm_series figure = series_make((double[]){ 2, 4, 8, 16, 5, 7 }, 6);
	struct mm_series reference = series_make((double[]){ 1, 2, 4, 8, 0 }, 5);
	const struct mm_summary pairs = mm_series_pairs(&figure, &reference);

	(void)state;
	assert_int_equal(pairs.n, 4);
	assert_true(pairs.median == 2 && pairs.p10 == 2 && pairs.p90 == 2);
	mm_series_done(&figure);
	mm_series_done(&reference);
}

static void test_goals(void **state)
{
	static const struct {
		struct mm_goal goal;
		double ratio;
		bool checked, reached;
	} cases[] = {
		{ { MM_GOAL_NONE, 0 }, 1, false, false },
		{ { MM_GOAL_AT_LEAST, 0.97 }, 0.97, true, true },
		{ { MM_GOAL_AT_LEAST, 0.97 }, 0.969, true, false },
		{ { MM_GOAL_AT_MOST, 1.2 }, 1.2, true, true },
		{ { MM_GOAL_AT_MOST, 1.2 }, 1.201, true, false },
		{ { MM_GOAL_AT_MOST, 1.2 }, 0, false, false },
		{ { MM_GOAL_AT_MOST, 1.2 }, NAN, false, false },
		{ { MM_GOAL_AT_LEAST, 0.97 }, INFINITY, false, false },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		bool reached = false;

		assert_int_equal(mm_goal_check(&cases[i].goal, cases[i].ratio, &reached),
				 cases[i].checked);
		assert_int_equal(reached, cases[i].reached);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),     cmocka_unit_test(test_summary),
		cmocka_unit_test(test_one_value), cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_goals),
	};

	return cmocka_run_group_tests_name("tools-series", tests, NULL, NULL);
}
