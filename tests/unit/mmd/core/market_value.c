/* SPDX-License-Identifier: Apache-2.0 */
/* Values of layers that are away: the logarithm, costs between known points, the best number. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/core/market/value.h"
#include "tests/unit/mmd/core/views.h"

static struct views v;

static void the_logarithm_is_that_of_the_table(void **state)
{
	static const struct {
		uint64_t num, den;
		int64_t ln; /* in millionths */
	} table[] = {
		{ 1, 1, 0 },
		{ 2, 1, 693147 },
		{ 1, 2, -693147 },
		{ 3, 2, 405465 },
		{ 2, 3, -405465 },
		{ 1001, 1000, 1000 },
		{ 1000, 1001, -1000 },
		{ 10, 1, 2302585 },
		{ 27183, 10000, 1000007 },
		{ 123456789, 987, 11736732 },
		{ 1000000007, 1000000000, 0 },
		{ UINT64_C(1) << 40, 1, 27725887 },
		{ UINT64_MAX, 1, 44361420 },
		{ 1, UINT64_MAX, -44361420 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(table); i++) {
		int64_t ln = mm_value_ln(table[i].num, table[i].den);

		assert_true(ln >= table[i].ln - 2 && ln <= table[i].ln + 2);
	}
}

static void the_logarithm_of_a_product_is_the_sum(void **state)
{
	(void)state;
	for (uint64_t a = 1; a < 3000; a += 37)
		for (uint64_t b = 1; b < 3000; b += 41) {
			int64_t sum = mm_value_ln(a, 7) + mm_value_ln(7 * b, 11);
			int64_t ln = mm_value_ln(a * b, 11);

			assert_true(ln >= sum - 3 && ln <= sum + 3);
		}
}

static void costs_between_points_are_on_a_line(void **state)
{
	struct mm_view_tenant t = {
		.points = 3,
		.point = { { 0, 0, 0 }, { 4, 40, 400 }, { 8, 240, 800 } },
	};

	(void)state;
	assert_int_equal(mm_value_slow(&t, 0), 0);
	assert_int_equal(mm_value_slow(&t, 1), 10);
	assert_int_equal(mm_value_slow(&t, 4), 40);
	assert_int_equal(mm_value_slow(&t, 6), 140);
	assert_int_equal(mm_value_slow(&t, 8), 240);
	assert_int_equal(mm_value_slow(&t, 9), UINT32_MAX);
	assert_int_equal(mm_value_link(&t, 6), 600);
	t.point[2].slow_permille = UINT32_MAX;
	assert_int_equal(mm_value_slow(&t, 4), 40);
	assert_int_equal(mm_value_slow(&t, 5), UINT32_MAX);
}

static void the_clause_grows_with_own_kv_only(void **state)
{
	struct mm_view_tenant t = {
		.layers = 10,
		.layer_pages = 10,
		.chunk_pages = 1,
		.kv_share = 100,
		.kv_held = 50,
	};

	(void)state;
	assert_int_equal(mm_value_clause(&t), 50);
	t.kv_held = 100;
	assert_int_equal(mm_value_clause(&t), 50);
	t.kv_held = 300; /* twice its share beyond, a quarter of its memory is the model */
	assert_int_equal(mm_value_clause(&t), 50 + 2 * 250);
	t.kappa_permille = 1000;
	assert_int_equal(mm_value_clause(&t), 50);
	t.kappa_permille = 400;
	assert_int_equal(mm_value_clause(&t), 50 + 2 * 600);
}

/* Value of each number of layers by itself, without the search. */
static uint32_t best_by_trying(const struct mm_value *value, const struct mm_view_tenant *t)
{
	uint32_t best = 0;

	for (uint32_t alpha = 1; alpha <= value->alpha_most; alpha++)
		if (mm_value_slow(t, alpha) <= value->slow_most &&
		    mm_value_at(value, t, alpha) > mm_value_at(value, t, best))
			best = alpha;
	return best;
}

static void the_search_finds_the_best(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20000; seed++) {
		const struct mm_view_tenant *t = &v.tenant[0];
		struct mm_value value;
		struct mm_value_choice choice;

		views_draw(&v, seed);
		if (!t->lends || !t->alpha_max)
			continue;
		for (uint32_t i = 0; i < t->points; i++)
			if (v.tenant[0].point[i].slow_permille == UINT32_MAX)
				v.tenant[0].points = i;
		value = (struct mm_value){
			.computing = 1 + seed % 4,
			.weight_permille = 1000,
			.gain_permille = (int64_t)(seed % 1500),
			.kv_pages = 1 + seed % 3000,
			.kv_enough = 1 + seed % 7001,
			.rho_permille = v.view.rho_permille,
			.link_slows_permille = v.view.link_slows_permille,
			.slow_most = seed % 3 ? mm_value_clause(t) : MM_VALUE_SLOW_KNOWN,
			.alpha_most = t->alpha_max - 1,
		};
		choice = mm_value_choose(&value, t, UINT32_MAX);
		assert_true(mm_value_slow(t, choice.alpha) <= value.slow_most);
		assert_true(choice.worth >= mm_value_at(&value, t, best_by_trying(&value, t)) -
						    MM_VALUE_HYSTERESIS);
	}
}

static void little_gain_moves_nothing(void **state)
{
	struct mm_view_tenant *t;
	struct mm_value value = { .computing = 2,
				  .weight_permille = 1000,
				  .gain_permille = 1000,
				  .kv_pages = 10000,
				  .kv_enough = UINT32_MAX,
				  .rho_permille = 500,
				  .slow_most = 1000,
				  .alpha_most = 30 };

	(void)state;
	views_begin(&v, 10000);
	t = views_add(&v, 32, 4, 100 * MM_NS_PER_MS, MM_NS_PER_MS);
	/* One layer is four of 10,000 pages: 0.4 permille of ln. */
	assert_int_equal(mm_value_choose(&value, t, 12).alpha, 12);
	assert_true(mm_value_choose(&value, t, 12).stays);
	value.kv_pages = 100;
	assert_int_equal(mm_value_choose(&value, t, 12).alpha, 30);
	/* Layers that the clause forbids do not stay. */
	value.slow_most = 0;
	for (uint32_t i = 1; i < t->points; i++)
		t->point[i].slow_permille = t->point[i].alpha;
	assert_int_equal(mm_value_choose(&value, t, 12).alpha, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_logarithm_is_that_of_the_table),
		cmocka_unit_test(the_logarithm_of_a_product_is_the_sum),
		cmocka_unit_test(costs_between_points_are_on_a_line),
		cmocka_unit_test(the_clause_grows_with_own_kv_only),
		cmocka_unit_test(the_search_finds_the_best),
		cmocka_unit_test(little_gain_moves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
