/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session - one tenant's connection, from accept until its pages are proven free
 *
 * Concept:    HELLO (connected, no hello received yet) -> OPEN (a tenant of the core) -> CLOSED
 *             (connection closed, the process may live) -> free when the core frees the tenant. A
 *             connection is closed before its end is reported to the core, because fds in flight
 *             hold pages.
 * Ownership:  a session owns its socket, pidfd, regions and outbox, and a reference to its store;
 *             it names its load by id.
 * Trust:      everything that comes from the tenant is copied, checked, then used. A tenant that
 *             breaks a rule loses its connection and is logged (peerlog.h); no other tenant is
 *             affected. No fd of a tenant is ever taken: the kernel refuses it, or the message that
 *             carries it is never received, because the last close of a foreign fd may sleep for as
 *             long as its sender chooses.
 * Threading:  core's thread. Work per wake-up is bounded; the rest is done in the next iteration.
 * Limits:     MM_DEVICE_TENANTS_MAX tenants per device, of which an account gets a share (quota.h);
 *             each must begin to serve within --idle-timeout. MM_HELLOS_MAX connections without a
 *             hello, MM_HELLOS_UID_MAX of them of one user, for at most MM_HELLO_NS; beyond that
 *             the oldest one is closed.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "libclient/ipc/region.h"
#include "libclient/ipc/ring.h"
#include "mmd/core/core.h"
#include "mmd/common/loop.h"
#include "mmd/shell/actions.h"
#include "mmd/shell/outbox.h"
#include "mmd/common/pace.h"
#include "mmd/common/proto.h"
#include "mmd/shell/model.h"

/* Idle connections of one user must not use up all MM_HELLOS_MAX places. */
#define MM_HELLOS_UID_MAX 24
#define MM_HELLO_NS       (5 * MM_NS_PER_S)
#define MM_SAMPLE_NS      (15 * MM_NS_PER_MS) /* how often statistics are read */

struct mm_pool;
struct mm_shell;
struct mm_shell_group;
struct mm_store;

enum mm_session_state {
	MM_SESSION_FREE,
	MM_SESSION_HELLO,
	MM_SESSION_JOINING, /* only in the book: the core is being asked */
	MM_SESSION_OPEN,
	MM_SESSION_CLOSED
};

/* The part of a session that outlives core (kept.h); it has none before its hello was accepted. */
struct mm_session_kept {
#ifdef MM_KEPT_NEXT /* in a build of tests/e2e/test_upgrade all fields have moved */
	uint64_t next_added;
#endif
	uint32_t state;   /* enum mm_session_state; stored last */
	uint32_t pool;    /* index */
	uint32_t tenant;  /* valid from OPEN */
	uint32_t sq_head; /* requests that were handled */
	uint64_t conn;    /* keeper's number of its connection */
	int32_t pid;
	uint32_t uid, gid;
	uint32_t welcomed; /* it was sent the welcome */
	uint64_t account;
	uint64_t features;
	char name[MM_NAME_BYTES];
	uint8_t token[MM_SESSION_BYTES];
	uint32_t ending; /* its connection is to be closed, for the reason that follows */
	uint32_t group;  /* index of its group + 1; 0: none */
	uint32_t rank;
	/* Positions of the requests by which it got its group and its swap space. */
	uint32_t group_position, swap_position;
	char end_reason[MM_END_BYTES];
	uint64_t swap_bytes; /* 0: it has no swap space */
	struct mm_model_kept model;
};

struct mm_session {
	struct mm_shell *shell;
	struct mm_session_kept *kept;
	enum mm_session_state state;
	struct mm_pool *pool; /* the pool that it lives on; valid from OPEN */
	uint32_t tenant;      /* its id in the pool's core; valid from OPEN */
	int fd, pidfd;
	bool held;         /* keeper holds what belongs to it */
	uint64_t conn;     /* its connection at keeper (held.h) */
	bool fds_may_come; /* the kernel does not refuse fds that are passed to this socket */
	struct mm_loop_source source, pid_source;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t account; /* the account that is charged (quota.h); valid from OPEN */
	char name[MM_NAME_BYTES];
	uint64_t features;
	uint8_t token[MM_SESSION_BYTES]; /* as in its welcome */
	uint64_t hello_by_ns;
	/*
		 * The time until which it must load a model or declare KV memory; UINT64_MAX: no
		 * limit (any more).
		 */
	uint64_t idle_by_ns;

	struct mm_region tenant_region, mmd_region, gate_region; /* shared with the tenant */
	struct mm_region plan_region, cursor_region;             /* shared with xfer */
	struct mm_region swap_region; /* written by xfer; here only the fd */
	uint64_t swap_bytes;          /* 0: it has no swap space */
	uint64_t swap_refused_bytes;  /* that it asked for last, while it has none; 0: it has not */
	struct mm_ring requests, events;
	struct mm_outbox outbox;

	struct mm_pace asks, bells; /* what it has spent on requests, and on waking core */
	uint64_t asks_at_ns;        /* its next request is handled then; 0: at once */
	uint64_t socket_at_ns;      /* its socket is read then; 0: at once */
	bool belled;                /* it has woken core, and no request was found yet */
	bool busy;                  /* requests were left for the next iteration */
	const char *ending; /* why its connection is closed in this iteration; NULL: it is not */
	bool dead;          /* its process is dead, and that was not reported to the core yet */
	bool stopped_check_due; /* the core has asked whether its process is stopped */

	struct mm_shell_group *group; /* of which it is a rank; NULL: none */
	uint32_t rank;

	struct mm_store *store;             /* that it uses; its load is kept->model.load */
	uint64_t layers_seen, copy_seen_ns; /* totals of the cursors when last sampled */
	/* Live entries that this core was told of since they were declared, + 1; 0: of none. */
	uint32_t cold_live_told;
};

#define MM_FOREACH_SESSION(shell, s)                            \
	for (typeof(&(shell)->session[0]) s = (shell)->session; \
	     s < (shell)->session + (shell)->n_sessions; s++)

void mm_sessions_init(struct mm_shell *shell);
void mm_sessions_done(struct mm_shell *shell);

/*
 * Receives the next message as mm_sock_recv_nofds() does. Return: also -EPERM: the message carries
 * fds and was not received.
 */
int mm_session_recv(const struct mm_session *session, void *buf, size_t cap, size_t *ret_len);

/* Adds the connection and the pidfd, as far as there are any, to the loop. */
int mm_session_watch(struct mm_session *session);

/* Shows the tenant that core serves it. */
void mm_session_beat(struct mm_session *session, uint64_t now_ns);

/* Makes a session of an accepted connection, which is taken over; keeper holds it as CONN @conn. */
void mm_session_accept(struct mm_shell *shell, int fd, uint64_t conn);

/* Finds a session by the core's id; NULL when there is none or it was freed. */
struct mm_session *mm_session_find(struct mm_shell *shell, uint32_t tenant);

/*
 * Finds a session by the word of an operator, an id or a name, on @pool or (NULL) on all pools.
 * Return: NULL when none or several match; *ret_many is how many did.
 */
struct mm_session *mm_session_lookup(struct mm_shell *shell, const struct mm_pool *pool,
				     const char *word, unsigned int *ret_many);

/* Sends the reason of its end, if the socket has room for it at once; else it is not sent. */
void mm_session_tell_end(struct mm_session *session, const char *reason);
/* Closes the connection, if there is one, now; nothing else changes. */
void mm_session_hang_up(struct mm_session *session);

/* Closes the connection in this iteration. @reason: a static string, logged once. */
void mm_session_end(struct mm_session *session, const char *reason);

/*
 * Whether a line that this session caused may be logged now; one that may not is counted
 * (peerlog.h).
 */
bool mm_session_may_log(struct mm_session *session);

/* mm_log() for events that a tenant can cause as often as it likes. */
#define mm_session_log(session, ...)             \
	do {                                     \
		if (mm_session_may_log(session)) \
			mm_log(__VA_ARGS__);     \
	} while (0)

/* Calls mm_session_end() for all sessions of a pool. */
void mm_sessions_end(struct mm_pool *pool, const char *reason);

/* Frees the session; the core has freed its tenant. */
void mm_session_release(struct mm_session *session);

/*
 * Serves sessions in one iteration: requests that were left, outboxes, ends. Return: whether a
 * session ended, which may have made work for others.
 */
bool mm_sessions_service(struct mm_shell *shell, uint64_t now_ns);
/* Handles some of the requests of each session. */
void mm_sessions_requests(struct mm_shell *shell);
/* After the services of an iteration: rings doorbells and updates what the loop waits for. */
void mm_sessions_ring(struct mm_shell *shell);
/* Samples statistics and cursors of all sessions. */
void mm_sessions_sample(struct mm_shell *shell, uint64_t now_ns);
uint64_t mm_sessions_deadline(const struct mm_shell *shell);
