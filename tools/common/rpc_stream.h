/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_stream - what mmd sends unasked to who follows its events, a line at a time
 *
 * Concept:   After a request that asks for it (rpc_client.h) mmd sends its answer and then JSON-RPC
 *            notifications, one object per line, as long as the connection lasts.
 * Ownership: a stream owns its buffer; the connection is the caller's.
 * Threading: one thread per stream.
 * Trust:     none of what mmd sends: after a failure the connection can only be closed.
 * Limits:    lines of at most MM_RPC_CLIENT_BYTES_MAX.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "libclient/support/json.h"

struct mm_rpc_stream {
	int fd;
	char *text;
	size_t bytes, room;
	size_t taken; /* bytes of the line that was returned last */
};

/* The stream has nothing yet; @fd: from mm_rpc_client_open(). */
void mm_rpc_stream_init(struct mm_rpc_stream *stream, int fd);
void mm_rpc_stream_done(struct mm_rpc_stream *stream);

/**
 * mm_rpc_stream_next() - wait for the next line
 * @stream:      any
 * @deadline_ns: CLOCK_MONOTONIC; UINT64_MAX: none
 * @ret_json:    an object, a reference that the caller owns; written only on success
 *
 * Return: 0; -ETIMEDOUT; -ECONNRESET the connection has ended; -EPROTO or -EMSGSIZE mmd sends what
 * it should not; -ENOMEM; another negative errno.
 */
int mm_rpc_stream_next(struct mm_rpc_stream *stream, uint64_t deadline_ns, json_t **ret_json);
