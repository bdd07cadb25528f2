/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin - the connections of operators: of administrators, and of observers
 *
 * Concept:   JSON-RPC 2.0, one request per line, over stream sockets. admin.sock is open to mmd's
 *            user alone, whose requests may do anything; view.sock is open to a group as well,
 *            whose requests may only look. Which those are is in the table of methods (methods.h).
 * Ownership: a client owns its socket and buffers. keeper holds a copy of an observer's socket
 *            until the client is closed, so that core never closes what an observer has passed.
 * Threading: core's thread. A line is answered in the next iteration, one of each client, and the
 *            answer is sent as the client reads.
 * Trust:     administrators may do all that mmd can. Observers are not trusted: nothing that they
 *            send may change anything, block core, or take places or time from administrators or
 *            tenants. What is secret between tenants, the keys of stores, is not shown to them.
 * Limits:    MM_ADMIN_CLIENTS and MM_VIEW_CLIENTS connections, of one observer MM_VIEW_USER_MAX;
 *            lines of MM_ADMIN_LINE bytes; while a client does not read its answers nothing is read
 *            from it, and beyond MM_ADMIN_OUT bytes it is closed, beyond MM_VIEW_OUT those of all
 *            observers. An observer whose answers took core MM_VIEW_BURST_NS of a processor gets
 *            the next ones more slowly: a MM_VIEW_PART-th of a processor, over all connections.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mmd/common/loop.h"
#include "mmd/common/pace.h"

#define MM_ADMIN_CLIENTS  16
#define MM_VIEW_CLIENTS   32
#define MM_VIEW_USER_MAX  8
#define MM_ADMIN_LINE     65536
#define MM_ADMIN_OUT      (12u << 20) /* with all keys that stores can have (keys.h) */
#define MM_VIEW_OUT       (16u << 20)
#define MM_VIEW_BATCH_MAX 4
#define MM_VIEW_PART      20
#define MM_VIEW_BURST_NS  (100 * MM_NS_PER_MS)

struct mm_shell;

struct mm_admin_client {
	struct mm_shell *shell;
	int fd;
	uint64_t conn; /* its name at keeper, if it is an observer's; 0: an administrator's */
	uid_t uid;     /* of the process that has connected */
	pid_t pid;
	struct mm_loop_source source;
	char *in; /* MM_ADMIN_LINE bytes while connected */
	size_t in_bytes;
	char *out;
	size_t out_bytes, out_at;
	uint64_t follow; /* number of the first event that it was not sent; 0: it follows none */
	uint64_t at_ns;  /* when the next line is answered; UINT64_MAX: there is none, or not yet */
};

struct mm_admin {
	struct mm_admin_client client[MM_ADMIN_CLIENTS + MM_VIEW_CLIENTS]; /* observers' last */
	struct mm_pace_users views;     /* what observers have spent, by user */
	size_t view_out_bytes;          /* of answers that observers have not read */
	bool observed;                  /* the request that is being answered is an observer's */
	struct mm_admin_client *asking; /* whose that is; NULL: none is */
};

void mm_admin_init(struct mm_shell *shell);
void mm_admin_done(struct mm_shell *shell);

/*
 * Makes a client of an accepted connection, which is taken over; @conn: of an observer, its name at
 * keeper; 0: it is an administrator's.
 */
void mm_admin_accept(struct mm_shell *shell, int fd, uint64_t conn);

/* Sends all events from the number @next on, as they come, to the client that is being answered. */
void mm_admin_follow(struct mm_shell *shell, uint64_t next);

/* Answers a line of each client that has one and may be served now. */
void mm_admin_service(struct mm_shell *shell, uint64_t now_ns);

/* When mm_admin_service() has something to do; UINT64_MAX: not before a client sends something. */
uint64_t mm_admin_deadline(const struct mm_shell *shell);
