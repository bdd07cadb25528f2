/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/audit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "mmd/common/lognames.h"

#define KEY_BYTES   32
#define VALUE_BYTES 1024
#define DIGITS_MAX  18 /* more may not fit into a number of JSON */

static enum mm_audit_sink audit_sink;

enum mm_audit_sink mm_audit_sink(const char *option)
{
	if (!*option || strcmp(option, "off") == 0)
		return MM_AUDIT_OFF;
	return strcmp(option, "stderr") == 0 ? MM_AUDIT_STDERR : MM_AUDIT_FILE;
}

void mm_audit_init(enum mm_audit_sink sink)
{
	audit_sink = sink;
}

bool mm_audit_is_on(void)
{
	return audit_sink != MM_AUDIT_OFF;
}

/* ---- key=value ---- */

static json_t *value_json(const char *value)
{
	const char *digits = *value == '-' ? value + 1 : value;
	const size_t n = strspn(digits, "0123456789");

	if (n == 0 || n > DIGITS_MAX || digits[n] || (*digits == '0' && n > 1))
		return mm_json_string(value);
	return json_integer(strtoll(value, NULL, 10));
}

/* Copies a value, with its quotes taken off. Return: what is behind it. */
static const char *value_copy(const char *from, char *ret_value)
{
	const bool quoted = *from == '"';
	const size_t n = strcspn(from + quoted, quoted ? "\"" : " ");

	snprintf(ret_value, VALUE_BYTES, "%.*s", (int)n, from + quoted);
	from += quoted + n;
	return from + (*from == '"');
}

json_t *mm_audit_fields(const char *text)
{
	json_t *fields = json_object();
	char key[KEY_BYTES], value[VALUE_BYTES];

	while (fields && *text) {
		const size_t n = strcspn(text, "= ");

		if (text[n] != '=' || n == 0 || n >= sizeof(key)) {
			text += n + (text[n] != 0);
			continue;
		}
		snprintf(key, sizeof(key), "%.*s", (int)n, text);
		text = value_copy(text + n + 1, value);
		(void)mm_json_put(fields, key, value_json(value));
		text += strspn(text, " ");
	}
	return fields;
}

/* ---- writing ---- */

static json_t *line_json(const struct mm_audit_line *line)
{
	json_t *json = json_object();
	char wall[MM_LOG_TIME_BYTES];

	mm_log_time(line->wall_ns, wall);
	mm_json_put_u64(json, "audit", 1);
	mm_json_put_text(json, "time", wall);
	mm_json_put_text(json, "role", line->role);
	mm_json_put_u64(json, "n", line->n);
	if (line->seq)
		mm_json_put_u64(json, "seq", line->seq);
	if (line->again)
		mm_json_put_flag(json, "again", true);
	mm_json_put_text(json, "level", mm_log_level_name(line->level));
	mm_json_put_text(json, "event", line->event);
	mm_json_put(json, "fields", mm_audit_fields(line->text));
	return json;
}

int mm_audit_write(const struct mm_audit_line *line)
{
	mm_cleanup(mm_json_done) json_t *json = NULL;
	mm_cleanup(mm_free_ptr) char *text = NULL, *whole = NULL;
	ssize_t n;
	int bytes;

	(void)mm_json_has_lost();
	json = line_json(line);
	text = mm_json_has_lost() ? NULL : json_dumps(json, JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	bytes = asprintf(&whole, "%s%s\n",
			 audit_sink == MM_AUDIT_STDERR ? mm_log_prefix(MM_LOG_INFO) : "", text);
	if (bytes < 0) {
		whole = NULL;
		return -ENOMEM;
	}
	/* Shorter than PIPE_BUF: a pipe takes it whole or not at all. */
	n = write(STDERR_FILENO, whole, (size_t)bytes);
	return n < 0 ? -errno : 0;
}

void mm_audit_tap(enum mm_log_level level, const char *event, const char *text)
{
	static uint64_t written, dropped;
	const struct mm_logname *row = mm_lognames_find(event);
	struct mm_audit_line line = { .role = mm_log_role(), .wall_ns = mm_log_wall_ns() };
	char count[40];

	if (!row || !row->audited || !mm_audit_is_on())
		return;
	line.n = written + 1;
	if (dropped) {
		snprintf(count, sizeof(count), "records=%" PRIu64, dropped);
		line.level = MM_LOG_WARN;
		line.event = "audit.dropped";
		line.text = count;
		if (mm_audit_write(&line) == 0) {
			dropped = 0;
			line.n = ++written + 1;
		}
	}
	line.level = level;
	line.event = event;
	line.text = text;
	if (!dropped && mm_audit_write(&line) == 0)
		written++;
	else
		dropped++;
}
