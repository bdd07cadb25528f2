/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles by nearest rank, of values and of a histogram, which knows them within 0.4 %. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/histogram.h"
#include "libclient/base/percentile.h"
#include "libclient/base/random.h"

#define VALUES 10007

static const struct {
	uint64_t n;
	double percent;
	uint64_t want;
} ranks[] = {
	{ 1, 0, 1 },      { 1, 50, 1 },  { 1, 100, 1 },       { 2, 50, 1 },   { 3, 50, 2 },
	{ 4, 50, 2 },     { 4, 51, 3 },  { 10, 90, 9 },       { 10, 99, 10 }, { 100, 99, 99 },
	{ 101, 99, 100 }, { 100, 7, 7 }, { 1000, 99.9, 999 }, { 7, 100, 7 },
};

static void test_ranks(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(ranks); i++)
		assert_int_equal(mm_percentile_rank(ranks[i].n, ranks[i].percent), ranks[i].want);
}

static void test_values(void **state)
{
	double reals[] = { 4, 1, 3, 2 };
	uint64_t wholes[] = { UINT64_MAX, 7, UINT64_MAX - 1, 0 };

	(void)state;
	assert_true(mm_percentile(reals, 4, 50) == 2 && mm_percentile(reals, 4, 99) == 4);
	assert_true(mm_percentile(reals, 1, 1) == 1 && mm_percentile(NULL, 0, 50) == 0);
	assert_true(mm_percentile_u64(wholes, 4, 50) == 7);
	assert_true(mm_percentile_u64(wholes, 4, 75) == UINT64_MAX - 1);
	assert_true(mm_percentile_u64(wholes, 4, 100) == UINT64_MAX);
	assert_true(mm_percentile_u64(NULL, 0, 50) == 0);
}

/* The same values in a histogram, and in two that are merged. */
static void test_histogram(void **state)
{
	static const double percents[] = { 0, 1, 10, 50, 90, 99, 99.9, 100 };
	struct mm_histogram *h = calloc(3, sizeof(*h));
	uint64_t *values = calloc(VALUES, sizeof(*values)), s = 3;

	(void)state;
	assert_true(h && values);
	assert_int_equal(mm_histogram_percentile(&h[0], 50), 0);
	for (uint32_t i = 0; i < VALUES; i++) {
		values[i] = (uint64_t)exp(20 * mm_random_unit(&s));
		mm_histogram_add(&h[0], values[i], 1);
		mm_histogram_add(&h[1 + i % 2], values[i], 1);
	}
	mm_histogram_merge(&h[1], &h[2]);
	for (size_t i = 0; i < MM_ARRAY_SIZE(percents); i++) {
		const double want = (double)mm_percentile_u64(values, VALUES, percents[i]);
		const double got = (double)mm_histogram_percentile(&h[0], percents[i]);

		assert_true(fabs(got - want) <= want / 256);
		assert_true(mm_histogram_percentile(&h[1], percents[i]) ==
			    mm_histogram_percentile(&h[0], percents[i]));
	}
	assert_true(mm_histogram_percentile(&h[0], 0) >= values[0]);
	assert_true(mm_histogram_percentile(&h[0], 100) <= values[VALUES - 1]);
	free(values);
	free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_histogram),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
