/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc - one question at a time to mmd's admin socket (JSON-RPC 2.0, one object per line)
 *
 * Ownership: a connection is an fd that the caller closes; replies are the caller's.
 * Threading: one thread. Every wait has a deadline: a silent daemon is an error.
 */
#pragma once

#include <jansson.h>

/* Return: a connected socket, or negative errno. */
int mm_rpc_client_open(const char *socket_path);

/**
 * mm_rpc_client_request() - ask and wait for the answer
 * @fd:         from mm_rpc_client_open()
 * @method:     of mmd's
 * @params:     taken over; NULL: none
 * @ret_result: the caller's reference; written only on success
 * @err:        gets mmd's sentence, or that it does not answer
 *
 * Return: 0; -EREMOTEIO: mmd refuses; any other negative errno: it does not answer, -ECONNRESET: it
 * is gone.
 */
int mm_rpc_client_request(int fd, const char *method, json_t *params, json_t **ret_result,
			  char *err, size_t err_bytes);

/*
 * As that, for who does not need to know why not. Return: the result, the caller's reference; NULL.
 */
json_t *mm_rpc_client_call(int fd, const char *method);
