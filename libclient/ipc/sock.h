/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sock - SOCK_SEQPACKET sockets: messages, passed fds, doorbells
 *
 * Concept:   A message arrives whole or not at all; fds travel with one. No call here blocks: who
 *            wants to wait calls mm_sock_wait() first. An empty message is never sent, so that
 *            "0 bytes" always means the end.
 * Ownership: fds passed to mm_sock_send() stay the caller's; those written by mm_sock_recv() become
 *            the caller's. Every fd is close-on-exec at birth.
 * Threading: any; messages of two senders do not mix.
 * Limits:    MM_SOCK_FDS_MAX fds per message.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MM_SOCK_FDS_MAX 64

/**
 * mm_sock_pair() - two connected sockets
 * @ret_fds: written only on success
 *
 * Return: 0; -EMFILE, -ENFILE, -ENOMEM.
 */
int mm_sock_pair(int ret_fds[2]);

/**
 * mm_sock_listen() - a listening socket in the file system
 * @path:   a dead socket of that name is replaced. Two starters at one instant are the caller's to
 *          keep apart (a lock file).
 * @mode:   of the socket file, set before anybody can connect
 * @refuse_fds: whether the kernel shall refuse fds that are passed to what is accepted, from the
 *          first message on (mm_sock_refuses_fds() says whether it does)
 * @ret_fd: written only on success; accept4(..., SOCK_CLOEXEC) from it
 *
 * Return: 0; -EADDRINUSE somebody listens there, or it is no socket; -ENAMETOOLONG; -EACCES; ...
 */
int mm_sock_listen(const char *path, mode_t mode, bool refuse_fds, int *ret_fd);

/**
 * mm_sock_connect() - connect to a listening socket
 * @path:   of it
 * @ret_fd: written only on success
 *
 * Return: 0; -ENOENT, -ECONNREFUSED nobody there; -EACCES; -EAGAIN its queue is full;
 *         -ENAMETOOLONG.
 */
int mm_sock_connect(const char *path, int *ret_fd);

/**
 * mm_sock_wait() - wait until a socket is readable, writable or ended
 * @fd:          any
 * @events:      POLLIN or POLLOUT
 * @deadline_ns: CLOCK_MONOTONIC; UINT64_MAX = never
 *
 * Return: 0 also at its end (the next call says so); -ETIMEDOUT.
 */
int mm_sock_wait(int fd, short events, uint64_t deadline_ns);

/**
 * mm_sock_send() - send one message, or nothing
 * @fd:    any
 * @buf:   @len bytes, not 0
 * @fds:   @n_fds of them, at most MM_SOCK_FDS_MAX; may be NULL
 *
 * Return: 0; -EAGAIN full; -ECONNRESET the peer is gone; -EPERM it refuses fds; -ETOOMANYREFS too
 * many fds of this user are in flight; -ENOBUFS, -ENOMEM the kernel has no memory for it.
 */
int mm_sock_send(int fd, const void *buf, size_t len, const int *fds, size_t n_fds);

/*
 * Whether what kept a message from being sent, @error of mm_sock_send(), ends by itself while the
 * socket is writable all the while: try again after some time, not when EPOLLOUT says so. Not of
 * -EAGAIN.
 */
bool mm_sock_retries_later(int error);

/**
 * mm_sock_recv() - receive one message with its fds
 * @fd:        any
 * @buf:       @cap bytes
 * @fds:       room for @max; must be at most MM_SOCK_FDS_MAX
 * @ret_n_fds: how many came
 * @ret_len:   bytes of the message
 *
 * Return: 0; -EAGAIN nothing there; -ECONNRESET the end; -EMSGSIZE longer than @cap, its fds were
 * closed; -EMFILE fds are missing (our limit of open files, or more than @max were sent): those
 * that came were closed and *ret_n_fds is 0, but the message is in @buf and *ret_len: ask for it
 * again.
 */
int mm_sock_recv(int fd, void *buf, size_t cap, int *fds, size_t max, size_t *ret_n_fds,
		 size_t *ret_len);

/**
 * mm_sock_recv_nofds() - receive one message from a peer that must not pass fds
 * @fd:      any
 * @buf:     @cap bytes
 * @ret_len: bytes of the message
 *
 * There is no control buffer: passed fds never enter this process's table. The kernel closes them
 * here and now, though, and that may sleep for long: see mm_sock_recv_clean().
 * Return: as mm_sock_recv(), without -EMFILE.
 */
int mm_sock_recv_nofds(int fd, void *buf, size_t cap, size_t *ret_len);

/**
 * mm_sock_recv_clean() - the same, but a message with fds is left where it is
 * @fd:      nobody else may receive from it meanwhile
 * @buf:     @cap bytes
 * @ret_len: bytes of the message
 *
 * Return: as mm_sock_recv_nofds(); -EPERM the next message has fds: whoever takes it, or closes the
 * socket, closes them (mm_sock_drain()).
 */
int mm_sock_recv_clean(int fd, void *buf, size_t cap, size_t *ret_len);

/**
 * mm_sock_drain() - hang up, and see whether closing the socket would close passed fds
 * @fd: nobody else may receive from it meanwhile
 *
 * Neither side can send from here on; the peer still gets what was sent to it. What the peer sent
 * is thrown away, up to a message with fds.
 * Return: 0: closing @fd closes nothing else; -EPERM: who closes @fd last closes fds that were
 * passed, and may sleep for as long as their owner likes.
 */
int mm_sock_drain(int fd);

/**
 * mm_sock_doorbell() - wake the peer: a message of one byte
 * @fd: any
 *
 * A full socket is as good as a rung one. Return: 0; -ECONNRESET.
 */
int mm_sock_doorbell(int fd);

/**
 * mm_sock_refuse_fds() - let the kernel refuse fds that the peer passes (Linux 6.16)
 * @fd: any; of a listening socket all that is accepted inherits it
 *
 * What the peer sent before stays. Return: 0; -ENOPROTOOPT an older kernel.
 */
int mm_sock_refuse_fds(int fd);

/* Whether it does, so that mm_sock_recv_nofds() and close() can never close what a peer passed. */
bool mm_sock_refuses_fds(int fd);
