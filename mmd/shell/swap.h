/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap - tenants' host memory for suspended KV
 *
 * Concept:    made when a tenant asks for it and the core has charged it; passed to xfer, which
 *             alone reads and writes it; gone with the session. A tenant never maps it: it names
 *             bytes of it in lists (struct mm_swap_piece) that are copied here once, then checked
 *             by the core.
 * Ownership:  a session owns its space.
 * Threading:  core's thread.
 */
#pragma once

#include "mmd/core/core.h"

struct mm_session;

/* MM_OP_SWAP_OPEN and MM_OP_SWAP. 0; MM_E_PROTOCOL: the connection must end. */
int mm_swap_request(struct mm_session *session, uint64_t now_ns, const struct mm_msg *msg);

/* Tells xfer of it, if there is one and xfer still serves the tenant. 0, or as mm_sock_send(). */
int mm_swap_send(const struct mm_session *session, int sock);
