/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_client - requests to mmd's admin socket (JSON-RPC 2.0, one object per line)
 *
 * Concept:   One request at a time: it is sent, and the call waits for its answer.
 * Ownership: a connection is an fd that the caller closes; results belong to the caller.
 * Threading: one thread per connection.
 * Limits:    an answer of at most 1 MiB; an mmd that does not answer within 180 s is an error.
 */
#pragma once

#include <jansson.h>

/* Connects to mmd's admin socket. Return: the socket, or negative errno. */
int mm_rpc_client_open(const char *socket_path);

/**
 * mm_rpc_client_request() - send a request and wait for the answer
 * @fd:         from mm_rpc_client_open()
 * @method:     a method of mmd's admin socket
 * @params:     its parameters, taken over; NULL: none
 * @ret_result: a reference that the caller owns; written only on success
 * @err:        on failure, gets mmd's sentence, or that mmd does not answer
 *
 * Return: 0; -EREMOTEIO mmd refused the request; -ECONNRESET mmd closed the connection; another
 * negative errno: mmd does not answer.
 */
int mm_rpc_client_request(int fd, const char *method, json_t *params, json_t **ret_result,
			  char *err, size_t err_bytes);

/*
 * Like mm_rpc_client_request(), without parameters and without the reason of a failure. Return: the
 * result, a reference that the caller owns; NULL on failure.
 */
json_t *mm_rpc_client_call(int fd, const char *method);
