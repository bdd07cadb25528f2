/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/rpc.h"

static int calls;

static json_t *echo(void *context, const json_t *params, struct mm_rpc_error *error)
{
	const json_t *word = json_object_get(params, "word");

	(void)context;
	calls++;
	if (!word)
		return mm_rpc_fail(error, MM_RPC_PARAMS, "word: missing");
	return json_deep_copy(word);
}

static const struct mm_rpc_method methods[] = { { "echo", MM_RPC_CHANGES, echo },
						{ "look", MM_RPC_VIEWS, echo },
						{ .name = NULL } };
static const struct mm_rpc all = { .methods = methods };

static const struct {
	const char *line;
	const char *reply; /* the exact text; NULL = no reply */
	int calls;
} cases[] = {
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{\"word\":\"a\"}}",
	  "{\"jsonrpc\":\"2.0\",\"result\":\"a\",\"id\":1}\n", 1 },
	{ "{\"jsonrpc\":\"2.0\",\"method\":\"echo\",\"params\":{\"word\":\"a\"}}", NULL, 1 },
	{ "[{\"jsonrpc\":\"2.0\",\"method\":\"echo\",\"params\":{\"word\":1}},"
	  "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"echo\",\"params\":{\"word\":2}}]",
	  "[{\"jsonrpc\":\"2.0\",\"result\":2,\"id\":\"x\"}]\n", 2 },
	{ "[{\"jsonrpc\":\"2.0\",\"method\":\"echo\",\"params\":{\"word\":1}}]", NULL, 1 },
};

static void test_answers(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		mm_cleanup(mm_free_ptr) char *reply = NULL;

		calls = 0;
		assert_int_equal(mm_rpc_line(&all, cases[i].line, strlen(cases[i].line), &reply),
				 0);
		if (cases[i].reply)
			assert_string_equal(reply, cases[i].reply);
		else
			assert_null(reply);
		assert_int_equal(calls, cases[i].calls);
	}
}

#define LETTERS_63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct {
	const char *line;
	int code;
	bool id; /* the id 1 is echoed */
} wrong[] = {
	{ "{", MM_RPC_PARSE, false },
	{ "\xff\xfe", MM_RPC_PARSE, false },
	{ "{} x", MM_RPC_PARSE, false },
	{ "7", MM_RPC_REQUEST, false },
	{ "[]", MM_RPC_REQUEST, false },
	{ "{}", MM_RPC_REQUEST, false },
	{ "{\"id\":1,\"method\":\"echo\"}", MM_RPC_REQUEST, true },
	{ "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"echo\"}", MM_RPC_REQUEST, true },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", MM_RPC_REQUEST, true },
	{ "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"echo\"}", MM_RPC_REQUEST, false },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nope\"}", MM_RPC_METHOD, true },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":[]}", MM_RPC_PARAMS, true },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{}}", MM_RPC_PARAMS, true },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}", MM_RPC_PARAMS, true },
	/* text that is cut within a character */
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" LETTERS_63 "\\u00fc\"}", MM_RPC_METHOD,
	  true },
};

static void test_errors(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++) {
		json_t *json, *error;
		char *reply;

		assert_int_equal(mm_rpc_line(&all, wrong[i].line, strlen(wrong[i].line), &reply),
				 0);
		json = json_loads(reply, 0, NULL);
		error = json_object_get(json, "error");
		assert_int_equal(json_integer_value(json_object_get(error, "code")), wrong[i].code);
		assert_true(strlen(json_string_value(json_object_get(error, "message"))) > 0);
		assert_int_equal(json_integer_value(json_object_get(json, "id")), wrong[i].id);
		json_decref(json);
		free(reply);
	}
}

/* Nothing of a batch that is too long is run. */
static void test_batch_limit(void **state)
{
	json_t *batch = json_array();
	char *line, *reply;

	(void)state;
	for (int i = 0; i <= MM_RPC_BATCH_MAX; i++)
		json_array_append_new(batch,
				      json_pack("{s:s,s:s}", "jsonrpc", "2.0", "method", "echo"));
	line = json_dumps(batch, JSON_COMPACT);
	calls = 0;
	assert_int_equal(mm_rpc_line(&all, line, strlen(line), &reply), 0);
	assert_non_null(strstr(reply, "-32600"));
	assert_int_equal(calls, 0);
	free(reply);
	free(line);
	json_decref(batch);
}

#define CALL(id, method) \
	"{\"jsonrpc\":\"2.0\"," id "\"method\":\"" method "\",\"params\":{\"word\":1}}"

/* An observer gets what only shows something, and a sentence for the rest; fewer in a line, too. */
static void test_rights(void **state)
{
	static const struct mm_rpc observer = { .methods = methods,
						.denied = "is for root",
						.batch_max = 2 };
	static const struct {
		const char *line, *reply;
		int calls;
	} asked[] = {
		{ CALL("\"id\":1,", "look"), "{\"jsonrpc\":\"2.0\",\"result\":1,\"id\":1}\n", 1 },
		{ CALL("\"id\":1,", "echo"),
		  "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32001,"
		  "\"message\":\"echo is for root\"},\"id\":1}\n",
		  0 },
		/* also where no answer is due */
		{ CALL("", "echo"), NULL, 0 },
		{ "[" CALL("", "look") "," CALL("", "echo") "]", NULL, 1 },
		{ "[1,2,3]",
		  "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,"
		  "\"message\":\"batch too long\"},\"id\":null}\n",
		  0 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(asked); i++) {
		mm_cleanup(mm_free_ptr) char *reply = NULL;

		calls = 0;
		assert_int_equal(
			mm_rpc_line(&observer, asked[i].line, strlen(asked[i].line), &reply), 0);
		if (asked[i].reply)
			assert_string_equal(reply, asked[i].reply);
		else
			assert_null(reply);
		assert_int_equal(calls, asked[i].calls);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_batch_limit),
		cmocka_unit_test(test_rights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
