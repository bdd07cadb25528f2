/* SPDX-License-Identifier: Apache-2.0 */
/* The load of `mmbench decide` is busy, and the same each time. Its duration is not tested. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/mmbench/decide_load.h"

static struct mm_decide_opts decide_opts(uint32_t tenants, enum mm_policy policy)
{
	return (struct mm_decide_opts){ .tenants = tenants,
					.layers = 80,
					.layer_pages = 2,
					.chunks = 12,
					.step_ns = 5 * MM_NS_PER_MS,
					.page_ns = 40000,
					.events = 20000,
					.seed = 1,
					.runs = 1,
					.policy = policy };
}

static void busy_and_the_same(void **state)
{
	const struct mm_decide_opts o = decide_opts(4, MM_POLICY_REMAP);
	static struct mm_decide_result a, b;
	uint64_t sum = 0;

	(void)state;
	assert_int_equal(mm_decide_run(&o, &a), 0);
	assert_int_equal(mm_decide_run(&o, &b), 0);
	assert_int_equal(a.all.n, o.events);
	assert_true(a.steps && a.grants && a.plan_changes);
	assert_int_equal(a.steps, b.steps);
	assert_int_equal(a.grants, b.grants);
	assert_int_equal(a.plan_changes, b.plan_changes);
	for (uint32_t i = 0; i < MM_DECIDE_KINDS; i++) {
		assert_true(a.kind[i].n);
		assert_int_equal(a.kind[i].n, b.kind[i].n);
		sum += a.kind[i].n;
	}
	assert_int_equal(sum, o.events);
	assert_true(a.decisions > 100);
	assert_int_equal(a.decisions, b.decisions);
	assert_true(a.decide.n >= a.decisions / 16 && a.decide.n == a.reference.n);
	assert_true(a.decide_share > 0);
}

/* Standing up, and each kind of event, ends for as many tenants as the core can have. */
static void a_thousand_tenants_end(void **state)
{
	struct mm_decide_opts o = decide_opts(1000, MM_POLICY_REMAP);
	static struct mm_decide_result r;

	(void)state;
	o.layers = 4;
	o.layer_pages = 1;
	o.events = 1000;
	assert_int_equal(mm_decide_run(&o, &r), 0);
	assert_int_equal(r.all.n, o.events);
	assert_true(r.decide.n);
}

/* Policies that lend no layers change no plan. */
static void other_policies_change_no_plan(void **state)
{
	const struct mm_decide_opts o = decide_opts(2, MM_POLICY_ELASTIC);
	static struct mm_decide_result r;

	(void)state;
	assert_int_equal(mm_decide_run(&o, &r), 0);
	assert_true(r.grants);
	assert_int_equal(r.plan_changes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_and_the_same),
		cmocka_unit_test(other_policies_change_no_plan),
		cmocka_unit_test(a_thousand_tenants_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
