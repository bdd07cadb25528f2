/* SPDX-License-Identifier: Apache-2.0 */
/* The market's decision: offers in their order, KV, turns, and what every decision must keep. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/core/market/value.h"
#include "tests/unit/mmd/core/views.h"

#define LAYERS      40
#define LAYER_PAGES 10
#define MODEL       (LAYERS * LAYER_PAGES)
#define STEP_NS     (40 * MM_NS_PER_MS)
#define TRANSFER_NS (2 * MM_NS_PER_MS)
#define DRAWN       100000 /* views */

static struct views v, other;

static struct mm_view_tenant *add_tenant(uint32_t held, uint32_t wanted)
{
	struct mm_view_tenant *t = views_add(&v, LAYERS, LAYER_PAGES, STEP_NS, TRANSFER_NS);

	t->kv_held = t->kv_used = held;
	t->kv_wanted = wanted;
	t->hungry_permille = wanted > held ? 1000 : 0;
	return t;
}

/* ---- side by side ---- */

static void nobody_lacks_and_nothing_changes(void **state)
{
	(void)state;
	views_begin(&v, 3 * MODEL + 1000);
	add_tenant(200, 200);
	add_tenant(300, 250);
	views_idle(add_tenant(50, 0));
	views_decide(&v);
	assert_true(v.targets.beside);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(v.target[i].alpha, 0);
		assert_int_equal(v.target[i].kv_keep, UINT32_MAX);
	}
	assert_true(v.target[0].kv_most >= 200 && v.target[1].kv_most >= 300);
}

static void idle_models_lend_what_is_needed(void **state)
{
	(void)state;
	views_begin(&v, 3 * MODEL + 100);
	add_tenant(100, 180); /* lacks 80, and an eighth of what it wants */
	views_idle(add_tenant(0, 0));
	views_idle(add_tenant(0, 0));
	v.tenant[1].active_ns = 5 * MM_NS_PER_S;
	v.tenant[2].active_ns = 9 * MM_NS_PER_S;
	views_decide(&v);
	assert_int_equal(v.target[0].alpha, 0);
	assert_int_equal(v.target[1].alpha, 0);
	assert_int_equal(v.target[2].alpha, 11); /* the one that was active last */
	assert_true(v.target[0].kv_most >= 180);
	/* The tenant that the operator ranks lower lends first. */
	v.tenant[2].priority = 1;
	views_decide(&v);
	assert_int_equal(v.target[1].alpha, 11);
	assert_int_equal(v.target[2].alpha, 0);
}

static void empty_chunks_are_taken_first(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 200);
	add_tenant(100, 150);
	views_idle(add_tenant(100, 0));
	views_decide(&v);
	assert_int_equal(v.target[1].kv_keep, 50);
	assert_int_equal(v.target[1].alpha, 0);
	assert_int_equal(v.target[0].kv_most, 150);
}

static void who_computes_lends_what_is_hidden(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 400);
	add_tenant(200, 2000);
	add_tenant(200, 2000);
	views_mode(&v, true);
	views_decide(&v);
	/* 40 ms hide 2 ms for each of 13 layers; many more cost more than they gain. */
	assert_in_range(v.target[0].alpha, 5, 30);
	assert_in_range(v.target[1].alpha, 1, 30);
	views_follow(&v);
	/* It stays, but for what the new KV allows. */
	views_decide(&v);
	assert_in_range(v.target[0].alpha, 5, 30);
}

static void who_wakes_gets_its_layers_before_others_surplus(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 100);
	add_tenant(440, 2000);
	v.tenant[0].kv_used = 440;
	add_tenant(0, 10);
	v.tenant[1].alpha = v.tenant[1].alpha_next = 34;
	views_cost(&v.tenant[1]);
	v.tenant[1].step_ns = 2 * MM_NS_PER_MS;
	views_cost(&v.tenant[1]);
	views_mode(&v, true);
	views_decide(&v);
	assert_true(v.target[1].alpha < 5);
	assert_int_equal(v.target[1].first, MM_FIRST_ENTITLED);
	/* Its steps would be many times as long: KV beyond the other's share returns for it. */
	assert_true(v.target[0].kv_keep < 440);
	assert_true(v.target[0].kv_keep >= v.tenant[0].kv_share);
}

/*
 * It takes of its own KV what KV beyond shares cannot give: the slot's pages, which come free when
 * the last layer is home.
 */
static void own_kv_makes_room_for_the_last_layer(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 205);
	add_tenant(100, 2000);
	add_tenant(105, 2000);
	for (uint32_t i = 0; i < 2; i++) {
		v.tenant[i].kv_used = v.tenant[i].kv_held;
		v.tenant[i].step_ns = 2 * MM_NS_PER_MS;
		views_cost(&v.tenant[i]);
	}
	v.tenant[0].alpha = v.tenant[0].alpha_next = 1;
	v.tenant[0].point[1].slow_permille = 4000;
	v.tenant[0].point[1].link_permille = 1000;
	v.view.pages -= v.tenant[0].layer_pages; /* the slot's pages, which its return waits for */
	v.view.may_turns = false;
	views_mode(&v, true);
	views_decide(&v);
	assert_int_equal(v.target[0].alpha, 0);
	assert_int_equal(v.target[1].kv_keep, 100);
	assert_int_equal(v.target[0].kv_keep, 105 - v.tenant[0].layer_pages);
	/* No more than its layers need, and no more than half of its share. */
	v.view.pages -= 60;
	views_decide(&v);
	assert_int_equal(v.target[0].kv_keep, 105 - 2 * v.tenant[0].layer_pages);
	v.tenant[0].slot_pages = 70;
	views_decide(&v);
	assert_int_equal(v.target[0].kv_keep, 50);
	assert_int_equal(v.target[1].kv_keep, 100);
}

/* While the last layer returns, an idle model lends the slot's pages, too: it waits for them. */
static void idle_layers_make_room_for_the_last_layer(void **state)
{
	struct mm_view_tenant *t, *idle;

	(void)state;
	views_begin(&v, 2 * MODEL + 9);
	t = add_tenant(8, 8);
	idle = add_tenant(0, 0);
	views_idle(idle);
	t->hungry_permille = 0;
	t->kv_used = t->kv_held;
	v.view.may_turns = false;
	views_mode(&v, true);
	views_decide(&v);
	assert_int_equal(v.target[0].alpha, 0);
	assert_int_equal(v.target[1].alpha, 0); /* all fits */
	t->alpha = t->alpha_next = 1;
	views_decide(&v);
	assert_int_equal(v.target[0].alpha, 0);
	assert_true(v.target[1].alpha * idle->layer_pages >= t->slot_pages);
	/* The layers that were lent so return once the other is home. */
	idle->alpha = idle->alpha_next = v.target[1].alpha;
	v.memory.taken_ns[1] = 0;
	views_decide(&v);
	assert_int_equal(v.target[1].alpha, idle->alpha);
	t->alpha = t->alpha_next = 0;
	v.view.pages += MODEL; /* beyond what is kept free */
	views_decide(&v);
	assert_int_equal(v.target[1].alpha, 0);
}

static void equal_tenants_get_equal_kv(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 1000);
	add_tenant(700, 5000);
	add_tenant(100, 5000);
	views_mode(&v, true);
	v.view.may_turns = false;
	v.tenant[0].lends = v.tenant[1].lends = false;
	views_decide(&v);
	/* Each keeps what it has in use; what is free goes to the other. */
	assert_int_equal(v.target[0].kv_most, 700);
	assert_int_equal(v.target[1].kv_most, 300);
	v.tenant[0].kv_held = v.tenant[0].kv_used = 300;
	views_decide(&v);
	assert_int_equal(v.target[0].kv_most, 500);
	assert_int_equal(v.target[1].kv_most, 500);
}

static void a_share_comes_before_any_surplus(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 300);
	add_tenant(280, 2000);
	add_tenant(20, 90);
	v.tenant[0].lends = v.tenant[1].lends = false;
	v.view.may_turns = false;
	views_mode(&v, true);
	views_decide(&v);
	assert_int_equal(v.target[1].first, MM_FIRST_ENTITLED);
	/* A few chunks at a time: requests end, and do not leave. */
	assert_in_range(v.target[0].kv_keep, 270, 279);
	for (uint32_t i = 0; i < 300; i++) {
		views_follow(&v);
		v.tenant[0].kv_used = v.tenant[0].kv_held;
		views_decide(&v);
	}
	assert_int_equal(v.tenant[1].kv_held, 90);
	assert_int_equal(v.tenant[0].kv_held, 210);
}

/* Beside chunks of a page, one with chunks of 4, 16 or 64 gives its part, not a chunk each time. */
static void large_chunks_give_their_part(void **state)
{
	static const struct {
		uint32_t per; /* pages of its chunks */
		uint32_t beyond, least,
			most; /* pages of each beyond its share; what is left of it */
	} cases[] = {
		{ 1, 640, 310, 330 },  { 4, 640, 300, 335 },   { 16, 640, 280, 350 },
		{ 64, 640, 250, 390 }, { 64, 1280, 570, 710 }, { 64, 3008, 1400, 1570 },
	};

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		uint32_t per = cases[i].per, beyond = cases[i].beyond;
		uint64_t left[2];

		views_begin(&v, 3 * MODEL + 64 + per + 2 * beyond);
		add_tenant(64 + beyond, 64 + beyond);
		add_tenant(1 + beyond / per, 1 + beyond / per);
		add_tenant(0, beyond);
		v.tenant[1].chunk_pages = per;
		v.tenant[0].kv_share = 64;
		v.tenant[1].kv_share = 1;
		v.tenant[2].kv_share = beyond;
		v.view.may_turns = false;
		views_mode(&v, true);
		for (uint32_t k = 0; k < 3; k++)
			v.tenant[k].lends = false;
		for (uint32_t k = 0; k < 500; k++) {
			views_decide(&v);
			views_follow(&v);
			v.tenant[0].kv_used = v.tenant[0].kv_held;
			v.tenant[1].kv_used = v.tenant[1].kv_held;
		}
		left[0] = v.tenant[0].kv_held - 64;
		left[1] = (uint64_t)(v.tenant[1].kv_held - 1) * per;
		print_message("chunks of %u pages, %u beyond each share: %u and %u are left\n", per,
			      beyond, (unsigned)left[0], (unsigned)left[1]);
		assert_true(v.tenant[2].kv_held + per >= beyond);
		assert_in_range(left[0], cases[i].least, cases[i].most);
		assert_in_range(left[1], cases[i].least, cases[i].most);
	}
}

/* ---- accounts ---- */

static void an_account_stays_within_its_max(void **state)
{
	(void)state;
	views_begin(&v, 10000);
	v.view.n_accounts = 2;
	v.account[1].max_pages = MODEL + 250;
	add_tenant(200, 1000);
	add_tenant(200, 1000);
	v.tenant[1].account = 1;
	views_decide(&v);
	assert_int_equal(v.target[1].kv_most, 250);
	assert_true(v.target[0].kv_most >= 1000);
}

/* At an account's max, a tenant's share comes from what another one of it has beyond its own. */
static void an_account_at_its_max_serves_shares(void **state)
{
	(void)state;
	views_begin(&v, 10000);
	v.account[0].max_pages = 2 * MODEL + 300;
	v.view.may_turns = false;
	add_tenant(290, 2000);
	add_tenant(10, 90);
	v.tenant[0].lends = v.tenant[1].lends = false;
	views_mode(&v, true);
	for (uint32_t i = 0; i < 300; i++) {
		views_decide(&v);
		views_follow(&v);
		v.tenant[0].kv_used = v.tenant[0].kv_held;
	}
	assert_int_equal(v.tenant[1].kv_held, 90);
	assert_int_equal(v.tenant[0].kv_held, 210);
}

static void an_account_gives_what_it_owes(void **state)
{
	(void)state;
	views_begin(&v, 10000);
	add_tenant(200, 200);
	v.account[0].owes = 130;
	views_decide(&v);
	assert_int_equal(v.target[0].kv_keep, 70);
	assert_true(v.target[0].kv_most <= 70);
}

/* ---- turns ---- */

static void two_in_turns(uint64_t pages)
{
	views_begin(&v, pages);
	add_tenant(400, 3000);
	add_tenant(400, 3000);
	v.tenant[0].turn = MM_VIEW_HOLDS;
	views_wait(&v.tenant[1], 0);
	v.tenant[0].swap_bytes = v.tenant[1].swap_bytes = 1u << 30;
	v.view.joined = 2;
	v.view.may_beside = false;
}

static void who_waits_lends_all_but_what_must_stay(void **state)
{
	(void)state;
	two_in_turns(2 * MODEL + 800);
	views_decide(&v);
	assert_false(v.targets.beside);
	assert_int_equal(v.target[1].alpha, LAYERS - 2);
	assert_int_equal(v.target[1].why, MM_WHY_OFF_TURN);
	assert_int_equal(v.target[1].kv_keep, 0);
	assert_true(v.target[0].kv_most >= 1170);
	/* Without room on the host it keeps its share. */
	v.tenant[1].swap_bytes = 0;
	views_decide(&v);
	assert_int_equal(v.target[1].kv_keep, v.tenant[1].kv_share);
}

static void the_last_in_line_gives_first(void **state)
{
	(void)state;
	views_begin(&v, 3 * MODEL + 900);
	for (uint32_t i = 0; i < 3; i++) {
		add_tenant(300, 300);
		v.tenant[i].swap_bytes = 1u << 30;
	}
	v.tenant[0].turn = MM_VIEW_HOLDS;
	views_wait(&v.tenant[1], 0);
	views_wait(&v.tenant[2], 1);
	v.view.joined = 3;
	v.view.may_beside = false;
	v.tenant[0].kv_wanted = 480;
	v.tenant[0].hungry_permille = 1000;
	views_decide(&v);
	assert_int_equal(v.target[1].alpha, 0);
	assert_true(v.target[2].alpha >= 18 && v.target[2].alpha < 30);
	assert_int_equal(v.target[1].kv_keep, UINT32_MAX);
}

static void a_turn_lasts_many_rotations(void **state)
{
	(void)state;
	two_in_turns(2 * MODEL + 800);
	v.tenant[0].home_mean_ns = 100 * MM_NS_PER_MS;
	views_decide(&v);
	/* KV that comes back from the host counts as layers do, five to the millisecond. */
	assert_int_equal(v.targets.turn_ns,
			 2 * MM_NS_PER_S + 20ull * v.target[0].kv_most * MM_NS_PER_MS / 5);
	v.tenant[0].swap_bytes = 0;
	views_decide(&v);
	assert_int_equal(v.targets.turn_ns, 2 * MM_NS_PER_S);
	v.tenant[0].home_mean_ns = MM_NS_PER_MS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_ns, v.tenant[0].quantum_ns);
	v.tenant[0].home_mean_ns = 2 * MM_NS_PER_S;
	views_decide(&v);
	assert_int_equal(v.targets.turn_ns, 20 * MM_NS_PER_S);
	/* A goal for the first token of who waits makes it shorter, down to half. */
	v.tenant[0].home_mean_ns = 100 * MM_NS_PER_MS;
	v.tenant[1].goal_ttft_ns = 1500 * MM_NS_PER_MS;
	views_decide(&v);
	assert_int_equal(v.targets.turn_ns, 1500 * MM_NS_PER_MS);
	v.tenant[1].goal_ttft_ns = 1;
	views_decide(&v);
	assert_int_equal(v.targets.turn_ns, MM_NS_PER_S);
}

/* ---- the mode ---- */

static void the_mode_follows_the_demand(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 1000);
	add_tenant(500, 500);
	add_tenant(500, 500);
	views_wait(&v.tenant[0], 0);
	views_wait(&v.tenant[1], 1);
	v.view.joined = 2;
	views_decide(&v);
	assert_true(v.targets.beside);
	v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 4000;
	views_decide(&v);
	assert_true(v.targets.beside); /* not before it has been so for a second */
	v.view.now_ns += 1100 * MM_NS_PER_MS;
	views_decide(&v);
	assert_false(v.targets.beside);
	/* In between nothing changes. */
	v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 500;
	views_decide(&v);
	v.view.now_ns += 1100 * MM_NS_PER_MS;
	views_decide(&v);
	assert_false(v.targets.beside);
	v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 200;
	v.tenant[0].kv_held = v.tenant[1].kv_held = 200;
	views_decide(&v);
	v.view.now_ns += 1100 * MM_NS_PER_MS;
	views_decide(&v);
	assert_true(v.targets.beside);
}

/* The less the demand is over the supply, the longer it must be so before there are turns. */
static void a_little_too_much_demand_waits_for_turns(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 1000);
	add_tenant(500, 500);
	add_tenant(500, 500);
	views_wait(&v.tenant[0], 0);
	views_wait(&v.tenant[1], 1);
	v.tenant[0].lends = v.tenant[1].lends = false;
	v.view.joined = 2;
	views_decide(&v);
	v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 875; /* 1.75 times the supply */
	views_decide(&v);
	v.view.now_ns += 1900 * MM_NS_PER_MS;
	views_decide(&v);
	assert_true(v.targets.beside);
	v.view.now_ns += 200 * MM_NS_PER_MS;
	views_decide(&v);
	assert_false(v.targets.beside);
}

/* Weights are there in any case: how large they are does not make memory scarce, nor plenty. */
static void the_mode_compares_what_weights_leave(void **state)
{
	(void)state;
	for (uint64_t more = 0; more <= 10000; more += 10000) {
		views_begin(&v, 2 * MODEL + 1000 + 2 * more);
		for (uint32_t i = 0; i < 2; i++) {
			add_tenant(200, 200)->lends = false;
			v.tenant[i].fixed_pages += more;
			views_wait(&v.tenant[i], i);
		}
		v.view.joined = 2;
		views_decide(&v);
		assert_int_equal(v.targets.demand, 400);
		assert_int_equal(v.targets.supply, 1000);
		v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 875;
		views_decide(&v);
		v.view.now_ns += 2100 * MM_NS_PER_MS;
		views_decide(&v);
		assert_false(v.targets.beside);
		v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 200;
		views_decide(&v);
		v.view.now_ns += 1100 * MM_NS_PER_MS;
		views_decide(&v);
		assert_true(v.targets.beside);
	}
}

/* A last step of the time side by side says nothing of whose turn it will be. */
static void memory_stays_while_turns_close(void **state)
{
	(void)state;
	two_in_turns(2 * MODEL + 800);
	views_mode(&v, false);
	v.tenant[1].turn = MM_VIEW_HOLDS;
	views_decide(&v);
	assert_false(v.targets.beside);
	assert_int_equal(v.targets.turn_of, MM_NO_TENANT);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(v.target[i].kv_keep, UINT32_MAX);
	/* The other one has given its turn back, and waits: memory is for that one. */
	v.tenant[0].turn_ends = true;
	views_wait(&v.tenant[1], 0);
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 1);
	/* One that began its turn after that has it. */
	v.tenant[0].turn_ends = false;
	views_decide(&v);
	assert_int_equal(v.targets.turn_of, 0);
}

static void one_alone_needs_no_turns(void **state)
{
	(void)state;
	two_in_turns(2 * MODEL + 800);
	v.view.may_beside = true;
	views_mode(&v, false);
	views_idle(&v.tenant[1]);
	v.tenant[1].turn = MM_VIEW_AWAY;
	views_decide(&v);
	v.view.now_ns += 1100 * MM_NS_PER_MS;
	views_decide(&v);
	assert_true(v.targets.beside);
}

static void goals_come_before_memory(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 2200);
	add_tenant(500, 500);
	add_tenant(500, 500);
	views_wait(&v.tenant[0], 0);
	views_wait(&v.tenant[1], 1);
	v.view.joined = 2;
	views_mode(&v, false);
	/* All fits, but steps of both together take longer than a token may. */
	v.tenant[0].goal_tpot_ns = STEP_NS * 3 / 2;
	views_decide(&v);
	v.view.now_ns += 1100 * MM_NS_PER_MS;
	views_decide(&v);
	assert_false(v.targets.beside);
	v.tenant[0].goal_tpot_ns = STEP_NS * 3;
	views_decide(&v);
	v.view.now_ns += 11 * MM_NS_PER_S;
	views_decide(&v);
	assert_true(v.targets.beside);
	/* Nothing fits, but the other's turn is longer than a first token may take. */
	v.tenant[0].kv_wanted = v.tenant[1].kv_wanted = 9000;
	v.tenant[0].goal_ttft_ns = 100 * MM_NS_PER_MS;
	views_decide(&v);
	v.view.now_ns += 1100 * MM_NS_PER_MS;
	views_decide(&v);
	assert_true(v.targets.beside);
}

static uint32_t mode_changes(uint32_t seconds, uint64_t beside_ns, uint64_t turns_ns)
{
	uint32_t changes = 0;
	bool beside = v.memory.beside;

	for (uint32_t i = 0; i < seconds * 20; i++) {
		v.tenant[0].step_ns = v.tenant[1].step_ns = beside ? beside_ns : turns_ns;
		v.view.now_ns += 50 * MM_NS_PER_MS;
		views_decide(&v);
		changes += v.targets.beside != beside;
		beside = v.targets.beside;
	}
	return changes;
}

/* Whatever is measured in each mode and expected of the other. */
static void goals_do_not_change_the_mode_each_second(void **state)
{
	(void)state;
	views_begin(&v, 2 * MODEL + 2200);
	add_tenant(500, 500);
	add_tenant(500, 500);
	views_wait(&v.tenant[0], 0);
	views_wait(&v.tenant[1], 1);
	v.view.joined = 2;
	views_mode(&v, true);
	v.tenant[0].goal_tpot_ns = v.tenant[1].goal_tpot_ns = STEP_NS * 3 / 2;
	/* Steps of both together are a little shorter than one after the other, or longer. */
	assert_in_range(mode_changes(60, STEP_NS * 29 / 20, STEP_NS * 31 / 40), 0, 1);
	assert_in_range(mode_changes(60, STEP_NS * 31 / 20, STEP_NS * 29 / 40), 0, 1);
	/* Each mode seems to miss what the other would meet. */
	assert_in_range(mode_changes(60, STEP_NS * 2, STEP_NS / 2), 2, 6);
}

/* ---- always ---- */

static void same_bytes_same_targets(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		views_draw(&v, seed);
		views_draw(&other, seed);
		memset(&other.target, 0xff, sizeof(other.target));
		views_decide(&v);
		views_decide(&other);
		assert_memory_equal(&v.view, &other.view, offsetof(struct mm_view, tenant));
		for (uint32_t i = 0; i < v.view.n_tenants; i++) {
			assert_int_equal(v.target[i].alpha, other.target[i].alpha);
			assert_int_equal(v.target[i].kv_most, other.target[i].kv_most);
			assert_int_equal(v.target[i].kv_keep, other.target[i].kv_keep);
			assert_int_equal(v.target[i].first, other.target[i].first);
			assert_int_equal(v.target[i].why, other.target[i].why);
		}
		assert_memory_equal(&v.memory, &other.memory, sizeof(v.memory));
	}
}

static void drawn_views_keep_the_invariants(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < DRAWN; seed++) {
		views_draw(&v, seed);
		for (uint32_t i = 0; i < 2; i++) {
			views_decide(&v);
			views_follow(&v);
			v.view.now_ns += 50 * MM_NS_PER_MS;
		}
	}
}

/* ---- how long it takes: printed, and nothing is asserted of it ---- */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * MM_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void time_of(uint32_t n, bool beside)
{
	uint64_t from;
	uint32_t rounds = 20;

	views_begin(&v, n * 1200ull);
	for (uint32_t i = 0; i < n; i++) {
		struct mm_view_tenant *t = views_add(&v, 100, 10, STEP_NS + i * 1000, TRANSFER_NS);

		t->kv_held = t->kv_used = 150 + i % 7;
		t->kv_wanted = 500;
		if (!beside && i)
			views_wait(t, i - 1);
	}
	v.tenant[0].turn = beside ? MM_VIEW_NO_TURNS : MM_VIEW_HOLDS;
	v.view.joined = beside ? 0 : n;
	v.view.may_turns = !beside;
	views_mode(&v, beside);
	from = now_ns();
	for (uint32_t i = 0; i < rounds; i++)
		mm_market_decide(&v.view, &v.memory, &v.targets);
	print_message("%u tenants %s: %llu us\n", n, beside ? "side by side" : "in turns",
		      (unsigned long long)((now_ns() - from) / rounds / 1000));
}

static void decisions_end(void **state)
{
	(void)state;
	time_of(3, true);
	time_of(64, true);
	time_of(64, false);
	time_of(1024, true);
	time_of(1024, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_lacks_and_nothing_changes),
		cmocka_unit_test(idle_models_lend_what_is_needed),
		cmocka_unit_test(empty_chunks_are_taken_first),
		cmocka_unit_test(who_computes_lends_what_is_hidden),
		cmocka_unit_test(who_wakes_gets_its_layers_before_others_surplus),
		cmocka_unit_test(own_kv_makes_room_for_the_last_layer),
		cmocka_unit_test(idle_layers_make_room_for_the_last_layer),
		cmocka_unit_test(equal_tenants_get_equal_kv),
		cmocka_unit_test(a_share_comes_before_any_surplus),
		cmocka_unit_test(large_chunks_give_their_part),
		cmocka_unit_test(an_account_stays_within_its_max),
		cmocka_unit_test(an_account_at_its_max_serves_shares),
		cmocka_unit_test(an_account_gives_what_it_owes),
		cmocka_unit_test(who_waits_lends_all_but_what_must_stay),
		cmocka_unit_test(the_last_in_line_gives_first),
		cmocka_unit_test(a_turn_lasts_many_rotations),
		cmocka_unit_test(the_mode_follows_the_demand),
		cmocka_unit_test(a_little_too_much_demand_waits_for_turns),
		cmocka_unit_test(the_mode_compares_what_weights_leave),
		cmocka_unit_test(memory_stays_while_turns_close),
		cmocka_unit_test(one_alone_needs_no_turns),
		cmocka_unit_test(goals_come_before_memory),
		cmocka_unit_test(goals_do_not_change_the_mode_each_second),
		cmocka_unit_test(same_bytes_same_targets),
		cmocka_unit_test(drawn_views_keep_the_invariants),
		cmocka_unit_test(decisions_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
