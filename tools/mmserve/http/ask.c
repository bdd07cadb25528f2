/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/ask.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/mmserve/http/buffer.h"

#define TEMPERATURE_MAX 2.0
#define OUTPUT_MAX      (1u << 24)

struct ask_reader {
	struct mm_ask *ask;
	const struct mm_ask_limits *limits;
	struct mm_refusal *refusal;
	const char *name; /* of the field that is being read */
	struct mm_buffer messages;
};

int mm_ask_refuse(struct mm_refusal *refusal, int status, const char *param, const char *format,
		  ...)
{
	va_list args;

	*refusal = (struct mm_refusal){ .status = status,
					.type = status == 401   ? "authentication_error"
						: status == 404 ? "not_found_error"
						: status == 429 ? "rate_limit_error"
						: status >= 500 ? "server_error"
								: "invalid_request_error" };
	snprintf(refusal->param, sizeof(refusal->param), "%s", param ? param : "");
	va_start(args, format);
	vsnprintf(refusal->message, sizeof(refusal->message), format, args);
	va_end(args);
	return MM_E_PROTOCOL;
}

#define field_refuse(reader, ...) mm_ask_refuse((reader)->refusal, 400, (reader)->name, __VA_ARGS__)

/* ---- fields ---- */

typedef int ask_field_fn(struct ask_reader *reader, const json_t *value);

static int field_model(struct ask_reader *reader, const json_t *value)
{
	const char *name = json_string_value(value);

	if (!name)
		return field_refuse(reader, "model must be a string");
	if (strcmp(name, reader->limits->model) == 0)
		return 0;
	mm_ask_refuse(reader->refusal, 404, "model",
		      "the model '%.100s' is not served here, '%.100s' is", name,
		      reader->limits->model);
	reader->refusal->code = "model_not_found";
	return MM_E_PROTOCOL;
}

/* Reads token ids of an array; @name is that of the field, for messages. */
static int read_ids(struct ask_reader *reader, const json_t *list)
{
	struct mm_ask *ask = reader->ask;
	const size_t n = json_array_size(list);

	if (n > reader->limits->tokens_max)
		return field_refuse(reader, "%s has %zu tokens, the most for this model are %u",
				    reader->name, n, reader->limits->tokens_max);
	ask->ids = calloc(n + 1, sizeof(*ask->ids));
	if (!ask->ids)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint64_t id;

		if (!mm_json_is_whole(json_array_get(list, i), 0, reader->limits->vocab - 1, &id))
			return field_refuse(reader,
					    "%s[%zu] is not a token id below the vocabulary's %u",
					    reader->name, i, reader->limits->vocab);
		ask->ids[i] = (uint32_t)id;
	}
	ask->n_ids = n;
	return 0;
}

static int read_text(struct ask_reader *reader, const json_t *text)
{
	if (!json_string_length(text))
		return field_refuse(reader, "%s must not be empty", reader->name);
	reader->ask->text = strdup(json_string_value(text));
	return reader->ask->text ? 0 : -ENOMEM;
}

static int field_prompt(struct ask_reader *reader, const json_t *value)
{
	const json_t *first = json_array_get(value, 0);

	/* A list of one prompt is a prompt. */
	if (json_is_string(first) || json_is_array(first)) {
		if (json_array_size(value) != 1)
			return field_refuse(reader, "%s: one prompt in a request, not %zu",
					    reader->name, json_array_size(value));
		value = first;
	}
	if (json_is_string(value))
		return read_text(reader, value);
	if (!json_array_size(value))
		return field_refuse(reader, "%s must be a text or a list of token ids, not empty",
				    reader->name);
	return read_ids(reader, value);
}

static int field_tokens(struct ask_reader *reader, const json_t *value)
{
	if (!json_is_array(value))
		return field_refuse(reader, "tokens must be a list of token ids");
	return read_ids(reader, value);
}

/* Return: the text of a message; NULL: it is none. One of several parts is in @joined. */
static const char *message_text(const json_t *message, char **joined)
{
	const json_t *content = json_object_get(message, "content");
	size_t bytes = 1, i;
	const json_t *part;
	char *at;

	if (json_is_string(content))
		return json_string_value(content);
	if (!json_array_size(content))
		return NULL;
	json_array_foreach(content, i, part) {
		if (strcmp(mm_json_text(part, "type"), "text") != 0 ||
		    !json_is_string(json_object_get(part, "text")))
			return NULL;
		bytes += json_string_length(json_object_get(part, "text"));
	}
	at = *joined = malloc(bytes);
	if (!at)
		return NULL;
	*at = '\0';
	json_array_foreach(content, i, part)
		at = stpcpy(at, json_string_value(json_object_get(part, "text")));
	return *joined;
}

static bool is_role(const char *role)
{
	static const char *const roles[] = { "system", "developer", "user", "assistant" };

	for (size_t i = 0; i < MM_ARRAY_SIZE(roles); i++)
		if (!strcmp(role, roles[i]))
			return true;
	return false;
}

static int message_read(struct ask_reader *reader, const json_t *message, size_t i)
{
	mm_cleanup(mm_free_ptr) char *joined = NULL;
	const char *text = message_text(message, &joined);

	if (!is_role(mm_json_text(message, "role")))
		return field_refuse(
			reader, "messages[%zu].role must be system, developer, user or assistant",
			i);
	if (!text)
		return field_refuse(
			reader,
			"messages[%zu].content must be a text, or a list of parts of type text", i);
	mm_buffer_puts(&reader->messages, i ? "\n" : "");
	mm_buffer_puts(&reader->messages, text);
	return reader->messages.failed ? -ENOMEM : 0;
}

static int field_messages(struct ask_reader *reader, const json_t *value)
{
	const json_t *message;
	size_t i;
	int r = 0;

	if (!json_array_size(value))
		return field_refuse(reader, "messages must be a list of at least one message");
	json_array_foreach(value, i, message) {
		r = message_read(reader, message, i);
		if (r)
			break;
	}
	reader->ask->text = reader->messages.text;
	if (!r && !*reader->ask->text)
		return field_refuse(reader, "messages must not be empty");
	return r;
}

static int field_max_tokens(struct ask_reader *reader, const json_t *value)
{
	uint64_t tokens;

	if (!mm_json_is_whole(value, 1, OUTPUT_MAX, &tokens))
		return field_refuse(reader, "%s must be a whole number from 1", reader->name);
	reader->ask->max_tokens = (uint32_t)tokens;
	return 0;
}

static int field_temperature(struct ask_reader *reader, const json_t *value)
{
	const double x = json_number_value(value);

	if (!json_is_number(value) || !(x >= 0) || x > TEMPERATURE_MAX)
		return field_refuse(reader, "temperature must be a number from 0 to 2");
	reader->ask->sampling.temperature = x;
	return 0;
}

static int field_top_p(struct ask_reader *reader, const json_t *value)
{
	const double x = json_number_value(value);

	if (!json_is_number(value) || !(x > 0) || x > 1)
		return field_refuse(reader, "top_p must be a number above 0, at most 1");
	reader->ask->sampling.top_p = x;
	return 0;
}

static int field_seed(struct ask_reader *reader, const json_t *value)
{
	if (!json_is_integer(value))
		return field_refuse(reader, "seed must be a whole number of 64 bits");
	reader->ask->sampling.seed = (uint64_t)json_integer_value(value);
	reader->ask->seeded = true;
	return 0;
}

static int stop_add(struct ask_reader *reader, const json_t *value)
{
	struct mm_ask *ask = reader->ask;
	const size_t bytes = json_string_length(value);

	if (!bytes || bytes > MM_ASK_STOP_BYTES_MAX)
		return field_refuse(reader, "stop must be texts of 1 to %u bytes",
				    MM_ASK_STOP_BYTES_MAX);
	ask->stops[ask->n_stops++] = json_string_value(value);
	return 0;
}

static int field_stop(struct ask_reader *reader, const json_t *value)
{
	const json_t *text;
	size_t i;
	int r = 0;

	if (json_is_string(value))
		return stop_add(reader, value);
	if (!json_is_array(value) || json_array_size(value) > MM_ASK_STOPS_MAX)
		return field_refuse(reader, "stop must be a text, or a list of at most %u",
				    MM_ASK_STOPS_MAX);
	json_array_foreach(value, i, text) {
		r = stop_add(reader, text);
		if (r)
			return r;
	}
	return 0;
}

static int field_stop_ids(struct ask_reader *reader, const json_t *value)
{
	struct mm_ask *ask = reader->ask;
	const json_t *item;
	size_t i;
	uint64_t id;

	/* The model's own ends need places as well. */
	if (!json_is_array(value) || json_array_size(value) > MM_JOB_ENDS_MAX / 2)
		return field_refuse(reader, "stop_token_ids must be a list of at most %u token ids",
				    MM_JOB_ENDS_MAX / 2);
	json_array_foreach(value, i, item) {
		if (!mm_json_is_whole(item, 0, reader->limits->vocab - 1, &id))
			return field_refuse(
				reader,
				"stop_token_ids[%zu] is not a token id below the vocabulary's %u",
				i, reader->limits->vocab);
		ask->stop_ids[ask->n_stop_ids++] = (uint32_t)id;
	}
	return 0;
}

static int flag_read(struct ask_reader *reader, const json_t *value, bool *ret)
{
	if (!json_is_boolean(value))
		return field_refuse(reader, "%s must be true or false", reader->name);
	*ret = json_is_true(value);
	return 0;
}

static int field_stream(struct ask_reader *reader, const json_t *value)
{
	return flag_read(reader, value, &reader->ask->stream);
}

static int field_ignore_eos(struct ask_reader *reader, const json_t *value)
{
	return flag_read(reader, value, &reader->ask->ignore_eos);
}

static int field_return_ids(struct ask_reader *reader, const json_t *value)
{
	return flag_read(reader, value, &reader->ask->return_ids);
}

static int field_special(struct ask_reader *reader, const json_t *value)
{
	return flag_read(reader, value, &reader->ask->special);
}

static int field_stream_options(struct ask_reader *reader, const json_t *value)
{
	static const char *const known[] = { "include_usage", "continuous_usage_stats" };
	bool *const flags[] = { &reader->ask->include_usage, &reader->ask->each_usage };
	const char *key;
	json_t *each;
	int r = 0;

	if (!json_is_object(value))
		return field_refuse(reader, "stream_options must be an object");
	json_object_foreach((json_t *)value, key, each) {
		size_t i = 0;

		while (i < MM_ARRAY_SIZE(known) && strcmp(key, known[i]) != 0)
			i++;
		if (i == MM_ARRAY_SIZE(known))
			return field_refuse(reader, "stream_options.%.40s is not supported", key);
		if (!json_is_null(each))
			r = flag_read(reader, each, flags[i]);
		if (r)
			return r;
	}
	return 0;
}

/* Completions have a number of alternatives, chat has a flag: of the sampled token itself alone. */
static int field_logprobs(struct ask_reader *reader, const json_t *value)
{
	if (reader->ask->kind == MM_ASK_CHAT)
		return flag_read(reader, value, &reader->ask->sampling.logprobs);
	if (!mm_json_is_whole(value, 0, 0, NULL))
		return field_refuse(
			reader,
			"logprobs must be 0 (of the sampled token): there are no alternatives");
	reader->ask->sampling.logprobs = true;
	return 0;
}

/* ---- the table ---- */

#define IN_COMPLETION 1u
#define IN_CHAT       2u
#define IN_BOTH       3u
#define IN_TOKENIZE   4u
#define IN_DETOKENIZE 8u

enum neutral { NEUTRAL_NOT, NEUTRAL_ZERO, NEUTRAL_ONE, NEUTRAL_FALSE, NEUTRAL_EMPTY, NEUTRAL_ANY };

static const struct ask_field {
	const char *name;
	unsigned int in;
	ask_field_fn *read;   /* NULL: there is only a value that changes nothing */
	enum neutral neutral; /* that value, besides null */
} ask_fields[] = {
	{ "model", IN_BOTH | IN_TOKENIZE | IN_DETOKENIZE, field_model, 0 },
	{ "prompt", IN_COMPLETION | IN_TOKENIZE, field_prompt, 0 },
	{ "messages", IN_CHAT, field_messages, 0 },
	{ "tokens", IN_DETOKENIZE, field_tokens, 0 },
	{ "max_tokens", IN_BOTH, field_max_tokens, 0 },
	{ "max_completion_tokens", IN_CHAT, field_max_tokens, 0 },
	{ "temperature", IN_BOTH, field_temperature, 0 },
	{ "top_p", IN_BOTH, field_top_p, 0 },
	{ "seed", IN_BOTH, field_seed, 0 },
	{ "stop", IN_BOTH, field_stop, 0 },
	{ "stop_token_ids", IN_BOTH, field_stop_ids, 0 },
	{ "stream", IN_BOTH, field_stream, 0 },
	{ "stream_options", IN_BOTH, field_stream_options, 0 },
	{ "ignore_eos", IN_BOTH, field_ignore_eos, 0 },
	{ "return_token_ids", IN_BOTH, field_return_ids, 0 },
	{ "add_special_tokens", IN_BOTH | IN_TOKENIZE, field_special, 0 },
	{ "logprobs", IN_BOTH, field_logprobs, 0 },
	{ "n", IN_BOTH, NULL, NEUTRAL_ONE },
	{ "best_of", IN_COMPLETION, NULL, NEUTRAL_ONE },
	{ "echo", IN_COMPLETION, NULL, NEUTRAL_FALSE },
	{ "suffix", IN_COMPLETION, NULL, NEUTRAL_EMPTY },
	{ "presence_penalty", IN_BOTH, NULL, NEUTRAL_ZERO },
	{ "frequency_penalty", IN_BOTH, NULL, NEUTRAL_ZERO },
	{ "repetition_penalty", IN_BOTH, NULL, NEUTRAL_ONE },
	{ "logit_bias", IN_BOTH, NULL, NEUTRAL_EMPTY },
	{ "top_logprobs", IN_CHAT, NULL, NEUTRAL_ZERO },
	{ "top_k", IN_BOTH, NULL, NEUTRAL_ZERO },
	{ "min_p", IN_BOTH, NULL, NEUTRAL_ZERO },
	{ "min_tokens", IN_BOTH, NULL, NEUTRAL_ZERO },
	{ "use_beam_search", IN_BOTH, NULL, NEUTRAL_FALSE },
	{ "tools", IN_CHAT, NULL, NEUTRAL_EMPTY },
	{ "tool_choice", IN_CHAT, NULL, NEUTRAL_NOT },
	{ "response_format", IN_BOTH, NULL, NEUTRAL_NOT },
	{ "user", IN_BOTH, NULL, NEUTRAL_ANY },
	{ "metadata", IN_BOTH, NULL, NEUTRAL_ANY },
	{ "store", IN_CHAT, NULL, NEUTRAL_FALSE },
};

static bool value_is_neutral(const json_t *value, enum neutral neutral)
{
	switch (neutral) {
	case NEUTRAL_ZERO:
		return json_is_number(value) && !(fabs(json_number_value(value)) > 0);
	case NEUTRAL_ONE:
		return json_is_number(value) && !(fabs(json_number_value(value) - 1) > 0);
	case NEUTRAL_FALSE:
		return json_is_false(value);
	case NEUTRAL_EMPTY:
		return (json_is_string(value) && !json_string_length(value)) ||
		       (json_is_array(value) && !json_array_size(value)) ||
		       (json_is_object(value) && !json_object_size(value));
	case NEUTRAL_ANY:
		return true;
	default:
		return false;
	}
}

static const struct ask_field *find_field(enum mm_ask_kind kind, const char *name)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(ask_fields); i++)
		if ((ask_fields[i].in & 1u << kind) && !strcmp(ask_fields[i].name, name))
			return &ask_fields[i];
	return NULL;
}

static int field_read(struct ask_reader *reader, const char *name, const json_t *value)
{
	const struct ask_field *field = find_field(reader->ask->kind, name);

	if (!field) {
		reader->name = name;
		return field_refuse(reader, "%.40s is not a field that is known here", name);
	}
	reader->name = field->name;
	if (json_is_null(value))
		return 0;
	if (field->read)
		return field->read(reader, value);
	if (value_is_neutral(value, field->neutral))
		return 0;
	return field_refuse(reader, "%s is not supported, except with its default", name);
}

static int check_whole(struct ask_reader *reader)
{
	static const char *const needed[] = { "prompt", "messages", "prompt", "tokens" };
	const struct mm_ask *ask = reader->ask;

	if (!ask->text && !ask->ids) {
		reader->name = needed[ask->kind];
		return field_refuse(reader, "%s is missing", reader->name);
	}
	reader->name = "stream_options";
	if ((ask->include_usage || ask->each_usage) && !ask->stream)
		return field_refuse(reader, "stream_options needs stream: true");
	return 0;
}

int mm_ask_read(enum mm_ask_kind kind, const char *body, size_t bytes,
		const struct mm_ask_limits *limits, struct mm_ask *ask, struct mm_refusal *refusal)
{
	struct ask_reader reader = { ask, limits, refusal, "", { 0 } };
	char why[256];
	const char *name;
	json_t *value;
	int r;

	*ask = (struct mm_ask){ .kind = kind,
				.special = true,
				.sampling = { .temperature = 1, .top_p = 1 } };
	r = mm_json_parse(body, bytes, &ask->body, why, sizeof(why));
	if (r == -ENOMEM)
		return r;
	if (r)
		return mm_ask_refuse(refusal, 400, NULL, "the body is %s", why);
	if (!json_is_object(ask->body))
		return mm_ask_refuse(refusal, 400, NULL, "the body is not a JSON object");
	json_object_foreach(ask->body, name, value) {
		r = field_read(&reader, name, value);
		if (r)
			return r;
	}
	return check_whole(&reader);
}

void mm_ask_done(struct mm_ask *ask)
{
	free(ask->ids);
	free(ask->text);
	json_decref(ask->body);
	*ask = (struct mm_ask){ 0 };
}
