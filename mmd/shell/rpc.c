/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/rpc.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"

json_t *mm_rpc_fail(struct mm_rpc_error *error, int code, const char *fmt, ...)
{
	va_list ap;

	error->code = code;
	va_start(ap, fmt);
	vsnprintf(error->text, sizeof(error->text), fmt, ap);
	va_end(ap);
	return NULL;
}

static json_t *reply_make(json_t *id, json_t *result, const struct mm_rpc_error *error)
{
	json_t *reply = json_object();

	mm_json_put_text(reply, "jsonrpc", "2.0");
	if (result)
		mm_json_put(reply, "result", result);
	else
		mm_json_put(reply, "error",
			    json_pack("{s:i,s:o}", "code", error->code, "message",
				      mm_json_string(error->text)));
	json_object_set(reply, "id", id ? id : json_null());
	return reply;
}

static json_t *request_refuse(json_t *id, int code, const char *text)
{
	struct mm_rpc_error error;

	mm_rpc_fail(&error, code, "%s", text);
	return reply_make(id, NULL, &error);
}

static const struct mm_rpc_method *method_find(const struct mm_rpc_method *methods,
					       const char *name)
{
	for (; methods->name; methods++) {
		if (strcmp(methods->name, name) == 0)
			return methods;
	}
	return NULL;
}

static json_t *method_call(const struct mm_rpc_method *methods, void *context, const char *name,
			   const json_t *params, struct mm_rpc_error *error)
{
	const struct mm_rpc_method *method = method_find(methods, name);
	json_t *result;

	if (!method)
		return mm_rpc_fail(error, MM_RPC_METHOD, "no such method: %.64s", name);
	if (params && !json_is_object(params))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "%s: params must be an object", name);
	result = method->run(context, params, error);
	if (!result && !error->code)
		mm_rpc_fail(error, MM_RPC_INTERNAL, "%s: out of memory", name);
	return result;
}

static bool id_is_valid(const json_t *id)
{
	return !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
}

/* Return: the reply; NULL for a notification. */
static json_t *request_answer(const struct mm_rpc_method *methods, void *context,
			      const json_t *request)
{
	const char *version = json_string_value(json_object_get(request, "jsonrpc"));
	const char *name = json_string_value(json_object_get(request, "method"));
	json_t *id = json_object_get(request, "id");
	struct mm_rpc_error error = { 0 };
	json_t *result;

	if (!id_is_valid(id))
		return request_refuse(NULL, MM_RPC_REQUEST, "id must be a string or a number");
	if (!version || strcmp(version, "2.0") != 0 || !name)
		return request_refuse(id, MM_RPC_REQUEST, "not a JSON-RPC 2.0 request");
	result = method_call(methods, context, name, json_object_get(request, "params"), &error);
	if (!id) {
		json_decref(result);
		return NULL;
	}
	return reply_make(id, result, &error);
}

static json_t *batch_answer(const struct mm_rpc_method *methods, void *context,
			    const json_t *requests)
{
	size_t n = json_array_size(requests);
	json_t *replies;

	if (n == 0 || n > MM_RPC_BATCH_MAX)
		return request_refuse(NULL, MM_RPC_REQUEST,
				      n ? "batch too long" : "batch is empty");
	replies = json_array();
	for (size_t i = 0; i < n; i++) {
		json_t *reply = request_answer(methods, context, json_array_get(requests, i));

		if (reply)
			json_array_append_new(replies, reply);
	}
	if (json_array_size(replies) > 0)
		return replies;
	json_decref(replies);
	return NULL;
}

static char *reply_print(const json_t *reply)
{
	char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
	char *line = NULL;

	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

char *mm_rpc_line(const struct mm_rpc_method *methods, void *context, const char *line,
		  size_t bytes)
{
	mm_cleanup(mm_json_done) json_t *request =
		json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	mm_cleanup(mm_json_done) json_t *reply = NULL;

	if (!request)
		reply = request_refuse(NULL, MM_RPC_PARSE, "not JSON");
	else if (json_is_array(request))
		reply = batch_answer(methods, context, request);
	else
		reply = request_answer(methods, context, request);
	return reply_print(reply);
}
