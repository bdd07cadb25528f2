/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1024

static const char *const log_level_names[MM_LOG_LEVELS] = { "error", "warn", "info", "debug" };
static const char *log_role = "mmd";
static enum mm_log_level log_level = MM_LOG_INFO;
/* Atomic: lines that found no room and were not reported yet. */
static uint64_t log_dropped;

void mm_log_init(const char *role, enum mm_log_level level)
{
	log_role = role;
	log_level = level;
}

static size_t line_make_printable(char *line, size_t used)
{
	for (size_t i = 0; i < used; i++) {
		if (line[i] < ' ' || line[i] > '~')
			line[i] = '?';
	}
	line[used] = '\n';
	return used + 1;
}

/* Writes the part that all lines begin with. Return: its length. */
static size_t line_put_head(char *line, enum mm_log_level level, const char *event)
{
	struct timespec now;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &now);
	n = snprintf(line, LINE_BYTES, "ts=%lld.%06ld level=%s role=%s event=%s",
		     (long long)now.tv_sec, now.tv_nsec / 1000, log_level_names[level], log_role,
		     event);
	return n < 0 ? 0 : MM_MIN((size_t)n, (size_t)LINE_BYTES - 2);
}

/* A line is shorter than PIPE_BUF: a pipe takes it whole or not at all. */
static bool log_line_write(char *line, size_t used)
{
	used = line_make_printable(line, used);
	return write(STDERR_FILENO, line, used) >= 0;
}

void mm_log_catch_up(void)
{
	int saved_errno = errno;
	uint64_t lines = __atomic_exchange_n(&log_dropped, 0, __ATOMIC_RELAXED);
	char line[LINE_BYTES];
	size_t used;

	if (lines) {
		used = line_put_head(line, MM_LOG_WARN, "log.dropped");
		used += (size_t)snprintf(line + used, sizeof(line) - used, " lines=%" PRIu64,
					 lines);
		if (!log_line_write(line, used))
			__atomic_fetch_add(&log_dropped, lines, __ATOMIC_RELAXED);
	}
	errno = saved_errno;
}

void mm_log(enum mm_log_level level, const char *event, const char *fmt, ...)
{
	int saved_errno = errno;
	char line[LINE_BYTES];
	va_list ap;
	size_t used;
	int n;

	if (level > log_level)
		return;
	mm_log_catch_up();
	used = line_put_head(line, level, event);
	if (*fmt)
		line[used++] = ' ';
	va_start(ap, fmt);
	n = vsnprintf(line + used, sizeof(line) - 1 - used, fmt, ap);
	va_end(ap);
	used = MM_MIN(used + (n < 0 ? 0 : (size_t)n), sizeof(line) - 2);
	/* A line that cannot be written must not stop the daemon. */
	if (!log_line_write(line, used))
		__atomic_fetch_add(&log_dropped, 1, __ATOMIC_RELAXED);
	errno = saved_errno;
}
