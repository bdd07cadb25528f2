/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1024
/* Roles inherit it from keeper, whose stderr is the pipe to the relay by then. */
#define JOURNAL_VARIABLE "MM_LOG_JOURNAL"

static const char *const log_level_names[MM_LOG_LEVELS] = { "error", "warn", "info", "debug" };
/* Priorities of syslog, as journald takes them from the beginning of a line. */
static const char *const log_prefixes[MM_LOG_LEVELS] = { "<3>", "<4>", "<6>", "<7>" };
static const char *log_role = "mmd";
static enum mm_log_level log_level = MM_LOG_INFO;
static bool log_has_prefix;
static mm_log_tap_fn *log_tap;
/* Atomic: lines that found no room and were not reported yet. */
static uint64_t log_dropped;

void mm_log_init(const char *role, enum mm_log_level level)
{
	log_role = role;
	log_level = level;
	log_has_prefix = getenv(JOURNAL_VARIABLE) != NULL;
}

const char *mm_log_role(void)
{
	return log_role;
}

void mm_log_set_level(enum mm_log_level level)
{
	log_level = level;
}

void mm_log_find_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	if (!stream)
		(void)unsetenv(JOURNAL_VARIABLE);
	else if (sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		 fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode)
		(void)setenv(JOURNAL_VARIABLE, "1", 1);
}

const char *mm_log_prefix(enum mm_log_level level)
{
	return log_has_prefix ? log_prefixes[level] : "";
}

const char *mm_log_level_name(enum mm_log_level level)
{
	return log_level_names[level];
}

void mm_log_set_tap(mm_log_tap_fn *tap)
{
	log_tap = tap;
}

/*
 * Splits a number of days since 1970 into a date, in years that begin in March, so that a leap day
 * is the last. gmtime_r() opens files when it is first called, which few roles may do.
 */
static void days_split(uint64_t days, unsigned int *year, unsigned int *month, unsigned int *day)
{
	const uint64_t since = days + 719468; /* since March 1 of the year 0 */
	const uint64_t era = since / 146097, of_era = since % 146097;
	const uint64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	const uint64_t of_year = of_era - (365 * years + years / 4 - years / 100);
	const uint64_t march = (5 * of_year + 2) / 153;

	*day = (unsigned int)(of_year - (153 * march + 2) / 5 + 1);
	*month = (unsigned int)(march < 10 ? march + 3 : march - 9);
	*year = (unsigned int)(era * 400 + years + (march >= 10));
}

void mm_log_time(uint64_t wall_ns, char *text)
{
	const uint64_t seconds = wall_ns / 1000000000;
	const unsigned int of_day = (unsigned int)(seconds % 86400);
	unsigned int year, month, day;

	days_split(seconds / 86400, &year, &month, &day);
	snprintf(text, MM_LOG_TIME_BYTES, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", year, month, day,
		 of_day / 3600, of_day / 60 % 60, of_day % 60,
		 (unsigned int)(wall_ns % 1000000000 / 1000));
}

uint64_t mm_log_wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void log_text_clean(char *text)
{
	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			*text = '?';
	}
}

/* A line is shorter than PIPE_BUF: a pipe takes it whole or not at all. */
static bool log_line_write(enum mm_log_level level, const char *event, const char *text)
{
	char line[LINE_BYTES], wall[MM_LOG_TIME_BYTES];
	struct timespec now;
	size_t used;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &now);
	mm_log_time(mm_log_wall_ns(), wall);
	n = snprintf(line, sizeof(line) - 1,
		     "%sts=%lld.%06ld time=%s level=%s role=%s event=%s%s%s", mm_log_prefix(level),
		     (long long)now.tv_sec, now.tv_nsec / 1000, wall, log_level_names[level],
		     log_role, event, *text ? " " : "", text);
	used = n < 0 ? 0 : MM_MIN((size_t)n, sizeof(line) - 2);
	line[used] = '\n';
	return write(STDERR_FILENO, line, used + 1) >= 0;
}

void mm_log_catch_up(void)
{
	int saved_errno = errno;
	uint64_t lines = __atomic_exchange_n(&log_dropped, 0, __ATOMIC_RELAXED);
	char text[40];

	if (lines) {
		snprintf(text, sizeof(text), "lines=%" PRIu64, lines);
		if (!log_line_write(MM_LOG_WARN, "log.dropped", text))
			__atomic_fetch_add(&log_dropped, lines, __ATOMIC_RELAXED);
	}
	errno = saved_errno;
}

void mm_log(enum mm_log_level level, const char *event, const char *fmt, ...)
{
	int saved_errno = errno;
	char text[LINE_BYTES];
	va_list ap;
	int n;

	if (level > log_level && !log_tap)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		*text = 0;
	log_text_clean(text);
	if (log_tap)
		log_tap(level, event, text);
	if (level <= log_level) {
		mm_log_catch_up();
		/* A line that cannot be written must not stop the daemon. */
		if (!log_line_write(level, event, text))
			__atomic_fetch_add(&log_dropped, 1, __ATOMIC_RELAXED);
	}
	errno = saved_errno;
}
