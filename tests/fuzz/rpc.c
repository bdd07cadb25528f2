/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes lines to the admin socket: an answer must be one line of JSON-RPC that a client can read.
 */
#include "mmd/shell/rpc.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/input.h"

static json_t *params_echo(void *context, const json_t *params, struct mm_rpc_error *error)
{
	const json_t *word = json_object_get(params, "word");

	(void)context;
	if (!json_is_string(word))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "word: not a string");
	/* Like real methods, it puts its parameters into its sentence. */
	if (json_string_length(word) > 200)
		return mm_rpc_fail(error, MM_RPC_FAILED, "too long: %s", json_string_value(word));
	return json_deep_copy(word);
}

/* An observer never gets here. */
static json_t *params_write(void *context, const json_t *params, struct mm_rpc_error *error)
{
	(void)context;
	(void)params;
	(void)error;
	mm_assert(false);
	return NULL;
}

static void check_reply(const json_t *reply)
{
	const json_t *error = json_object_get(reply, "error");

	mm_assert(json_object_get(reply, "id") != NULL);
	mm_assert((error != NULL) != (json_object_get(reply, "result") != NULL));
	if (!error)
		return;
	mm_assert(json_integer_value(json_object_get(error, "code")) < 0);
	mm_assert(json_string_length(json_object_get(error, "message")) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static const struct mm_rpc_method methods[] = { { "echo", MM_RPC_VIEWS, params_echo },
							{ "write", MM_RPC_CHANGES, params_write },
							{ .name = NULL } };
	static const struct mm_rpc observer = { .methods = methods,
						.denied = "changes something",
						.batch_max = 4 };
	json_t *reply, *one;
	char *line = NULL;
	size_t i;

	if (mm_rpc_line(&observer, (const char *)data, size_bytes, &line) < 0 || !line)
		return 0;
	mm_assert(strchr(line, '\n') == line + strlen(line) - 1);
	reply = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	mm_assert(reply != NULL);
	if (json_is_object(reply))
		check_reply(reply);
	json_array_foreach(reply, i, one)
		check_reply(one);
	mm_assert(json_is_object(reply) || i > 0);
	json_decref(reply);
	free(line);
	return 0;
}
