/* SPDX-License-Identifier: Apache-2.0 */
/* Laws of all decisions: the order of tenants, lies, the optimum, no livelock. */
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

/* ---- lies ---- */

enum claim { USED, WANTED, QUEUED, RUNNING, WAITING, LATE, STEP, KAPPA, HUNGRY, CLAIMS };

static uint64_t claim_lied(uint64_t truth, uint32_t how, uint64_t most)
{
	return how == 0 ? 0 : how == 1 ? MM_MIN(truth * 10, most) : most;
}

/* Says something else than the truth, as far as look.h lets it through. */
static void claim_lie(struct mm_view_tenant *t, enum claim claim, uint32_t how)
{
	if (claim == USED)
		t->kv_used = (uint32_t)claim_lied(t->kv_used, how, t->kv_held);
	if (claim == WANTED)
		t->kv_wanted = (uint32_t)claim_lied(t->kv_wanted, how, t->kv_limit);
	if (claim == QUEUED)
		t->kv_queued = (uint32_t)claim_lied(t->kv_queued, how, UINT32_MAX);
	if (claim == RUNNING)
		t->running = (uint32_t)claim_lied(t->running, how, UINT32_MAX);
	if (claim == WAITING)
		t->waiting = (uint32_t)claim_lied(t->waiting, how, UINT32_MAX);
	if (claim == LATE)
		t->late_permille = (uint32_t)claim_lied(t->late_permille, how, 1000);
	if (claim == STEP)
		t->step_ns = claim_lied(t->step_ns, how, 1000 * MM_NS_PER_S);
	if (claim == KAPPA)
		t->kappa_permille = (uint32_t)claim_lied(t->kappa_permille, how, UINT32_MAX);
	if (claim == HUNGRY)
		t->hungry_permille = (uint32_t)claim_lied(t->hungry_permille, how, 1000);
}

/* Returns the pages of KV up to its share that @t may have. */
static uint64_t within_share(const struct mm_view_tenant *t, const struct mm_target *g)
{
	uint64_t most = MM_MAX((uint64_t)g->kv_most, MM_MIN(t->kv_held, g->kv_keep));

	return MM_MIN(most, MM_MIN(t->kv_share, t->kv_wanted)) * t->chunk_pages;
}

/*
 * views_decide() checks that nobody falls below its share, beyond the clause, out of its account.
 * What a lie takes of others' shares that are not held yet is at most the liar's own share, or what
 * it holds.
 */
static void a_lie_is_worth_no_more_than_its_share(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		enum claim claim = (enum claim)(seed % CLAIMS);
		uint32_t how = (uint32_t)(seed / CLAIMS % 3);
		uint64_t before = 0, after = 0, own, chunks = 0;
		const struct mm_view_tenant *liar = &v.tenant[0];

		views_draw(&v, seed);
		v.view.may_turns = false;
		v.view.may_beside = true;
		views_mode(&v, true);
		other = v;
		other.view.tenant = other.tenant;
		other.view.account = other.account;
		other.targets.tenant = other.target;
		claim_lie(&other.tenant[0], claim, how);
		views_decide(&v);
		views_decide(&other);
		for (uint32_t i = 1; i < v.view.n_tenants; i++) {
			const struct mm_view_tenant *t = &v.tenant[i];
			uint64_t layers = (uint64_t)t->layers * t->layer_pages;

			if (!t->active)
				continue;
			before += within_share(t, &v.target[i]);
			after += within_share(t, &other.target[i]);
			/* Layers of others that return, since they would lend for nothing. */
			if (other.target[i].alpha < v.target[i].alpha)
				chunks += layers;
			chunks += 2 * t->chunk_pages;
		}
		own = (uint64_t)MM_MAX(liar->kv_share, liar->kv_held) * liar->chunk_pages;
		own += (uint64_t)liar->layers * liar->layer_pages;
		assert_true(after + own + chunks >= before);
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

/*
 * Two models of which either fits only without the other, on a slow link. The first one's turn has
 * ended, its KV is on the way to the host, and the second one, without memory, gives the turn back
 * at once: memory is still for it, and what the first one releases is not granted to the first one
 * again.
 */
static void memory_on_its_way_stays_for_whom_it_was(void **state)
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
	/* The turn is a's, which cannot begin. */
	a->turn = MM_VIEW_HOLDS;
	b->running = b->kv_used = 0;
	views_wait(b, 0);
	v.view.now_ns += 10 * MM_NS_PER_MS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 0);
	assert_int_equal(v.target[1].kv_keep, 0);
	/* It gives the turn back, b has it again: nothing changes for memory. */
	a->turn = MM_VIEW_AWAY;
	b->turn = MM_VIEW_HOLDS;
	for (uint32_t i = 0; i < 20; i++) {
		v.view.now_ns += 50 * MM_NS_PER_MS;
		b->kv_held -= 150;
		views_decide(&v);
		assert_int_equal(v.targets.turn_of, 0);
		assert_int_equal(v.target[1].kv_keep, 0);
		assert_true(v.target[1].kv_most <= b->kv_held);
		assert_int_equal(v.target[0].first, MM_FIRST_HOLDER);
		assert_true(v.target[0].alpha < 46);
	}
	/* It computes: then memory goes with the turn again. */
	a->turn = MM_VIEW_HOLDS;
	a->running = 5;
	views_wait(b, 0);
	views_decide(&v);
	a->turn = MM_VIEW_WAITS;
	b->turn = MM_VIEW_HOLDS;
	v.view.now_ns += 50 * MM_NS_PER_MS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 1);
}

/* Nor does memory wait for ever for one that does not take it. */
static void memory_waits_five_seconds_at_most(void **state)
{
	(void)state;
	memory_on_its_way_stays_for_whom_it_was(state);
	v.tenant[0].turn = MM_VIEW_AWAY;
	v.tenant[0].running = v.tenant[1].running = 0;
	v.memory.turn_of = 0;
	v.memory.turn_of_ns = v.view.now_ns;
	v.memory.turn_used = false;
	v.memory.turn_held = true;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 0);
	v.view.now_ns += 6 * MM_NS_PER_S;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 1);
}

/* An engine that says nothing of its requests has used its turn when it has run steps. */
static void who_runs_steps_has_used_its_turn(void **state)
{
	(void)state;
	memory_on_its_way_stays_for_whom_it_was(state);
	v.tenant[0].running = v.tenant[1].running = 0;
	v.tenant[0].turn = MM_VIEW_HOLDS;
	v.tenant[1].turn = MM_VIEW_WAITS;
	v.memory.turn_of = 0;
	v.memory.turn_of_ns = v.tenant[0].turn_since_ns = v.view.now_ns;
	v.memory.turn_used = false;
	v.memory.turn_held = true;
	v.view.now_ns += 50 * MM_NS_PER_MS;
	v.tenant[0].stepped_ns = v.view.now_ns;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 0);
	v.tenant[0].turn = MM_VIEW_WAITS;
	v.tenant[1].turn = MM_VIEW_HOLDS;
	v.tenant[1].turn_since_ns = v.view.now_ns;
	v.view.now_ns += 50 * MM_NS_PER_MS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 1);
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
		cmocka_unit_test(a_lie_is_worth_no_more_than_its_share),
		cmocka_unit_test(one_after_the_other_is_nearly_the_best),
		cmocka_unit_test(memory_on_its_way_stays_for_whom_it_was),
		cmocka_unit_test(memory_waits_five_seconds_at_most),
		cmocka_unit_test(who_runs_steps_has_used_its_turn),
		cmocka_unit_test(who_waits_holds_what_fits_beside_its_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
