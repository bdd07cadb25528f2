/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "mmd/common/audit.h"

static const struct {
	const char *text, *json;
} fields[] = {
	{ "", "{}" },
	{ "a=1 b=x c=\"two words\"", "{\"a\":1,\"b\":\"x\",\"c\":\"two words\"}" },
	{ "n=-7 hex=0x9 zero=0 lead=007 real=1.5", "{\"n\":-7,\"hex\":\"0x9\",\"zero\":0,"
						   "\"lead\":\"007\",\"real\":\"1.5\"}" },
	{ "big=123456789012345678 more=1234567890123456789",
	  "{\"big\":123456789012345678,\"more\":\"1234567890123456789\"}" },
	{ "empty= quoted=\"\" minus=-", "{\"empty\":\"\",\"quoted\":\"\",\"minus\":\"-\"}" },
	/* names of tenants may have anything in them */
	{ "name=a b c=1", "{\"name\":\"a\",\"c\":1}" },
	{ "reason=\"cut in the mid", "{\"reason\":\"cut in the mid\"}" },
	{ "= == x==y \"q\"=1", "{\"x\":\"=y\",\"\\\"q\\\"\":1}" },
	{ "a=1 a=2", "{\"a\":2}" },
	{ "a-key-that-is-longer-than-any-of-ours-is=1 b=2", "{\"b\":2}" },
};

static void test_fields(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(fields); i++) {
		json_t *json = mm_audit_fields(fields[i].text);
		mm_cleanup(mm_free_ptr) char *text = json_dumps(json, JSON_COMPACT);

		assert_string_equal(text, fields[i].json);
		json_decref(json);
	}
}

static void test_sink(void **state)
{
	(void)state;
	assert_int_equal(mm_audit_sink(""), MM_AUDIT_OFF);
	assert_int_equal(mm_audit_sink("off"), MM_AUDIT_OFF);
	assert_int_equal(mm_audit_sink("stderr"), MM_AUDIT_STDERR);
	assert_int_equal(mm_audit_sink("/var/log/x"), MM_AUDIT_FILE);
}

/* A pipe that is full takes a line whole or not at all; the tap counts what it did not take. */
static void test_full_pipe(void **state)
{
	const int saved = dup(STDERR_FILENO);
	static char text[1 << 20];
	int fds[2], taken = 0;
	ssize_t n;

	(void)state;
	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	mm_log_init("keeper", MM_LOG_ERROR);
	mm_audit_init(MM_AUDIT_FILE);
	mm_audit_tap(MM_LOG_INFO, "load.numa", "node=1"); /* is not audited */
	for (int i = 0; i < 2000; i++)
		mm_audit_tap(MM_LOG_INFO, "mmd.stopping", "pid=1");
	n = read(fds[0], text, sizeof(text) - 1);
	assert_true(n > 0 && text[n - 1] == '\n');
	for (char *line = text; line < text + n; line = strchr(line, '\n') + 1, taken++)
		assert_memory_equal(line, MM_AUDIT_BEGIN, sizeof(MM_AUDIT_BEGIN) - 1);
	assert_true(taken < 2000);
	mm_audit_tap(MM_LOG_INFO, "mmd.stopping", "pid=2");
	n = read(fds[0], text, sizeof(text) - 1);
	text[n] = 0;
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[0]);
	snprintf(text + n, sizeof(text) - (size_t)n, "\"records\":%d}", 2000 - taken);
	assert_non_null(strstr(text, "\"event\":\"audit.dropped\""));
	assert_ptr_not_equal(strstr(text, text + n), text + n);
	assert_non_null(strstr(text, "\"fields\":{\"pid\":2}}\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_sink),
		cmocka_unit_test(test_full_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
