/* SPDX-License-Identifier: Apache-2.0 */
/* Side by side, memory for one tenant after the other: when, for how long, who is next. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "tests/unit/mmd/core/views.h"

#define LAYERS      40
#define LAYER_PAGES 10
#define MODEL       (LAYERS * LAYER_PAGES)
#define STEP_NS     (40 * MM_NS_PER_MS)
#define TRANSFER_NS (2 * MM_NS_PER_MS)

static struct views v;

static struct mm_view_tenant *wanting_tenant(uint32_t held, uint32_t wanted)
{
	struct mm_view_tenant *t = views_add(&v, LAYERS, LAYER_PAGES, STEP_NS, TRANSFER_NS);

	t->kv_held = t->kv_used = held;
	t->kv_wanted = wanted;
	t->hungry_permille = wanted > held ? 1000 : 0;
	t->place = UINT32_MAX;
	return t;
}

/* Two that want more than twice the pool and have not joined turns. */
static void two_that_want_all(void)
{
	views_begin(&v, 2 * MODEL + 200);
	wanting_tenant(100, 1500);
	wanting_tenant(100, 1500);
	for (uint32_t i = 0; i < 2; i++) {
		v.tenant[i].swap_bytes = 1u << 30;
		v.tenant[i].waiting = 1;
	}
	views_mode(&v, true);
}

static void passes_ms(uint64_t ms)
{
	v.view.now_ns += ms * MM_NS_PER_MS;
	views_decide(&v);
}

static void memory_is_for_one_while_much_more_is_wanted(void **state)
{
	uint32_t first, second;

	(void)state;
	two_that_want_all();
	passes_ms(0);
	assert_int_equal(v.targets.memory_of, MM_NO_TENANT);
	passes_ms(990);
	assert_int_equal(v.targets.memory_of, MM_NO_TENANT);
	passes_ms(10);
	assert_true(v.targets.beside);
	first = v.targets.memory_of;
	assert_in_range(first, 0, 1);
	second = 1 - first;
	assert_true(v.target[first].alpha < LAYERS / 2); /* they are hidden, as in a turn */
	assert_int_equal(v.target[second].alpha, LAYERS - 2);
	assert_int_equal(v.target[second].kv_keep, 0);
	assert_true(v.target[first].kv_most > 500);
	/* Without memory it runs no steps, and is not idle for that. */
	views_follow(&v);
	v.tenant[second].active = false;
	passes_ms(14900);
	assert_int_equal(v.targets.memory_of, first);
	passes_ms(100);
	assert_int_equal(v.targets.memory_of, second);
	assert_true(v.target[second].alpha < LAYERS / 2);
	assert_int_equal(v.target[first].kv_keep, 0);
	/* One that does nothing with it does not keep it for long. */
	passes_ms(3000);
	assert_int_equal(v.targets.memory_of, first);
	/* A goal for the first token makes the time shorter, within bounds. */
	v.tenant[second].goal_ttft_ns = 6 * MM_NS_PER_S;
	passes_ms(5900);
	assert_int_equal(v.targets.memory_of, first);
	passes_ms(100);
	assert_int_equal(v.targets.memory_of, second);
	v.tenant[second].active = true;
	v.tenant[second].goal_ttft_ns = MM_NS_PER_S;
	passes_ms(4900);
	assert_int_equal(v.targets.memory_of, second);
	passes_ms(100);
	assert_int_equal(v.targets.memory_of, first);
	/* There is as much as all want. */
	v.view.pages *= 4;
	passes_ms(0);
	passes_ms(1000);
	assert_int_equal(v.targets.memory_of, MM_NO_TENANT);
}

static void memory_is_divided_among_those_that_cannot_wait(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		two_that_want_all();
		if (i == 0)
			v.tenant[1].swap_bytes = 0;
		if (i == 1)
			v.tenant[1].reclaims = v.tenant[1].gives = false;
		if (i == 2)
			views_idle(&v.tenant[1]);
		if (i == 2)
			v.tenant[1].waiting = 0;
		if (i == 3)
			v.view.may_turns = false;
		passes_ms(0);
		passes_ms(1000);
		assert_int_equal(v.targets.memory_of, MM_NO_TENANT);
	}
}

/* Two that can use little more KV than their parts lose half of the time for it. */
static void memory_is_divided_where_more_is_worth_little(void **state)
{
	(void)state;
	for (uint32_t big = 0; big < 2; big++) {
		two_that_want_all();
		v.view.pages += 2 * MODEL;
		for (uint32_t i = 0; i < 2; i++) {
			v.tenant[i].lends = false;
			v.tenant[i].kv_held = v.tenant[i].kv_used = 500;
			v.tenant[i].kv_wanted = big ? 1400 : 650;
		}
		views_idle(wanting_tenant(0, 0));
		v.tenant[2].fixed_pages = 1200; /* half of which counts as demand */
		v.tenant[2].lends = false;
		passes_ms(0);
		passes_ms(1000);
		assert_int_equal(v.targets.memory_of != MM_NO_TENANT, big);
	}
}

/* The one whose memory it is has let in all its requests, which need @used chunks. */
static uint32_t one_wants_little(uint32_t used)
{
	struct mm_view_tenant *t;

	two_that_want_all();
	passes_ms(0);
	passes_ms(1000);
	assert_in_range(v.targets.memory_of, 0, 1);
	views_follow(&v);
	t = &v.tenant[v.targets.memory_of];
	t->kv_held = t->kv_used = t->kv_wanted = used;
	t->waiting = t->hungry_permille = 0;
	passes_ms(300);
	assert_int_equal(v.targets.memory_of, t->index);
	return 1 - t->index;
}

static void what_is_left_over_goes_to_who_waits(void **state)
{
	uint32_t other = one_wants_little(50);

	(void)state;
	assert_int_equal(v.target[other].alpha, 0);
	assert_in_range(v.target[other].kv_most, 100, 150);
	/* An eighth of what the one wants is left for what it will want. */
	assert_true(v.target[1 - other].kv_most >= 56);
	/* It gives all that back when the one wants it. */
	views_follow(&v);
	v.tenant[other].kv_used = v.tenant[other].kv_held;
	v.tenant[1 - other].kv_wanted = 1500;
	v.tenant[1 - other].waiting = 1;
	passes_ms(50);
	assert_int_equal(v.target[other].kv_keep, 0);
	assert_int_equal(v.target[other].alpha, LAYERS - 2);
}

/* A request of a tenant whose layers are away would hold its KV many times as long. */
static void layers_return_before_kv_is_lent(void **state)
{
	uint32_t other = one_wants_little(420);

	(void)state;
	assert_int_equal(v.target[other].alpha, LAYERS - 2);
	assert_int_equal(v.target[other].kv_most, 0);
	/* Some layers fewer, and steps are less than twice as long. */
	other = one_wants_little(300);
	assert_in_range(v.target[other].alpha, 1, 25);
}

/* Counts in how many of @n times each of three tenants has all memory. */
static void memory_times(uint32_t n, uint32_t had[3])
{
	memset(had, 0, 3 * sizeof(*had));
	passes_ms(0);
	passes_ms(1000);
	for (uint32_t i = 0; i < n; i++) {
		passes_ms(15000);
		if (v.targets.memory_of < 3)
			had[v.targets.memory_of]++;
	}
}

static void three_that_want_all(void)
{
	two_that_want_all();
	wanting_tenant(100, 1500);
	v.tenant[2].swap_bytes = 1u << 30;
	v.tenant[2].waiting = 1;
	v.view.n_accounts = 3;
	for (uint32_t i = 0; i < 3; i++) {
		v.account[i].max_pages = v.account[0].max_pages;
		v.tenant[i].account = i;
	}
}

static void memory_goes_by_weight(void **state)
{
	uint32_t had[3];

	(void)state;
	three_that_want_all();
	v.tenant[1].weight = 3 * v.tenant[0].weight;
	memory_times(60, had);
	assert_in_range(had[1], 34, 38);
	assert_in_range(had[0], 11, 13);
	assert_in_range(had[2], 11, 13);
}

/* More tenants get an account no more of the time. */
static void memory_goes_by_account(void **state)
{
	uint32_t had[3];

	(void)state;
	three_that_want_all();
	v.tenant[1].account = v.tenant[0].account;
	memory_times(60, had);
	assert_in_range(had[2], 29, 31);
	assert_in_range(had[0], 14, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_for_one_while_much_more_is_wanted),
		cmocka_unit_test(memory_is_divided_among_those_that_cannot_wait),
		cmocka_unit_test(memory_is_divided_where_more_is_worth_little),
		cmocka_unit_test(what_is_left_over_goes_to_who_waits),
		cmocka_unit_test(layers_return_before_kv_is_lent),
		cmocka_unit_test(memory_goes_by_weight),
		cmocka_unit_test(memory_goes_by_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
