/* SPDX-License-Identifier: Apache-2.0 */
/* Tallies: since when a chunk was demanded, classes of times, and claims that exceed the time. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "tests/unit/mmd/core/story.h"

/* A core of one tenant and one account, of which only the tallies are used. */
static struct mm_account account;
static struct mm_core core;
static struct mm_c_tenant tenant;
static struct mm_core_tally *const tallies[] = { &tenant.tally.happened, &account.tally,
						 &core.tally };

static int core_begin(void **state)
{
	(void)state;
	account = (struct mm_account){ .used = true };
	core = (struct mm_core){ .account = &account, .accounts_end = 1, .opts.time_scale = 1 };
	tenant = (struct mm_c_tenant){ .life = MM_LIFE_LIVE };
	return 0;
}

static void at_ms(uint64_t ms)
{
	core.now_ns = ms * MM_NS_PER_MS;
}

static void waits_expect(uint64_t grants, uint64_t sum_ms)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(tallies); i++) {
		assert_int_equal(tallies[i]->grants, grants);
		assert_int_equal(tallies[i]->grant.sum_ns, sum_ms * MM_NS_PER_MS);
	}
}

/* Demands of different times are granted in their order; the last ones are taken back first. */
static void test_waits(void **state)
{
	(void)state;
	at_ms(10);
	mm_c_tally_waits(&core, &tenant, 2);
	at_ms(20);
	mm_c_tally_waits(&core, &tenant, 5);
	at_ms(30);
	mm_c_tally_waits(&core, &tenant, 5);
	mm_c_tally_waits(&core, &tenant, 4);
	at_ms(40);
	mm_c_tally_granted(&core, &tenant); /* 30 ms */
	waits_expect(1, 30);
	mm_c_tally_waits(&core, &tenant, 3);
	at_ms(50);
	mm_c_tally_granted(&core, &tenant); /* 40 ms */
	mm_c_tally_granted(&core, &tenant); /* 30 ms */
	mm_c_tally_granted(&core, &tenant); /* 30 ms */
	waits_expect(4, 130);
	assert_int_equal(tenant.tally.waits, 0);
	mm_c_tally_granted(&core, &tenant); /* not demanded: no wait */
	waits_expect(5, 130);
	assert_int_equal(account.tally.grant.count[0], 1);
	assert_int_equal(account.tally.grant.count[7], 4); /* up to 50 ms */
}

static void test_many_waits(void **state)
{
	uint32_t sum = 0;

	(void)state;
	for (uint32_t i = 1; i <= 3 * MM_WAITS_MAX; i++) {
		at_ms(i);
		mm_c_tally_waits(&core, &tenant, 2 * i);
	}
	assert_int_equal(tenant.tally.waits, MM_WAITS_MAX);
	for (uint32_t i = 0; i < tenant.tally.waits; i++)
		sum += tenant.tally.wait[i].chunks;
	assert_int_equal(sum, 6 * MM_WAITS_MAX);
	mm_c_tally_waits(&core, &tenant, 0);
	assert_int_equal(tenant.tally.waits, 0);
}

/* Each bound counts as within its class, and one more as beyond. */
static void test_classes(void **state)
{
	uint64_t sum = 0;

	(void)state;
	for (uint32_t i = 0; i < MM_TALLY_BOUNDS; i++) {
		assert_true(!i || mm_c_tally_bounds_ns[i] > mm_c_tally_bounds_ns[i - 1]);
		for (uint64_t more = 0; more < 2; more++) {
			core.now_ns = 0;
			mm_c_tally_waits(&core, &tenant, 1);
			core.now_ns = mm_c_tally_bounds_ns[i] + more;
			mm_c_tally_granted(&core, &tenant);
			sum += core.now_ns;
		}
	}
	assert_int_equal(core.tally.grant.count[0], 1);
	for (uint32_t i = 1; i < MM_TALLY_BOUNDS; i++)
		assert_int_equal(core.tally.grant.count[i], 2);
	assert_int_equal(core.tally.grant.count[MM_TALLY_BOUNDS], 1);
	assert_int_equal(core.tally.grant.sum_ns, sum);
}

static void report_at(uint64_t ms, const struct mm_tenant_stats *stats)
{
	at_ms(ms);
	mm_c_tally_report(&core, &tenant, stats);
	tenant.load.last = *stats;
	tenant.load.known = true;
}

static void test_claims(void **state)
{
	struct mm_tenant_stats s = { .steps = 1000, .stall_total_ns = 5 * MM_NS_PER_S };

	(void)state;
	report_at(100, &s); /* the first report is where counting begins */
	s.steps += 3;
	s.samples = 3;
	s.step_ns = 30 * MM_NS_PER_MS;
	s.stall_ns = 2 * MM_NS_PER_MS;
	s.stall_total_ns += 6 * MM_NS_PER_MS;
	report_at(200, &s);
	report_at(300, &s); /* nothing new */
	for (size_t i = 0; i < MM_ARRAY_SIZE(tallies); i++) {
		assert_int_equal(tallies[i]->steps, 3);
		assert_int_equal(tallies[i]->stall_ns, 6 * MM_NS_PER_MS);
		assert_int_equal(tallies[i]->step.sum_ns, 30 * MM_NS_PER_MS);
		assert_int_equal(tallies[i]->stall.count[3], 1); /* up to 2 ms */
	}
}

/* A tenant that claims anything moves no total faster than the clock, and none back. */
static void test_lies(void **state)
{
	struct mm_tenant_stats s = { .steps = 7 };
	const struct mm_core_tally *y = &account.tally;

	(void)state;
	report_at(100, &s);
	s = (struct mm_tenant_stats){ .steps = UINT64_MAX,
				      .samples = 1,
				      .step_ns = UINT64_MAX,
				      .stall_ns = UINT64_MAX,
				      .stall_total_ns = UINT64_MAX };
	report_at(110, &s);
	assert_int_equal(y->steps, 10000);
	assert_int_equal(y->stall_ns, 10 * MM_NS_PER_MS);
	assert_int_equal(y->step.sum_ns, 1010 * MM_NS_PER_MS);
	assert_int_equal(y->stall.sum_ns, y->step.sum_ns);
	s = (struct mm_tenant_stats){ .samples = 1 };
	report_at(120, &s);
	assert_int_equal(y->steps, 10000);
	assert_int_equal(y->stall_ns, 10 * MM_NS_PER_MS);
}

/* In a core: what its tenants did is in their accounts' tallies and the pool's, and stays there. */
static void test_accounts_keep(void **state)
{
	struct mm_core_tally one, both, all;
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, 40);
	for (uint32_t i = 0; i < 2; i++) {
		p = w_join(w, 3, MM_FEAT_KNOWN);
		w_kv_declare(w, p, 1, 1, 8, 1);
		w_kv_want(w, p, 3);
		w_run(w);
		assert_true(mm_core_tally_tenant(w->core, p->tenant, &one));
		assert_int_equal(one.grants, 3);
		while (p->held)
			assert_true(w_kv_release(w, p));
		assert_true(mm_core_tally_tenant(w->core, p->tenant, &one));
		assert_int_equal(one.released, 3);
		w_kill(w, p);
		w_run(w);
		assert_false(mm_core_tally_tenant(w->core, p->tenant, &one));
	}
	assert_true(mm_core_tally_account(w->core, 1003, &both));
	mm_core_tally(w->core, &all);
	assert_int_equal(both.joins, 2);
	assert_int_equal(both.grants, 6);
	assert_memory_equal(&both, &all, sizeof(all));
	assert_int_equal(all.grants, story_stats().grants);
	assert_false(mm_core_tally_account(w->core, 1004, &both));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_waits, core_begin),
		cmocka_unit_test_setup(test_many_waits, core_begin),
		cmocka_unit_test_setup(test_classes, core_begin),
		cmocka_unit_test_setup(test_claims, core_begin),
		cmocka_unit_test_setup(test_lies, core_begin),
		TEST(test_accounts_keep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
