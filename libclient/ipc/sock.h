/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sock - SOCK_SEQPACKET sockets: messages, passed fds, doorbells
 *
 * Concept:   A message arrives whole or not at all; fds travel with one. No call here blocks,
 *            except mm_sock_wait(). An empty message is never sent, so that "0 bytes" always means
 *            the end of the connection. The end is reported after the last message that the peer
 *            sent, also if the peer died with messages unread. It may be seen earlier by a send.
 * Ownership: fds passed to mm_sock_send() stay the caller's; those written by mm_sock_recv() become
 *            the caller's. Every fd is created close-on-exec.
 * Threading: any; messages of two senders do not mix.
 * Limits:    MM_SOCK_FDS_MAX fds per message.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MM_SOCK_FDS_MAX 64
#define MM_SOCK_QUEUE   256 /* connections that are not accepted yet; the next connect() waits */

/**
 * mm_sock_pair() - make two connected sockets
 * @ret_fds: written only on success
 *
 * Return: 0; -EMFILE, -ENFILE, -ENOMEM.
 */
int mm_sock_pair(int ret_fds[2]);

/**
 * mm_sock_listen() - make a listening socket in the file system
 * @path:   a dead socket of that name is replaced. The caller must exclude other starters at the
 *          same time (by a lock file).
 * @mode:   of the socket file, set before any process can connect
 * @refuse_fds: let the kernel refuse fds that are passed to accepted sockets, from the first
 *          message on (mm_sock_refuses_fds() returns whether it does)
 * @ret_fd: written only on success; accept4(..., SOCK_CLOEXEC) from it
 *
 * Return: 0; -EADDRINUSE a process listens there, or it is not a socket; -ENAMETOOLONG; -EACCES;
 * and others.
 */
int mm_sock_listen(const char *path, mode_t mode, bool refuse_fds, int *ret_fd);

/**
 * mm_sock_connect() - connect to a listening socket
 * @path:       path of that socket
 * @timeout_ns: how long to wait while its queue of connections is full
 * @ret_fd:     written only on success
 *
 * Return: 0; -ENOENT, -ECONNREFUSED nothing listens there; -EACCES; -EAGAIN its queue stayed full;
 *         -ENAMETOOLONG.
 */
int mm_sock_connect(const char *path, uint64_t timeout_ns, int *ret_fd);

/**
 * mm_sock_wait() - wait until a socket is readable, writable or ended
 * @fd:          any
 * @events:      POLLIN or POLLOUT
 * @deadline_ns: CLOCK_MONOTONIC; UINT64_MAX: no deadline
 *
 * Return: 0, also at the end of the connection (the next call returns it); -ETIMEDOUT.
 */
int mm_sock_wait(int fd, short events, uint64_t deadline_ns);

/**
 * mm_sock_send() - send one message, or nothing
 * @fd:    any
 * @buf:   @len bytes, not 0
 * @fds:   @n_fds fds, at most MM_SOCK_FDS_MAX; NULL for none
 *
 * Return: 0; -EAGAIN full; -ECONNRESET the peer is gone; -EPERM the peer refuses fds; -ETOOMANYREFS
 * too many fds of this user are in flight; -ENOBUFS, -ENOMEM the kernel has no memory for it.
 */
int mm_sock_send(int fd, const void *buf, size_t len, const int *fds, size_t n_fds);

/*
 * True if the cause of @error, from mm_sock_send(), ends by itself while the socket stays writable:
 * try again after some time, since EPOLLOUT does not report it. False for -EAGAIN.
 */
bool mm_sock_retries_later(int error);

/**
 * mm_sock_recv() - receive one message with its fds
 * @fd:        any
 * @buf:       @cap bytes of room
 * @fds:       room for @max fds, at most MM_SOCK_FDS_MAX
 * @ret_n_fds: number of fds received
 * @ret_len:   bytes of the message
 *
 * Return: 0; -EAGAIN nothing there; -ECONNRESET the end; -EMSGSIZE longer than @cap, its fds were
 * closed; -EMFILE fds are missing (this process's limit of open files, or more than @max were
 * sent): those that came were closed and *ret_n_fds is 0, but the message is in @buf and *ret_len
 * is set: request the fds again.
 */
int mm_sock_recv(int fd, void *buf, size_t cap, int *fds, size_t max, size_t *ret_n_fds,
		 size_t *ret_len);

/**
 * mm_sock_look() - copy the next message with its fds, and leave it in the queue
 * @fd: no other thread or process may receive from it meanwhile
 *
 * Otherwise as mm_sock_recv(): each call opens fds of its own. After -EMFILE all is as before.
 */
int mm_sock_look(int fd, void *buf, size_t cap, int *fds, size_t max, size_t *ret_n_fds,
		 size_t *ret_len);

/*
 * Takes the next message out of the queue, and closes its fds. Return: 0; -EAGAIN; -ECONNRESET.
 */
int mm_sock_skip(int fd);

/**
 * mm_sock_recv_nofds() - receive one message from a peer that must not pass fds
 * @fd:      any
 * @buf:     @cap bytes
 * @ret_len: bytes of the message
 *
 * There is no control buffer: passed fds never enter this process's table. The kernel closes them
 * within the call, though, which may sleep for long: see mm_sock_recv_clean().
 * Return: as mm_sock_recv(), without -EMFILE.
 */
int mm_sock_recv_nofds(int fd, void *buf, size_t cap, size_t *ret_len);

/**
 * mm_sock_recv_clean() - the same, but leave a message with fds in the queue
 * @fd:      no other thread or process may receive from it meanwhile
 * @buf:     @cap bytes
 * @ret_len: bytes of the message
 *
 * Return: as mm_sock_recv_nofds(); -EPERM the next message has fds: to receive it, or to close the
 * socket, closes them (mm_sock_drain()).
 */
int mm_sock_recv_clean(int fd, void *buf, size_t cap, size_t *ret_len);

/**
 * mm_sock_peek() - read the next message and leave it in the queue
 * @fd:      no other thread or process may receive from it meanwhile
 * @buf:     @cap bytes
 * @ret_len: bytes of the message
 *
 * Return: as mm_sock_recv_clean().
 */
int mm_sock_peek(int fd, void *buf, size_t cap, size_t *ret_len);

/**
 * mm_sock_drain() - end a connection, and check whether closing the socket would close passed fds
 * @fd: may be a stream as well; no other thread or process may receive from it meanwhile
 *
 * Neither side can send after this; the peer still gets what was sent to it. Messages of the peer
 * are thrown away, up to one with fds.
 * Return: 0: closing @fd closes nothing else; -EPERM: the last close of @fd also closes fds that
 * were passed, and may sleep for as long as their owner chooses.
 */
int mm_sock_drain(int fd);

/**
 * mm_sock_doorbell() - wake the peer: a message of one byte
 * @fd: any
 *
 * A full socket wakes the peer as well. Return: 0; -ECONNRESET.
 */
int mm_sock_doorbell(int fd);

/**
 * mm_sock_refuse_fds() - let the kernel refuse fds that the peer passes (Linux 6.16)
 * @fd: any; sockets that are accepted from a listening one inherit it
 *
 * Fds that the peer sent before stay. Return: 0; -ENOPROTOOPT an older kernel.
 */
int mm_sock_refuse_fds(int fd);

/* True if the kernel does so; then mm_sock_recv_nofds() and close() never close passed fds. */
bool mm_sock_refuses_fds(int fd);
