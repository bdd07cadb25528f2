/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/base/percentile.h"
#include "libclient/support/cleanup.h"
#include "tests/conformance/conf.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1024

static const char *program = "", *test = "";

void conf_facts_begin(const char *program_name, const char *test_name)
{
	program = program_name;
	test = test_name;
}

uint64_t conf_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * MM_NS_PER_S + (uint64_t)ts.tv_nsec;
}

void conf_nap_ms(unsigned int ms)
{
	const struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

const char *conf_size(size_t bytes, char buffer[16])
{
	static const char units[] = "BKMGT";
	size_t i = 0;

	while (bytes >= 1024 && bytes % 1024 == 0 && i + 2 < sizeof(units)) {
		bytes /= 1024;
		i++;
	}
	snprintf(buffer, 16, "%zu%c", bytes, units[i]);
	return buffer;
}

/* A JSON string's inside: what would end or break it is left out. */
static void json_quote(char *ret, size_t bytes, const char *text)
{
	size_t n = 0;

	for (; *text && n + 1 < bytes; text++)
		if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\')
			ret[n++] = *text;
	ret[n] = '\0';
}

/* One write, so that the lines of several processes do not mix. */
static void line_append(const char *line)
{
	const char *path = getenv("MM_CONF_FACTS");
	mm_cleanup(mm_close_fd) int fd = -1;

	if (!path || !*path)
		return;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		perror(path);
}

static void fact_put(const char *name, const char *value, const char *unit)
{
	char line[LINE_BYTES];

	snprintf(line, sizeof(line),
		 "{\"program\": \"%s\", \"test\": \"%s\", \"fact\": \"%s\", \"value\": %s, "
		 "\"unit\": \"%s\"}\n",
		 program, test, name, value, unit);
	line_append(line);
}

void conf_fact(const char *name, const char *unit, double value)
{
	char text[64];

	/* JSON knows no infinity. */
	if (isfinite(value))
		snprintf(text, sizeof(text), "%.10g", value);
	else
		snprintf(text, sizeof(text), "null");
	printf("fact: %s: %s %s\n", name, text, unit);
	fact_put(name, text, unit);
}

void conf_fact_text(const char *name, const char *format, ...)
{
	char text[512], inside[512], quoted[sizeof(inside) + 2];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_quote(inside, sizeof(inside), text);
	snprintf(quoted, sizeof(quoted), "\"%s\"", inside);
	printf("fact: %s: %s\n", name, inside);
	fact_put(name, quoted, "");
}

void conf_fact_result(const char *name, CUresult result)
{
	conf_fact_text(name, "%s", mm_gpu_strerror(&conf.gpu, result));
}

void conf_fact_times(const char *name, uint64_t *ns, size_t n)
{
	char full[128];

	if (!n)
		return;
	snprintf(full, sizeof(full), "%s.median", name);
	conf_fact(full, "us", (double)mm_percentile_u64(ns, n, 50) / 1e3);
	if (n >= 100) {
		snprintf(full, sizeof(full), "%s.p99", name);
		conf_fact(full, "us", (double)mm_percentile_u64(ns, n, 99) / 1e3);
	}
	snprintf(full, sizeof(full), "%s.max", name);
	conf_fact(full, "us", (double)mm_percentile_u64(ns, n, 100) / 1e3);
}

void conf_fact_outcome(const char *of, const char *outcome, double seconds, const char *reason)
{
	char line[LINE_BYTES], inside[512];

	json_quote(inside, sizeof(inside), reason);
	snprintf(line, sizeof(line),
		 "{\"program\": \"%s\", \"test\": \"%s\", \"outcome\": \"%s\", "
		 "\"seconds\": %.3f, \"reason\": \"%s\"}\n",
		 program, of, outcome, seconds, inside);
	line_append(line);
}
