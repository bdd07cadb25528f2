/* SPDX-License-Identifier: Apache-2.0 */
/* The slope of step times over KV in use: known ones, few pairs, equal ones, old pairs leave. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mmd/core/book/slope.h"

/* Adds @n pairs whose step is the root of KV to the power of 2 * @half, times @unit_ns. */
static void pairs_add(struct mm_slope *s, uint32_t n, uint32_t half, uint64_t unit_ns)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t root = 1 + i * 7 % 61, ns = unit_ns;

		for (uint32_t k = 0; k < half; k++)
			ns *= root;
		mm_slope_add(s, root * root, ns);
	}
}

static void test_known_slopes(void **state)
{
	static const uint32_t permille[] = { 0, 500, 1000, 1000 };

	(void)state;
	for (uint32_t half = 0; half < 4; half++) {
		struct mm_slope s = { 0 };
		uint32_t got;

		pairs_add(&s, MM_SLOPE_PAIRS, half, 1000);
		assert_true(mm_slope_permille(&s, &got));
		assert_in_range(got + 10, permille[half], permille[half] + 20);
		assert_true(got <= 1000);
	}
}

static void test_too_little_is_known(void **state)
{
	struct mm_slope few = { 0 }, same = { 0 };
	uint32_t got;

	(void)state;
	pairs_add(&few, MM_SLOPE_LEAST - 1, 1, 1000);
	assert_false(mm_slope_permille(&few, &got));
	pairs_add(&few, 1, 1, 1000);
	assert_true(mm_slope_permille(&few, &got));
	for (uint32_t i = 0; i < 2 * MM_SLOPE_PAIRS; i++)
		mm_slope_add(&same, 100 + i % 3, 1000 + i);
	assert_false(mm_slope_permille(&same, &got));
}

static void test_old_pairs_leave(void **state)
{
	struct mm_slope s = { 0 }, fresh = { 0 };
	uint32_t got = 0, of_fresh = 1;

	(void)state;
	pairs_add(&s, 3 * MM_SLOPE_PAIRS, 2, 123456);
	pairs_add(&s, MM_SLOPE_PAIRS, 0, 77);
	pairs_add(&fresh, MM_SLOPE_PAIRS, 0, 77);
	assert_true(mm_slope_permille(&s, &got) && mm_slope_permille(&fresh, &of_fresh));
	assert_int_equal(got, of_fresh);
	assert_true(s.sum_x == fresh.sum_x && s.sum_xx == fresh.sum_xx && s.sum_xy == fresh.sum_xy);
}

static void test_extremes_stay_in_range(void **state)
{
	struct mm_slope s = { 0 };
	uint32_t got;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		mm_slope_add(&s, i % 2 ? UINT64_MAX : 1, i % 3 ? UINT64_MAX : 1);
	assert_true(mm_slope_permille(&s, &got) && got <= 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_slopes),
		cmocka_unit_test(test_too_little_is_known),
		cmocka_unit_test(test_old_pairs_leave),
		cmocka_unit_test(test_extremes_stay_in_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
