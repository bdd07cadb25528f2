/* SPDX-License-Identifier: Apache-2.0 */
/* Laws of all decisions: the order of tenants, the optimum, no livelock. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/core/market/value.h"
#include "tests/unit/mmd/core/views.h"

#define VIEWS  3000
#define FEW    3 /* tenants whose layers are tried exhaustively */
#define LAYERS 8

static struct views v, other;

static uint64_t draw_number(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return *seed >> 33;
}

/* ---- order ---- */

/* Makes all that may decide between two equals different: then nothing depends on indices. */
static void no_equals(struct views *w)
{
	for (uint32_t i = 0; i < w->view.n_tenants; i++) {
		struct mm_view_tenant *t = &w->tenant[i];

		t->place = t->turn == MM_VIEW_WAITS ? i : UINT32_MAX;
		t->step_ns += 1000 * i;
		t->active_ns = w->view.now_ns - 1000 * i;
		t->turn = t->turn == MM_VIEW_HOLDS && i ? MM_VIEW_AWAY : t->turn;
	}
}

static void the_order_of_tenants_changes_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		uint32_t n;

		views_draw(&v, seed);
		views_draw(&other, seed);
		no_equals(&v);
		n = v.view.n_tenants;
		for (uint32_t i = 0; i < n; i++) {
			other.tenant[n - 1 - i] = v.tenant[i];
			other.tenant[n - 1 - i].index = n - 1 - i;
			other.memory.taken_ns[n - 1 - i] = v.memory.taken_ns[i];
		}
		other.memory.memory_of = n - 1 - v.memory.memory_of;
		views_decide(&v);
		views_decide(&other);
		for (uint32_t i = 0; i < n; i++) {
			const struct mm_target *a = &v.target[i], *b = &other.target[n - 1 - i];

			assert_int_equal(a->alpha, b->alpha);
			assert_int_equal(a->kv_most, b->kv_most);
			assert_int_equal(a->kv_keep, b->kv_keep);
			assert_int_equal(a->first, b->first);
		}
	}
}

/* ---- the optimum ---- */

static void draw_few(uint64_t *seed)
{
	uint32_t n = 2 + (uint32_t)(draw_number(seed) % (FEW - 1));
	uint64_t models = 0;

	views_begin(&v, 0);
	v.view.may_turns = false;
	views_mode(&v, true);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t layers = 3 + (uint32_t)(draw_number(seed) % (LAYERS - 2));
		uint64_t transfer_ns = 100000 + draw_number(seed) % (8 * MM_NS_PER_MS);
		uint64_t step_ns = (5 + draw_number(seed) % 75) * MM_NS_PER_MS + i;
		uint32_t pages = 1 + (uint32_t)(draw_number(seed) % 40);
		struct mm_view_tenant *t = views_add(&v, layers, pages, step_ns, transfer_ns);

		t->kv_held = t->kv_used = 50 + (uint32_t)(draw_number(seed) % 400);
		t->kv_share = 1 + (uint32_t)(draw_number(seed) % t->kv_held);
		t->kv_wanted = 100000;
		t->waiting = 10;
		models += layers * t->layer_pages + t->kv_held;
	}
	v.view.pages = models;
}

/* The value of @alpha as mm_away_decide() counts it, and whether each is within its clause. */
static bool value_of_all(const uint32_t *alpha, int64_t *ret_value)
{
	uint32_t n = v.view.n_tenants, link = 0, order[FEW] = { 0, 1, 2 };
	uint64_t kv = 0, model = 0;
	int64_t gain = 0;

	for (uint32_t i = 0; i < n; i++) {
		kv += v.tenant[i].kv_held;
		model += (uint64_t)v.tenant[i].layers * v.tenant[i].layer_pages;
	}
	for (uint32_t i = 0; i < n; i++)
		gain += 1000 - (int64_t)(v.tenant[i].kv_held * 1000 / (kv + model) * n);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k + 1 < n; k++)
			if (v.tenant[order[k]].step_ns < v.tenant[order[k + 1]].step_ns) {
				uint32_t swap = order[k];

				order[k] = order[k + 1];
				order[k + 1] = swap;
			}
	*ret_value = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct mm_view_tenant *t = &v.tenant[order[i]];
		struct mm_value value = {
			.computing = n,
			.weight_permille = 1000,
			.gain_permille = gain,
			.kv_pages = kv,
			.kv_enough = UINT64_MAX / 2,
			.rho_permille = MM_VALUE_STALL * v.view.rho_permille,
			.link_slows_permille = v.view.link_slows_permille,
			.link_permille = link,
		};
		struct mm_view_point cost = mm_value_cost(&value, t, alpha[order[i]]);

		if (cost.slow_permille > mm_value_clause(t))
			return false;
		*ret_value += mm_value_at(&value, t, alpha[order[i]]);
		kv += (uint64_t)alpha[order[i]] * t->layer_pages;
		link += cost.link_permille;
	}
	return true;
}

static int64_t best_of_all(void)
{
	int64_t best = 0, value;
	uint32_t alpha[FEW] = { 0 }, most[FEW] = { 0 };

	for (uint32_t i = 0; i < v.view.n_tenants; i++)
		most[i] = v.tenant[i].alpha_max - 1;
	for (alpha[0] = 0; alpha[0] <= most[0]; alpha[0]++)
		for (alpha[1] = 0; alpha[1] <= most[1]; alpha[1]++)
			for (alpha[2] = 0; alpha[2] <= most[2]; alpha[2]++)
				if (value_of_all(alpha, &value))
					best = MM_MAX(best, value);
	return best;
}

static void one_after_the_other_is_nearly_the_best(void **state)
{
	int64_t sum = 0, sum_best = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		uint64_t s = seed * 7919;
		uint32_t alpha[FEW] = { 0 };
		int64_t value, best;

		draw_few(&s);
		views_decide(&v);
		for (uint32_t i = 0; i < v.view.n_tenants; i++)
			alpha[i] = v.target[i].alpha;
		assert_true(value_of_all(alpha, &value));
		best = best_of_all();
		assert_true(value <= best);
		sum += value;
		sum_best += best;
	}
	assert_true(sum * 100 >= sum_best * 97);
}

/* ---- no livelock ---- */

/* Two models of which either fits only without the other: memory is for whoever has the turn. */
static void memory_follows_the_turn(void **state)
{
	struct mm_view_tenant *a, *b;

	(void)state;
	views_begin(&v, 4800);
	a = views_add(&v, 48, 74, 25 * MM_NS_PER_MS, 22 * MM_NS_PER_MS);
	b = views_add(&v, 32, 24, 27 * MM_NS_PER_MS, 7 * MM_NS_PER_MS);
	a->swap_bytes = b->swap_bytes = UINT64_C(1) << 36;
	a->kv_wanted = 1200;
	b->kv_wanted = 4000;
	a->chunk_pages = 4;
	a->alpha = a->alpha_next = 46;
	b->kv_held = 3800;
	v.view.may_beside = false;
	v.view.joined = 2;
	b->turn = MM_VIEW_HOLDS;
	b->running = 90;
	b->kv_used = 3800;
	views_wait(a, 0);
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 1);
	/* The turn is a's, which runs nothing yet. */
	a->turn = MM_VIEW_HOLDS;
	views_wait(b, 0);
	v.view.now_ns += 10 * MM_NS_PER_MS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 0);
	assert_int_equal(v.target[1].kv_keep, 0);
	assert_true(v.target[0].alpha < 46);
	/* It needs none any more: nothing stays for it. */
	a->turn = MM_VIEW_AWAY;
	b->turn = MM_VIEW_HOLDS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 1);
	assert_int_equal(v.target[1].kv_keep, UINT32_MAX);
	/* Where nobody has it, memory is for the first in line. */
	views_wait(a, 0);
	views_wait(b, 1);
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 0);
}

/*
 * One had KV in the pages of its own layers: while it waits it is granted no more than fits beside
 * them, whoever has the turn.
 */
static void who_waits_holds_what_fits_beside_its_layers(void **state)
{
	struct mm_view_tenant *a, *b;

	(void)state;
	views_begin(&v, 4800);
	a = views_add(&v, 48, 74, 25 * MM_NS_PER_MS, 22 * MM_NS_PER_MS);
	b = views_add(&v, 32, 24, 27 * MM_NS_PER_MS, 7 * MM_NS_PER_MS);
	a->kv_held = a->kv_used = 3500;
	a->kv_wanted = b->kv_wanted = 5000;
	a->alpha = a->alpha_next = 46;
	a->gives = b->gives = false;
	v.view.may_beside = false;
	v.view.joined = 2;
	for (uint32_t i = 0; i < 2; i++) {
		views_wait(a, i);
		b->turn = i ? MM_VIEW_WAITS : MM_VIEW_HOLDS;
		b->place = 0;
		views_decide(&v);
		assert_true(v.target[0].kv_most <= 4800 - 48 * 74 - 2 * 24);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_order_of_tenants_changes_nothing),
		cmocka_unit_test(one_after_the_other_is_nearly_the_best),
		cmocka_unit_test(memory_follows_the_turn),
		cmocka_unit_test(who_waits_holds_what_fits_beside_its_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
