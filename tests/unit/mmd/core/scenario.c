/* SPDX-License-Identifier: Apache-2.0 */
/* One story per test: events in the world of tests/sim, which checks the core after each. */
#undef NDEBUG
#include <errno.h>

#include "tests/unit/mmd/core/story.h"

/* ---- pool, models ---- */

static void pool_is_created_and_scrubbed(void **state)
{
	(void)state;
	story_begin(MM_POLICY_REMAP, 200);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 200);
	for (uint32_t i = 0; i < 200; i++)
		assert_int_equal(w->page[i].bytes.kind, W_ZERO);
}

static void a_model_runs_and_leaves(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 6, 3);
	assert_true(p->model_ready);
	assert_int_equal(story_plan(p)->epoch, 1);
	assert_int_equal(story_stats().pages[MM_PAGE_PARAM], 19);
	story_steps(p, 3);
	w_bye(w, p);
	w_run(w);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 60);
	assert_int_equal(story_stats().tenants, 0);
	assert_int_equal(story_stats().kills, 0);
}

static void refusals_name_their_reason(void **state)
{
	struct w_proc *quota, *device;

	(void)state;
	story_begin(MM_POLICY_REMAP, 30);
	w->account_max[1] = 10;
	quota = tenant_with(1, 6, 2);
	device = tenant_with(0, 10, 4);
	assert_int_equal(quota->model_result, -EDQUOT);
	assert_int_equal(device->model_result, -ENOSPC);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 30);
}

/*
 * The check before a model is read has the same result as its refusal would have, and does not
 * depend on what others hold now.
 */
static void what_cannot_fit_is_known_before_it_is_read(void **state)
{
	uint64_t max_pages = 0;
	struct w_proc *p, *poor;

	(void)state;
	story_begin(MM_POLICY_REMAP, 30);
	w->account_max[1] = 10;
	p = tenant_with(0, 6, 3); /* 19 pages */
	poor = tenant_with(1, 3, 3);
	assert_true(p->model_ready && poor->model_ready);
	assert_int_equal(mm_core_model_fits(w->core, p->tenant, 30, &max_pages), MM_REFUSED_NO);
	assert_int_equal(mm_core_model_fits(w->core, p->tenant, 31, &max_pages), MM_REFUSED_DEVICE);
	assert_int_equal(max_pages, 30);
	assert_int_equal(mm_core_model_fits(w->core, poor->tenant, 10, &max_pages), MM_REFUSED_NO);
	assert_int_equal(mm_core_model_fits(w->core, poor->tenant, 11, &max_pages),
			 MM_REFUSED_QUOTA);
	assert_int_equal(max_pages, 10);
	assert_int_equal(mm_core_model_fits(w->core, poor->tenant, UINT64_MAX, &max_pages),
			 MM_REFUSED_DEVICE);
}

/*
 * A model has no more pages than its part of the map table has entries, however large the pool is.
 */
static void a_model_has_as_many_pages_as_the_table_has_entries(void **state)
{
	const struct mm_core_opts opts = { .pages = MM_MAP_KV_BASE + 9, .page_bytes = 4096 };
	const struct mm_core_join join = { .features = MM_FEAT_REMAP };
	uint64_t max_pages = 0;
	struct mm_core *core;
	uint32_t tenant;

	(void)state;
	assert_int_equal(mm_core_create(&opts, &core), 0);
	assert_int_equal(mm_core_on_join(core, 1, &join, &tenant), 0);
	assert_int_equal(mm_core_model_fits(core, tenant, MM_MAP_KV_BASE, &max_pages),
			 MM_REFUSED_NO);
	assert_int_equal(mm_core_model_fits(core, tenant, MM_MAP_KV_BASE + 1, &max_pages),
			 MM_REFUSED_DEVICE);
	assert_int_equal(max_pages, MM_MAP_KV_BASE);
	mm_core_destroy(core);
}

static void a_model_waits_for_what_others_lend(void **state)
{
	struct w_proc *a, *b;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	a = tenant_with(0, 10, 4); /* 41 pages */
	pass_ms(200);
	b = tenant_with(0, 8, 4); /* 33: 14 short */
	pass_ms(50);
	assert_true(b->model_ready);
	assert_int_equal(story_plan(a)->alpha, 4);
	story_steps(a, 3);
	story_steps(b, 3);
}

static void a_model_that_never_fits_is_refused_after_a_while(void **state)
{
	struct w_proc *b;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, 60);
	tenant_with(0, 10, 4);
	b = tenant_with(0, 8, 4);
	assert_true(b->model_asked);
	pass_ms(1000);
	w_tick(w, 30 * MM_NS_PER_S);
	w_run(w);
	assert_int_equal(b->model_result, -ENOSPC);
}

/* ---- KV ---- */

static void kv_is_pooled_or_split_by_policy(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_RECOMPUTE, 60);
	p = tenant_with(0, 6, 3);
	w_kv_declare(w, p, 2, 2, 20, 5);
	w_run(w);
	assert_int_equal(p->held, 5);
	w_kv_want(w, p, 8);
	w_run(w);
	assert_int_equal(p->held, 5);
	assert_int_equal(p->denied, -ENOSPC);
	w_done(w);
	story_begin(MM_POLICY_ELASTIC, 60);
	p = tenant_with(0, 6, 3);
	w_kv_declare(w, p, 2, 2, 20, 5);
	w_run(w);
	assert_int_equal(p->held, 0);
	w_kv_want(w, p, 8);
	w_run(w);
	assert_int_equal(p->held, 8);
}

static void a_full_account_is_denied_but_its_demand_stands(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, 60);
	w->account_max[1] = 25;
	p = tenant_with(1, 6, 3);
	w_kv_declare(w, p, 2, 1, 20, 0);
	w_kv_want(w, p, 5);
	w_run(w);
	assert_int_equal(p->held, 3);
	assert_int_equal(p->denied, -EDQUOT);
	w_kv_release(w, p);
	w_kv_want(w, p, 5);
	w_run(w);
	assert_int_equal(p->held, 3);
}

static void denials_are_not_repeated_in_haste(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, 30);
	p = tenant_with(0, 6, 3);
	w_kv_declare(w, p, 1, 1, 60, 0);
	for (uint32_t i = 0; i < 10; i++) {
		w_kv_want(w, p, 50);
		while (w_proc_event(w, p))
			;
		w_tick(w, MM_NS_PER_MS);
	}
	w_run(w);
	assert_int_equal(p->denials, 1);
	pass_ms(25);
	assert_int_equal(p->denials, 2);
}

static void idle_lends_most_recently_active_first(void **state)
{
	struct w_proc *older, *newer, *asks;

	(void)state;
	story_begin(MM_POLICY_REMAP, 100);
	older = tenant_with(0, 10, 2);
	newer = tenant_with(0, 10, 2);
	asks = tenant_with(0, 4, 2);
	w_kv_declare(w, asks, 1, 1, 100, 0);
	w_stats(w, older, 1);
	pass_ms(50);
	w_stats(w, newer, 1);
	pass_ms(200);
	w_kv_want(w, asks, 49 + 4);
	pass_ms(50);
	assert_int_equal(asks->held, 53);
	assert_int_equal(story_plan(newer)->alpha, 2);
	assert_int_equal(story_plan(older)->alpha, 0);
	w_kv_want(w, asks, 49 + 18);
	pass_ms(50);
	assert_int_equal(story_plan(newer)->alpha, 8); /* one layer stays */
	assert_in_range(story_plan(older)->alpha, 1, 2);
	w_kv_want(w, asks, 100);
	pass_ms(50);
	assert_int_equal(story_plan(older)->alpha, 8);
	assert_int_equal(asks->denied, -ENOSPC);
	story_steps(newer, 2);
	story_steps(older, 2);
}

static void empty_chunks_of_the_idle_come_before_layers(void **state)
{
	struct w_proc *idle, *asks;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	idle = tenant_with(0, 10, 2);
	asks = tenant_with(0, 4, 2);
	w_kv_declare(w, idle, 1, 1, 60, 0);
	w_kv_declare(w, asks, 1, 1, 60, 0);
	w_kv_want(w, idle, 20);
	w_run(w);
	idle->used_chunks = 12;
	w_stats(w, idle, 0);
	pass_ms(200);
	w_kv_want(w, asks, 10 + 5);
	w_run(w);
	assert_int_equal(idle->reclaim, 5);
	while (idle->reclaim && w_kv_release(w, idle))
		;
	w_run(w);
	assert_int_equal(asks->held, 15);
	assert_int_equal(story_plan(idle)->alpha, 0);
}

/*
 * The same chunks are reclaimed again and again before the tenant sees the first reclaim: when it
 * has released them, no more are expected of it.
 */
static void what_is_asked_again_is_not_owed_twice(void **state)
{
	struct w_proc *late, *asks;

	(void)state;
	for (int gives = 0; gives < 2; gives++) {
		story_begin(MM_POLICY_ELASTIC, 40);
		late = w_join(w, 0, MM_FEAT_KNOWN);
		asks = w_join(w, 0, MM_FEAT_KNOWN);
		w_kv_declare(w, late, 1, 1, 40, 0);
		w_kv_declare(w, asks, 1, 1, 40, 0);
		w_kv_want(w, late, 30);
		w_run(w);
		w_stats(w, late, 0);
		pass_ms(200);
		late->frozen = true;
		w_kv_want(w, asks, 25);
		pass_ms(3000);
		assert_true(story_stats().reclaims >= 3);
		for (uint32_t i = 0; gives && i < 15; i++)
			w_kv_release(w, late);
		late->frozen = false;
		w_run(w);
		assert_int_equal(late->reclaim, gives ? 0 : 15);
		while (late->reclaim && w_kv_release(w, late))
			;
		pass_ms(500);
		assert_int_equal(late->held, 15);
		assert_int_equal(asks->held, 25);
		assert_int_equal(late->reclaim, 0);
		if (!gives)
			w_done(w);
	}
}

/* An idle tenant lends layers for the 40 chunks that another wants. */
static void lend_for_forty(struct w_proc **ret_lends, struct w_proc **ret_asks)
{
	story_begin(MM_POLICY_REMAP, 60);
	*ret_lends = tenant_with(0, 10, 2);
	*ret_asks = tenant_with(0, 4, 2);
	w_kv_declare(w, *ret_asks, 1, 1, 60, 0);
	pass_ms(200);
	w_kv_want(w, *ret_asks, 40);
	pass_ms(50);
}

static void layers_return_after_the_burst(void **state)
{
	struct w_proc *lends, *asks;
	uint32_t at_most;

	(void)state;
	lend_for_forty(&lends, &asks);
	assert_int_equal(asks->held, 40);
	assert_int_equal(story_plan(lends)->alpha, 5);
	story_steps(lends, 2);
	w_kv_want(w, asks, 10);
	for (at_most = 0; asks->held > 10; at_most++)
		w_kv_release(w, asks);
	pass_ms(100);
	assert_int_equal(story_plan(lends)->alpha, 5); /* dwell */
	pass_ms(600);
	assert_int_equal(story_plan(lends)->alpha, 0);
	assert_int_equal(story_stats().plan_changes, 2);
	story_steps(lends, 2);
}

static void a_lender_that_runs_again_is_served_first(void **state)
{
	struct w_proc *lends, *asks;

	(void)state;
	lend_for_forty(&lends, &asks);
	asks->used_chunks = 4;
	w_stats(w, asks, 1);
	for (uint32_t i = 0; i < 100; i++) {
		w_stats(w, lends, 1);
		w_stats(w, asks, 1);
		pass_ms(5);
		while (asks->reclaim && asks->held > 5 && w_kv_release(w, asks))
			;
	}
	assert_int_equal(story_plan(lends)->alpha, 0);
}

static void chunks_are_granted_from_where_they_are_wanted(void **state)
{
	static const uint32_t first[] = { 12, 17, 3, 20, 0 }, got[] = { 12, 17, 3, 0, 1 };
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 60);
	p = tenant_with(0, 8, 1);
	w_kv_declare(w, p, 1, 1, 20, 1);
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(first); i++) {
		w_send(w, p,
		       &(struct mm_msg){ .opcode = MM_OP_KV_WANT, .arg = { i + 1, first[i] } });
		w_run(w);
		assert_int_equal(p->held, i + 1);
		assert_true(p->chunk[got[i]]);
	}
	/* Those behind the arena's last one are none, and the rest comes from its beginning. */
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_KV_WANT, .arg = { 20, UINT64_MAX } });
	w_run(w);
	assert_int_equal(p->held, 20);
	p = tenant_that(MM_FEAT_KNOWN & ~MM_FEAT_COLD, 0, 4, 1);
	w_kv_declare(w, p, 1, 1, 20, 1);
	assert_int_equal(
		mm_core_on_request(w->core, w->now_ns, p->tenant,
				   &(struct mm_msg){ .opcode = MM_OP_KV_WANT, .arg = { 1, 1 } }),
		MM_E_PROTOCOL);
	w_drain(w);
}

/* ---- plan changes ---- */

static void operator_changes_plans_while_it_runs(void **state)
{
	static const int32_t alphas[] = { 1, 5, 2, 9, 3, 0, 7, 1, 0, -1 };
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 10, 3);
	for (size_t i = 0; i < MM_ARRAY_SIZE(alphas); i++) {
		story_plan_by_hand(p, alphas[i]);
		story_steps(p, 15);
		assert_int_equal(story_plan(p)->alpha, alphas[i] < 0 ? 0 : alphas[i]);
		assert_int_equal(story_plan(p)->m,
				 alphas[i] > 0 ? story_plan(p)->alpha + story_plan(p)->beta : 0);
	}
	assert_int_equal(story_plan(p)->epoch, 10);
}

/* With each number of layers away and of slots, steps are streamed and run on the right bytes. */
static void operator_changes_slots_while_it_runs(void **state)
{
	static const struct {
		int32_t alpha;
		uint32_t slots;
	} plans[] = { { 4, 1 }, { 4, 2 }, { 4, 1 }, { 3, 2 }, { 8, 2 }, { 9, 1 },
		      { 2, 2 }, { 1, 1 }, { 5, 2 }, { 0, 2 }, { 7, 2 }, { 0, 0 } };
	struct w_proc *p;
	uint32_t max;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 10, 3);
	for (size_t i = 0; i < MM_ARRAY_SIZE(plans); i++) {
		assert_int_equal(mm_core_plan_set(w->core, w->now_ns, p->tenant, plans[i].alpha,
						  plans[i].slots, &max),
				 0);
		w_drain(w);
		story_steps(p, 15);
		assert_int_equal(story_plan(p)->alpha, plans[i].alpha);
		assert_int_equal(story_plan(p)->beta, plans[i].alpha ? plans[i].slots : 0);
		assert_int_equal(story_stats().pages[MM_PAGE_PARAM] +
					 story_stats().pages[MM_PAGE_SLOT],
				 31 - 3 * plans[i].alpha);
	}
	assert_int_equal(mm_core_plan_set(w->core, 1, p->tenant, 1, 2, &max), MM_E_RANGE);
	assert_int_equal(mm_core_plan_set(w->core, 1, p->tenant, 9, 2, &max), MM_E_RANGE);
	assert_int_equal(max, 8);
}

static bool heavy_between(const struct mm_core_slot *slot, uint32_t i)
{
	uint32_t next = slot->layer[i + 1 < slot->n_layers ? i + 1 : 0];

	for (uint32_t l = (slot->layer[i] + 1u) % 8; l != next; l = (l + 1) % 8)
		if (!(l % 3))
			return true;
	return false;
}

/*
 * The world's tenants claim that layers 0, 3 and 6 compute: evenly spaced ones would have a gap
 * without computing.
 */
static void layers_leave_where_there_is_time(void **state)
{
	struct w_proc *p;
	uint32_t max;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 3);
	p->states_compute = true;
	w_stats(w, p, 1);
	assert_int_equal(mm_core_plan_set(w->core, w->now_ns, p->tenant, 2, 1, &max), 0);
	w_drain(w);
	story_steps(p, 15);
	assert_int_equal(story_plan(p)->alpha, 2);
	assert_int_equal(story_plan(p)->slot[0].n_layers, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(heavy_between(&story_plan(p)->slot[0], i));
}

/*
 * A transfer takes as long as two layers compute: three of ten layers in one slot stall, four in
 * two slots do not.
 */
static void slots_are_chosen_by_step_time(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 10, 3);
	w_stats(w, p, 1);
	story_steps(p, 3);
	w_stats(w, p, 1); /* a layer: 110 µs */
	mm_core_on_streamed(w->core, p->tenant, 230000);
	story_plan_by_hand(p, 2);
	story_steps(p, 15);
	assert_int_equal(story_plan(p)->beta, 2);
	assert_int_equal(story_plan(p)->m, 4);
	story_plan_by_hand(p, 0);
	story_steps(p, 15);
	for (int i = 0; i < 40; i++)
		mm_core_on_streamed(w->core, p->tenant, 20000);
	story_plan_by_hand(p, 1);
	story_steps(p, 15);
	assert_int_equal(story_plan(p)->beta, 1);
	story_plan_by_hand(p, 2); /* both are hidden; 3 · 4 > 10, so two is the looser one */
	story_steps(p, 15);
	assert_int_equal(story_plan(p)->beta, 2);
}

static void what_the_operator_took_goes_back_under_any_policy(void **state)
{
	(void)state;
	for (int policy = 0; policy < MM_POLICY_COUNT; policy++) {
		struct w_proc *p;

		story_begin((enum mm_policy)policy, 80);
		p = tenant_with(0, 10, 3);
		story_plan_by_hand(p, 4);
		story_steps(p, 15);
		assert_int_equal(story_plan(p)->alpha, 4);
		pass_ms(1000);
		assert_int_equal(story_plan(p)->alpha, 4);
		story_plan_by_hand(p, -1);
		pass_ms(1000);
		assert_int_equal(story_plan(p)->alpha, 0);
		if (policy + 1 < MM_POLICY_COUNT)
			w_done(w);
	}
}

static void two_layers_are_too_few_to_lend(void **state)
{
	struct w_proc *lends, *asks;

	(void)state;
	story_begin(MM_POLICY_REMAP, 30);
	lends = tenant_with(0, 2, 6);
	asks = tenant_with(0, 3, 2);
	w_kv_declare(w, asks, 1, 1, 60, 0);
	pass_ms(200);
	w_kv_want(w, asks, 30);
	pass_ms(50);
	assert_int_equal(story_plan(lends)->alpha, 0);
	assert_int_equal(asks->denied, -ENOSPC);
	story_plan_by_hand(lends, 1);
	pass_ms(50);
	assert_int_equal(story_plan(lends)->alpha, 1);
	assert_int_equal(asks->held, 10 + 6);
	story_steps(lends, 2);
}

static void an_impossible_plan_is_refused(void **state)
{
	struct w_proc *p, *plain;
	uint32_t max = 99;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 10, 3);
	assert_int_equal(mm_core_plan_set(w->core, 1, p->tenant, 10, 0, &max), MM_E_RANGE);
	assert_int_equal(max, 9);
	plain = w_join(w, 0, 0);
	assert_int_equal(mm_core_plan_set(w->core, 1, plain->tenant, 0, 0, &max), MM_E_STALE);
	w_model(w, plain, 7, 4, 1, 1);
	w_run(w);
	assert_int_equal(mm_core_plan_set(w->core, 1, plain->tenant, 1, 0, &max), MM_E_RANGE);
	assert_int_equal(max, 0);
}

/* ---- ends ---- */

static void who_lingers_is_killed(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	p = tenant_with(0, 4, 2);
	w_disconnect(w, p);
	pass_ms(1900);
	assert_true(p->alive);
	assert_int_equal(story_stats().pages[MM_PAGE_REVOKING], 9);
	pass_ms(200);
	assert_false(p->alive);
	assert_int_equal(story_stats().kills, 1);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 40);
}

static void pages_enter_another_domain_created_anew(void **state)
{
	struct w_proc *a, *b;

	(void)state;
	story_begin(MM_POLICY_REMAP, 40);
	a = tenant_with(0, 8, 4);
	a->forks = true;
	w_kill(w, a);
	w_run(w);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 40);
	b = tenant_with(1, 8, 4);
	assert_false(b->model_ready);
	assert_true(story_stats().pages[MM_PAGE_QUARANTINE] > 0); /* the forked process maps them */
	pass_ms(9000);
	assert_true(b->model_ready);
	w_kill(w, b);
	w_run(w);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 40);
}

/* ---- bad requests ---- */

static const struct {
	const char *name;
	struct mm_msg msg;
	int want;
} requests[] = {
	{ "nop", { .opcode = MM_OP_NOP }, 0 },
	{ "unknown", { .opcode = MM_OP_COUNT }, MM_E_PROTOCOL },
	{ "the shell's own", { .opcode = MM_OP_MODEL_OPEN }, MM_E_PROTOCOL },
	{ "flags", { .opcode = MM_OP_NOP, .flags = 1 }, MM_E_PROTOCOL },
	{ "reserved", { .opcode = MM_OP_NOP, .reserved = 1 }, MM_E_PROTOCOL },
	{ "unused argument", { .opcode = MM_OP_KV_WANT, .arg = { 1, 0, 1 } }, MM_E_PROTOCOL },
	{ "an epoch", { .opcode = MM_OP_KV_WANT, .epoch = 1 }, MM_E_PROTOCOL },
	{ "a result", { .opcode = MM_OP_PARKED, .result = -1 }, MM_E_PROTOCOL },
	{ "stale PARKED", { .opcode = MM_OP_PARKED, .epoch = 1 }, 0 },
	{ "PARKED unasked", { .opcode = MM_OP_PARKED, .epoch = 2 }, MM_E_PROTOCOL },
	{ "stale COMMITTED", { .opcode = MM_OP_COMMITTED }, 0 },
	{ "COMMITTED unasked", { .opcode = MM_OP_COMMITTED, .epoch = 1 }, MM_E_PROTOCOL },
	{ "more than declared", { .opcode = MM_OP_KV_WANT, .arg = { 11 } }, MM_E_PROTOCOL },
	{ "release of nothing", { .opcode = MM_OP_KV_RELEASE, .arg = { 3 } }, MM_E_PROTOCOL },
	{ "release beyond", { .opcode = MM_OP_KV_RELEASE, .arg = { 10 } }, MM_E_PROTOCOL },
	{ "release of a chunk", { .opcode = MM_OP_KV_RELEASE, .arg = { 0 } }, 0 },
	{ "release of it again", { .opcode = MM_OP_KV_RELEASE, .arg = { 0 } }, MM_E_PROTOCOL },
};

static void bad_requests_are_distinguished(void **state)
{
	struct w_proc *p, *early;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, 40);
	p = tenant_with(0, 4, 2);
	w_kv_declare(w, p, 1, 1, 10, 0);
	w_kv_want(w, p, 2);
	w_run(w);
	for (size_t i = 0; i < MM_ARRAY_SIZE(requests); i++) {
		int r = mm_core_on_request(w->core, w->now_ns, p->tenant, &requests[i].msg);
		struct mm_action a;

		if (r != requests[i].want)
			fail_msg("%s: %d", requests[i].name, r);
		while (mm_core_next(w->core, &a))
			if (a.kind == MM_ACT_JOB)
				w->job[w->jobs++] = a.msg;
	}
	early = w_join(w, 0, 0);
	early->hostile = true;
	assert_int_equal(w_send(w, early, &(struct mm_msg){ .opcode = MM_OP_KV_WANT }),
			 MM_E_PROTOCOL);
	/* Ids of former tenants and ids that never existed are not found. */
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, 0x7fff0003,
					    &(struct mm_msg){ .opcode = MM_OP_NOP }),
			 0);
	assert_int_equal(mm_core_on_job_done(w->core, w->now_ns, 12345, 0), MM_E_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pool_is_created_and_scrubbed),
		TEST(a_model_runs_and_leaves),
		TEST(refusals_name_their_reason),
		TEST(what_cannot_fit_is_known_before_it_is_read),
		TEST(a_model_has_as_many_pages_as_the_table_has_entries),
		TEST(a_model_waits_for_what_others_lend),
		TEST(a_model_that_never_fits_is_refused_after_a_while),
		TEST(kv_is_pooled_or_split_by_policy),
		TEST(a_full_account_is_denied_but_its_demand_stands),
		TEST(denials_are_not_repeated_in_haste),
		TEST(chunks_are_granted_from_where_they_are_wanted),
		TEST(idle_lends_most_recently_active_first),
		TEST(empty_chunks_of_the_idle_come_before_layers),
		TEST(what_is_asked_again_is_not_owed_twice),
		TEST(layers_return_after_the_burst),
		TEST(a_lender_that_runs_again_is_served_first),
		TEST(operator_changes_plans_while_it_runs),
		TEST(operator_changes_slots_while_it_runs),
		TEST(layers_leave_where_there_is_time),
		TEST(slots_are_chosen_by_step_time),
		TEST(what_the_operator_took_goes_back_under_any_policy),
		TEST(two_layers_are_too_few_to_lend),
		TEST(an_impossible_plan_is_refused),
		TEST(who_lingers_is_killed),
		TEST(pages_enter_another_domain_created_anew),
		TEST(bad_requests_are_distinguished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
