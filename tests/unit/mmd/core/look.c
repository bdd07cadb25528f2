/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a core that events have built: facts as they are, claims bounded, times smoothed. */
#undef NDEBUG
#include "libclient/base/base.h"
#include "mmd/core/book/account.h"
#include "mmd/core/market/look.h"
#include "mmd/core/market/market.h"
#include "mmd/core/plan/sets.h"
#include "tests/unit/mmd/core/story.h"

#define LAYERS      8
#define LAYER_PAGES 3
#define LOOK_MS     50
#define SHARE       5
#define CHUNKS      40 /* of two pages each */

/* Returns what a decision would see of @p now. */
static const struct mm_view_tenant *view_of(const struct w_proc *p)
{
	struct mm_view *v = &w->core->market->view;

	mm_core_on_tick(w->core, w->now_ns);
	w_drain(w);
	mm_market_look(w->core);
	for (uint32_t i = 0; i < v->n_tenants; i++)
		if (w->core->tenant[v->tenant[i].index].id == p->tenant)
			return &v->tenant[i];
	return NULL;
}

static void says(struct w_proc *p, const struct mm_tenant_stats *stats)
{
	mm_core_on_stats(w->core, w->now_ns, p->tenant, stats);
	w_drain(w);
}

static struct w_proc *tenant_in(uint32_t account)
{
	struct w_proc *p = tenant_with(account, LAYERS, LAYER_PAGES);

	w_kv_declare(w, p, 2, 1, CHUNKS, SHARE);
	w_run(w);
	return p;
}

static void facts_are_as_they_are(void **state)
{
	const struct mm_view_tenant *t;
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 200);
	p = tenant_in(0);
	w_kv_want(w, p, 7);
	pass_ms(20);
	t = view_of(p);
	assert_int_equal(t->layers, LAYERS);
	assert_int_equal(t->layer_pages, LAYER_PAGES);
	assert_int_equal(t->fixed_pages, 1);
	assert_int_equal(t->alpha, 0);
	assert_int_equal(t->alpha_next, 0);
	assert_true(t->lends && t->alpha_max == LAYERS - 1);
	assert_int_equal(t->chunk_pages, 2);
	assert_int_equal(t->kv_held, 7);
	assert_int_equal(t->kv_share, SHARE);
	assert_int_equal(t->kv_limit, CHUNKS);
	assert_true(t->gives && t->reclaims && !t->asked);
	assert_int_equal(t->turn, MM_VIEW_NO_TURNS);
	assert_int_equal(w->core->market->view.pages, 200);
	assert_int_equal(w->core->market->view.free, 200 - 1 - LAYERS * LAYER_PAGES - 14);
	assert_int_equal(w->core->market->view.joined, 0);
}

/* A plan that was set by hand is none of the market's, and layers away have pages for a slot. */
static void plans_by_hand_are_not_lent(void **state)
{
	const struct mm_view_tenant *t;
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 200);
	p = tenant_in(0);
	story_plan_by_hand(p, 4);
	w_run(w);
	story_steps(p, 3);
	w_run(w);
	t = view_of(p);
	assert_int_equal(t->alpha, 4);
	assert_false(t->lends);
	assert_int_equal(t->alpha_max, 0);
	assert_int_equal(t->points, 0);
	assert_true(t->cycling > 4 && t->slot_pages >= LAYER_PAGES);
}

static void claims_are_bounded(void **state)
{
	const uint64_t most = UINT64_MAX;
	const struct mm_view_tenant *t;
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 200);
	p = tenant_in(0);
	w_kv_want(w, p, 6);
	pass_ms(20);
	assert_int_equal(view_of(p)->kv_used, 6); /* it has said nothing: all may be in use */
	says(p, &(struct mm_tenant_stats){ .step_seq = 2,
					   .kv_chunks_used = most,
					   .waiting = most,
					   .running = most,
					   .kv_chunks_queued = most,
					   .requests_done = most,
					   .requests_late = most });
	t = view_of(p);
	assert_int_equal(t->kv_used, 6);
	assert_int_equal(t->kv_queued, CHUNKS);
	assert_int_equal(t->running, UINT32_MAX);
	assert_int_equal(t->waiting, UINT32_MAX);
	assert_true(t->kv_wanted <= CHUNKS);
	assert_int_equal(t->late_permille, 0); /* its account has no goal */
	says(p, &(struct mm_tenant_stats){ .step_seq = 4, .kv_chunks_used = 0 });
	assert_int_equal(view_of(p)->kv_used, 0);
}

/* Late requests count where the operator has set a goal, an eighth with each sample. */
static void late_requests_count_for_a_goal(void **state)
{
	struct mm_core_quota quota = { .goal_ttft_ns = MM_NS_PER_S };
	struct mm_tenant_stats s = { .step_seq = 2, .requests_done = 10, .requests_late = 10 };
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 200);
	w_account_add(w, 0, 0, &quota);
	p = tenant_in(0);
	says(p, &s);
	w_tick(w, LOOK_MS * MM_NS_PER_MS);
	assert_int_equal(view_of(p)->late_permille, 125);
	/* Nothing that ended since: it stays. */
	w_tick(w, LOOK_MS * MM_NS_PER_MS);
	assert_int_equal(view_of(p)->late_permille, 125);
	s.requests_done = 20;
	says(p, &s);
	w_tick(w, LOOK_MS * MM_NS_PER_MS);
	assert_int_equal(view_of(p)->late_permille, 125 - 15);
	/* Totals that fall are a lie: they count as nothing. */
	s.requests_done = s.requests_late = 0;
	says(p, &s);
	w_tick(w, LOOK_MS * MM_NS_PER_MS);
	assert_int_equal(view_of(p)->late_permille, 125 - 15);
}

/* Hunger follows what lacks KV by an eighth every 50 ms, however often a view is written. */
static void hunger_is_smoothed(void **state)
{
	uint32_t before = 0;
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 1 + LAYERS * LAYER_PAGES + 8);
	p = tenant_in(0);
	w_kv_want(w, p, CHUNKS); /* only a few fit */
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t now;

		says(p, &(struct mm_tenant_stats){
				.step_seq = 2 + 2 * i, .running = 1, .kv_chunks_used = p->held });
		w_tick(w, LOOK_MS * MM_NS_PER_MS);
		now = view_of(p)->hungry_permille;
		assert_int_equal(view_of(p)->hungry_permille, now); /* no time has passed */
		assert_true(now > before && now <= before + (1000 - before) / 8 + 2);
		before = now;
	}
	assert_in_range(before, 550, 750);
	w_kv_want(w, p, 0);
	for (uint32_t i = 0; i < 60; i++) {
		says(p, &(struct mm_tenant_stats){ .step_seq = 40 + 2 * i, .running = 1 });
		w_tick(w, LOOK_MS * MM_NS_PER_MS);
		assert_true(view_of(p)->hungry_permille <= before);
		before = view_of(p)->hungry_permille;
	}
	assert_int_equal(before, 0);
}

static void await_asked(struct w_proc *p)
{
	for (uint32_t i = 0; i < 1000 && !view_of(p)->asked; i++)
		w_tick(w, 5 * MM_NS_PER_MS);
	assert_true(view_of(p)->asked);
}

/*
 * Asked for the first time, with time to answer: it gives. Asked again, it does not, until two
 * seconds after that time.
 */
static void who_does_not_answer_is_deaf_for_a_while(void **state)
{
	uint64_t from_ns;
	struct w_proc *p, *q;

	(void)state;
	begin_with("reclaim-ms=200,mode=beside", 2 * (1 + LAYERS * LAYER_PAGES) + 30);
	p = tenant_in(0);
	q = tenant_in(0);
	w_kv_want(w, p, 10);
	pass_ms(20);
	says(p, &(struct mm_tenant_stats){ .step_seq = 2 }); /* all of its chunks are empty */
	w_kv_want(w, q, CHUNKS);
	w_run(w);
	await_asked(p);
	from_ns = w->now_ns;
	assert_true(view_of(p)->gives);
	w_tick(w, 190 * MM_NS_PER_MS);
	assert_true(view_of(p)->asked && view_of(p)->gives);
	w_tick(w, 20 * MM_NS_PER_MS);
	assert_true(!view_of(p)->gives && view_of(p)->reclaims);
	w_tick(w, 2100 * MM_NS_PER_MS);
	assert_true(!view_of(p)->asked && !view_of(p)->gives);
	w_kv_want(w, q, CHUNKS);
	await_asked(p);
	assert_in_range(w->now_ns - from_ns, 2300 * MM_NS_PER_MS, 2600 * MM_NS_PER_MS);
	/* One that gives a part is not deaf. */
	w_run(w);
	w_kv_release(w, p);
	assert_true(view_of(p)->gives);
	w_tick(w, 210 * MM_NS_PER_MS);
	assert_true(view_of(p)->gives);
}

/* Those that wait for a turn have places in the order in which they get it. */
static void places_follow_the_order_of_turns(void **state)
{
	struct w_proc *p[3];

	(void)state;
	begin_with("mode=turns", 200);
	for (uint32_t i = 0; i < 3; i++) {
		p[i] = tenant_in(0);
		w_turn_join(w, p[i], MM_TURN_QUANTUM, 0, 0);
	}
	w_run(w);
	for (uint32_t i = 0; i < 3; i++) {
		w_turn_want(w, p[2 - i]);
		pass_ms(5);
	}
	assert_int_equal(view_of(p[2])->turn, MM_VIEW_HOLDS);
	assert_int_equal(view_of(p[1])->turn, MM_VIEW_WAITS);
	assert_int_equal(view_of(p[1])->place, 0);
	assert_int_equal(view_of(p[0])->place, 1);
	assert_int_equal(w->core->market->view.joined, 3);
	w_turn_done(w, p[2]);
	w_run(w);
	assert_int_equal(view_of(p[2])->turn, MM_VIEW_AWAY);
	assert_int_equal(view_of(p[1])->turn, MM_VIEW_HOLDS);
	assert_int_equal(view_of(p[0])->place, 0);
}

/* A decision of a dilated run sees the times of the device. */
static void times_are_not_dilated(void **state)
{
	struct w_proc *p;

	(void)state;
	begin_with("time-scale=10", 200);
	p = tenant_in(0);
	says(p, &(struct mm_tenant_stats){
			.step_seq = 2, .samples = 1, .step_ns = 400 * MM_NS_PER_MS, .running = 1 });
	assert_int_equal(view_of(p)->step_ns, 40 * MM_NS_PER_MS);
	assert_int_equal(view_of(p)->active_ns, w->now_ns / 10);
	assert_int_equal(w->core->market->view.now_ns, w->now_ns / 10);
}

/* Pages of one that ends are not there to be decided about until they are proven free. */
static void pages_of_those_that_end_do_not_count(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 200);
	tenant_in(0);
	p = tenant_in(1);
	w_kv_want(w, p, 10);
	pass_ms(20);
	mm_market_look(w->core);
	assert_int_equal(w->core->market->view.pages, 200);
	w_disconnect(w, p);
	mm_market_look(w->core);
	assert_int_equal(w->core->market->view.n_tenants, 1);
	assert_int_equal(w->core->market->view.pages, 200 - 1 - LAYERS * LAYER_PAGES - 20);
	w_kill(w, p);
	w_run(w);
	mm_market_look(w->core);
	assert_int_equal(w->core->market->view.pages, 200);
}

/* Returns a tenant of eight chunks whose cold blocks have 512 bytes each. */
static struct w_proc *tenant_with_cold(uint32_t floor)
{
	struct mm_core_opts opts = { .pages = 200,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .swap_max_bytes = 1 << 20,
				     .cold_max_permille = 1500 };
	struct w_proc *p;

	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
	p = tenant_in(0);
	w_kv_want(w, p, 8);
	pass_ms(20);
	assert_int_equal(w_swap_open(w, p, 1 << 20), 0);
	w_cold_open(w, p, 64, 1000, floor);
	w_run(w);
	assert_int_equal(p->cold.open_result, 0);
	return p;
}

static void cold_blocks_are_bounded_by_the_share(void **state)
{
	uint32_t max;
	struct w_proc *p;

	(void)state;
	p = tenant_with_cold(0);
	assert_int_equal(view_of(p)->cold_most, SHARE * 2 * 4096 * 3 / 2 / 512);
	/* The operator is not bound by the knob, nor is what it asked for at least. */
	assert_int_equal(mm_core_cold_set(w->core, w->now_ns, p->tenant, 7, &max), 0);
	w_drain(w);
	assert_int_equal(view_of(p)->cold_most, 1000);
	w_done(w);
	p = tenant_with_cold(300);
	assert_int_equal(view_of(p)->cold_most, 300);
}

static void a_window_is_in_use(void **state)
{
	struct mm_tenant_stats stats = { .step_seq = 2, .samples = 1, .kv_chunks_used = 1 };
	struct w_proc *p = tenant_with_cold(0);

	(void)state;
	says(p, &stats);
	assert_int_equal(view_of(p)->kv_used, 1);
	w_cold_window(w, p, 2, 4);
	pass_ms(20);
	assert_int_equal(p->cold.window_result, 0);
	assert_int_equal(view_of(p)->kv_used, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(facts_are_as_they_are),
		TEST(plans_by_hand_are_not_lent),
		TEST(claims_are_bounded),
		TEST(late_requests_count_for_a_goal),
		TEST(hunger_is_smoothed),
		TEST(who_does_not_answer_is_deaf_for_a_while),
		TEST(places_follow_the_order_of_turns),
		TEST(times_are_not_dilated),
		TEST(pages_of_those_that_end_do_not_count),
		TEST(cold_blocks_are_bounded_by_the_share),
		TEST(a_window_is_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
