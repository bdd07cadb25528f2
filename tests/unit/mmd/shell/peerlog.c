/* SPDX-License-Identifier: Apache-2.0 */
/* How many lines a peer may log, and how those that are suppressed are reported. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mmd/shell/peerlog.h"

#define NOW UINT64_C(1000000000000)

static struct mm_peerlog peerlog;

static unsigned int lines_allowed(uint64_t key, unsigned int lines, uint64_t now_ns)
{
	unsigned int allowed = 0;

	for (unsigned int i = 0; i < lines; i++)
		allowed += mm_peerlog_allows(&peerlog, key, now_ns);
	return allowed;
}

static void test_burst_then_rate(void **state)
{
	(void)state;
	mm_peerlog_init(&peerlog);
	assert_int_equal(lines_allowed(7, 100000, NOW), MM_PEERLOG_BURST);
	assert_int_equal(lines_allowed(7, 1000, NOW + 10 * MM_PEERLOG_LINE_NS), 10);
	/* Other accounts are not affected. */
	assert_int_equal(lines_allowed(8, 1000, NOW), MM_PEERLOG_BURST);
	assert_int_equal(lines_allowed(MM_PEERLOG_UID(7), 1000, NOW), MM_PEERLOG_BURST);
	/* After some time the burst is full again. */
	assert_int_equal(lines_allowed(7, 1000, 2 * NOW), MM_PEERLOG_BURST);
}

static void test_reported_once_in_a_while(void **state)
{
	(void)state;
	mm_peerlog_init(&peerlog);
	assert_true(mm_peerlog_deadline(&peerlog) == UINT64_MAX);
	lines_allowed(7, MM_PEERLOG_BURST, NOW);
	assert_true(mm_peerlog_deadline(&peerlog) == UINT64_MAX);
	lines_allowed(7, 5, NOW);
	assert_true(mm_peerlog_deadline(&peerlog) == NOW + MM_PEERLOG_REPORT_NS);
	mm_peerlog_tick(&peerlog, NOW + MM_PEERLOG_REPORT_NS - 1);
	assert_int_equal(peerlog.bucket[0].suppressed, 5);
	mm_peerlog_tick(&peerlog, NOW + MM_PEERLOG_REPORT_NS);
	assert_int_equal(peerlog.bucket[0].suppressed, 0);
	assert_true(mm_peerlog_deadline(&peerlog) == UINT64_MAX);
}

/*
 * With more users than buckets, as one person with many uids may have, users that find none share
 * one.
 */
static void test_many_users(void **state)
{
	unsigned int allowed = 0;
	uint64_t key;

	(void)state;
	mm_peerlog_init(&peerlog);
	for (key = 0; key < MM_PEERLOG_BUCKETS; key++)
		assert_int_equal(lines_allowed(key, 1000, NOW), MM_PEERLOG_BURST);
	for (; key < 100 * MM_PEERLOG_BUCKETS; key++)
		allowed += lines_allowed(key, 10, NOW + 1000);
	assert_int_equal(allowed, MM_PEERLOG_BURST);
	assert_true(peerlog.bucket[MM_PEERLOG_BUCKETS].suppressed > 0);
	/* A bucket that is full again is given to another user. */
	assert_int_equal(lines_allowed(key, 1000, NOW + MM_PEERLOG_BURST * MM_PEERLOG_LINE_NS),
			 MM_PEERLOG_BURST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_burst_then_rate),
		cmocka_unit_test(test_reported_once_in_a_while),
		cmocka_unit_test(test_many_users),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
