/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - what a tenant's bytes must look like before anything acts on them
 *
 * Concept:   pure functions over private copies. Every byte pattern gets an answer; a refusal has a
 *            reason that a person can act on.
 */
#pragma once

#include <stddef.h>

#include "mm/abi.h"

#define MM_HELLO_BYTES_MAX 4096 /* of a hello that has grown */

/**
 * mm_hello_check() - the first message of a connection
 * @bytes:      as received
 * @n_bytes:    at most MM_HELLO_BYTES_MAX
 * @ret_hello:  the part that we know; written only on success
 * @ret_reason: MM_REASON_BYTES; written only on failure
 *
 * Return: 0; -EPROTO another protocol or ABI version; -ENOTSUP it requires a feature that we do not
 * have; -EINVAL malformed.
 */
int mm_hello_check(const void *bytes, size_t n_bytes, struct mm_hello *ret_hello, char *ret_reason);

/**
 * mm_request_check() - the parts of a request that do not depend on any state
 * @msg: a private copy
 *
 * Return: NULL; else what is wrong, a static string.
 */
const char *mm_request_check(const struct mm_msg *msg);
