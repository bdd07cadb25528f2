/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of cold blocks: what they cost and gain, who gets how many, and that they stay so. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "mmd/core/market/cool.h"
#include "tests/unit/mmd/core/views.h"

#define VIEWS    3000
#define PAGE     (UINT64_C(2) << 20)
#define LOOK_NS  (50 * MM_NS_PER_MS)
#define STEP_NS  (20 * MM_NS_PER_MS)
#define ENTRY_NS 20000 /* of the link for a block in a step: a thousandth of a step */
#define LAYERS   40
#define UNIT     (UINT64_C(320) << 10)

static struct views v, other;

/* All steps of @t take as long: what is transferred beyond that is waited for. */
static void steps_are_alike(struct mm_view_tenant *t)
{
	for (uint32_t i = 0; i < MM_VIEW_LOADS; i++)
		t->load_slow[i] = i > 8 ? (i - 8) * 125 : 0;
}

static void cold_declare(struct mm_view_tenant *t, uint32_t most)
{
	t->cold_most = most;
	t->cold_classes = mm_cold_layer_classes(MM_MAX(t->layers, 4u));
	t->cold_unit_bytes = UNIT;
	t->cold_entry_ns = ENTRY_NS;
	steps_are_alike(t);
}

/* One tenant that computes and lacks KV, whose layers stay. */
static struct mm_view_tenant *one_begin(uint32_t most)
{
	struct mm_view_tenant *t;

	views_begin(&v, 20000);
	v.view.may_turns = false;
	v.view.cold = true;
	v.view.page_bytes = PAGE;
	views_mode(&v, true);
	t = views_add(&v, LAYERS, 150, STEP_NS, MM_NS_PER_MS);
	t->lends = false;
	t->alpha_max = 0;
	t->kv_held = t->kv_used = t->kv_share = 3000;
	t->kv_wanted = t->kv_limit = 20000;
	t->waiting = 5;
	t->stepped_ns = UINT64_MAX / 2; /* it runs steps all the time */
	v.view.pages = LAYERS * 150 + 3000;
	cold_declare(t, most);
	return t;
}

/* Decides until limits are what they are to be: all that may be live is. */
static void cool_decide(void)
{
	for (uint32_t i = 0; i < 8; i++) {
		views_decide(&v);
		for (uint32_t k = 0; k < v.view.n_tenants; k++)
			v.tenant[k].cold_limit = v.tenant[k].cold_live = v.target[k].cold;
	}
}

/* ---- price and gain ---- */

static void costs_between_loads_are_on_a_line(void **state)
{
	struct mm_view_tenant t = { .load_slow = { 0 } };

	(void)state;
	assert_int_equal(mm_value_waits(&t, 0), 0);
	assert_int_equal(mm_value_waits(&t, 1), UINT32_MAX);
	steps_are_alike(&t);
	assert_int_equal(mm_value_waits(&t, 1), 0);
	assert_int_equal(mm_value_waits(&t, 1000), 0);
	assert_int_equal(mm_value_waits(&t, 1050), 50);
	assert_int_equal(mm_value_waits(&t, 2000), 1000);
	assert_int_equal(mm_value_waits(&t, 5000), 4000);
	assert_true(mm_value_waits(&t, UINT64_MAX / 1000) > 1000000);
	t.load_slow[MM_VIEW_LOADS - 1] = UINT32_MAX;
	assert_int_equal(mm_value_waits(&t, 1), UINT32_MAX);
}

static void blocks_gain_what_their_window_leaves(void **state)
{
	(void)state;
	for (uint32_t layers = 4; layers < 100; layers++) {
		struct mm_view_tenant t = { .layers = layers,
					    .cold_classes = mm_cold_layer_classes(layers),
					    .cold_unit_bytes = 64 };

		assert_int_equal(mm_cool_gain_bytes(&t, 0), 0);
		for (uint32_t e = 1; e < 1000; e += 37)
			assert_int_equal(
				mm_cool_gain_bytes(&t, e),
				(uint64_t)e * layers * 64 -
					mm_cold_window_bytes(t.cold_classes, layers, 64, e));
	}
}

static void the_best_is_found(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed < 3000; seed++) {
		struct mm_view_tenant t = { .layers = 8 + seed * 7 % 60, .step_ns = STEP_NS };
		struct mm_cool cool = {
			.computing = 1 + seed % 3,
			.weight_permille = 500 + seed * 31 % 1000,
			.gain_permille = (int64_t)(seed * 17 % 1500),
			.kv_bytes = (1 + seed * 13 % 4000) * PAGE,
			.kv_enough = seed % 4 ? UINT64_MAX : (1 + seed * 29 % 9000) * PAGE,
			.rho_permille = seed * 11 % 1001,
			.link_slows_permille = seed * 5 % 500,
			.link_permille = seed * 3 % 1000,
			.slow_most = seed % 2 ? 50 : MM_VALUE_SLOW_KNOWN,
		};
		uint32_t most = 1 + seed * 23 % 3000, best;
		int64_t worth = 0;

		cold_declare(&t, most);
		for (uint32_t e = 1; e <= most; e++)
			worth = MM_MAX(worth, mm_cool_worth(&cool, &t, e));
		best = mm_cool_best(&cool, &t, most);
		assert_true(best <= most);
		if (best)
			assert_true(mm_cool_worth(&cool, &t, best) >= worth - MM_VALUE_HYSTERESIS);
		else
			assert_true(worth < 2 * MM_VALUE_HYSTERESIS);
	}
}

/* ---- limits ---- */

static void all_that_hides_is_streamed(void **state)
{
	struct mm_view_tenant *t = one_begin(MM_COLD_MAX);

	(void)state;
	views_decide(&v);
	assert_int_equal(v.target[0].cold_why, MM_COOL_UNUSED);
	assert_in_range(v.target[0].cold, 100, 250);
	cool_decide();
	assert_int_equal(v.target[0].cold_why, MM_COOL_WORTH);
	/* The link hides 900; blocks beyond make steps longer, and are worth that. */
	assert_in_range(v.target[0].cold, 850, 2000);
	t->cold_most = 300;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 300);
	assert_int_equal(v.target[0].cold_why, MM_COOL_MOST);
}

static void nothing_to_gain_is_nothing_streamed(void **state)
{
	struct mm_view_tenant *t = one_begin(5000);

	(void)state;
	t->hungry_permille = 0;
	t->waiting = 0;
	t->kv_wanted = 1000;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	/* Its steps grow with all of its KV: more of it is worth nothing. */
	t = one_begin(5000);
	t->kappa_permille = 1000;
	t->kv_held = t->kv_used = 400000;
	v.view.pages = 400000 + LAYERS * 150;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	/* Pages are free: it is on its way to getting them. */
	t = one_begin(5000);
	t->kv_wanted = 4000;
	v.view.pages = 20000;
	v.view.free = 15000;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	t = one_begin(5000);
	t->active = false;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	assert_int_equal(v.target[0].cold_why, MM_COOL_RESTS);
}

static void what_is_not_measured_is_not_streamed(void **state)
{
	struct mm_view_tenant *t = one_begin(5000);

	(void)state;
	t->cold_entry_ns = 0;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	assert_int_equal(v.target[0].cold_why, MM_COOL_UNKNOWN);
	t->cold_entry_ns = ENTRY_NS;
	t->load_slow[MM_VIEW_LOADS - 1] = UINT32_MAX;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	assert_int_equal(v.target[0].cold_why, MM_COOL_UNKNOWN);
}

/* A prompt that lacks the window's memory would wait for ever. */
static void who_runs_nothing_keeps_no_window(void **state)
{
	struct mm_view_tenant *t = one_begin(5000);

	(void)state;
	t->cold_limit = 400;
	t->stepped_ns = v.view.now_ns - v.view.dwell_ns;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 0);
	assert_int_equal(v.target[0].cold_why, MM_COOL_BLOCKED);
	t->cold_live = 80;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 80 + 80 / 8 + 1);
	t->stepped_ns++;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 400);
	t->stepped_ns--;
	t->waiting = 0;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 400);
}

static void floor_and_operator_precede_the_market(void **state)
{
	struct mm_view_tenant *t = one_begin(5000);

	(void)state;
	t->cold_floor = 50;
	v.view.cold = false;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 50);
	assert_int_equal(v.target[0].cold_why, MM_COOL_FLOOR);
	v.view.cold = true;
	t->hungry_permille = 0;
	t->waiting = 0;
	t->kv_wanted = t->kv_held;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 50);
	t->cold_by_hand = true;
	t->cold_limit = 7;
	t->hungry_permille = 1000;
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 7);
	assert_int_equal(v.target[0].cold_why, MM_COOL_BY_HAND);
	t->cold_by_hand = false;
	t->cold_floor = 4000; /* more than pays */
	views_decide(&v);
	assert_int_equal(v.target[0].cold, 4000);
	assert_int_equal(v.target[0].cold_why, MM_COOL_FLOOR);
}

static void who_shares_the_link_gets_an_equal_part(void **state)
{
	struct mm_view_tenant *t = one_begin(5000);

	(void)state;
	v.tenant[1] = *t;
	v.tenant[1].index = 1;
	v.view.n_tenants = 2;
	v.view.pages *= 2;
	cool_decide();
	assert_int_equal(v.target[0].cold, v.target[1].cold);
	assert_in_range(v.target[0].cold, 300, 500);
	/* One that may have few leaves the rest to the other. */
	v.tenant[0].cold_most = 100;
	cool_decide();
	assert_int_equal(v.target[0].cold, 100);
	assert_in_range(v.target[1].cold, 600, 900);
	/* Layers that are away leave as much less. */
	v.tenant[0].cold_most = 0;
	v.tenant[0].points = 2;
	v.tenant[0].alpha_max = LAYERS - 1;
	v.tenant[0].point[1] = (struct mm_view_point){ LAYERS - 1, 10, 500 };
	v.tenant[0].alpha = v.tenant[0].alpha_next = LAYERS - 1;
	v.tenant[1].cold_limit = v.tenant[1].cold_live = 0;
	cool_decide();
	assert_in_range(v.target[1].cold, 300, 450);
}

/* Cold blocks need less of the link for a page, so they come before layers of who computes. */
static void blocks_come_before_layers(void **state)
{
	struct mm_view_tenant *t = one_begin(0);
	uint32_t without;

	(void)state;
	t->lends = true;
	t->alpha_max = LAYERS - 1;
	views_cost(t);
	views_decide(&v);
	without = v.target[0].alpha;
	assert_true(without > 5);
	t->cold_most = 5000;
	views_decide(&v);
	assert_true(v.target[0].alpha < without / 2);
	cool_decide();
	assert_true(v.target[0].cold > 500);
	assert_true(v.target[0].alpha < without / 2);
	/* Where nothing became cold for long, layers have the link. */
	t->cold_live = 0;
	for (uint32_t i = 0; i < 60; i++) {
		v.view.now_ns += LOOK_NS;
		views_decide(&v);
	}
	assert_int_equal(v.target[0].alpha, without);
}

/* One that computes alone, whose queue waits for prompts of @pages each. */
static struct mm_view_tenant *queue_begin(uint32_t pages)
{
	struct mm_view_tenant *t = one_begin(5000);

	t->lends = true;
	t->alpha_max = LAYERS - 1;
	views_cost(t);
	t->running = 8;
	t->kv_queued = t->waiting * pages;
	return t;
}

/* Decides for a while; all that may be live is, and layers are away as decided. */
static uint32_t layers_beside(struct mm_view_tenant *t, uint32_t looks)
{
	uint32_t home = t->kv_held, most = 0;

	for (uint32_t i = 0; i < looks; i++) {
		v.view.now_ns += LOOK_NS;
		views_decide(&v);
		t->cold_limit = t->cold_live = v.target[0].cold;
		t->alpha = t->alpha_next = v.target[0].alpha;
		t->kv_held = t->kv_used = home + t->alpha * t->layer_pages;
		most = MM_MAX(most, t->alpha);
	}
	return most;
}

/* Prompts must be on the device: what lacks for them no block that becomes cold gives. */
static void prompts_have_room_beside_cold_blocks(void **state)
{
	struct mm_view_tenant *t = queue_begin(100);

	(void)state;
	assert_int_equal(layers_beside(t, 200), 0);
	assert_true(t->cold_live > 500);
	/* Window, tails and one prompt and a half are more than its 3000 pages. */
	t = queue_begin(1800);
	assert_in_range(layers_beside(t, 200), 1, MM_COOL_BESIDE);
	assert_true(t->alpha >= 1);
	assert_true(t->cold_live > 200);
	/* They stay while KV is lacked: they are why there is room. */
	t->kv_queued = t->waiting * 100;
	v.memory.cold_mean[0] = 100 * 256;
	layers_beside(t, 50);
	assert_true(t->alpha >= 1);
	/* Layers that do not hide are not for that. */
	t = queue_begin(1800);
	for (uint32_t i = 1; i < t->points; i++)
		t->point[i].slow_permille = MM_VALUE_FREE_SLOW + 500;
	assert_int_equal(layers_beside(t, 200), 0);
}

static void a_queue_that_lies_moves_few_layers(void **state)
{
	struct mm_view_tenant *t = queue_begin(0);

	(void)state;
	t->kv_queued = UINT32_MAX;
	t->running = UINT32_MAX;
	assert_true(layers_beside(t, 200) <= MM_COOL_BESIDE);
	t->cold_unit_bytes = INT32_MAX / LAYERS;
	assert_true(layers_beside(t, 50) <= LAYERS - 1);
}

/* Memory of layers is for whoever lacks some, at once; cold blocks are a tenant's own. */
static void beside_others_layers_come_first(void **state)
{
	struct mm_view_tenant *t = queue_begin(1800);

	(void)state;
	v.tenant[1] = *t;
	v.tenant[1].index = 1;
	v.view.n_tenants = 2;
	v.view.pages *= 2;
	v.tenant[0].hungry_permille = v.tenant[1].hungry_permille = MM_COOL_STARVES - 1;
	views_decide(&v);
	assert_int_equal(v.target[0].cold + v.target[1].cold, 0);
	assert_true(v.target[0].alpha + v.target[1].alpha > 0);
	v.tenant[0].hungry_permille = v.tenant[1].hungry_permille = 1000;
	views_decide(&v);
	assert_true(v.target[0].cold > 0);
	assert_true(v.target[1].cold > 0);
}

/* ---- laws ---- */

static void cold_draw(struct views *w, uint64_t seed)
{
	w->view.cold = seed % 5 != 0;
	w->view.page_bytes = PAGE;
	for (uint32_t i = 0; i < w->view.n_tenants; i++) {
		struct mm_view_tenant *t = &w->tenant[i];
		uint64_t s = seed * 1000 + t->index * 7919;

		if (t->layers < 4 || s % 5 == 1)
			continue;
		cold_declare(t, 1 + (uint32_t)(s * 2654435761u % 4000));
		t->cold_entry_ns = s % 7 ? 1 + s * 31 % 200000 : 0;
		t->cold_floor = s % 3 ? 0 : (uint32_t)(s * 13 % (t->cold_most + 1));
		t->cold_limit = (uint32_t)(s * 17 % (t->cold_most + 1));
		t->cold_live = (uint32_t)(s * 19 % (t->cold_most + 1));
		t->cold_by_hand = s % 11 == 0;
		t->stall_permille = s % 4 ? (uint32_t)(s * 23 % 500) : 0;
		for (uint32_t k = 0; k < MM_VIEW_LOADS && s % 6 == 0; k++)
			t->load_slow[k] = k * k * (uint32_t)(s % 40);
		w->memory.cold_cap[t->index] = s % 9 ? 0 : (uint32_t)(s * 29 % t->cold_most);
	}
}

static void limits_are_within_bounds(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		views_draw(&v, seed);
		cold_draw(&v, seed);
		views_decide(&v);
		for (uint32_t i = 0; i < v.view.n_tenants; i++) {
			const struct mm_view_tenant *t = &v.tenant[i];
			const struct mm_target *g = &v.target[i];

			assert_true(g->cold <= t->cold_most);
			assert_true(g->cold >= t->cold_floor || t->cold_by_hand);
			assert_true(!t->cold_by_hand || g->cold == t->cold_limit);
			assert_true(v.view.cold || t->cold_by_hand || g->cold == t->cold_floor);
			assert_int_equal(g->cold_why == MM_COOL_NONE, !t->cold_most);
		}
	}
}

/* Tenants in reverse order, with indices of their new places, get the limits that they had. */
static void the_order_of_tenants_moves_no_limit(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < VIEWS; seed++) {
		uint32_t n;

		views_draw(&v, seed);
		cold_draw(&v, seed);
		n = v.view.n_tenants;
		for (uint32_t i = 0; i < n; i++) {
			v.tenant[i].turn = MM_VIEW_NO_TURNS;
			v.tenant[i].step_ns += 1000 * i;
			v.tenant[i].active_ns = v.view.now_ns - 1000 * i;
		}
		v.memory.rotates = false;
		v.view.joined = 0;
		v.view.may_turns = false;
		other = v;
		other.view.tenant = other.tenant;
		other.view.account = other.account;
		other.targets.tenant = other.target;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t to = n - 1 - i;

			other.tenant[to] = v.tenant[i];
			other.tenant[to].index = to;
			other.memory.taken_ns[to] = v.memory.taken_ns[i];
			other.memory.cold_cap[to] = v.memory.cold_cap[i];
		}
		views_decide(&v);
		views_decide(&other);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(v.target[i].cold, other.target[n - 1 - i].cold);
	}
}

/* ---- over time ---- */

/* An engine: some of its demand has no room on the device, and becomes cold as far as it may. */
struct plant {
	uint64_t demand_bytes;
	uint32_t link_permille;  /* of the link's rate that is really there */
	uint32_t changes, turns; /* of the limit; of its direction */
	bool rose;
};

/* A look of 50 ms: sequences begin and end, blocks become cold a part at a time. */
static void plant_look(struct plant *p)
{
	struct mm_view_tenant *t = &v.tenant[0];
	uint64_t hot = (uint64_t)t->kv_held * PAGE, gain = mm_cool_gain_bytes(t, t->cold_live);
	uint64_t need = p->demand_bytes > hot ? p->demand_bytes - hot : 0;
	uint64_t load = mm_cool_load(t, t->cold_live) * 1000 / p->link_permille;
	uint32_t want = 0, sample;

	while (mm_cool_gain_bytes(t, want) < need && want < t->cold_limit)
		want++;
	/* Sequences end: an eighth of them in a look, if they are too many. */
	if (t->cold_live < want)
		t->cold_live = MM_MIN(t->cold_live + 40, want);
	else
		t->cold_live -= MM_MIN(t->cold_live - want, t->cold_live / 8 + 1);
	sample = gain < need ? 1000 : 0;
	t->waiting = sample ? 3 : 0;
	t->kv_wanted = sample ? t->kv_held + 100 : (uint32_t)MM_MIN(p->demand_bytes / PAGE, 3000u);
	t->hungry_permille = t->hungry_permille * 7 / 8 + sample / 8;
	t->stall_permille = load > 1000 ? (uint32_t)(load - 1000) : 0;
	views_decide(&v);
	if (v.target[0].cold != t->cold_limit) {
		bool rises = v.target[0].cold > t->cold_limit;

		p->turns += p->changes && rises != p->rose;
		p->changes++;
		p->rose = rises;
	}
	t->cold_limit = v.target[0].cold;
	v.view.now_ns += LOOK_NS;
}

static void a_steady_demand_has_a_steady_limit(void **state)
{
	(void)state;
	/* The demand goes from what hardly needs cold blocks to more than can be had. */
	for (uint64_t part = 1; part <= 20; part++) {
		struct plant p = { .link_permille = 1000 };
		struct mm_view_tenant *t = one_begin(5000);

		p.demand_bytes = (3000 + 400 * part) * PAGE;
		t->hungry_permille = 0;
		for (uint32_t i = 0; i < 400; i++)
			plant_look(&p);
		p.changes = p.turns = 0;
		for (uint32_t i = 0; i < 1200; i++)
			plant_look(&p);
		assert_true(p.changes <= 4);
		assert_true(t->stall_permille <= 300);
		/* It has what it needs, or all that is worth it. */
		assert_true(mm_cool_gain_bytes(t, t->cold_live) + 3000 * PAGE >= p.demand_bytes ||
			    t->cold_live + t->cold_live / 8 >= t->cold_limit);
	}
}

static void a_limit_falls_with_the_demand(void **state)
{
	struct plant p = { .link_permille = 1000, .demand_bytes = 7000 * PAGE };
	struct mm_view_tenant *t = one_begin(5000);

	(void)state;
	for (uint32_t i = 0; i < 400; i++)
		plant_look(&p);
	assert_true(t->cold_live > 500);
	p.demand_bytes = 2500 * PAGE;
	for (uint32_t i = 0; i < 400; i++)
		plant_look(&p);
	assert_int_equal(t->cold_live, 0);
	assert_int_equal(t->cold_limit, 0);
}

static void demand_that_comes_and_goes_moves_limits_no_more_often(void **state)
{
	struct plant p = { .link_permille = 1000 };

	(void)state;
	one_begin(5000);
	for (uint32_t i = 0; i < 2400; i++) {
		p.demand_bytes = (i / 40 % 2 ? 3800 : 2900) * PAGE; /* every 2 s */
		plant_look(&p);
	}
	assert_true(p.turns <= 2 * 2400 / 80 + 2);
}

/* Copies by rows may be slower than layers, and nothing has measured that. */
static void waits_that_nothing_predicted_lower_the_limit(void **state)
{
	struct plant p = { .demand_bytes = 20000 * PAGE };
	struct mm_view_tenant *t;

	(void)state;
	for (uint32_t rate = 250; rate <= 1000; rate += 250) {
		uint64_t worst = 0;

		t = one_begin(5000);
		p.link_permille = rate;
		for (uint32_t i = 0; i < 1200; i++)
			plant_look(&p);
		for (uint32_t i = 0; i < 1200; i++) {
			plant_look(&p);
			worst = MM_MAX(worst, t->stall_permille);
		}
		assert_true(worst <= 400);
		assert_true(t->cold_live >= 600ull * rate / 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(costs_between_loads_are_on_a_line),
		cmocka_unit_test(blocks_gain_what_their_window_leaves),
		cmocka_unit_test(the_best_is_found),
		cmocka_unit_test(all_that_hides_is_streamed),
		cmocka_unit_test(nothing_to_gain_is_nothing_streamed),
		cmocka_unit_test(what_is_not_measured_is_not_streamed),
		cmocka_unit_test(who_runs_nothing_keeps_no_window),
		cmocka_unit_test(floor_and_operator_precede_the_market),
		cmocka_unit_test(who_shares_the_link_gets_an_equal_part),
		cmocka_unit_test(blocks_come_before_layers),
		cmocka_unit_test(prompts_have_room_beside_cold_blocks),
		cmocka_unit_test(a_queue_that_lies_moves_few_layers),
		cmocka_unit_test(beside_others_layers_come_first),
		cmocka_unit_test(limits_are_within_bounds),
		cmocka_unit_test(the_order_of_tenants_moves_no_limit),
		cmocka_unit_test(a_steady_demand_has_a_steady_limit),
		cmocka_unit_test(a_limit_falls_with_the_demand),
		cmocka_unit_test(demand_that_comes_and_goes_moves_limits_no_more_often),
		cmocka_unit_test(waits_that_nothing_predicted_lower_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
