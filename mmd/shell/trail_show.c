/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/trail_show.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "mmd/shell/shell.h"

#define SCHEMA          1
#define RECORDS_AT_ONCE 32

/* Adds records from @next on to @list. Return: the number of the next one. */
static uint64_t records_add(const struct mm_trail *trail, uint64_t next, uint64_t max, json_t *list)
{
	for (uint64_t i = 0; next < mm_trail_next(trail) && i < max; next++, i++) {
		json_t *record = mm_trail_json(trail, next);

		if (record)
			json_array_append_new(list, record);
	}
	return next;
}

json_t *mm_trail_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	const struct mm_trail *trail = &shell->trail;
	const uint64_t first = mm_trail_first(trail);
	const json_t *after_json = json_object_get(params, "after");
	const json_t *follow = json_object_get(params, "follow");
	uint64_t after = 0, from, next;
	char born[MM_LOG_TIME_BYTES];
	json_t *result, *list;

	if (after_json && !mm_json_is_whole(after_json, 0, INT64_MAX, &after))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "after: want the number of an event");
	if (follow && !json_is_boolean(follow))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "follow: want true or false");
	/* Numbers that are not given out yet are those of an earlier mmd. */
	from = after_json && after < mm_trail_next(trail) ? after + 1 : first;
	result = json_object();
	list = json_array();
	next = records_add(trail, MM_MAX(from, first), MM_TRAIL_SHOW_MAX, list);
	mm_log_time(trail->kept->born_ns, born);
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put_text(result, "since", born);
	mm_json_put_u64(result, "missed", from < first ? first - from : 0);
	mm_json_put_u64(result, "last", next - 1);
	mm_json_put_u64(result, "newest", mm_trail_next(trail) - 1);
	mm_json_put(result, "events", list);
	if (json_is_true(follow))
		mm_admin_follow(shell, next);
	return result;
}

static int notification_print(FILE *out, const char *method, json_t *params)
{
	mm_cleanup(mm_json_done) json_t *line =
		json_pack("{s:s,s:s,s:o}", "jsonrpc", "2.0", "method", method, "params", params);

	if (!line || json_dumpf(line, out, JSON_COMPACT) < 0 || fputc('\n', out) == EOF)
		return -ENOMEM;
	return 0;
}

static int missed_print(FILE *out, uint64_t events)
{
	json_t *params = json_object();

	mm_json_put_u64(params, "events", events);
	return notification_print(out, "missed", params);
}

int mm_trail_lines(const struct mm_trail *trail, uint64_t *next, char **ret_text)
{
	const uint64_t first = mm_trail_first(trail);
	char *text = NULL;
	size_t bytes;
	FILE *out;
	int r = 0;

	*ret_text = NULL;
	if (*next >= mm_trail_next(trail))
		return 0;
	out = open_memstream(&text, &bytes);
	if (!out)
		return -ENOMEM;
	if (*next < first) {
		r = missed_print(out, first - *next);
		*next = first;
	}
	for (int i = 0; r == 0 && *next < mm_trail_next(trail) && i < RECORDS_AT_ONCE; i++) {
		json_t *record = mm_trail_json(trail, (*next)++);

		if (record)
			r = notification_print(out, "event", record);
	}
	if (fclose(out) != 0)
		r = -ENOMEM;
	if (r == 0)
		*ret_text = text;
	else
		free(text);
	return r;
}
