/* SPDX-License-Identifier: Apache-2.0 */
/* The stream is the published one, because results are committed; the shapes are as they say. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"

#define DRAWS 200000

static void test_stream(void **state)
{
	/* splitmix64 from 1234567, as other implementations have it. */
	static const uint64_t want[] = { UINT64_C(6457827717110365317),
					 UINT64_C(3203168211198807973),
					 UINT64_C(9817491932198370423),
					 UINT64_C(4593380528125082431),
					 UINT64_C(16408922859458223821) };
	uint64_t s = 1234567;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++)
		assert_true(mm_random_next(&s) == want[i]);
	assert_true(mm_random_mix(1234567) == want[0]);
	assert_true(mm_random_seed(1, 2, 3) != mm_random_seed(1, 3, 2));
}

static void test_below(void **state)
{
	uint32_t count[7] = { 0 };
	uint64_t s = 5;

	(void)state;
	for (uint32_t i = 0; i < DRAWS; i++)
		count[mm_random_below(&s, MM_ARRAY_SIZE(count))]++;
	for (size_t i = 0; i < MM_ARRAY_SIZE(count); i++)
		assert_in_range(count[i], DRAWS / 7 - 800, DRAWS / 7 + 800);
	assert_true(mm_random_below(&s, 1) == 0);
}

static void test_shapes(void **state)
{
	double unit = 0, normal = 0, squares = 0, gamma = 0, small_gamma = 0;
	uint64_t s = 9;

	(void)state;
	for (uint32_t i = 0; i < DRAWS; i++) {
		const double u = mm_random_unit(&s), n = mm_random_normal(&s);

		assert_true(u > 0 && u < 1);
		unit += u / DRAWS;
		normal += n / DRAWS;
		squares += n * n / DRAWS;
		gamma += mm_random_gamma(&s, 3) / DRAWS;
		small_gamma += mm_random_gamma(&s, 0.4) / DRAWS;
	}
	assert_true(unit > 0.497 && unit < 0.503);
	assert_true(normal > -0.01 && normal < 0.01);
	assert_true(squares > 0.98 && squares < 1.02);
	assert_true(gamma > 2.97 && gamma < 3.03);
	assert_true(small_gamma > 0.39 && small_gamma < 0.41);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_below),
		cmocka_unit_test(test_shapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
