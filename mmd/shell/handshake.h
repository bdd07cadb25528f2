/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake - identity of a peer, and the terms on which it becomes a tenant
 *
 * Concept:   The kernel names the peer (credentials, pidfd); its hello states what it supports. A
 *            refusal is sent only after the hello was read: closing a socket with unread bytes
 *            would throw the reason away.
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
