/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc - JSON-RPC 2.0 over lines, without any socket
 *
 * Concept:   Takes one line and returns one line: a request or a batch is answered by a table of
 *            methods. Errors as the specification has them: -32700 no JSON, -32600 no request,
 *            -32601 no such method, -32602 bad params; MM_RPC_FAILED where a method could not do
 *            what was requested.
 * Ownership: params are borrowed by a method, its result is the caller's.
 * Threading: none of its own; methods run in the caller's thread.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#define MM_RPC_PARSE     (-32700)
#define MM_RPC_REQUEST   (-32600)
#define MM_RPC_METHOD    (-32601)
#define MM_RPC_PARAMS    (-32602)
#define MM_RPC_INTERNAL  (-32603)
#define MM_RPC_FAILED    (-32000)
#define MM_RPC_BATCH_MAX 32
#define MM_RPC_TEXT      256

struct mm_rpc_error {
	int code; /* 0 = none */
	char text[MM_RPC_TEXT];
};

struct mm_rpc_method {
	const char *name;
	/*
	 * @params is an object or NULL. Return: the result; NULL on failure, and @error is filled
	 * in.
	 */
	json_t *(*run)(void *context, const json_t *params, struct mm_rpc_error *error);
};

/* Fills in an error; returns NULL for `return mm_rpc_fail(...)`. */
json_t *mm_rpc_fail(struct mm_rpc_error *error, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * mm_rpc_line() - answer one line
 * @methods: ends with a NULL name
 * @context: handed to methods
 * @line:    @bytes of them, without the newline
 * @bytes:   of @line
 * @ret_reply: malloc'ed line with its newline; NULL when there is nothing to answer (notifications)
 *
 * Return: 0; -ENOMEM: there is something to answer, and no memory for it.
 */
int mm_rpc_line(const struct mm_rpc_method *methods, void *context, const char *line, size_t bytes,
		char **ret_reply);
