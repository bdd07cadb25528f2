/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin - the operator's connections
 *
 * Concept:   JSON-RPC 2.0, one request per line, over a stream socket that only mmd's user may
 *            open. Methods: methods.h.
 * Ownership: a client owns its socket and buffers.
 * Threading: core's thread; answers are made at once and sent as the client reads.
 * Limits:    MM_ADMIN_CLIENTS; lines of MM_ADMIN_LINE bytes; while a client does not read its
 *            answers nothing is read from it, and beyond MM_ADMIN_OUT bytes it is closed.
 */
#pragma once

#include <stddef.h>

#include "mmd/common/loop.h"

#define MM_ADMIN_CLIENTS 16
#define MM_ADMIN_LINE    65536
#define MM_ADMIN_OUT     (12u << 20) /* with all keys that stores can have (keys.h) */

struct mm_shell;

struct mm_admin_client {
	struct mm_shell *shell;
	int fd;
	struct mm_loop_source source;
	char *in; /* MM_ADMIN_LINE bytes while connected */
	size_t in_bytes;
	char *out;
	size_t out_bytes, out_at;
};

struct mm_admin {
	struct mm_admin_client client[MM_ADMIN_CLIENTS];
};

void mm_admin_init(struct mm_shell *shell);
void mm_admin_done(struct mm_shell *shell);

/* Makes a client of an accepted connection, which is taken over. */
void mm_admin_accept(struct mm_shell *shell, int fd);
