/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - checks of the bytes that a tenant sends, before anything acts on them
 *
 * Concept:   Pure functions over private copies. Every byte pattern gets a result; a refusal has a
 *            reason that a person can act on.
 * Threading: any.
 */
#pragma once

#include <stddef.h>

#include "mm/abi.h"

/**
 * mm_hello_check() - the first message of a connection
 * @bytes:      as received
 * @n_bytes:    at most MM_GREETING_BYTES_MAX
 * @ret_hello:  the part that this version knows, 0 where the message ends before; written only on
 *              success
 * @ret_reason: MM_REASON_BYTES of room; written only on failure
 *
 * Return: 0; -EPROTO another protocol or ABI version; -ENOTSUP it requires a feature that this mmd
 * does not have; -EINVAL malformed.
 */
int mm_hello_check(const void *bytes, size_t n_bytes, struct mm_hello *ret_hello, char *ret_reason);

/**
 * mm_request_check() - check those parts of a request that do not depend on any state
 * @msg: a private copy
 *
 * Return: NULL; else what is wrong, a static string.
 */
const char *mm_request_check(const struct mm_msg *msg);
