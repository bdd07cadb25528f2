/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/log.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES 1024

static const char *const level_names[MM_LOG_LEVELS] = { "error", "warn", "info", "debug" };
static const char *log_role = "mmd";
static enum mm_log_level log_level = MM_LOG_INFO;

void mm_log_init(const char *role, enum mm_log_level level)
{
	log_role = role;
	log_level = level;
}

static size_t put_printable(char *line, size_t used)
{
	for (size_t i = 0; i < used; i++) {
		if (line[i] < ' ' || line[i] > '~')
			line[i] = '?';
	}
	line[used] = '\n';
	return used + 1;
}

void mm_log(enum mm_log_level level, const char *event, const char *fmt, ...)
{
	int saved_errno = errno;
	char line[LINE_BYTES];
	struct timespec now;
	va_list ap;
	size_t used;
	int n;

	if (level > log_level)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	n = snprintf(line, sizeof(line), "ts=%lld.%06ld level=%s role=%s event=%s%s",
		     (long long)now.tv_sec, now.tv_nsec / 1000, level_names[level], log_role, event,
		     *fmt ? " " : "");
	used = n < 0 ? 0 : MM_MIN((size_t)n, sizeof(line) - 2);
	va_start(ap, fmt);
	n = vsnprintf(line + used, sizeof(line) - 1 - used, fmt, ap);
	va_end(ap);
	used = MM_MIN(used + (n < 0 ? 0 : (size_t)n), sizeof(line) - 2);
	used = put_printable(line, used);
	/* A log that cannot be written must not stop the daemon. */
	if (write(STDERR_FILENO, line, used) < 0) {
	}
	errno = saved_errno;
}
