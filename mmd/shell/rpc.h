/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc - JSON-RPC 2.0 over lines, without any socket
 *
 * Concept:   Takes one line and returns one line: a request or a batch is answered by a table of
 *            methods. Errors as the specification has them: -32700 no JSON, -32600 no request,
 *            -32601 no such method, -32602 bad params; MM_RPC_FAILED where a method could not do
 *            what was requested; MM_RPC_DENIED where it is not for this peer.
 * Rights:    of each method the table says whether observers get it as well.
 * Ownership: params are borrowed by a method, its result is the caller's.
 * Threading: none of its own; methods run in the caller's thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define MM_RPC_PARSE     (-32700)
#define MM_RPC_REQUEST   (-32600)
#define MM_RPC_METHOD    (-32601)
#define MM_RPC_PARAMS    (-32602)
#define MM_RPC_INTERNAL  (-32603)
#define MM_RPC_FAILED    (-32000)
#define MM_RPC_DENIED    (-32001)
#define MM_RPC_BATCH_MAX 32
#define MM_RPC_TEXT      256

struct mm_rpc_error {
	int code; /* 0 = none */
	char text[MM_RPC_TEXT];
};

enum mm_rpc_kind {
	MM_RPC_CHANGES, /* for administrators alone */
	MM_RPC_VIEWS,   /* it changes nothing, and what it shows is for observers as well */
};

struct mm_rpc_method {
	const char *name;
	enum mm_rpc_kind kind;
	/*
	 * @params is an object or NULL. Return: the result; NULL on failure, and @error is filled
	 * in.
	 */
	json_t *(*run)(void *context, const json_t *params, struct mm_rpc_error *error);
};

enum mm_rpc_stage { MM_RPC_ASKED, MM_RPC_ANSWERED, MM_RPC_REFUSED };

/* The methods that a peer may call, and with what they are called. */
struct mm_rpc {
	const struct mm_rpc_method *methods; /* ends with a NULL name */
	void *context;                       /* handed to methods */
	/* NULL: all methods may be called; else why those that do not only view may not. */
	const char *denied;
	size_t batch_max; /* requests in a line; 0: MM_RPC_BATCH_MAX */
	/*
	 * Called for each request of a method that changes something: before it runs, and when it
	 * has, with the error, whose code is 0 if there is none; or when it is denied. NULL: nobody
	 * has to be told.
	 */
	void (*note)(const struct mm_rpc *rpc, enum mm_rpc_stage stage, const char *method,
		     const json_t *params, const struct mm_rpc_error *error);
};

/* Fills in an error; returns NULL for `return mm_rpc_fail(...)`. */
json_t *mm_rpc_fail(struct mm_rpc_error *error, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * mm_rpc_line() - answer one line
 * @rpc:     who asks for what
 * @line:    @bytes of them, without the newline
 * @bytes:   of @line
 * @ret_reply: malloc'ed line with its newline; NULL when there is nothing to answer (notifications)
 *
 * Return: 0; -ENOMEM: there is something to answer, and no memory for it.
 */
int mm_rpc_line(const struct mm_rpc *rpc, const char *line, size_t bytes, char **ret_reply);

/* Makes the line that refuses whatever is asked. Return: 0; -ENOMEM. */
int mm_rpc_refuse(int code, const char *text, char **ret_line);
