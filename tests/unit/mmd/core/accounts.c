/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts in the world of tests/sim: mins, maxes, weights, priorities, domains, entries. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "tests/sim/world.h"

static struct world world;
static struct world *w = &world;

static void begin_with(const struct mm_core_opts *opts)
{
	w_init(w, opts, 1);
}

static void world_begin(enum mm_policy policy, uint32_t pages)
{
	begin_with(&(struct mm_core_opts){ .pages = pages, .page_bytes = 4096, .policy = policy });
}

static struct mm_core_stats world_stats(void)
{
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	return s;
}

static void world_xfer_up(void)
{
	w_xfer_up(w);
	w_run(w);
}

static int teardown(void **state)
{
	(void)state;
	w_done(w);
	return 0;
}

static struct mm_core_account account_named(uint32_t i)
{
	struct mm_core_account a;

	assert_true(mm_core_account_find(w->core, 1000 + i, &a));
	return a;
}

/* A tenant with KV only, that demands @chunks of @pages pages. */
static struct w_proc *tenant_with_kv(uint32_t of, uint32_t pages, uint32_t chunks)
{
	struct w_proc *p = w_join(w, of, MM_FEAT_KNOWN);

	assert_non_null(p);
	w_kv_declare(w, p, pages, 1, 40, 0);
	if (chunks)
		w_kv_want(w, p, chunks);
	w_run(w);
	return p;
}

static void wait_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 10) {
		w_tick(w, 10 * MM_NS_PER_MS);
		w_run(w);
	}
}

static void a_min_is_kept(void **state)
{
	struct mm_core_quota q = { .min_pages = 12 };
	struct w_proc *a, *b;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 1, 1, &q);
	world_xfer_up();
	a = tenant_with_kv(0, 1, 40);
	assert_int_equal(a->held, 28);
	assert_int_equal(a->denied, -ENOSPC);
	b = tenant_with_kv(1, 1, 12);
	assert_int_equal(b->held, 12);
	assert_int_equal(b->denied, 0);
	/* Beyond its min it competes with the others. */
	w_kv_want(w, b, 13);
	wait_ms(50);
	assert_int_equal(b->held, 12);
	assert_int_equal(b->denied, -ENOSPC);
	for (uint32_t i = 0; i < 5; i++)
		w_kv_release(w, b);
	w_kv_want(w, b, 0);
	wait_ms(50);
	assert_int_equal(a->held, 28);
}

/* With a static share of KV a min is kept, too, but a tenant gets no more than its share. */
static void a_share_bounds_a_min(void **state)
{
	static const enum mm_policy policies[] = { MM_POLICY_RECOMPUTE, MM_POLICY_SWAP };

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(policies); i++) {
		struct mm_core_quota q = { .min_pages = 30 };
		struct w_proc *a, *b;

		world_begin(policies[i], 40);
		w_account_add(w, 1, 1, &q);
		world_xfer_up();
		a = w_join(w, 0, MM_FEAT_KNOWN);
		w_kv_declare(w, a, 4, 1, 10, 10);
		w_run(w);
		assert_int_equal(a->held, 2); /* of a share of 10; the rest is kept for the min */
		b = w_join(w, 1, MM_FEAT_KNOWN);
		w_kv_declare(w, b, 4, 1, 10, 3);
		w_kv_want(w, b, 10);
		wait_ms(50);
		assert_int_equal(b->held, 3);
		assert_int_equal(b->denied, -ENOSPC);
		assert_false(account_named(1).pending);
		if (i + 1 < MM_ARRAY_SIZE(policies))
			w_done(w);
	}
}

/* Pages that a hostile tenant released but still maps do not count for an account's min. */
static void a_min_is_not_kept_in_pages_that_somebody_may_hold(void **state)
{
	struct mm_core_quota q = { .min_pages = 10 };
	struct mm_core_account gone;
	struct w_proc *a, *b;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 20);
	w_account_add(w, 1, 1, &q);
	world_xfer_up();
	a = tenant_with_kv(0, 1, 10);
	a->hostile = true;
	while (w_kv_release(w, a))
		;
	w_kv_want(w, a, 0);
	b = tenant_with_kv(1, 1, 10);
	assert_int_equal(b->held, 10);
	/* Only the pages that a still maps are left; recreating them fails, and a stays charged. */
	w_kv_want(w, b, 12);
	wait_ms(50);
	assert_int_equal(b->held, 10);
	assert_true(account_named(0).quarantined > 0);
	w_kill(w, a);
	wait_ms(1500);
	assert_int_equal(b->held, 12);
	assert_false(mm_core_account_find(w->core, 1000, &gone));
}

static void a_raised_min_comes_as_pages_come_back(void **state)
{
	struct mm_core_quota q = { .min_pages = 30 };
	struct w_proc *a;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	world_xfer_up();
	a = tenant_with_kv(0, 1, 30);
	assert_int_equal(w_quota_set(w, 1, &q), MM_QUOTA_DEFERRED);
	assert_true(account_named(1).pending);
	for (uint32_t i = 0; i < 20; i++) {
		w_kv_release(w, a);
		w_kv_want(w, a, 40); /* pages that come back are not granted again */
	}
	wait_ms(50);
	assert_int_equal(a->held, 10);
	assert_false(account_named(1).pending);
	assert_int_equal(tenant_with_kv(1, 1, 30)->held, 30);
}

static void quotas_are_checked(void **state)
{
	static const struct {
		struct mm_core_quota q;
		enum mm_quota_outcome want;
	} cases[] = {
		{ { .min_pages = 10, .max_pages = 9 }, MM_QUOTA_CONFLICT },
		{ { .min_pages = 41 }, MM_QUOTA_CONFLICT },
		{ { .min_pages = 31 }, MM_QUOTA_CONFLICT }, /* account 0 has 10 */
		{ { .weight = MM_WEIGHT_MAX + 1 }, MM_QUOTA_CONFLICT },
		{ { .priority = MM_PRIORITY_MAX + 1 }, MM_QUOTA_CONFLICT },
		{ { .on_timeout = MM_ON_TIMEOUTS }, MM_QUOTA_CONFLICT },
		{ { .min_pages = 30 }, MM_QUOTA_APPLIED },
	};
	struct mm_core_quota q = { .min_pages = 10 };
	uint64_t before;

	(void)state;
	world_begin(MM_POLICY_REMAP, 40);
	world_xfer_up();
	assert_int_equal(w_quota_set(w, 0, &q), MM_QUOTA_APPLIED);
	before = account_named(0).revision;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		assert_int_equal(w_quota_set(w, 1, &cases[i].q), cases[i].want);
	assert_int_equal(account_named(0).revision, before);
	assert_int_equal(account_named(1).revision, before + 1);
	assert_int_equal(account_named(1).quota.max_pages, 40);
	assert_int_equal(account_named(1).quota.weight, MM_WEIGHT_DEFAULT);
}

static void a_stale_revision_changes_nothing(void **state)
{
	struct mm_core_quota q = { .max_pages = 10 };
	uint64_t revision;

	(void)state;
	world_begin(MM_POLICY_REMAP, 40);
	world_xfer_up();
	assert_int_equal(mm_core_quota_set(w->core, w->now_ns, 1000, 1, &q), MM_QUOTA_STALE);
	assert_int_equal(w_quota_set(w, 0, &q), MM_QUOTA_APPLIED);
	revision = account_named(0).revision;
	q.max_pages = 20;
	assert_int_equal(mm_core_quota_set(w->core, w->now_ns, 1000, revision, &q),
			 MM_QUOTA_APPLIED);
	q.max_pages = 30;
	assert_int_equal(mm_core_quota_set(w->core, w->now_ns, 1000, revision, &q), MM_QUOTA_STALE);
	assert_int_equal(account_named(0).quota.max_pages, 20);
}

static void weights_share_what_is_scarce(void **state)
{
	struct mm_core_quota heavy = { .weight = 300 }, light = { .weight = 100 };
	struct w_proc *a, *b, *hog;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 0, 0, &light);
	w_account_add(w, 1, 1, &heavy);
	world_xfer_up();
	hog = tenant_with_kv(2, 1, 40);
	assert_int_equal(hog->held, 40);
	a = tenant_with_kv(0, 1, 20);
	b = tenant_with_kv(1, 1, 20);
	w_kv_want(w, hog, 0);
	for (uint32_t i = 0; i < 16; i++) {
		w_kv_release(w, hog);
		w_run(w);
	}
	assert_int_equal(a->held + b->held, 16);
	assert_int_equal(a->held, 4);
	assert_int_equal(b->held, 12);
}

static void priority_comes_first(void **state)
{
	struct mm_core_quota high = { .priority = 1 };
	struct w_proc *a, *b, *hog;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 1, 1, &high);
	world_xfer_up();
	hog = tenant_with_kv(2, 1, 40);
	a = tenant_with_kv(0, 1, 20);
	b = tenant_with_kv(1, 1, 6);
	w_kv_want(w, hog, 0);
	for (uint32_t i = 0; i < 8; i++) {
		w_kv_release(w, hog);
		w_run(w);
		assert_int_equal(b->held, MM_MIN(i + 1, 6u));
	}
	assert_int_equal(a->held, 2);
}

/* The lender of lower priority lends first, although it was active before the other one. */
static void the_lower_priority_lends_first(void **state)
{
	struct mm_core_quota low = { .priority = 0 }, high = { .priority = 5 };
	struct w_proc *a, *b, *c;

	(void)state;
	world_begin(MM_POLICY_REMAP, 60);
	w_account_add(w, 0, 0, &low);
	w_account_add(w, 1, 1, &high);
	world_xfer_up();
	a = w_join(w, 0, MM_FEAT_KNOWN);
	w_model(w, a, 1, 8, 3, 1);
	w_run(w);
	wait_ms(50);
	b = w_join(w, 1, MM_FEAT_KNOWN);
	w_model(w, b, 2, 8, 3, 1);
	w_run(w);
	wait_ms(300);
	c = tenant_with_kv(2, 1, 16);
	wait_ms(100);
	assert_int_equal(c->held, 16);
	assert_true(mm_core_plan(w->core, a->tenant)->alpha > 0);
	assert_int_equal(mm_core_plan(w->core, b->tenant)->alpha, 0);
}

/* Memory within a min is not lent to other accounts. */
static void a_min_is_not_taken(void **state)
{
	struct mm_core_quota q = { .min_pages = 25 };
	struct w_proc *a, *c;

	(void)state;
	world_begin(MM_POLICY_REMAP, 40);
	w_account_add(w, 0, 0, &q);
	world_xfer_up();
	a = w_join(w, 0, MM_FEAT_KNOWN);
	w_model(w, a, 1, 8, 3, 1);
	w_run(w);
	wait_ms(300);
	c = tenant_with_kv(1, 1, 30);
	wait_ms(300);
	assert_int_equal(c->held, 15);
	assert_int_equal(mm_core_plan(w->core, a->tenant)->alpha, 0);
	/* Demands of the account itself are met from its own layers. */
	c = tenant_with_kv(0, 1, 4);
	wait_ms(300);
	assert_int_equal(c->held, 4);
	assert_true(mm_core_plan(w->core, a->tenant)->alpha > 0);
}

static void joined_accounts_share_pages(void **state)
{
	struct mm_core_quota q = { 0 };
	struct w_proc *a, *b;
	uint32_t before[40], same = 0;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 0, 0, &q);
	w_account_add(w, 1, 0, &q);
	world_xfer_up();
	a = tenant_with_kv(0, 1, 40);
	memcpy(before, a->kv_view, sizeof(before));
	while (w_kv_release(w, a))
		;
	w_kv_want(w, a, 0);
	w_run(w);
	b = tenant_with_kv(1, 1, 40);
	assert_int_equal(b->held, 40);
	/*
	 * The world checks domains; the accounts that had the pages before show that none is new.
	 */
	for (uint32_t i = 0; i < 40; i++)
		same += w->page[before[i]].domains == 1;
	assert_int_equal(same, 40);
	assert_int_equal(account_named(0).charged, 0);
	assert_int_equal(account_named(1).charged, 40);
}

/*
 * A free page covers the min of another account of the domain that had it. When mmd loses its
 * descriptor it is created anew, before anybody is to give a page.
 */
static void a_lost_page_of_a_domain_is_replaced(void **state)
{
	struct w_proc *a, *b;
	uint32_t page = 0;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 0, 0, &(struct mm_core_quota){ 0 });
	w_account_add(w, 1, 0, &(struct mm_core_quota){ .min_pages = 12 });
	w_account_add(w, 2, 2, &(struct mm_core_quota){ 0 });
	world_xfer_up();
	a = tenant_with_kv(0, 1, 12);
	b = tenant_with_kv(2, 1, 28);
	assert_int_equal(b->held, 16); /* 12 are kept for the min */
	w_kv_want(w, a, 0);
	while (w_kv_release(w, a))
		;
	w_run(w);
	wait_ms(50);
	assert_int_equal(a->held, 0);
	assert_int_equal(b->held, 28); /* for the min there are those that account 0 had */
	while (mm_core_page(w->core, page, NULL) != MM_PAGE_FREE)
		page++;
	assert_true(w_page_unheld(w, page)); /* the world checks mins after each event */
	assert_int_equal(account_named(0).quarantined, 1);
	w_run(w);
	wait_ms(50);
	assert_int_equal(account_named(0).quarantined, 0);
	assert_int_equal(world_stats().pages[MM_PAGE_FREE], 12);
	assert_int_equal(b->held, 28);
	assert_int_equal(b->reclaim, 0);
}

/* A free page is out of use as soon as its descriptor is lost, also while nothing is scrubbed. */
static void a_lost_page_is_out_of_use_at_once(void **state)
{
	struct w_proc *a;
	uint32_t page = 0;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 0, 0, &(struct mm_core_quota){ .min_pages = 40 });
	world_xfer_up();
	a = tenant_with_kv(0, 1, 30);
	w_kv_want(w, a, 10);
	for (uint32_t i = 0; i < 10; i++)
		assert_true(w_kv_release(w, a));
	w_run(w);
	w_xfer_kill(w, false);
	for (uint32_t i = 0; i < 10; i++)
		assert_true(w_kv_release(w, a));
	assert_int_equal(world_stats().pages[MM_PAGE_DIRTY], 10);
	while (mm_core_page(w->core, page, NULL) != MM_PAGE_FREE)
		page++;
	assert_true(w_page_unheld(w, page));
	assert_int_equal(mm_core_page(w->core, page, NULL), MM_PAGE_QUARANTINE);
	world_xfer_up();
	wait_ms(2000);
	assert_int_equal(world_stats().pages[MM_PAGE_FREE], 30);
	assert_int_equal(a->held, 10);
}

/* Accounts come and go, and each was the last to have some pages: entries do not run out. */
static void entries_of_the_gone_are_used_again(void **state)
{
	(void)state;
	world_begin(MM_POLICY_ELASTIC, W_PAGES);
	world_xfer_up();
	for (uint32_t i = 0; i < 3 * MM_CORE_ACCOUNTS_DEFAULT; i++) {
		struct mm_core_join join = { .account = 5000 + i, .features = MM_FEAT_KNOWN };
		struct w_proc *p = &w->proc[0];
		struct mm_core_account a;
		uint32_t tenant;

		assert_int_equal(mm_core_on_join(w->core, w->now_ns, &join, &tenant), 0);
		memset(p, 0, sizeof(*p));
		memset(p->kv_view, 0xff, sizeof(p->kv_view));
		p->used = p->alive = p->connected = true;
		p->tenant = tenant;
		w->domain[0] = i % 32; /* not the domain of the accounts beside it */
		w_drain(w);
		w_kv_declare(w, p, 1, 1, 2, 0);
		w_kv_want(w, p, 2);
		w_run(w);
		assert_int_equal(p->held, 2);
		assert_true(mm_core_account_find(w->core, 5000 + i, &a));
		assert_int_equal(a.charged, 2);
		w_bye(w, p);
		w_run(w);
	}
}

/* ---- the ladder ---- */

static struct w_proc *over_max(enum mm_on_timeout on_timeout)
{
	struct mm_core_quota q = { .max_pages = 4, .on_timeout = on_timeout };
	struct w_proc *p = tenant_with_kv(0, 1, 10);

	assert_int_equal(p->held, 10);
	w_kv_want(w, p, 0);
	assert_int_equal(w_quota_set(w, 0, &q), MM_QUOTA_DEFERRED);
	return p;
}

static void who_gives_in_time_is_left_alone(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_RECOMPUTE, 40);
	world_xfer_up();
	p = w_join(w, 0, MM_FEAT_KNOWN);
	w_kv_declare(w, p, 1, 1, 40, 10);
	w_kv_want(w, p, 10);
	w_run(w);
	assert_int_equal(p->held, 10);
	assert_int_equal(w_quota_set(w, 0, &(struct mm_core_quota){ .max_pages = 4 }),
			 MM_QUOTA_DEFERRED);
	w_run(w);
	assert_int_equal(p->reclaim, 6);
	for (uint32_t i = 0; i < 6; i++)
		w_kv_release(w, p);
	wait_ms(100);
	assert_false(account_named(0).pending);
	wait_ms(30000);
	assert_true(p->alive);
	assert_int_equal(world_stats().kills + world_stats().overdue, 0);
}

static void who_does_not_is_killed(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	world_xfer_up();
	p = over_max(MM_ON_TIMEOUT_KILL);
	wait_ms(9000);
	assert_true(p->alive);
	wait_ms(2000);
	assert_false(p->alive);
	assert_int_equal(world_stats().kills, 1);
	assert_int_equal(world_stats().pages[MM_PAGE_FREE], 40);
	assert_false(account_named(0).pending);
}

static void or_its_pages_are_overdue(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	world_xfer_up();
	p = over_max(MM_ON_TIMEOUT_QUARANTINE);
	wait_ms(30000);
	assert_true(p->alive);
	assert_int_equal(world_stats().kills, 0);
	assert_int_equal(world_stats().overdue, 1);
	assert_int_equal(account_named(0).overdue_pages, 6);
	assert_int_equal(account_named(0).charged, 10);
	for (uint32_t i = 0; i < 6; i++)
		w_kv_release(w, p);
	wait_ms(100);
	assert_int_equal(account_named(0).overdue_pages, 0);
	assert_false(account_named(0).pending);
}

static void a_stopped_one_gets_more_time(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	world_xfer_up();
	p = over_max(MM_ON_TIMEOUT_KILL);
	p->frozen = true;
	wait_ms(60000);
	assert_true(p->alive);
	wait_ms(30000);
	assert_false(p->alive);
}

static void our_own_lateness_is_nobodys_fault(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	world_xfer_up();
	p = over_max(MM_ON_TIMEOUT_KILL);
	wait_ms(5000);
	w_tick(w, 60 * MM_NS_PER_S); /* the core was away */
	assert_true(p->alive);
	assert_int_equal(world_stats().deadlines_restarted, 1);
	wait_ms(5000);
	w_xfer_kill(w, false);
	wait_ms(60000);
	assert_true(p->alive);
	w_xfer_up(w);
	wait_ms(9000);
	assert_true(p->alive);
	wait_ms(2000);
	assert_false(p->alive);
}

static void many_kills_are_our_own_fault(void **state)
{
	uint32_t alive = 0;
	bool open;
	uint32_t max;

	(void)state;
	begin_with(&(struct mm_core_opts){
		.pages = 40, .page_bytes = 4096, .policy = MM_POLICY_ELASTIC, .kill_max = 2 });
	world_xfer_up();
	for (uint32_t i = 0; i < 4; i++)
		w_kv_want(w, tenant_with_kv(i, 1, 5), 0);
	for (uint32_t i = 0; i < 4; i++)
		w_quota_set(w, i, &(struct mm_core_quota){ .max_pages = 1 });
	wait_ms(15000);
	W_FOREACH(w, p)
		alive += p->alive;
	assert_int_equal(alive, 2);
	assert_int_equal(world_stats().kills, 2);
	assert_true(world_stats().kills_withheld >= 2);
	mm_core_kills(w->core, &open, &max);
	assert_true(open && max == 2);
}

/* A reclaim of layers: a tenant that parks gives them, one that never ends its step is killed. */
static void layers_are_asked_for_too(void **state)
{
	struct mm_core_quota q = { .max_pages = 16 };
	struct w_proc *p[2];

	(void)state;
	world_begin(MM_POLICY_REMAP, 80);
	world_xfer_up();
	for (uint32_t i = 0; i < 2; i++) {
		p[i] = w_join(w, i, MM_FEAT_KNOWN);
		w_model(w, p[i], 1 + i, 8, 3, 1);
		w_run(w);
	}
	w_proc_step(w, p[1]);
	assert_true(p[1]->machine.open);
	wait_ms(300);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(w_quota_set(w, i, &q), MM_QUOTA_DEFERRED);
	wait_ms(20000);
	assert_true(p[0]->alive);
	assert_true(mm_core_plan(w->core, p[0]->tenant)->alpha > 0);
	assert_false(account_named(0).pending);
	assert_false(p[1]->alive);
	assert_int_equal(world_stats().kills, 1);
}

static void an_end_without_death_is_quarantined(void **state)
{
	struct mm_core_quota q = { .on_timeout = MM_ON_TIMEOUT_QUARANTINE };
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 40);
	w_account_add(w, 0, 0, &q);
	world_xfer_up();
	p = tenant_with_kv(0, 1, 10);
	w_disconnect(w, p);
	wait_ms(5000);
	assert_true(p->alive);
	assert_int_equal(world_stats().kills, 0);
	assert_int_equal(account_named(0).quarantined, 10);
	w_kill(w, p);
	wait_ms(3000);
	assert_int_equal(account_named(0).quarantined, 0);
	assert_int_equal(world_stats().pages[MM_PAGE_FREE], 40);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_min_is_kept),
		TEST(a_share_bounds_a_min),
		TEST(a_min_is_not_kept_in_pages_that_somebody_may_hold),
		TEST(a_raised_min_comes_as_pages_come_back),
		TEST(quotas_are_checked),
		TEST(a_stale_revision_changes_nothing),
		TEST(weights_share_what_is_scarce),
		TEST(priority_comes_first),
		TEST(the_lower_priority_lends_first),
		TEST(a_min_is_not_taken),
		TEST(joined_accounts_share_pages),
		TEST(a_lost_page_of_a_domain_is_replaced),
		TEST(a_lost_page_is_out_of_use_at_once),
		TEST(entries_of_the_gone_are_used_again),
		TEST(who_gives_in_time_is_left_alone),
		TEST(who_does_not_is_killed),
		TEST(or_its_pages_are_overdue),
		TEST(a_stopped_one_gets_more_time),
		TEST(our_own_lateness_is_nobodys_fault),
		TEST(many_kills_are_our_own_fault),
		TEST(layers_are_asked_for_too),
		TEST(an_end_without_death_is_quarantined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
