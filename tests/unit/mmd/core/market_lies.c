/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lies: each claim of a tenant times 0, times 10, and as large as look.h lets it through, in drawn
 * views, and one after the other over time. Others lose no more than Documentation/market.md says.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/core/market/value.h"
#include "tests/sim/laws.h"
#include "tests/unit/mmd/core/views.h"

#define VIEWS        6000
#define OF_TIME      300  /* views in which a tenant lies over time */
#define DECISIONS    240  /* of each */
#define LATE_AT_MOST 4600 /* permille by which late requests raise a weight */

enum claim {
	USED,
	WANTED,
	QUEUED,
	RUNNING,
	WAITING,
	LATE,
	STEP,
	LONGEST,
	LAYER,
	KAPPA,
	HUNGRY,
	CLAIMS
};

enum { TIMES_0, TIMES_10, AT_MOST, LIES };

static struct views v, lied, other;

static uint64_t claim_lied(uint64_t truth, uint32_t how, uint64_t most)
{
	return how == TIMES_0 ? 0 : how == TIMES_10 ? MM_MIN(truth * 10, most) : most;
}

static uint32_t claim_lied_u32(uint32_t truth, uint32_t how, uint64_t most)
{
	return (uint32_t)claim_lied(truth, how, most);
}

/* Says something else than the truth, as far as look.h lets it through. */
static void claim_lie(struct mm_view_tenant *t, enum claim claim, uint32_t how)
{
	if (claim == USED)
		t->kv_used = claim_lied_u32(t->kv_used, how, t->kv_held);
	if (claim == WANTED)
		t->kv_wanted = claim_lied_u32(t->kv_wanted, how, t->kv_limit);
	if (claim == QUEUED)
		t->kv_queued = claim_lied_u32(t->kv_queued, how, t->kv_limit);
	if (claim == RUNNING)
		t->running = claim_lied_u32(t->running, how, UINT32_MAX);
	if (claim == WAITING)
		t->waiting = claim_lied_u32(t->waiting, how, UINT32_MAX);
	if (claim == LATE)
		t->late_permille = claim_lied_u32(t->late_permille, how, 1000);
	if (claim == STEP)
		t->step_ns = claim_lied(t->step_ns, how, UINT64_C(1) << 36);
	if (claim == LONGEST)
		t->longest_ns = claim_lied(t->longest_ns, how, UINT64_C(1) << 36);
	if (claim == LAYER)
		t->layer_ns = claim_lied(t->layer_ns, how, UINT64_C(1) << 36);
	if (claim == KAPPA)
		t->kappa_permille = claim_lied_u32(t->kappa_permille, how, UINT32_MAX);
	if (claim == HUNGRY)
		t->hungry_permille = claim_lied_u32(t->hungry_permille, how, 1000);
	/* Its steps are what the costs of streaming are computed from. */
	if (claim == STEP)
		views_cost(t);
}

static void views_copy(struct views *to, const struct views *from)
{
	*to = *from;
	to->view.tenant = to->tenant;
	to->view.account = to->account;
	to->targets.tenant = to->target;
}

static uint64_t kept_of(const struct views *w, uint32_t i)
{
	return MM_MIN(w->tenant[i].kv_held, w->target[i].kv_keep);
}

/* Pages of KV that @i may have. */
static uint64_t level_of(const struct views *w, uint32_t i)
{
	return MM_MAX((uint64_t)w->target[i].kv_most, kept_of(w, i)) * w->tenant[i].chunk_pages;
}

static uint64_t others_levels(const struct views *w)
{
	uint64_t sum = 0;

	for (uint32_t i = 1; i < w->view.n_tenants; i++)
		sum += laws_computes(&w->view, &w->targets, &w->tenant[i]) ? level_of(w, i) : 0;
	return sum;
}

/* ---- one view ---- */

/*
 * Side by side another tenant keeps what it holds and uses of its share, unless its account owes
 * pages or it gives of its own for its own layers.
 */
static void assert_share_stays(uint32_t i)
{
	const struct mm_view_tenant *t = &lied.tenant[i];
	uint64_t own = MM_MIN(MM_MIN(t->kv_used, t->kv_held), t->kv_share);

	if (!lied.targets.beside || !laws_computes(&lied.view, &lied.targets, t) ||
	    lied.account[t->account].owes || lied.target[i].alpha < t->alpha_next)
		return;
	assert_true(kept_of(&lied, i) >= own);
}

/* The steps of another stay within its clause, and what it has away already stays at most. */
static void assert_steps_stay(uint32_t i)
{
	const struct mm_view_tenant *t = &lied.tenant[i];
	const struct mm_target *g = &lied.target[i];
	uint64_t clause = mm_value_clause(t);

	if (!lied.targets.beside || !t->lends || !t->alpha_max ||
	    !laws_computes(&lied.view, &lied.targets, t) || g->alpha <= t->alpha_next)
		return;
	/* One alone has no clause: nobody else computes that it pays for. */
	for (uint32_t k = 0; k < lied.view.n_tenants; k++)
		if (k != i && laws_computes(&lied.view, &lied.targets, &lied.tenant[k]))
			assert_true(mm_value_slow(t, g->alpha) <= clause);
}

/* A weight is raised by late requests alone, and by no more than what is said. */
static void assert_weights(enum claim claim)
{
	for (uint32_t i = 1; i < v.view.n_tenants; i++) {
		const struct mm_target *a = &v.target[i], *b = &lied.target[i];

		if (!a->valued || !b->valued || a->value.computing != b->value.computing)
			continue;
		if (claim != LATE)
			assert_int_equal(a->value.weight_permille, b->value.weight_permille);
		else
			assert_true((b->value.weight_permille + 1) * (uint64_t)LATE_AT_MOST >=
				    a->value.weight_permille * UINT64_C(1000));
	}
}

/* laws_broken() looks at pool, accounts, mins of shares and clauses of the view with the lie. */
static void what_others_have_stays(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		enum claim claim = (enum claim)(seed % CLAIMS);

		views_draw(&v, seed);
		if (seed % 2)
			v.tenant[0].weight = 1; /* a liar that nobody would serve */
		views_copy(&lied, &v);
		claim_lie(&lied.tenant[0], claim, (uint32_t)(seed / CLAIMS % LIES));
		views_decide(&v);
		views_decide(&lied);
		assert_weights(claim);
		for (uint32_t i = 1; i < v.view.n_tenants; i++) {
			assert_share_stays(i);
			assert_steps_stay(i);
		}
	}
}

static void kappa_counts_within_half_and_twice(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		struct mm_view_tenant *t = &v.tenant[0];
		uint32_t plain, low, high;

		views_draw(&v, seed);
		t->kappa_permille = 0;
		plain = mm_value_kappa(t);
		t->kappa_permille = 1;
		low = mm_value_kappa(t);
		t->kappa_permille = UINT32_MAX;
		high = mm_value_kappa(t);
		assert_true(low >= plain / 2 && high <= MM_MIN(2 * plain, 1000u));
	}
}

/* ---- steps ---- */

static void draw_beside(uint64_t seed)
{
	views_draw(&v, seed);
	v.view.may_turns = false;
	v.view.may_beside = true;
	views_mode(&v, true);
}

/*
 * Steps that are said to be shorter keep the liar's own layers at home: others have no less than if
 * it did not lend. Steps that are said to be longer hide more of what it streams: others have no
 * less than before. Single decisions may differ, since numbers of layers are whole: sums do not.
 */
static void steps_gain_nothing_from_others(void **state)
{
	uint64_t shorter = 0, unlent = 0, longer = 0, honest = 0;

	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		draw_beside(seed);
		v.tenant[0].alpha = v.tenant[0].alpha_next = 0;
		v.tenant[0].changing = false;
		views_copy(&other, &v);
		other.tenant[0].lends = false;
		other.tenant[0].alpha_max = 0;
		views_decide(&other);
		unlent += others_levels(&other);
		views_copy(&lied, &v);
		lied.tenant[0].step_ns = 1;
		views_cost(&lied.tenant[0]);
		views_decide(&lied);
		shorter += others_levels(&lied);
		views_copy(&lied, &v);
		claim_lie(&lied.tenant[0], STEP, TIMES_10);
		views_decide(&lied);
		longer += others_levels(&lied);
		views_decide(&v);
		honest += others_levels(&v);
	}
	print_message(
		"KV of others: steps shorter %llu, without its loan %llu; longer %llu, as they "
		"are %llu\n",
		(unsigned long long)shorter, (unsigned long long)unlent, (unsigned long long)longer,
		(unsigned long long)honest);
	assert_true(shorter * 1000 >= unlent * 995);
	assert_true(longer * 1000 >= honest * 995);
}

/* ---- over time ---- */

static uint64_t draw_number(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return *seed >> 33;
}

/* Draws tenants side by side, of which all models and shares fit; the first one will lie. */
static void draw_fitting(uint64_t seed)
{
	uint64_t s = seed * 7919 + 1, sum = 0;
	uint32_t n = 2 + (uint32_t)(draw_number(&s) % 4);

	views_begin(&v, 0);
	v.view.may_turns = false;
	views_mode(&v, true);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t layers = 4 + (uint32_t)(draw_number(&s) % 40);
		uint32_t pages = 1 + (uint32_t)(draw_number(&s) % 20);
		uint64_t transfer_ns = 100000 + draw_number(&s) % (8 * MM_NS_PER_MS);
		uint64_t step_ns = (5 + draw_number(&s) % 75) * MM_NS_PER_MS;
		struct mm_view_tenant *t = views_add(&v, layers, pages, step_ns, transfer_ns);

		t->weight = i || draw_number(&s) % 2 ? 100 : 1;
		t->kv_share = 20 + (uint32_t)(draw_number(&s) % 200);
		t->kv_wanted = t->kv_share + (uint32_t)(draw_number(&s) % 400);
		sum += layers * pages + t->slot_pages + t->kv_share;
	}
	/* The liar has all that is beyond shares at first. */
	v.view.pages = sum + draw_number(&s) % 400;
	v.tenant[0].kv_held = v.tenant[0].kv_used =
		v.tenant[0].kv_share + (uint32_t)(v.view.pages - sum);
}

static void really_busy(struct mm_view_tenant *t)
{
	t->kv_wanted = t->kv_limit;
	t->kv_used = t->kv_held;
	t->waiting = t->running = 100;
	t->hungry_permille = 1000;
}

/* Lets @w decide over time; @seed draws what the first tenant says each time; 0: it is busy. */
static void decide_over_time(struct views *w, uint64_t seed)
{
	struct mm_view_tenant *liar = &w->tenant[0];
	uint32_t wanted = liar->kv_wanted;
	uint64_t step_ns = liar->step_ns;

	for (uint32_t i = 0; i < DECISIONS; i++) {
		for (uint32_t k = 1; k < w->view.n_tenants; k++) {
			struct mm_view_tenant *t = &w->tenant[k];

			t->kv_used = t->kv_held;
			t->waiting = t->running = 1;
			t->hungry_permille = t->kv_wanted > t->kv_held ? 1000 : 0;
		}
		liar->step_ns = step_ns;
		liar->kv_wanted = wanted;
		views_cost(liar);
		really_busy(liar);
		liar->kv_wanted = seed ? MM_MAX(wanted, liar->kv_held) : liar->kv_limit;
		for (uint32_t lies = seed ? 1 + (uint32_t)(draw_number(&seed) % 3) : 0; lies;
		     lies--) {
			enum claim claim = (enum claim)(draw_number(&seed) % CLAIMS);

			claim_lie(liar, claim, (uint32_t)(draw_number(&seed) % LIES));
		}
		views_decide(w);
		views_follow(w);
		w->view.now_ns += 50 * MM_NS_PER_MS;
	}
}

/*
 * Whatever one says from decision to decision, each other one comes to its share and stays there,
 * and beyond shares the others have what a really busy tenant in the liar's place leaves them.
 */
static void lies_over_time_take_no_share(void **state)
{
	uint64_t beyond = 0, beside_busy = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= OF_TIME; seed++) {
		draw_fitting(seed);
		views_copy(&lied, &v);
		views_copy(&other, &v);
		decide_over_time(&lied, seed * 31);
		decide_over_time(&other, 0);
		for (uint32_t i = 1; i < v.view.n_tenants; i++) {
			const struct mm_view_tenant *t = &lied.tenant[i], *u = &other.tenant[i];

			assert_true(t->kv_held + 1 >= t->kv_share);
			beyond += t->kv_held - MM_MIN(t->kv_share, t->kv_held);
			beside_busy += u->kv_held - MM_MIN(u->kv_share, u->kv_held);
		}
	}
	print_message("KV of others beyond shares: %llu, beside one that is busy %llu\n",
		      (unsigned long long)beyond, (unsigned long long)beside_busy);
	assert_true(beyond * 100 >= beside_busy * 95);
}

/* Memory of a turn stays 5 s at most with one that says that it runs requests. */
static void memory_of_a_turn_stays_five_seconds(void **state)
{
	(void)state;
	for (enum claim claim = USED; claim < CLAIMS; claim++)
		for (uint32_t how = 0; how < LIES; how++) {
			uint64_t from_ns;

			views_begin(&v, 3000);
			for (uint32_t i = 0; i < 2; i++) {
				struct mm_view_tenant *t =
					views_add(&v, 40, 30, 40 * MM_NS_PER_MS, 2 * MM_NS_PER_MS);

				t->kv_wanted = 1500;
				t->kv_held = t->kv_used = 100;
				t->swap_bytes = UINT64_C(1) << 30;
			}
			v.view.may_beside = false;
			v.view.joined = 2;
			v.tenant[0].turn = MM_VIEW_HOLDS;
			views_wait(&v.tenant[1], 0);
			claim_lie(&v.tenant[0], claim, how);
			views_decide(&v);
			assert_int_equal(v.targets.turn_of, 0);
			/* Its turn is over: the other one has it, and waits for its memory. */
			v.tenant[1].turn = MM_VIEW_HOLDS;
			v.tenant[1].turn_since_ns = from_ns = v.view.now_ns;
			views_wait(&v.tenant[0], 0);
			while (v.targets.turn_of != 1) {
				v.view.now_ns += 50 * MM_NS_PER_MS;
				claim_lie(&v.tenant[0], claim, how);
				views_decide(&v);
				assert_true(v.view.now_ns - from_ns <= 5100 * MM_NS_PER_MS);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_others_have_stays),
		cmocka_unit_test(kappa_counts_within_half_and_twice),
		cmocka_unit_test(steps_gain_nothing_from_others),
		cmocka_unit_test(lies_over_time_take_no_share),
		cmocka_unit_test(memory_of_a_turn_stays_five_seconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
