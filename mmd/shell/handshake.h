/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake - who is there, and on what terms
 *
 * Concept:   The kernel says who the peer is (credentials, pidfd), its hello what it can do. A
 *            refusal is sent only after the hello was read: closing a socket with unread bytes
 *            would throw the reason away.
 * Threading: core's thread.
 */
#pragma once

struct mm_session;

/**
 * mm_handshake_peer() - ask the kernel who connected
 * @session: has its fd; gets pid, uid, pidfd
 *
 * Return: 0; -ESRCH it is dead already; -EPERM its pid cannot be seen from here; negative errno.
 */
int mm_handshake_peer(struct mm_session *session);

/**
 * mm_handshake() - read the hello, make a tenant of it, welcome it
 * @session: in MM_SESSION_HELLO; OPEN afterwards
 *
 * Return: 0; -EAGAIN no hello yet; else the connection is to be closed, the refusal was sent.
 */
int mm_handshake(struct mm_session *session);
