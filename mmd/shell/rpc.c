/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/rpc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
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

/* Return: the reply, whole; NULL: no memory for one. */
static json_t *reply_make(json_t *id, json_t *result, const struct mm_rpc_error *error)
{
	mm_cleanup(mm_json_done) json_t *reply = json_object();

	mm_json_put_text(reply, "jsonrpc", "2.0");
	if (result)
		mm_json_put(reply, "result", result);
	else
		mm_json_put(reply, "error",
			    json_pack("{s:i,s:o}", "code", error->code, "message",
				      mm_json_string(error->text)));
	mm_json_put(reply, "id", id ? json_incref(id) : json_null());
	if (json_object_size(reply) != 3)
		return NULL;
	return mm_json_take(&reply);
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

static void request_note(const struct mm_rpc *rpc, const struct mm_rpc_method *method,
			 enum mm_rpc_stage stage, const json_t *params,
			 const struct mm_rpc_error *error)
{
	if (rpc->note && method->kind == MM_RPC_CHANGES)
		rpc->note(rpc, stage, method->name, params, error);
}

static json_t *method_call(const struct mm_rpc *rpc, const char *name, const json_t *params,
			   struct mm_rpc_error *error)
{
	const struct mm_rpc_method *method = method_find(rpc->methods, name);
	json_t *result;

	if (!method)
		return mm_rpc_fail(error, MM_RPC_METHOD, "no such method: %.64s", name);
	if (rpc->denied && method->kind != MM_RPC_VIEWS) {
		request_note(rpc, method, MM_RPC_REFUSED, params, error);
		return mm_rpc_fail(error, MM_RPC_DENIED, "%s %s", name, rpc->denied);
	}
	if (params && !json_is_object(params))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "%s: params must be an object", name);
	request_note(rpc, method, MM_RPC_ASKED, params, error);
	(void)mm_json_has_lost();
	result = method->run(rpc->context, params, error);
	/* An answer that lacks a member says something else than what is. */
	if (mm_json_has_lost() && result) {
		json_decref(result);
		result = NULL;
	}
	if (!result && !error->code)
		mm_rpc_fail(error, MM_RPC_INTERNAL, "%s: out of memory", name);
	request_note(rpc, method, MM_RPC_ANSWERED, params, error);
	return result;
}

static bool id_is_valid(const json_t *id)
{
	return !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
}

/*
 * The three below pass a reply, or NULL where none is due. Return: 0; -ENOMEM: the reply that is
 * due could not be made.
 */
static int request_answer(const struct mm_rpc *rpc, const json_t *request, json_t **ret_reply)
{
	const char *version = json_string_value(json_object_get(request, "jsonrpc"));
	const char *name = json_string_value(json_object_get(request, "method"));
	json_t *id = json_object_get(request, "id"), *result, *reply;
	struct mm_rpc_error error = { 0 };

	if (!id_is_valid(id)) {
		reply = request_refuse(NULL, MM_RPC_REQUEST, "id must be a string or a number");
	} else if (!version || strcmp(version, "2.0") != 0 || !name) {
		reply = request_refuse(id, MM_RPC_REQUEST, "not a JSON-RPC 2.0 request");
	} else {
		result = method_call(rpc, name, json_object_get(request, "params"), &error);
		if (!id) {
			json_decref(result);
			*ret_reply = NULL;
			return 0;
		}
		reply = reply_make(id, result, &error);
	}
	if (!reply)
		return -ENOMEM;
	*ret_reply = reply;
	return 0;
}

static int batch_answer(const struct mm_rpc *rpc, const json_t *requests, json_t **ret_reply)
{
	mm_cleanup(mm_json_done) json_t *replies = json_array();
	const size_t max = rpc->batch_max ? rpc->batch_max : MM_RPC_BATCH_MAX;
	size_t n = json_array_size(requests);

	if (n == 0 || n > max) {
		*ret_reply = request_refuse(NULL, MM_RPC_REQUEST,
					    n ? "batch too long" : "batch is empty");
		return *ret_reply ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		json_t *reply;
		int r = request_answer(rpc, json_array_get(requests, i), &reply);

		if (r < 0 || (reply && json_array_append_new(replies, reply) < 0))
			return -ENOMEM;
	}
	*ret_reply = json_array_size(replies) > 0 ? mm_json_take(&replies) : NULL;
	return 0;
}

static int reply_print(const json_t *reply, char **ret_line)
{
	mm_cleanup(mm_free_ptr) char *text = json_dumps(reply, JSON_COMPACT);
	char *line;

	if (!text || asprintf(&line, "%s\n", text) < 0)
		return -ENOMEM;
	*ret_line = line;
	return 0;
}

int mm_rpc_refuse(int code, const char *text, char **ret_line)
{
	mm_cleanup(mm_json_done) json_t *reply = request_refuse(NULL, code, text);

	return reply ? reply_print(reply, ret_line) : -ENOMEM;
}

int mm_rpc_line(const struct mm_rpc *rpc, const char *line, size_t bytes, char **ret_reply)
{
	json_error_t where;
	mm_cleanup(mm_json_done) json_t *request =
		json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
	mm_cleanup(mm_json_done) json_t *reply = NULL;
	int r = 0;

	if (!request && json_error_code(&where) == json_error_out_of_memory)
		return -ENOMEM;
	if (!request) {
		reply = request_refuse(NULL, MM_RPC_PARSE, "not JSON");
		r = reply ? 0 : -ENOMEM;
	} else if (json_is_array(request)) {
		r = batch_answer(rpc, request, &reply);
	} else {
		r = request_answer(rpc, request, &reply);
	}
	if (r < 0)
		return r;
	if (reply)
		return reply_print(reply, ret_reply);
	*ret_reply = NULL;
	return 0;
}
