/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake - identity of a peer, and the terms on which it becomes a tenant
 *
 * Concept:   The kernel names the peer (credentials, pidfd); its hello states what it supports. It
 *            stays in the socket's queue until the session is open, also in the book (kept.h): if
 *            core dies before, its successor reads it again. A socket is closed only after its
 *            queue was emptied, since unread bytes would throw the reason of a refusal away.
 * Threading: core's thread.
 */
#pragma once

struct mm_session;

/**
 * mm_handshake_peer() - ask the kernel for the peer of a connection
 * @session: has its fd; gets pid, uid, pidfd
 *
 * Return: 0; -ESRCH the peer is dead already; -EPERM its pid is not visible here; negative errno.
 */
int mm_handshake_peer(struct mm_session *session);

/**
 * mm_handshake() - read the hello, join the core, send the welcome
 * @session: in MM_SESSION_HELLO; OPEN afterwards
 *
 * Return: 0; -EAGAIN no hello yet; other negative errno: the connection is to be closed, and the
 * refusal was sent if the hello could be read.
 */
int mm_handshake(struct mm_session *session);

/*
 * Sends the welcome to a session that is open, and drops its regions' descriptors that only the
 * tenant needs. Return: as mm_sock_send().
 */
int mm_handshake_welcome(struct mm_session *session);

/*
 * Finishes the handshake of a session that a core has left open: drops the hello if it is still
 * there, and sends the welcome, perhaps again. Return: as mm_sock_send().
 */
int mm_handshake_resume(struct mm_session *session);
