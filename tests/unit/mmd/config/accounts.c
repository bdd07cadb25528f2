/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/config/accounts.h"
#include "mmd/core/core.h"

static struct mm_accounts parse(const char *text)
{
	struct mm_accounts accounts;
	char error[MM_ACCOUNT_ERROR_BYTES] = "";

	if (mm_accounts_parse_text(text, &accounts, error) != 0)
		fail_msg("%s", error);
	return accounts;
}

static void test_fields(void **state)
{
	struct mm_accounts all = parse(
		"[{\"name\": \"batch\", \"cgroup\": \"/batch.slice\", \"min\": \"1K\", \"max\": "
		"4096,"
		" \"weight\": 50, \"priority\": 3, \"host_max\": \"2G\", \"connections_max\": 5,"
		" \"on_timeout\": \"quarantine\", \"domain\": \"d\","
		" \"turn_quantum_max_ms\": 500, \"turn_priority_max\": 7,"
		" \"goal_ttft_ms\": 2000, \"goal_tpot_us\": 75500},"
		" {\"name\": \"web\", \"uid\": 7}]");

	(void)state;
	assert_int_equal(all.n, 2);
	assert_string_equal(all.account[0].name, "batch");
	assert_string_equal(all.account[0].cgroup, "/batch.slice");
	assert_string_equal(all.account[0].domain, "d");
	assert_int_equal(all.account[0].min_bytes, 1024);
	assert_int_equal(all.account[0].max_bytes, 4096);
	assert_int_equal(all.account[0].weight, 50);
	assert_int_equal(all.account[0].priority, 3);
	assert_int_equal(all.account[0].host_max_bytes, UINT64_C(2) << 30);
	assert_int_equal(all.account[0].connections_max, 5);
	assert_int_equal(all.account[0].on_timeout, MM_ON_TIMEOUT_QUARANTINE);
	assert_int_equal(all.account[0].turn_quantum_max_ms, 500);
	assert_int_equal(all.account[0].turn_priority_max, 7);
	assert_int_equal(all.account[0].goal_ttft_ms, 2000);
	assert_int_equal(all.account[0].goal_tpot_us, 75500);
	assert_int_equal(all.account[1].goal_ttft_ms, 0);
	assert_int_equal(all.account[1].goal_tpot_us, 0);
	assert_int_equal(all.account[1].by, MM_BY_UID);
	assert_int_equal(all.account[1].id, 7);
	assert_int_equal(all.account[1].weight, MM_WEIGHT_DEFAULT);
	assert_true(all.account[1].host_max_bytes == MM_ACCOUNT_ANY);
	assert_true(all.account[1].turn_quantum_max_ms == MM_ACCOUNT_ANY);
	assert_true(all.account[1].turn_priority_max == MM_ACCOUNT_ANY);
}

/* The text that one role formats is parsed by another one. */
static void the_format_is_read_back(void **state)
{
	struct mm_accounts all =
		parse("[{\"name\": \"a\", \"cgroup\": \"/\", \"min\": 1, \"domain\": \"x\"},"
		      " {\"name\": \"b\", \"gid\": 0, \"host_max\": 0, \"turn_priority_max\": 0, "
		      "\"domain\": \"x\"},"
		      " {\"name\": \"c\", \"uid\": 0, \"on_timeout\": \"quarantine\"}]");
	char *text = mm_accounts_format(&all);
	struct mm_accounts again;

	(void)state;
	assert_non_null(text);
	again = parse(text);
	free(text);
	assert_int_equal(again.n, 3);
	assert_memory_equal(&again, &all, sizeof(all));
}

static const struct {
	const char *text, *error;
} bad[] = {
	{ "{}", "list" },
	{ "[", "column" },
	{ "[7]", "number 1 is no object" },
	{ "[{\"uid\": 1}]", "number 1: name is missing" },
	{ "[{\"name\": \"a\"}]", "'a': one of cgroup, uid and gid" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"gid\": 1}]", "more than one" },
	{ "[{\"name\": \"a b\", \"uid\": 1}]", "name: is not" },
	{ "[{\"name\": \"uid:1\", \"uid\": 1}]", "name: is not" },
	{ "[{\"name\": \"\", \"uid\": 1}]", "name: is not" },
	{ "[{\"name\": \"a\", \"uid\": -1}]", "'a': uid: is not a number" },
	{ "[{\"name\": \"a\", \"uid\": 4294967295}]", "uid: is not a number" },
	{ "[{\"name\": \"a\", \"uid\": \"root\"}]", "uid: is not a number" },
	{ "[{\"name\": \"a\", \"cgroup\": \"x\"}]", "cgroup: is not" },
	{ "[{\"name\": \"a\", \"cgroup\": \"/x/\"}]", "cgroup: is not" },
	{ "[{\"name\": \"a\", \"cgroup\": \"/x/../y\"}]", "cgroup: is not" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"min\": \"1.5G\"}]", "min: is not a size" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"min\": -1}]", "min: is not a size" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"min\": 2, \"max\": 1}]", "min is more than max" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"max\": \"99999T\"}]", "max: more than" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"weight\": 0}]", "weight: is not a number, 1 to" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"priority\": 1001}]", "priority: is not" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"turn_quantum_max_ms\": 0}]",
	  "turn_quantum_max_ms: is not a number, 1 to 60000" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"turn_priority_max\": 8}]",
	  "turn_priority_max: is not a number, 0 to 7" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"goal_ttft_ms\": 3600001}]",
	  "goal_ttft_ms: is not a number, 0 to 3600000" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"goal_tpot_us\": -1}]",
	  "goal_tpot_us: is not a number, 0 to 3600000000" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"on_timeout\": \"maim\"}]", "on_timeout: is not" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"maximum\": 1}]", "unknown key 'maximum'" },
	{ "[{\"name\": \"a\", \"uid\": 1, \"uid\": 2}]", "column" },
	{ "[{\"name\": \"a\", \"uid\": 1}, {\"name\": \"a\", \"uid\": 2}]",
	  "the name is there twice" },
	{ "[{\"name\": \"a\", \"gid\": 1}, {\"name\": \"b\", \"gid\": 1}]",
	  "'b': matches the same" },
};

static void what_is_wrong_is_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++) {
		char error[MM_ACCOUNT_ERROR_BYTES] = "";
		struct mm_accounts all = { .n = 77 };

		assert_int_equal(mm_accounts_parse_text(bad[i].text, &all, error), -EINVAL);
		assert_int_equal(all.n, 77);
		if (!strstr(error, bad[i].error))
			fail_msg("%s: '%s' lacks '%s'", bad[i].text, error, bad[i].error);
	}
}

static void too_many(void **state)
{
	char text[64 * (MM_ACCOUNTS_NAMED_MAX + 1) + 2] = "[", error[MM_ACCOUNT_ERROR_BYTES];
	struct mm_accounts all;
	size_t at = 1;

	(void)state;
	for (int i = 0; i <= MM_ACCOUNTS_NAMED_MAX; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "%s{\"name\":\"a%d\",\"uid\":%d}", i ? "," : "", i, i);
	strcpy(text + at, "]");
	assert_int_equal(mm_accounts_parse_text(text, &all, error), -EINVAL);
}

static void mins_fit_the_pool(void **state)
{
	struct mm_accounts all = parse("[{\"name\": \"a\", \"uid\": 1, \"min\": 600},"
				       " {\"name\": \"b\", \"uid\": 2, \"min\": 500}]");
	char error[MM_ACCOUNT_ERROR_BYTES];

	(void)state;
	assert_null(mm_accounts_check(&all, 1100, error));
	assert_non_null(mm_accounts_check(&all, 1099, error));
	assert_non_null(strstr(error, "1100"));
}

static void the_most_specific_wins(void **state)
{
	static const uint32_t groups[] = { 50, 51 };
	const struct mm_accounts all = parse(
		"[{\"name\": \"supplementary\", \"gid\": 51}, {\"name\": \"primary\", \"gid\": 9},"
		" {\"name\": \"user\", \"uid\": 7}, {\"name\": \"top\", \"cgroup\": \"/a\"},"
		" {\"name\": \"deep\", \"cgroup\": \"/a/b\"}]");
	const struct {
		struct mm_account_peer peer;
		const char *want;
	} cases[] = {
		{ { .uid = 7, .gid = 9, .cgroup = "/a/b" }, "deep" },
		{ { .uid = 7, .gid = 9, .cgroup = "/a/b/c" }, "deep" },
		{ { .uid = 7, .gid = 9, .cgroup = "/a/bc" }, "top" },
		{ { .uid = 7, .gid = 9, .cgroup = "/ab" }, "user" },
		{ { .uid = 7, .gid = 9, .cgroup = "/../a/b" }, "user" },
		{ { .uid = 7, .gid = 9 }, "user" },
		{ { .uid = 8, .gid = 9, .groups = groups, .n_groups = 2 }, "primary" },
		{ { .uid = 8, .gid = 8, .groups = groups, .n_groups = 2 }, "supplementary" },
		{ { .uid = 8, .gid = 8, .groups = groups, .n_groups = 1 }, NULL },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		int found = mm_accounts_match(&all, &cases[i].peer);

		assert_int_equal(found, cases[i].want ? mm_accounts_find(&all, cases[i].want) : -1);
	}
}

/* One account after the other takes all that it may. */
static void half_of_what_is_left(void **state)
{
	const uint64_t want[] = { 32, 16, 8, 4, 2, 1, 1, 0, 0 };
	uint64_t used = 0;

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++) {
		uint64_t own = 0;

		while (mm_accounts_share(64, used, own) > own) {
			own++;
			used++;
			/*
			 * An account with two or more places leaves as many to newcomers as it has.
			 */
			assert_true(own < 2 || 64 - used >= own);
		}
		assert_int_equal(own, want[i]);
	}
	assert_int_equal(used, 64);
	/* An account keeps its places when others come, but gets no more. */
	assert_true(mm_accounts_share(64, 64, 32) <= 32);
	assert_int_equal(mm_accounts_share(1, 0, 0), 1);
}

static void the_root_cgroup_is_everybody(void **state)
{
	struct mm_accounts all = parse("[{\"name\": \"all\", \"cgroup\": \"/\"}]");
	struct mm_account_peer peer = { .uid = 1, .cgroup = "/x/y" };

	(void)state;
	assert_int_equal(mm_accounts_match(&all, &peer), 0);
	assert_int_equal(mm_accounts_find(&all, "none"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(the_format_is_read_back),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(too_many),
		cmocka_unit_test(mins_fit_the_pool),
		cmocka_unit_test(the_most_specific_wins),
		cmocka_unit_test(the_root_cgroup_is_everybody),
		cmocka_unit_test(half_of_what_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
