/* SPDX-License-Identifier: Apache-2.0 */
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

void views_begin(struct views *v, uint64_t pages)
{
	memset(v, 0, sizeof(*v));
	v->view = (struct mm_view){
		.now_ns = 100 * MM_NS_PER_S,
		.policy = MM_POLICY_REMAP,
		.pages = pages,
		.free = pages,
		.link_slows_permille = 105,
		.rho_permille = 500,
		.dwell_ns = 200 * MM_NS_PER_MS,
		.turn_cost_permille = 50,
		.may_beside = true,
		.may_turns = true,
		.n_accounts = 1,
		.tenant = v->tenant,
		.account = v->account,
	};
	v->targets.tenant = v->target;
	for (uint32_t i = 0; i < VIEWS_ACCOUNTS; i++)
		v->account[i].max_pages = UINT64_MAX / 2;
}

/* One slot: a transfer that the layers between two that are away do not hide is a longer step. */
void views_cost(struct mm_view_tenant *t)
{
	uint64_t per = t->layers ? t->step_ns / t->layers : 0;
	uint32_t gap = MM_MAX(1u, (t->alpha_max + MM_VIEW_POINTS - 2) / (MM_VIEW_POINTS - 1));

	t->points = 0;
	for (uint32_t alpha = 0; t->points < MM_VIEW_POINTS && alpha <= t->alpha_max;
	     alpha += gap) {
		uint64_t cycling = alpha ? alpha + 1 : 0;
		uint64_t hidden = (t->layers - MM_MIN(cycling, t->layers)) * per;
		uint64_t stream = cycling * t->transfer_ns, step = MM_MAX(t->step_ns, 1u);
		uint64_t slow = stream > hidden ? (stream - hidden) * 1000 / step : 0;

		t->point[t->points++] = (struct mm_view_point){
			.alpha = alpha,
			.slow_permille = (uint32_t)MM_MIN(slow, UINT32_MAX - 1),
			.link_permille = (uint32_t)MM_MIN(
				stream * 1000 / (step + step * slow / 1000), 1000u),
		};
	}
}

struct mm_view_tenant *views_add(struct views *v, uint32_t layers, uint32_t layer_pages,
				 uint64_t step_ns, uint64_t transfer_ns)
{
	uint32_t i = v->view.n_tenants++;
	struct mm_view_tenant *t = &v->tenant[i];

	*t = (struct mm_view_tenant){
		.index = i,
		.weight = MM_WEIGHT_DEFAULT,
		.lends = layers > 1,
		.layers = layers,
		.layer_pages = layer_pages,
		.slot_pages = layer_pages,
		.alpha_max = layers > 1 ? layers - 1 : 0,
		.transfer_ns = transfer_ns,
		.chunk_pages = 1,
		.kv_share = 100,
		.kv_limit = 1000000,
		.gives = true,
		.step_ns = step_ns,
		.active = true,
		.hungry_permille = 1000,
		.active_ns = v->view.now_ns - i,
		.home_mean_ns = layers * transfer_ns,
		.quantum_ns = 200 * MM_NS_PER_MS,
	};
	views_cost(t);
	return t;
}

void views_wait(struct mm_view_tenant *t, uint32_t place)
{
	t->turn = MM_VIEW_WAITS;
	t->place = place;
}

void views_idle(struct mm_view_tenant *t)
{
	t->active = false;
	t->hungry_permille = 0;
	t->kv_used = t->kv_wanted = 0;
	t->active_ns = 1;
}

void views_mode(struct views *v, bool beside)
{
	v->memory.chosen = true;
	v->memory.beside = beside;
	v->memory.mode_since_ns = 0;
	v->memory.turn_of = MM_NO_TENANT;
}

/* ---- what must always be true ---- */

static uint64_t resident_of(const struct mm_view_tenant *t, uint32_t alpha)
{
	return t->fixed_pages + (uint64_t)(t->layers - MM_MIN(alpha, t->layers)) * t->layer_pages;
}

static bool view_works(const struct mm_view_tenant *t)
{
	return t->active || t->turn == MM_VIEW_WAITS || t->turn == MM_VIEW_HOLDS;
}

static uint32_t count_holders(const struct views *v)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->view.n_tenants; i++)
		n += v->tenant[i].turn == MM_VIEW_HOLDS;
	return n;
}

static bool does_compute(const struct views *v, const struct mm_view_tenant *t)
{
	if (!view_works(t) || v->targets.beside || t->turn == MM_VIEW_NO_TURNS)
		return view_works(t);
	return t->index == v->targets.turn_of || (t->turn == MM_VIEW_HOLDS && count_holders(v) > 1);
}

/* Returns what a tenant has once it has released what it is asked for. */
static uint64_t kept_chunks(const struct mm_view_tenant *t, const struct mm_target *g)
{
	return MM_MIN(t->kv_held, g->kv_keep);
}

/* I1: layers at target and KV fit the pool and each account's max, or nothing more is given. */
static void check_sums(const struct views *v)
{
	uint64_t sum = 0, of[VIEWS_ACCOUNTS] = { 0 };
	bool gives = false, gives_of[VIEWS_ACCOUNTS] = { false };
	uint64_t off = v->view.unused_mins + v->view.big_pages;

	for (uint32_t i = 0; i < v->view.n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		const struct mm_target *g = &v->target[t->index];
		uint64_t most = MM_MAX((uint64_t)g->kv_most, kept_chunks(t, g));
		uint64_t pages = resident_of(t, g->alpha) + most * t->chunk_pages;

		sum += pages;
		of[t->account] += pages;
		gives = gives || g->kv_most > kept_chunks(t, g);
		gives_of[t->account] = gives_of[t->account] || g->kv_most > kept_chunks(t, g);
	}
	assert_true(!gives || sum + off <= v->view.pages);
	for (uint32_t i = 0; i < v->view.n_accounts; i++)
		assert_true(!gives_of[i] || of[i] <= v->account[i].max_pages);
}

static void check_tenant(const struct views *v, const struct mm_view_tenant *t, uint32_t computing)
{
	const struct mm_target *g = &v->target[t->index];
	uint32_t slow = mm_value_slow(t, g->alpha);

	assert_true(g->kv_most <= t->kv_limit);
	assert_true(g->why < MM_WHYS);
	if (!t->lends || !t->alpha_max)
		assert_int_equal(g->alpha, t->alpha_next);
	else
		assert_true(g->alpha < t->alpha_max || g->alpha <= t->alpha_next);
	if (!t->gives)
		assert_int_equal(g->kv_keep, UINT32_MAX);
	/* I2: what waits is granted nothing. */
	if (!does_compute(v, t))
		assert_true(g->kv_most <= t->kv_held);
	/* I7: nobody's steps are longer than the clause allows. */
	if (does_compute(v, t) && computing > 1 && t->lends && t->alpha_max &&
	    g->why != MM_WHY_DWELL) {
		uint64_t clause = mm_value_clause(t);

		if (g->alpha == t->alpha_next)
			clause += clause / 4;
		assert_true(slow <= clause);
	}
	/* Nothing is taken below a share side by side, unless its account must give. */
	if (v->targets.beside && view_works(t) && g->kv_keep != UINT32_MAX &&
	    !v->account[t->account].owes)
		assert_true(g->kv_keep >= MM_MIN(t->kv_share, t->kv_used));
}

/* I6: who lacks of its share gets it, or somebody beyond its share gives, or nobody can. */
static void check_entitled(const struct views *v)
{
	uint64_t missing = 0, over = 0, taken = 0, sum = 0;

	for (uint32_t i = 0; i < v->view.n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];
		const struct mm_target *g = &v->target[t->index];
		uint64_t part = MM_MIN(t->kv_share, MM_MIN(t->kv_wanted, t->kv_limit));
		uint64_t kept = kept_chunks(t, g);

		sum += resident_of(t, g->alpha) + kept * t->chunk_pages;
		taken += (t->kv_held - kept) * t->chunk_pages;
		if (does_compute(v, t) && part > t->kv_held)
			missing += (part - t->kv_held) * t->chunk_pages;
		if (t->gives && kept > t->kv_share)
			over += (kept - t->kv_share) * t->chunk_pages;
	}
	if (missing && sum + missing + v->view.unused_mins + v->view.big_pages > v->view.pages)
		assert_true(taken || over < v->view.n_tenants * 8u);
}

void views_decide(struct views *v)
{
	uint32_t computing = 0;

	mm_market_decide(&v->view, &v->memory, &v->targets);
	for (uint32_t i = 0; i < v->view.n_tenants; i++)
		computing += does_compute(v, &v->tenant[i]);
	for (uint32_t i = 0; i < v->view.n_tenants; i++)
		check_tenant(v, &v->tenant[i], computing);
	check_sums(v);
	check_entitled(v);
}

void views_follow(struct views *v)
{
	for (uint32_t i = 0; i < v->view.n_tenants; i++) {
		struct mm_view_tenant *t = &v->tenant[i];
		const struct mm_target *g = &v->target[t->index];
		uint32_t want = MM_MIN(t->kv_wanted, g->kv_most);

		t->alpha = t->alpha_next = g->alpha;
		t->kv_held = MM_MIN(t->kv_held, g->kv_keep);
		t->kv_held = MM_MAX(t->kv_held, want);
		t->kv_used = MM_MIN(t->kv_used, t->kv_held);
	}
}

/* ---- drawn views ---- */

static uint64_t next_draw(uint64_t *seed)
{
	uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint32_t draw_below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(next_draw(seed) % n);
}

static bool draw_one_in(uint64_t *seed, uint32_t n)
{
	return !draw_below(seed, n);
}

static void draw_tenant(struct views *v, uint64_t *s)
{
	uint32_t layers = draw_one_in(s, 10) ? draw_below(s, 3) : 2 + draw_below(s, 63);
	struct mm_view_tenant *t =
		views_add(v, layers, 1 + draw_below(s, 40), 1 + next_draw(s) % 80000000,
			  1 + next_draw(s) % 8000000);

	t->account = draw_below(s, v->view.n_accounts);
	t->weight = 1 + draw_below(s, draw_one_in(s, 3) ? 1000 : 100);
	t->priority = draw_below(s, 3);
	t->fixed_pages = draw_below(s, 50);
	t->lends = t->lends && !draw_one_in(s, 8);
	t->alpha = t->alpha_next =
		t->alpha_max && !draw_one_in(s, 3) ? draw_below(s, t->alpha_max) : 0;
	t->changing = t->alpha_max && draw_one_in(s, 6);
	t->alpha_next = t->changing ? draw_below(s, t->alpha_max) : t->alpha;
	t->chunk_pages = draw_one_in(s, 12) ? 0 : 1 + draw_below(s, 8);
	t->kv_limit = draw_below(s, 4000);
	t->kv_share = draw_below(s, t->kv_limit + 1);
	t->kv_held = t->chunk_pages ? draw_below(s, t->kv_limit + 1) : 0;
	t->kv_held /= 1 + draw_below(s, 8);
	t->kv_used = draw_below(s, t->kv_held + 1);
	t->kv_wanted = draw_below(s, t->kv_limit + 100);
	t->kv_queued = draw_one_in(s, 4) ? draw_below(s, 1000) : 0;
	t->waiting = draw_below(s, 3);
	t->gives = !draw_one_in(s, 5);
	t->swap_bytes = draw_one_in(s, 2) ? 1u << 30 : 0;
	t->late_permille = draw_one_in(s, 3) ? draw_below(s, 1001) : 0;
	t->kappa_permille = draw_one_in(s, 2) ? 1 + draw_below(s, 2000) : 0;
	t->hungry_permille = draw_one_in(s, 3) ? 0 : draw_below(s, 1001);
	t->active = !draw_one_in(s, 3);
	t->idle_mean_ns = draw_one_in(s, 2) ? next_draw(s) % (60 * MM_NS_PER_S) : 0;
	t->turn = draw_below(s, 4);
	t->place = draw_below(s, 4);
	t->goal_ttft_ns = draw_one_in(s, 4) ? next_draw(s) % (10 * MM_NS_PER_S) : 0;
	t->goal_tpot_ns = draw_one_in(s, 4) ? next_draw(s) % (MM_NS_PER_S / 5) : 0;
	if (t->points > 1 && draw_one_in(s, 8))
		t->point[1 + draw_below(s, t->points - 1)].slow_permille = UINT32_MAX;
}

void views_draw(struct views *v, uint64_t seed)
{
	uint64_t s = seed;
	uint32_t n = 1 + draw_below(&s, draw_one_in(&s, 20) ? 64 : 6);

	views_begin(v, 100 + draw_below(&s, n * 3000));
	v->view.n_accounts = 1 + draw_below(&s, VIEWS_ACCOUNTS);
	for (uint32_t i = 0; i < v->view.n_accounts; i++) {
		v->account[i].max_pages =
			draw_one_in(&s, 3) ? draw_below(&s, 5000) : UINT64_MAX / 2;
		v->account[i].owes = draw_one_in(&s, 6) ? draw_below(&s, 500) : 0;
	}
	v->view.unused_mins = draw_one_in(&s, 4) ? draw_below(&s, 300) : 0;
	v->view.big_pages = draw_one_in(&s, 5) ? draw_below(&s, 2000) : 0;
	v->view.may_beside = !draw_one_in(&s, 4);
	v->view.may_turns = !v->view.may_beside || !draw_one_in(&s, 4);
	v->view.joined = draw_below(&s, 3);
	v->view.rho_permille = draw_below(&s, 1001);
	v->view.link_slows_permille = draw_below(&s, 500);
	for (uint32_t i = 0; i < n; i++)
		draw_tenant(v, &s);
	views_mode(v, draw_one_in(&s, 2));
	v->memory.mode_since_ns = draw_one_in(&s, 2) ? v->view.now_ns - 2 * MM_NS_PER_S : 0;
	for (uint32_t i = 0; i < n; i++)
		v->memory.taken_ns[i] = v->view.now_ns - next_draw(&s) % MM_NS_PER_S;
}
