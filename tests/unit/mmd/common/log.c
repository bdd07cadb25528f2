/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mmd/common/log.h"
#include "mmd/common/lognames.h"

static void test_time(void **state)
{
	static const struct {
		uint64_t seconds;
		const char *text;
	} cases[] = {
		{ 0, "1970-01-01T00:00:00.000000Z" },
		{ 951782399, "2000-02-28T23:59:59.000000Z" },
		{ 951782400, "2000-02-29T00:00:00.000000Z" },
		{ 951868800, "2000-03-01T00:00:00.000000Z" },
		{ 1735689599, "2024-12-31T23:59:59.000000Z" },
		{ 1735689600, "2025-01-01T00:00:00.000000Z" },
		{ 4107542399, "2100-02-28T23:59:59.000000Z" },
		{ 4107542400, "2100-03-01T00:00:00.000000Z" },
	};
	char text[MM_LOG_TIME_BYTES];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		mm_log_time(cases[i].seconds * 1000000000, text);
		assert_string_equal(text, cases[i].text);
	}
	mm_log_time(UINT64_C(1735689600123456789), text);
	assert_string_equal(text, "2025-01-01T00:00:00.123456Z");
}

static char tapped[200];

static void line_tap(enum mm_log_level level, const char *event, const char *text)
{
	snprintf(tapped, sizeof(tapped), "%s %s %s", mm_log_level_name(level), event, text);
}

/* Logs into a file that stands for stderr, and reads it. */
static void lines_read(const char *stream, char *ret_text, size_t bytes)
{
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	struct stat st;
	char own[64];
	ssize_t n;

	assert_int_equal(fstat(fileno(file), &st), 0);
	snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	if (stream)
		setenv("JOURNAL_STREAM", *stream ? stream : own, 1);
	else
		unsetenv("JOURNAL_STREAM");
	dup2(fileno(file), STDERR_FILENO);
	mm_log_find_journal();
	mm_log_init("test", MM_LOG_INFO);
	mm_log(MM_LOG_ERROR, "core.failed", "error=%d text=\"a\nb\"", 7);
	mm_log(MM_LOG_WARN, "xfer.died", "%s", "");
	mm_log(MM_LOG_DEBUG, "load.numa", "%s", "node=1");
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fileno(file), ret_text, bytes - 1, 0);
	assert_true(n > 0);
	ret_text[n] = 0;
	fclose(file);
}

static void test_line(void **state)
{
	char text[1000], *second;

	(void)state;
	mm_log_set_tap(line_tap);
	lines_read(NULL, text, sizeof(text));
	mm_log_set_tap(NULL);
	assert_string_equal(tapped, "debug load.numa node=1"); /* whatever the level is */
	assert_memory_equal(text, "ts=", 3);
	assert_non_null(
		strstr(text, "Z level=error role=test event=core.failed error=7 text=\"a?b\"\n"));
	second = strchr(text, '\n') + 1;
	assert_memory_equal(second, "ts=", 3);
	assert_non_null(strstr(second, " event=xfer.died\n"));
	assert_null(strstr(text, "load.numa"));
}

/* Only the journal's own stream has priorities in it: a file that was redirected has none. */
static void test_journal(void **state)
{
	char text[1000];

	(void)state;
	lines_read("1:2", text, sizeof(text));
	assert_memory_equal(text, "ts=", 3);
	lines_read("nonsense", text, sizeof(text));
	assert_memory_equal(text, "ts=", 3);
	lines_read("", text, sizeof(text));
	assert_memory_equal(text, "<3>ts=", 6);
	assert_memory_equal(strchr(text, '\n') + 1, "<4>ts=", 6);
	assert_string_equal(mm_log_prefix(MM_LOG_INFO), "<6>");
	lines_read(NULL, text, sizeof(text));
	assert_memory_equal(text, "ts=", 3);
	assert_string_equal(mm_log_prefix(MM_LOG_INFO), "");
}

static void test_names(void **state)
{
	(void)state;
	for (const struct mm_logname *row = mm_lognames; row->name; row++)
		assert_ptr_equal(mm_lognames_find(row->name), row);
	assert_null(mm_lognames_find("no.such"));
	assert_null(mm_lognames_find(""));
	assert_null(mm_lognames_find("zzz.zzz"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_line),
		cmocka_unit_test(test_journal),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
