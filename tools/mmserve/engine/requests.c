/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/requests.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/support/number.h"
#include "tools/mmserve/engine/config.h"

#define TOKENS_MAX  (1u << 24) /* most tokens of a prompt or output, so that sums cannot wrap */
#define ARRIVAL_MAX 1e9

static const char csv_header[] = "arrival_s,prompt_tokens,output_tokens";

struct requests_reader {
	const char *path;
	const struct mm_requests_opts *opts;
	struct mm_requests *out;
	size_t room;
	unsigned long line;
	double last_arrival;
	char *err;
};

static int MM_PRINTF(2, 3)
	requests_fail(const struct requests_reader *reader, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(reader->err, MM_SERVE_ERROR_BYTES, "%.4000s:%lu: %s", reader->path, reader->line,
		 text);
	return -EBADMSG;
}

static int requests_add(struct requests_reader *reader, double arrival_s, uint32_t n_prompt,
			uint32_t max_tokens, struct mm_request **ret_request)
{
	struct mm_requests *out = reader->out;
	struct mm_request *q;

	if (arrival_s < reader->last_arrival)
		return requests_fail(reader, "arrivals are not in order");
	reader->last_arrival = arrival_s;
	if (out->n == reader->room) {
		const size_t room = MM_MAX(reader->room * 2, 64);
		struct mm_request *all = realloc(out->all, room * sizeof(*all));

		if (!all)
			return requests_fail(reader, "out of memory");
		out->all = all;
		reader->room = room;
	}
	q = &out->all[out->n];
	*q = (struct mm_request){ .arrival_s = reader->opts->at_once ? 0 : arrival_s,
				  .n_prompt = n_prompt,
				  .max_tokens = max_tokens };
	out->n++;
	q->ids = calloc((size_t)n_prompt + max_tokens, sizeof(*q->ids));
	q->times = calloc(max_tokens, sizeof(*q->times));
	if (!q->ids || !q->times)
		return requests_fail(reader, "out of memory");
	*ret_request = q;
	return 0;
}

static void make_prompt(const struct requests_reader *reader, size_t index, struct mm_request *q)
{
	const uint64_t seed = mm_random_mix(mm_random_mix(reader->opts->seed) + index);

	for (uint32_t i = 0; i < q->n_prompt; i++)
		q->ids[i] = (uint32_t)(mm_random_mix(seed + i) % reader->opts->vocab);
}

static int read_prompt(const struct requests_reader *reader, const json_t *prompt,
		       struct mm_request *q)
{
	for (uint32_t i = 0; i < q->n_prompt; i++) {
		uint64_t id;

		if (!mm_json_is_whole(json_array_get(prompt, i), 0, reader->opts->vocab - 1, &id))
			return requests_fail(
				reader, "prompt[%u] is not a token id below the vocabulary's %u", i,
				reader->opts->vocab);
		q->ids[i] = (uint32_t)id;
	}
	return 0;
}

static int check_keys(const struct requests_reader *reader, json_t *line)
{
	static const char *const known[] = { "id", "arrival_s", "prompt", "prompt_tokens",
					     "max_tokens" };

	for (void *i = json_object_iter(line); i; i = json_object_iter_next(line, i)) {
		const char *key = json_object_iter_key(i);
		size_t k = 0;

		while (k < MM_ARRAY_SIZE(known) && strcmp(known[k], key))
			k++;
		if (k == MM_ARRAY_SIZE(known))
			return requests_fail(reader, "unknown key \"%.60s\"", key);
	}
	return 0;
}

static bool is_token_count(const json_t *value)
{
	return mm_json_is_whole(value, 1, TOKENS_MAX, NULL);
}

static int check_line(const struct requests_reader *reader, json_t *line)
{
	const json_t *arrival = json_object_get(line, "arrival_s");
	const json_t *prompt = json_object_get(line, "prompt");
	const json_t *count = json_object_get(line, "prompt_tokens");
	const json_t *max = json_object_get(line, "max_tokens");
	const json_t *id = json_object_get(line, "id");

	if (!json_is_integer(id) &&
	    (!json_string_length(id) || json_string_length(id) >= MM_REQUEST_ID_BYTES))
		return requests_fail(
			reader, "id must be a whole number of 64 bits or a string of 1 to %d bytes",
			MM_REQUEST_ID_BYTES - 1);
	if (arrival && (!json_is_number(arrival) || !(json_number_value(arrival) >= 0) ||
			json_number_value(arrival) > ARRIVAL_MAX))
		return requests_fail(reader, "arrival_s must be a number of seconds from 0");
	if (prompt && count)
		return requests_fail(reader, "give one of prompt and prompt_tokens");
	if (count ? !is_token_count(count)
		  : !json_array_size(prompt) || json_array_size(prompt) > TOKENS_MAX)
		return requests_fail(reader,
				     count ? "prompt_tokens must be a whole number from 1"
					   : "prompt must be a list of at least one token id");
	if (!is_token_count(max))
		return requests_fail(reader, "max_tokens must be a whole number from 1");
	return check_keys(reader, line);
}

static void request_set_id(struct mm_request *q, const json_t *id)
{
	q->id_is_number = json_is_integer(id);
	if (q->id_is_number)
		snprintf(q->id, sizeof(q->id), "%lld", (long long)json_integer_value(id));
	else
		snprintf(q->id, sizeof(q->id), "%s", json_string_value(id));
}

static int read_json_line(struct requests_reader *reader, const char *text)
{
	mm_cleanup(mm_json_done) json_t *line = NULL;
	const size_t index = reader->out->n;
	const json_t *prompt, *count;
	struct mm_request *q;
	json_error_t where;
	int r;

	line = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (!json_is_object(line))
		return requests_fail(reader, "not a JSON object: %.120s", line ? "" : where.text);
	r = check_line(reader, line);
	if (r)
		return r;
	prompt = json_object_get(line, "prompt");
	count = json_object_get(line, "prompt_tokens");
	r = requests_add(
		reader, mm_json_real(line, "arrival_s"),
		(uint32_t)(count ? (size_t)json_integer_value(count) : json_array_size(prompt)),
		(uint32_t)json_integer_value(json_object_get(line, "max_tokens")), &q);
	if (r)
		return r;
	request_set_id(q, json_object_get(line, "id"));
	if (prompt)
		return read_prompt(reader, prompt, q);
	make_prompt(reader, index, q);
	return 0;
}

/* Parses a number of 1..TOKENS_MAX that is followed by @end, and moves @text behind both. */
static int request_parse_count(const char **text, char end, uint32_t *ret_count)
{
	const char *stop;
	uint64_t value;

	if (mm_number_begin(*text, &value, &stop) || *stop != end || value < 1 ||
	    value > TOKENS_MAX)
		return -EINVAL;
	*text = stop + (end != '\0');
	*ret_count = (uint32_t)value;
	return 0;
}

static uint32_t requests_cut(uint32_t value, uint32_t max)
{
	return max && value > max ? max : value;
}

static int read_csv_line(struct requests_reader *reader, const char *text)
{
	const struct mm_requests_opts *o = reader->opts;
	const uint64_t index = reader->out->n;
	uint32_t prompt, output;
	struct mm_request *q;
	double arrival;
	char *stop;
	int r;

	arrival = strtod(text, &stop);
	if (stop == text || *stop != ',' || !isfinite(arrival) || arrival < 0 ||
	    arrival > ARRIVAL_MAX)
		return requests_fail(reader, "arrival_s must be a number of seconds from 0");
	text = stop + 1;
	if (request_parse_count(&text, ',', &prompt))
		return requests_fail(reader, "prompt_tokens must be a whole number from 1 to %u",
				     TOKENS_MAX);
	if (request_parse_count(&text, '\0', &output))
		return requests_fail(reader, "output_tokens must be a whole number from 1 to %u",
				     TOKENS_MAX);
	r = requests_add(reader, arrival, requests_cut(prompt, o->max_prompt),
			 requests_cut(output, o->max_output), &q);
	if (r)
		return r;
	q->id_is_number = true;
	snprintf(q->id, sizeof(q->id), "%llu", (unsigned long long)index);
	make_prompt(reader, index, q);
	return 0;
}

static void requests_close_file(FILE **file)
{
	if (*file && *file != stdin)
		fclose(*file);
}

static int requests_read_lines(struct requests_reader *reader, FILE *file, bool csv)
{
	mm_cleanup(mm_free_ptr) char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int r = 0;

	while (!r && (n = getline(&line, &room, file)) >= 0) {
		reader->line++;
		if (n && line[n - 1] == '\n')
			line[--n] = '\0';
		if (strlen(line) != (size_t)n)
			return requests_fail(reader, "a zero byte");
		if (csv && reader->line == 1) {
			if (strcmp(line, csv_header))
				return requests_fail(reader, "the first line must be %s",
						     csv_header);
			continue;
		}
		if (reader->opts->limit && reader->out->n == reader->opts->limit)
			return 0;
		r = csv ? read_csv_line(reader, line) : read_json_line(reader, line);
	}
	if (!r && ferror(file))
		return requests_fail(reader, "cannot be read: %s", strerror(errno));
	return r;
}

int mm_requests_read(const char *path, bool csv, const struct mm_requests_opts *opts,
		     struct mm_requests *ret_requests, char *err)
{
	const bool is_stdin = !strcmp(path, "-");
	mm_cleanup(requests_close_file) FILE *file = is_stdin ? stdin : fopen(path, "rbe");
	mm_cleanup(mm_requests_done) struct mm_requests out = { 0 };
	struct requests_reader reader = {
		.path = is_stdin ? "standard input" : path, .opts = opts, .out = &out, .err = err
	};
	int r;

	if (!file) {
		r = -errno;
		snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", path, strerror(errno));
		return r;
	}
	r = requests_read_lines(&reader, file, csv);
	/*
	 * A trace may have no rows, for a tenant that only holds memory. A file without a line is
	 * refused.
	 */
	if (!r && !reader.line)
		r = requests_fail(&reader, "it is empty");
	if (r)
		return r;
	*ret_requests = out;
	out = (struct mm_requests){ 0 };
	return 0;
}

void mm_requests_done(struct mm_requests *q)
{
	for (size_t i = 0; i < q->n; i++) {
		free(q->all[i].ids);
		free(q->all[i].times);
	}
	free(q->all);
	*q = (struct mm_requests){ 0 };
}

bool mm_request_is_late(const struct mm_request *q, const struct mm_request_goals *goals)
{
	const uint32_t n = q->n_output;

	if (!(goals->ttft_s > 0) && !(goals->per_token_s > 0))
		return false;
	if (q->error[0] || !n)
		return true;
	if (goals->ttft_s > 0 && q->times[0] - q->arrival_s > goals->ttft_s)
		return true;
	return goals->per_token_s > 0 && n > 1 &&
	       q->times[n - 1] - q->times[0] > goals->per_token_s * (n - 1);
}
