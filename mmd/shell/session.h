/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session - one tenant's connection, from accept until its pages are proven free
 *
 * Concept:    HELLO (connected, said nothing yet) -> OPEN (a tenant of the core) -> CLOSED
 *             (connection gone, the process may live) -> free when the core forgets it. A
 *             connection is closed before the core hears of the end: fds in flight hold pages.
 * Ownership:  a session owns its socket, pidfd, regions and outbox, a reference to its store, and
 *             names its load by id.
 * Trust:      everything that comes from the tenant is copied, checked, then used. Who breaks a
 *             rule loses its connection, is logged (peerlog.h), and nobody else notices. No fd is
 *             ever taken: the kernel refuses it, or the message that it came with is never
 *             received, since the last close of what a stranger passes may sleep for as long as he
 *             likes.
 * Threading:  core's thread. Work per wake-up is bounded; what is left is done in the next turn.
 * Limits:     MM_DEVICE_TENANTS_MAX tenants per device, of one account a share (quota.h), each to begin
 *             within --idle-timeout; MM_HELLOS_MAX connections that have not said hello (of one
 *             user MM_HELLOS_UID_MAX), for at most MM_HELLO_NS; beyond, the longest silent goes.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "libclient/ipc/region.h"
#include "libclient/ipc/ring.h"
#include "mmd/core/core.h"
#include "mmd/common/loop.h"
#include "mmd/shell/outbox.h"
#include "mmd/common/proto.h"

#define MM_HELLOS_UID_MAX 24 /* of one user: silence of one does not shut the door to all */
#define MM_HELLO_NS       (5 * MM_NS_PER_S)
#define MM_SAMPLE_NS      (15 * MM_NS_PER_MS) /* how often statistics are looked at */

struct mm_pool;
struct mm_shell;
struct mm_store;

enum mm_session_state { MM_SESSION_FREE, MM_SESSION_HELLO, MM_SESSION_OPEN, MM_SESSION_CLOSED };

struct mm_session {
	struct mm_shell *shell;
	enum mm_session_state state;
	struct mm_pool *pool; /* that it lives on; valid from OPEN */
	uint32_t tenant;      /* of the pool's core; valid from OPEN */
	int fd, pidfd;
	bool fds_may_come; /* the kernel does not refuse what is passed to it */
	struct mm_loop_source source, pid_source;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t account; /* who is charged (quota.h); valid from OPEN */
	char name[MM_NAME_BYTES];
	uint64_t features;
	uint64_t hello_by_ns;
	uint64_t
		idle_by_ns; /* to load a model or to declare KV memory; UINT64_MAX: it has, or need not */

	struct mm_region tenant_region, mmd_region, gate_region; /* shared with the tenant */
	struct mm_region plan_region, cursor_region;             /* shared with xfer */
	struct mm_region swap_region;                            /* xfer's; only the fd */
	uint64_t swap_bytes;                                     /* 0: it has none */
	struct mm_ring requests, events;
	struct mm_outbox outbox;

	bool busy;               /* requests were left for the next turn */
	const char *ending;      /* its connection is to be closed in this turn: why */
	bool dead;               /* its process is, and the core does not know yet */
	bool stopped_check_due;  /* the core wants to know whether it is stopped */
	uint64_t open_user_data; /* of the MODEL_OPEN under way */

	uint64_t load; /* id of its running load, 0 = none */
	unsigned int load_deaths;
	struct mm_store *store;
	uint64_t layers_seen, copy_seen_ns; /* of the cursors, when last looked at */
};

#define MM_FOREACH_SESSION(shell, s)                            \
	for (typeof(&(shell)->session[0]) s = (shell)->session; \
	     s < (shell)->session + (shell)->n_sessions; s++)

void mm_sessions_init(struct mm_shell *shell);
void mm_sessions_done(struct mm_shell *shell);

/*
 * The next message of its socket, as mm_sock_recv_nofds(); -EPERM: it has fds, and was not
 * received.
 */
int mm_session_recv(const struct mm_session *session, void *buf, size_t cap, size_t *ret_len);

/* An accepted connection, taken over. */
void mm_session_accept(struct mm_shell *shell, int fd);

/* By the core's id; NULL when there is none, or it is forgotten. */
struct mm_session *mm_session_find(struct mm_shell *shell, uint32_t tenant);

/*
 * By operator's word: id or name, of @pool or (NULL) of all; NULL when none or several match, then
 * *ret_many is how many.
 */
struct mm_session *mm_session_lookup(struct mm_shell *shell, const struct mm_pool *pool,
				     const char *word, unsigned int *ret_many);

/* The connection ends in this turn. @reason: static string, logged once. */
void mm_session_end(struct mm_session *session, const char *reason);

/* May a line that it has caused be logged now? peerlog.h: it is counted if not. */
bool mm_session_logs(struct mm_session *session);

/* mm_log() of what a tenant can cause as often as it likes. */
#define mm_session_log(session, ...)          \
	do {                                  \
		if (mm_session_logs(session)) \
			mm_log(__VA_ARGS__);  \
	} while (0)

/* The same to all of a pool. */
void mm_sessions_end(struct mm_pool *pool, const char *reason);

/* The core is done with it. */
void mm_session_release(struct mm_session *session);

/* An event from the shell itself. */
void mm_session_event(struct mm_session *session, const struct mm_msg *msg);

/* The answer to a request that the shell handles. */
void mm_session_reply(struct mm_session *session, uint64_t user_data, enum mm_op op, int result);

/* What a turn does: requests that were left, outboxes, ends. True: something happened. */
bool mm_sessions_service(struct mm_shell *shell, uint64_t now_ns);
/* After the turn: doorbells, and what the loop waits for. */
void mm_sessions_ring(struct mm_shell *shell);
/* Looks at statistics and cursors. */
void mm_sessions_sample(struct mm_shell *shell, uint64_t now_ns);
uint64_t mm_sessions_deadline(const struct mm_shell *shell);
