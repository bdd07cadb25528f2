/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap - tenants' host memory for suspended KV
 *
 * Concept:    The memory is created when a tenant requests it and the core has charged it; it is
 *             passed to xfer, which alone reads and writes it, and freed with the session. A tenant
 *             never maps it: it names ranges of it in lists (struct mm_swap_piece), which are
 *             copied here once and then checked by the core.
 * Ownership:  a session owns its swap space.
 * Threading:  core's thread.
 */
#pragma once

#include "mmd/core/core.h"

struct mm_session;
struct mm_shell;

/* Returns the bytes of all tenants' swap spaces. */
uint64_t mm_swap_used(struct mm_shell *shell);

/* Handles MM_OP_SWAP_OPEN and MM_OP_SWAP. Return: 0; MM_E_PROTOCOL: the connection must end. */
int mm_session_swap_request(struct mm_session *session, uint64_t now_ns, const struct mm_msg *msg);

/*
 * Sends the swap space to xfer if the session has one and xfer still serves the tenant. Return: 0,
 * or as mm_sock_send().
 */
int mm_session_swap_send(const struct mm_session *session, int sock);
