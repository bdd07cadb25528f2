/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events - `mmctl events`: what has happened in mmd of late, and, with --follow, what happens
 *
 * mmd numbers its events, and has the last ones. Who follows them and loses the connection, because
 * core has died, asks again for what is behind the last number that it got; what mmd has no more is
 * counted. Another mmd numbers its events anew, which the time shows since when it does.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/common/rpc_client.h"
#include "tools/common/rpc_stream.h"
#include "tools/mmctl/ctl.h"

#define COLUMNS    80
#define INDENT     4
#define AGAIN_NS   (100 * MM_NS_PER_MS)
#define AWAY_NS    (60 * MM_NS_PER_S)
#define TIME_BYTES 32
#define WHY_BYTES  512

struct following {
	const struct mmctl *ctl;
	char from[TIME_BYTES];      /* events before it are not shown; "": all are */
	char since[TIME_BYTES * 2]; /* whose numbers we have; "": nobody's yet */
	uint64_t last;              /* number of the last event that was seen */
	json_t *list;               /* collects for one JSON object; NULL: events are printed */
	uint64_t missed;
};

static void following_done(struct following *f)
{
	json_decref(f->list);
}

/* ---- one event ---- */

static bool tenant_matches(const json_t *event, const char *tenant)
{
	const json_t *fields = json_object_get(event, "fields");
	char id[24];

	if (!tenant)
		return true;
	snprintf(id, sizeof(id), "%" PRIu64, mm_json_u64(fields, "tenant"));
	return json_object_get(fields, "tenant") &&
	       (strcmp(id, tenant) == 0 || strcmp(mm_json_text(fields, "name"), tenant) == 0);
}

/* Prints a word behind others, on a line of its own if it has no room any more. */
static void word_print(const char *word, size_t *column)
{
	const size_t n = strlen(word);

	if (*column + 1 + n > COLUMNS && *column > INDENT) {
		printf("\n%*s", INDENT - 1, "");
		*column = INDENT - 1;
	}
	printf(" %s", word);
	*column += n + 1;
}

static void field_print(const char *key, const json_t *value, size_t *column)
{
	char word[WHY_BYTES];

	if (json_is_integer(value))
		snprintf(word, sizeof(word), "%s=%" JSON_INTEGER_FORMAT, key,
			 json_integer_value(value));
	else
		snprintf(word, sizeof(word),
			 strchr(json_string_value(value), ' ') ? "%s=\"%s\"" : "%s=%s", key,
			 json_string_value(value));
	word_print(word, column);
}

static void event_print_text(const json_t *event)
{
	const char *when = mm_json_text(event, "time"), *key;
	const json_t *fields = json_object_get(event, "fields");
	size_t column =
		(size_t)printf("%.10s %.12s %-5s %s", when, strlen(when) > 11 ? when + 11 : "",
			       mm_json_text(event, "level"), mm_json_text(event, "event"));
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)fields, key, value)
		field_print(key, value, &column);
	putchar('\n');
}

/* Return: MM_EXIT_DONE; MM_EXIT_FAILED after a sentence. */
static int event_show(struct following *f, json_t *event)
{
	if (strcmp(mm_json_text(event, "time"), f->from) < 0 ||
	    !tenant_matches(event, f->ctl->options->tenant))
		return MM_EXIT_DONE;
	if (f->list)
		return json_array_append(f->list, event) < 0
			       ? mmctl_error(MM_EXIT_FAILED, "out of memory")
			       : MM_EXIT_DONE;
	if (f->ctl->json)
		return mm_json_print(event, JSON_COMPACT) < 0
			       ? mmctl_error(MM_EXIT_FAILED, "standard output: %s", strerror(errno))
			       : MM_EXIT_DONE;
	event_print_text(event);
	return fflush(stdout) == 0
		       ? MM_EXIT_DONE
		       : mmctl_error(MM_EXIT_FAILED, "standard output: %s", strerror(errno));
}

/* Says what is not there between two events. */
static void gap_print(struct following *f, const char *key, uint64_t n, const char *sentence)
{
	mm_cleanup(mm_json_done) json_t *gap = NULL;

	f->missed += n;
	if (f->list)
		return;
	if (f->ctl->json) {
		gap = json_pack("{s:I}", key, (json_int_t)n);
		(void)mm_json_print(gap, JSON_COMPACT);
	} else {
		printf("-- %" PRIu64 " %s\n", n, sentence);
		fflush(stdout);
	}
}

static void missed_print(struct following *f, uint64_t n)
{
	if (n)
		gap_print(f, "missed", n, "events came in between, and mmd has them no more");
}

/* ---- answers ---- */

/* Whether the answer's numbers are those of another mmd than before. */
static bool answer_is_anew(struct following *f, const json_t *answer)
{
	const char *since = mm_json_text(answer, "since");
	const bool anew = *f->since && strcmp(f->since, since) != 0;

	snprintf(f->since, sizeof(f->since), "%s", since);
	return anew;
}

/* Shows the events of an answer. *ret_more: there are further ones, or all must be asked anew. */
static int answer_show(struct following *f, const json_t *answer, bool *ret_more)
{
	const json_t *events = json_object_get(answer, "events");
	int r = MM_EXIT_DONE;
	json_t *event;
	size_t i;

	*ret_more = false;
	if (answer_is_anew(f, answer)) {
		f->last = 0;
		*ret_more = true;
		gap_print(f, "restarted", 1, "mmd was started anew: its events begin again");
		return r;
	}
	if (f->last)
		missed_print(f, mm_json_u64(answer, "missed"));
	json_array_foreach(events, i, event) {
		r = event_show(f, event);
		if (r != MM_EXIT_DONE)
			return r;
	}
	f->last = mm_json_u64(answer, "last");
	*ret_more = f->last < mm_json_u64(answer, "newest") && json_array_size(events) > 0;
	return r;
}

static json_t *events_params(const struct following *f, bool follow)
{
	json_t *params = json_object();

	mm_json_put_u64(params, "after", f->last);
	if (follow)
		mm_json_put_flag(params, "follow", true);
	return params;
}

/* Shows all that there is. Return: enum mm_exit. */
static int events_catch_up(struct following *f)
{
	bool more = true;
	int r = MM_EXIT_DONE;

	while (r == MM_EXIT_DONE && more) {
		mm_cleanup(mm_json_done) json_t *answer = NULL;

		r = mmctl_request(f->ctl, "events", events_params(f, false), &answer);
		if (r == MM_EXIT_DONE)
			r = answer_show(f, answer, &more);
	}
	return r;
}

/* ---- following ---- */

/* A line of mmd's, the answer to the request or a notification. */
static int line_show(struct following *f, const json_t *line)
{
	const char *method = mm_json_text(line, "method");
	json_t *params = json_object_get(line, "params");
	const json_t *result = json_object_get(line, "result");
	const char *why = mm_json_text(json_object_get(line, "error"), "message");
	bool more;

	if (result) {
		const int r = answer_show(f, result, &more);

		/* Another mmd's numbers begin at 1: it must be asked for all of them. */
		return r == MM_EXIT_DONE && !f->last && more ? MM_EXIT_UNREACHABLE : r;
	}
	if (strcmp(method, "missed") == 0) {
		missed_print(f, mm_json_u64(params, "events"));
		return MM_EXIT_DONE;
	}
	if (strcmp(method, "event") == 0) {
		f->last = mm_json_u64(params, "seq");
		return event_show(f, params);
	}
	return mmctl_error(MM_EXIT_FAILED, "%s", *why ? why : "mmd sends what is no event");
}

/* Shows what mmd sends until the connection ends: then MM_EXIT_UNREACHABLE, without a sentence. */
static int stream_show(struct following *f, int fd)
{
	mm_cleanup(mm_rpc_stream_done) struct mm_rpc_stream stream;
	int r;

	mm_rpc_stream_init(&stream, fd);
	r = mm_rpc_client_send(fd, AWAY_NS, "events", events_params(f, true));
	while (r == 0) {
		mm_cleanup(mm_json_done) json_t *line = NULL;
		int shown;

		r = mm_rpc_stream_next(&stream, UINT64_MAX, &line);
		shown = r == 0 ? line_show(f, line) : MM_EXIT_DONE;
		if (shown != MM_EXIT_DONE)
			return shown;
	}
	if (r == -ECONNRESET || r == -EPIPE)
		return MM_EXIT_UNREACHABLE;
	return mmctl_error(MM_EXIT_FAILED, "events: %s",
			   r == -EPROTO ? "what mmd sends is not JSON" : strerror(-r));
}

/* Connects again after core has died, which takes a moment, or mmd is started again. */
static int follow_connect(struct following *f, bool first, int *ret_fd)
{
	const struct timespec pause = { .tv_nsec = AGAIN_NS };
	const uint64_t until_ns = mm_now_ns() + AWAY_NS;
	struct mmctl quiet = *f->ctl;
	int r;

	if (first)
		return mmctl_connect(f->ctl, ret_fd);
	quiet.quiet = true;
	do {
		r = mmctl_connect(&quiet, ret_fd);
		if (r != MM_EXIT_UNREACHABLE)
			return r;
		nanosleep(&pause, NULL);
	} while (mm_now_ns() < until_ns);
	return mmctl_connect(f->ctl, ret_fd);
}

static int events_follow(struct following *f)
{
	int r = MM_EXIT_UNREACHABLE;

	for (bool first = true; r == MM_EXIT_UNREACHABLE; first = false) {
		mm_cleanup(mm_close_fd) int fd = -1;

		r = follow_connect(f, first, &fd);
		if (r != MM_EXIT_DONE)
			return r;
		/* All that there is in pieces first: an answer has no more than so many. */
		r = stream_show(f, fd);
	}
	return r;
}

/* ---- all of it ---- */

/* Writes the time so many seconds ago as mmd writes times. */
static void time_ago(double seconds, char *text)
{
	struct timespec now;
	struct tm utc;
	time_t at;

	clock_gettime(CLOCK_REALTIME, &now);
	at = now.tv_sec - (time_t)seconds;
	gmtime_r(&at, &utc);
	strftime(text, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
}

/* --since is a time, or how long ago: 90s, 10m, 2h, 1d. */
static int since_parse(const char *text, char *ret_from)
{
	static const struct {
		char unit;
		double seconds;
	} units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
	struct tm utc = { 0 };
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	if (rest && (!*rest || strcmp(rest, "Z") == 0)) {
		strftime(ret_from, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
		return MM_EXIT_DONE;
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(units); i++) {
		if (*text >= '0' && *text <= '9' && *end == units[i].unit && !end[1] &&
		    n <= 36500) {
			time_ago((double)n * units[i].seconds, ret_from);
			return MM_EXIT_DONE;
		}
	}
	return mm_opt_refuse(&mmctl_program, MMCTL_EVENTS,
			     "--since: '%.64s' is neither a time in UTC (2026-01-31T12:00:00Z) nor "
			     "how long ago (90s, 10m, 2h, 1d)",
			     text);
}

static int events_print_all(const struct following *f)
{
	mm_cleanup(mm_json_done) json_t *all = json_object();

	mm_json_put_u64(all, "schema", 1);
	mm_json_put_text(all, "since", f->since);
	mm_json_put_u64(all, "missed", f->missed);
	mm_json_put_u64(all, "last", f->last);
	mm_json_put(all, "events", json_incref(f->list));
	return mmctl_print_json(all);
}

int mmctl_events_run(const struct mmctl *ctl, int argc, char **argv)
{
	mm_cleanup(following_done) struct following f = { .ctl = ctl };
	int r = MM_EXIT_DONE;

	(void)argc;
	(void)argv;
	if (ctl->options->since)
		r = since_parse(ctl->options->since, f.from);
	if (r == MM_EXIT_DONE && ctl->json && !ctl->options->follow)
		f.list = json_array();
	if (r == MM_EXIT_DONE)
		r = events_catch_up(&f);
	if (r == MM_EXIT_DONE && ctl->options->follow)
		r = events_follow(&f);
	return r == MM_EXIT_DONE && f.list ? events_print_all(&f) : r;
}
