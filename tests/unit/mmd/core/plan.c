/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/core/plan/plan.h"
#include "tests/unit/mmd/core/sets.h"

#define N_BRUTE 12

static const uint32_t ones[MM_LAYERS_MAX + 1] = { [0 ... MM_LAYERS_MAX] = 1 };

/*
 * The least distance of two of the mask's layers around the circle, by comparing every pair.
 */
static uint32_t brute_gap(uint32_t mask, uint32_t n)
{
	uint32_t least = n;

	for (uint32_t a = 0; a < n; a++)
		for (uint32_t d = 1; d < n; d++)
			if (mask >> a & 1 && mask >> ((a + d) % n) & 1)
				least = MM_MIN(least, d);
	return least;
}

/* The best least gap of all masks with m layers that hold @must and stay within @may. */
static uint32_t brute_best(uint32_t n, uint32_t m, uint32_t must, uint32_t may)
{
	uint32_t best = 0;

	for (uint32_t mask = 0; mask < 1u << n; mask++)
		if ((uint32_t)__builtin_popcount(mask) == m && (mask & must) == must &&
		    !(mask & ~may))
			best = MM_MAX(best, brute_gap(mask, n));
	return best;
}

static void even_is_never_beaten(void **state)
{
	(void)state;
	for (uint32_t n = 2; n <= N_BRUTE; n++)
		for (uint32_t m = 2; m <= n; m++) {
			struct mm_plan_set none = { .m = 0 }, got;

			mm_plan_even(n, m, &none, &got);
			assert_int_equal(got.m, m);
			assert_int_equal(mm_plan_least_gap(&got, n), brute_gap(mask_of(&got), n));
			assert_int_equal(mm_plan_least_gap(&got, n), n / m);
			assert_int_equal(n / m, brute_best(n, m, 0, UINT32_MAX));
		}
}

static void even_overlaps_most(void **state)
{
	(void)state;
	for (uint32_t mask = 0; mask < 1u << 9; mask += 5) {
		struct mm_plan_set none = { .m = 0 }, current = set_from(mask, 1), turned, got;
		uint32_t best = 0;

		mm_plan_even(9, 3, &none, &turned);
		for (uint32_t r = 0; r < 9; r++) {
			uint32_t m = mask_of(&turned), rot = (m << r | m >> (9 - r)) & 0x1ff;

			best = MM_MAX(best, (uint32_t)__builtin_popcount(rot & mask));
		}
		mm_plan_even(9, 3, &current, &got);
		assert_int_equal(__builtin_popcount(mask_of(&got) & mask), best);
	}
}

static void growing_keeps_the_set_and_the_gap(void **state)
{
	(void)state;
	for (uint32_t n = 4; n <= N_BRUTE; n += 2)
		for (uint32_t mask = 1; mask < 1u << n; mask += 1 + n / 3) {
			struct mm_plan_set current = set_from(mask, 1), got;

			for (uint32_t m = current.m + 1; m <= n; m += 2) {
				mm_plan_grow(n, m, &current, &got);
				assert_int_equal(got.m, m);
				assert_int_equal(mask_of(&got) & mask, mask);
				assert_int_equal(mm_plan_least_gap(&got, n),
						 brute_best(n, m, mask, UINT32_MAX));
			}
		}
}

static void shrinking_keeps_within_the_set(void **state)
{
	(void)state;
	for (uint32_t n = 4; n <= N_BRUTE; n += 2)
		for (uint32_t mask = 3; mask < 1u << n; mask += 1 + n / 3) {
			struct mm_plan_set current = set_from(mask, 1), got;

			for (uint32_t m = 2; m < current.m; m++) {
				mm_plan_shrink(n, m, &current, &got);
				assert_int_equal(got.m, m);
				assert_int_equal(mask_of(&got) & ~mask, 0);
				assert_int_equal(mm_plan_least_gap(&got, n),
						 brute_best(n, m, 0, mask));
			}
		}
}

/* 0 . . . 4 . . . of 8; with 3 evenly spaced ones, at least one of them would be resident again. */
static void choice_depends_on_the_budget(void **state)
{
	struct mm_plan_set current = set_from(0x11, 1), got;
	uint32_t pages[8] = { 3, 3, 3, 3, 5, 3, 3, 3 };

	(void)state;
	assert_int_equal(mm_plan_choose(8, 3, 1, &current, pages, 0, &got), 0);
	assert_int_equal(mask_of(&got) & 0x11, 0x11);
	assert_int_equal(mm_plan_least_gap(&got, 8), 2);
	assert_in_range(mm_plan_choose(8, 3, 1, &current, pages, 100, &got), 0, 8);
	assert_int_equal(mm_plan_choose(8, 0, 1, &current, pages, 0, &got), 8);
	assert_int_equal(got.m, 0);
	assert_int_equal(mm_plan_choose(8, 2, 1, &current, pages, 0, &got), 0);
	assert_int_equal(mask_of(&got), 0x11);
}

static void largest_models(void **state)
{
	struct mm_plan_set none = { .m = 0 }, even, less, more;

	(void)state;
	mm_plan_even(MM_LAYERS_MAX, 700, &none, &even);
	mm_plan_shrink(MM_LAYERS_MAX, 350, &even, &less);
	assert_int_equal(mm_plan_pages_only_in(&less, &even, ones), 0);
	mm_plan_grow(MM_LAYERS_MAX, MM_LAYERS_MAX, &less, &more);
	assert_int_equal(more.m, MM_LAYERS_MAX);
	assert_int_equal(mm_plan_least_gap(&more, MM_LAYERS_MAX), 1);
}

static const struct {
	uint32_t beta, n, m;
	uint64_t t_c, t_t, want;
} times[] = {
	{ 1, 32, 0, 10, 99, 320 }, { 1, 32, 4, 10, 70, 320 }, /* hidden exactly: 4·70 = 28·10 */
	{ 1, 32, 4, 10, 80, 360 },                            /* 4·10 + 4·80 */
	{ 1, 32, 32, 10, 1, 352 }, /* no resident layer hides a transfer */
	{ 2, 32, 4, 10, 80, 320 }, /* max(320, 320) */
	{ 2, 32, 4, 10, 81, 324 }, { 1, 2, 2, UINT64_MAX, 0, UINT64_MAX }, /* saturates */
};

static void step_times(void **state)
{
	const struct mm_plan_set none = { .m = 0 };
	struct mm_plan_set set;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(times); i++) {
		mm_plan_even(times[i].n, times[i].m, &none, &set);
		set.beta = times[i].beta;
		assert_int_equal(mm_plan_set_step_ns(&set, times[i].n, times[i].t_c, times[i].t_t),
				 times[i].want);
	}
}

/*
 * Duration of a step with m of n layers evenly spaced, with two slots for even m. No set takes
 * less.
 */
static uint64_t formula_ns(uint32_t beta, uint32_t n, uint32_t m, uint64_t t_c, uint64_t t_t)
{
	if (beta == 2)
		return MM_MAX(n * t_c, m * t_t);
	return m * t_c + MM_MAX((n - m) * t_c, m * t_t);
}

/*
 * Plays steps layer by layer: a layer is streamed when its predecessor in the slot has run and the
 * link has transferred the layer before it. Returns the mean of 8 steps, after 8 others.
 */
static uint64_t played_steps(const struct mm_plan_set *set, uint32_t n, uint64_t t_c, uint64_t t_t)
{
	uint64_t now = 0, slot_free[2] = { 0 }, link_free = 0, begun = 0;

	for (uint32_t step = 0; step < 16; step++) {
		uint32_t k = 0;

		if (step == 8)
			begun = now;
		for (uint32_t l = 0; l < n; l++) {
			bool cycles = k < set->m && set->layer[k] == l;
			uint32_t slot = set->beta == 2 ? (k + set->first_slot) % 2 : 0;

			if (cycles) {
				link_free = MM_MAX(link_free, slot_free[slot]) + t_t;
				now = MM_MAX(now, link_free);
			}
			now += t_c;
			if (cycles)
				slot_free[slot] = now;
			k += cycles;
		}
	}
	return now - begun;
}

static void formulas_agree_with_a_played_step(void **state)
{
	(void)state;
	for (uint32_t mask = 1; mask < 1u << 10; mask++) {
		struct mm_plan_set set = set_from(mask, 1);

		for (uint64_t t_t = 0; t_t < 60 && set.m >= 2; t_t += 7) {
			uint64_t played = played_steps(&set, 10, 10, t_t);

			assert_int_equal(8 * mm_plan_set_step_ns(&set, 10, 10, t_t), played);
			assert_true(8 * formula_ns(1, 10, set.m, 10, t_t) <= played);
			if (10 % set.m == 0 && mm_plan_least_gap(&set, 10) == 10 / set.m)
				assert_int_equal(8 * formula_ns(1, 10, set.m, 10, t_t), played);
		}
	}
}

static void two_slots_agree_with_a_played_step(void **state)
{
	(void)state;
	for (uint32_t mask = 1; mask < 1u << 10; mask++) {
		struct mm_plan_set set = set_from(mask, 1);

		set.beta = 2;
		for (set.first_slot = 0; set.first_slot < 2; set.first_slot++)
			for (uint64_t t_t = 0; t_t < 60 && set.m >= 4; t_t += 7) {
				uint64_t played = played_steps(&set, 10, 10, t_t);
				uint64_t got = mm_plan_set_step_ns(&set, 10, 10, t_t);

				assert_int_equal(got, (played + 7) / 8);
				assert_true(formula_ns(2, 10, set.m, 10, t_t) <= got);
			}
	}
}

/*
 * With equal gaps and even m: max(n·T_c, m·T_T). If gaps differ by rounding or m is odd, it may be
 * more.
 */
static void two_slots_evenly_spaced(void **state)
{
	(void)state;
	for (uint32_t n = 4; n < 24; n++)
		for (uint32_t m = 4; m <= n; m++)
			for (uint64_t t_t = 1; t_t < 80; t_t += 6) {
				struct mm_plan_set none = { .m = 0 }, set;
				uint64_t got, formula = formula_ns(2, n, m, 10, t_t);

				mm_plan_choose(n, m, 2, &none, ones, UINT64_MAX, &set);
				got = mm_plan_set_step_ns(&set, n, 10, t_t);
				assert_true(got >= formula);
				if (m % 2 == 0 && n % m == 0)
					assert_int_equal(got, formula);
				assert_int_equal(mm_plan_hidden(&set, n, 10, t_t), got <= n * 10);
			}
}

/* The shortest step that any set of any number of slots has with alpha layers away. */
static uint64_t brute_step(uint32_t n, uint32_t alpha, uint64_t t_t)
{
	uint64_t best = UINT64_MAX;

	for (uint32_t mask = 0; mask < 1u << n; mask++)
		for (uint32_t beta = 1; beta <= 2; beta++) {
			struct mm_plan_set set = set_from(mask, 1);

			if (set.m != alpha + beta || set.m < 2 * beta)
				continue;
			set.beta = beta;
			best = MM_MIN(best, played_steps(&set, n, 10, t_t));
		}
	return best;
}

/* No set and number of slots beats those chosen from scratch by more than odd m costs. */
static void the_choice_is_not_beaten(void **state)
{
	(void)state;
	for (uint32_t n = 3; n <= 9; n++)
		for (uint32_t alpha = 1; alpha < n; alpha++)
			for (uint64_t t_t = 1; t_t < 64; t_t += 9) {
				struct mm_plan_set none = { .m = 0 }, one, two, *got = &one;
				uint64_t best = brute_step(n, alpha, t_t), slack = 0;

				mm_plan_choose(n, alpha + 1, 1, &none, ones, UINT64_MAX, &one);
				if (mm_plan_possible(n, alpha, 2)) {
					mm_plan_choose(n, alpha + 2, 2, &none, ones, UINT64_MAX,
						       &two);
					if (mm_plan_beta(&one, &two, n, 10, t_t) == 2)
						got = &two;
				}
				if (got->beta == 2 && got->m % 2)
					slack = 8 * 10;
				assert_in_range(played_steps(got, n, 10, t_t), best, best + slack);
			}
}

static void possible_with_so_many_slots(void **state)
{
	(void)state;
	assert_true(mm_plan_possible(8, 0, 2));
	assert_true(mm_plan_possible(8, 1, 1));
	assert_false(mm_plan_possible(8, 1, 2)); /* of three layers, one slot would have one */
	assert_true(mm_plan_possible(8, 6, 2));
	assert_false(mm_plan_possible(8, 7, 2));
	assert_true(mm_plan_possible(8, 7, 1));
	assert_false(mm_plan_possible(8, 8, 1));
}

/* If nothing was measured, there is one slot while (alpha+1)(alpha+2) < n. */
static void slots_without_measurements(void **state)
{
	(void)state;
	for (uint32_t alpha = 2; alpha < 12; alpha++) {
		struct mm_plan_set one = { .m = alpha + 1, .beta = 1 };
		struct mm_plan_set two = { .m = alpha + 2, .beta = 2 };

		for (uint32_t n = alpha + 2; n < 160; n++)
			assert_int_equal(mm_plan_beta(&one, &two, n, 0, 5),
					 (alpha + 1) * (alpha + 2) < n ? 1 : 2);
	}
}

/*
 * One layer is added to 0 2 4 6 in two slots: of the layers before it and those behind it, the
 * larger number stays in its slots.
 */
static void slots_alternate_and_stay(void **state)
{
	struct mm_plan_set current = set_from(0x55, 1), got;
	uint32_t pages[10] = { 3, 3, 4, 3, 5, 3, 3, 3, 3, 3 };
	uint32_t stayed = 0;

	(void)state;
	current.beta = 2;
	current.first_slot = 1;
	assert_int_equal(mm_plan_choose(10, 5, 2, &current, pages, 0, &got), 0);
	for (uint32_t i = 0; i < got.m; i++)
		for (uint32_t k = 0; k < current.m; k++)
			if (current.layer[k] == got.layer[i])
				stayed += mm_plan_slot(&current, k) == mm_plan_slot(&got, i);
	assert_in_range(stayed, 2, 4);
	for (uint32_t i = 1; i < got.m; i++)
		assert_int_not_equal(mm_plan_slot(&got, i), mm_plan_slot(&got, i - 1));
	/* With the same layers in one slot, the slot is as large as the largest of them all. */
	mm_plan_choose(10, 4, 1, &current, pages, 0, &got);
	assert_int_equal(mm_plan_slot_pages(&got, 0, pages), 5);
	assert_int_equal(mm_plan_slot_pages(&current, 0, pages), 4); /* of 2 and 6 */
	assert_int_equal(mm_plan_slot_pages(&current, 1, pages), 5); /* of 0 and 4 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(even_is_never_beaten),
		cmocka_unit_test(even_overlaps_most),
		cmocka_unit_test(growing_keeps_the_set_and_the_gap),
		cmocka_unit_test(shrinking_keeps_within_the_set),
		cmocka_unit_test(choice_depends_on_the_budget),
		cmocka_unit_test(largest_models),
		cmocka_unit_test(step_times),
		cmocka_unit_test(formulas_agree_with_a_played_step),
		cmocka_unit_test(two_slots_agree_with_a_played_step),
		cmocka_unit_test(two_slots_evenly_spaced),
		cmocka_unit_test(the_choice_is_not_beaten),
		cmocka_unit_test(possible_with_so_many_slots),
		cmocka_unit_test(slots_without_measurements),
		cmocka_unit_test(slots_alternate_and_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
