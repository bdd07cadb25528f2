/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session_kept - how a session outlives core
 *
 * Concept:   The session's identity and states are in the book (struct mm_session_kept), its
 *            connection, pidfd, regions and fds on their way at keeper, by the number of its
 *            connection. A core that takes over makes the session from both. A connection whose
 *            hello was not accepted yet is in no book; its hello is unread, and it begins anew.
 * Threading: core's thread.
 */
#pragma once

#include "mmd/common/proto.h"
#include "mmd/shell/session.h"

/* Has keeper hold the regions of the session. Return: 0; -EIO keeper does not take them. */
int mm_session_hold(struct mm_session *session);
/* Has keeper drop that. */
void mm_session_unhold(struct mm_session *session);

/* The name at keeper of an fd that waits for the tenant. */
struct mm_held_name mm_session_outfd(const struct mm_session *session, uint32_t kind);
struct mm_held_name mm_session_region(const struct mm_session *session, enum mm_held_region region);

/* Writes to the book what the core is going to be asked about: the session is JOINING there. */
void mm_session_note(struct mm_session *session);
/* Sets the state, also in the book. */
void mm_session_set_state(struct mm_session *session, enum mm_session_state state);

/* Makes both ends' rings, and an outbox: a new one, or with what a core that died has left. */
void mm_session_init_rings(struct mm_session *session, bool resumes);

/**
 * mm_session_resume() - make a session that a core has left
 * @session: free; its place in the book is not
 *
 * If its connection or one of its regions is gone, it ends as if the connection had broken. Return:
 * 0; negative errno: core cannot go on.
 */
int mm_session_resume(struct mm_session *session);

/*
 * Ends a session that a core has left, whose tenant no core knows any more: its connection is hung
 * up, and its place is free. What else keeper holds of it nobody takes, so that it is dropped.
 */
void mm_session_forget(struct mm_session *session, const char *reason);
