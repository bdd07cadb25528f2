/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_client - requests to mmd's admin socket (JSON-RPC 2.0, one object per line)
 *
 * Concept:   One request at a time: it is sent, and the call waits for its answer, for so long in
 *            all, however many pieces the answer comes in. A connection that is lost counts only
 *            once everything that had arrived has been read: an mmd that refuses a connection
 *            writes why and closes it, perhaps before it has read the request.
 * Ownership: a connection is an fd that the caller closes; results belong to the caller.
 * Threading: one thread per connection.
 * Trust:     none of what mmd answers. A call that fails otherwise than by -EREMOTEIO leaves the
 *            connection between two lines, perhaps: it can only be closed.
 * Limits:    an answer of at most MM_RPC_CLIENT_BYTES_MAX, twice what mmd sends at once.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "libclient/support/json.h"

#define MM_RPC_CLIENT_BYTES_MAX (8u << 20)
/* For programs that start an mmd: it answers once its pages are made; generous, for a slow host. */
#define MM_RPC_CLIENT_START_NS (180 * MM_NS_PER_S)

/**
 * mm_rpc_client_open() - connect to mmd's admin socket
 * @path:       of the socket
 * @timeout_ns: to be let in
 *
 * Return: the socket; -EAGAIN nobody was let in in time; another negative errno, for which
 * mm_reach_explain() has a sentence.
 */
int mm_rpc_client_open(const char *path, uint64_t timeout_ns);

/**
 * mm_rpc_client_send() - send a request, whose answer is read otherwise (rpc_stream.h)
 *
 * Parameters and outcome as of mm_rpc_client_request(), without an answer.
 */
int mm_rpc_client_send(int fd, uint64_t timeout_ns, const char *method, json_t *params);

/**
 * mm_rpc_client_request() - send a request and wait for the answer
 * @fd:         from mm_rpc_client_open()
 * @timeout_ns: for the whole answer
 * @method:     a method of mmd's admin socket
 * @params:     its parameters, taken over; NULL: none
 * @ret_result: a reference that the caller owns; written only on success
 * @err:        on failure, gets mmd's sentence, or why there is no answer
 *
 * Return: 0; -EREMOTEIO mmd refused the request; -EPROTO or -EMSGSIZE the answer is none; -ENOMEM;
 * another negative errno, such as -ETIMEDOUT or -ECONNRESET: mmd does not answer.
 */
int mm_rpc_client_request(int fd, uint64_t timeout_ns, const char *method, json_t *params,
			  json_t **ret_result, char *err, size_t err_bytes);
