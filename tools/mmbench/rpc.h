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
int mm_rpc_open(const char *socket_path);

/**
 * mm_rpc_call() - ask and wait for the answer
 * @fd:     from mm_rpc_open()
 * @method: without parameters
 *
 * Return: the result, the caller's reference; NULL: an error, a timeout or the end of the daemon.
 */
json_t *mm_rpc_call(int fd, const char *method);

/**
 * mm_rpc_ask() - as that, with parameters, and why it was refused
 * @params:    taken over; NULL: none
 * @err:       gets mmd's sentence, or that it does not answer
 */
json_t *mm_rpc_ask(int fd, const char *method, json_t *params, char *err, size_t err_bytes);
