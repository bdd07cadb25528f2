/* SPDX-License-Identifier: Apache-2.0 */
/* Memory follows targets: the order, what is kept for layers, parts of a return, what is asked. */
#undef NDEBUG
#include "libclient/base/base.h"
#include "mmd/core/book/account.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/reconcile.h"
#include "tests/unit/mmd/core/story.h"

#define LAYERS      8
#define LAYER_PAGES 3
#define MODEL_PAGES (1 + LAYERS * LAYER_PAGES)
#define AWAY        4
#define SPARE       20

static struct w_proc *a, *b, *c;
static struct mm_target want[MM_CORE_TENANTS_MAX];
static bool as_needed;

/* Decides what a test says. */
static void decide_as_said(const struct mm_view *v, struct mm_market_memory *memory,
			   struct mm_targets *targets)
{
	(void)memory;
	for (uint32_t i = 0; i < v->n_tenants; i++) {
		const struct mm_view_tenant *t = &v->tenant[i];

		targets->tenant[t->index] = want[t->index];
		if (!t->lends)
			targets->tenant[t->index].alpha = t->alpha_next;
	}
	targets->as_needed = as_needed;
	targets->chunks_for_layers = false;
	targets->keep_free = 0;
	targets->beside = true;
	targets->turn_of = MM_NO_TENANT;
	targets->turn_ns = 0;
	targets->again_ns = v->now_ns + 10 * MM_NS_PER_MS;
}

static struct mm_target *said(const struct w_proc *p)
{
	return &want[MM_TENANT_INDEX(p->tenant)];
}

static struct mm_c_tenant *core_tenant(const struct w_proc *p)
{
	return &w->core->tenant[MM_TENANT_INDEX(p->tenant)];
}

/* Three tenants of equal models, and SPARE pages beside; each has what it has. */
static void three_tenants(void)
{
	static struct mm_policy_ops ops;

	begin_with("mode=beside,reclaim-ms=200", 3 * MODEL_PAGES + SPARE);
	ops = *mm_policy_get(MM_POLICY_REMAP);
	ops.decide = decide_as_said;
	w->core->market->policy = &ops;
	as_needed = false;
	for (uint32_t i = 0; i < MM_CORE_TENANTS_MAX; i++)
		want[i] = (struct mm_target){ .kv_most = UINT32_MAX,
					      .kv_keep = UINT32_MAX,
					      .first = MM_FIRST_COMPUTES };
	a = tenant_with(0, LAYERS, LAYER_PAGES);
	b = tenant_with(0, LAYERS, LAYER_PAGES);
	c = tenant_with(1, LAYERS, LAYER_PAGES);
	for (uint32_t i = 0; i < 3; i++)
		w_kv_declare(w, &w->proc[i], 1, 1, 100, 5);
	pass_ms(20);
}

/* Lets time pass; processes run steps, since a plan changes between two. */
static void goes_on(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 10) {
		pass_ms(10);
		for (uint32_t k = 0; k < 3; k++)
			if (!w->proc[k].frozen)
				story_steps(&w->proc[k], 1);
	}
}

static void lends(struct w_proc *p, uint32_t alpha)
{
	said(p)->alpha = alpha;
	goes_on(50);
	assert_int_equal(story_plan(p)->alpha, alpha);
}

static void has_kv(struct w_proc *p, uint32_t chunks)
{
	w_kv_want(w, p, chunks);
	goes_on(30);
	assert_int_equal(p->held, chunks);
}

/* Asks @p for all but @chunks; it answers as the test says. */
static void is_asked_down_to(struct w_proc *p, uint32_t chunks)
{
	said(p)->kv_keep = said(p)->kv_most = chunks;
	pass_ms(20);
	assert_int_equal(p->reclaim, p->held - chunks);
}

static void gives(struct w_proc *p, uint32_t chunks)
{
	for (uint32_t i = 0; i < chunks; i++)
		assert_true(w_kv_release(w, p));
}

/* Layers return in the order of `first`, all of one before the next one's. */
static void layers_return_in_order(void **state)
{
	(void)state;
	three_tenants();
	lends(a, AWAY);
	lends(b, AWAY);
	has_kv(c, SPARE + AWAY * LAYER_PAGES);
	said(a)->first = MM_FIRST_NEXT;
	said(b)->first = MM_FIRST_HOLDER;
	is_asked_down_to(c, 0);
	said(a)->alpha = said(b)->alpha = 0;
	goes_on(10);
	/* The free pages suffice for neither: they are kept for the first, not split. */
	assert_int_equal(story_plan(a)->alpha + story_plan(b)->alpha, 2 * AWAY);
	gives(c, 8);
	goes_on(20);
	assert_int_equal(story_plan(b)->alpha, 0);
	assert_int_equal(story_plan(a)->alpha, AWAY);
	gives(c, c->held);
	goes_on(40);
	assert_int_equal(story_plan(a)->alpha, 0);
}

/* Layers are taken from the last; where only what is needed is taken, nothing without need. */
static void layers_are_taken_from_the_last(void **state)
{
	(void)state;
	three_tenants();
	as_needed = true;
	said(a)->alpha = said(b)->alpha = AWAY;
	said(b)->first = MM_FIRST_IDLE;
	goes_on(50);
	assert_int_equal(story_plan(a)->alpha + story_plan(b)->alpha, 0);
	w_kv_want(w, c, SPARE + 2 * LAYER_PAGES);
	goes_on(60);
	assert_int_equal(story_plan(a)->alpha, 0);
	assert_in_range(story_plan(b)->alpha, 2, AWAY);
	assert_int_equal(c->held, SPARE + 2 * LAYER_PAGES);
	w_kv_want(w, c, SPARE + 2 * AWAY * LAYER_PAGES);
	goes_on(80);
	assert_int_equal(story_plan(a)->alpha, AWAY);
	assert_int_equal(story_plan(b)->alpha, AWAY);
	assert_int_equal(c->held, SPARE + 2 * AWAY * LAYER_PAGES);
}

/* Pages that are kept for layers are not granted as KV; another target leaves them to anybody. */
static void pages_that_are_kept_are_not_granted(void **state)
{
	(void)state;
	three_tenants();
	lends(a, AWAY);
	has_kv(b, 1);
	has_kv(c, SPARE + AWAY * LAYER_PAGES - 1);
	said(a)->first = MM_FIRST_ENTITLED;
	is_asked_down_to(c, 5);
	said(a)->alpha = 0;
	goes_on(10);
	gives(c, 5);
	w_kv_want(w, b, 6);
	goes_on(30);
	assert_int_equal(b->held, 1);
	assert_true(core_tenant(a)->lends->earmark.pages > 5);
	said(a)->alpha = AWAY;
	w_kv_want(w, b, 6);
	goes_on(30);
	assert_int_equal(b->held, 6);
	assert_int_equal(core_tenant(a)->lends->earmark.pages, 0);
}

/* One without any KV gets its first chunk of them, and no more. */
static void the_first_chunk_comes_before_layers(void **state)
{
	(void)state;
	three_tenants();
	lends(a, AWAY);
	has_kv(c, SPARE + AWAY * LAYER_PAGES);
	said(a)->first = MM_FIRST_ENTITLED;
	is_asked_down_to(c, 5);
	said(a)->alpha = 0;
	goes_on(10);
	gives(c, 5);
	w_kv_want(w, b, 4);
	goes_on(30);
	assert_int_equal(b->held, 1);
}

/* When nothing more comes, as many return as there are pages for; the view says what could not. */
static void a_part_returns_when_nothing_more_comes(void **state)
{
	(void)state;
	three_tenants();
	lends(a, AWAY);
	has_kv(c, SPARE + AWAY * LAYER_PAGES);
	said(a)->alpha = 0;
	said(a)->first = MM_FIRST_ENTITLED;
	goes_on(20);
	said(c)->kv_most = c->held - 2 * LAYER_PAGES;
	gives(c, 2 * LAYER_PAGES);
	goes_on(30);
	assert_int_equal(story_plan(a)->alpha, AWAY - 2);
	/* The rest gets no pages: after a second nothing is kept, or expected for a while. */
	goes_on(1100);
	assert_int_equal(story_plan(a)->alpha, AWAY - 2);
	assert_true(core_tenant(a)->lends->stuck_until_ns > w->now_ns);
	gives(c, 1);
	w_kv_want(w, b, 1);
	goes_on(30);
	assert_int_equal(b->held, 1);
}

/* Chunks beyond kv_keep are asked for once until the time to answer is over. */
static void chunks_are_asked_for_once(void **state)
{
	struct mm_core_stats s;
	uint64_t reclaims;

	(void)state;
	three_tenants();
	has_kv(c, 12);
	reclaims = story_stats().reclaims;
	said(c)->kv_keep = 7;
	pass_ms(30);
	assert_int_equal(c->reclaim, 5);
	pass_ms(150);
	s = story_stats();
	assert_int_equal(s.reclaims, reclaims + 1);
	w_kv_release(w, c);
	w_kv_release(w, c);
	pass_ms(60);
	assert_int_equal(story_stats().reclaims, reclaims + 2);
	assert_int_equal(c->reclaim, 3);
	while (c->reclaim)
		w_kv_release(w, c);
	pass_ms(500);
	assert_int_equal(c->held, 7);
	assert_int_equal(story_stats().reclaims, reclaims + 2);
}

/* Nothing is taken that an account needs within its min, whatever the target says. */
static void nothing_is_taken_within_a_min(void **state)
{
	struct mm_core_quota quota = { .min_pages = MODEL_PAGES + 6 };

	(void)state;
	three_tenants();
	has_kv(c, 12);
	assert_int_equal(w_quota_set(w, 1, &quota), MM_QUOTA_APPLIED);
	said(c)->kv_keep = 0;
	pass_ms(30);
	assert_int_equal(c->reclaim, 6);
	while (c->reclaim)
		w_kv_release(w, c);
	pass_ms(500);
	assert_int_equal(c->held, 6);
	assert_int_equal(c->reclaim, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(layers_return_in_order),
		TEST(layers_are_taken_from_the_last),
		TEST(pages_that_are_kept_are_not_granted),
		TEST(the_first_chunk_comes_before_layers),
		TEST(a_part_returns_when_nothing_more_comes),
		TEST(chunks_are_asked_for_once),
		TEST(nothing_is_taken_within_a_min),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
