/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kchan - one end of the socket between keeper and core
 *
 * Concept:   struct mm_kmsg, behind it names of what keeper holds, and fds. Messages that do not
 *            fit into the socket wait in a queue, in order, so that neither role ever blocks on
 *            the other and nothing is lost. A full socket is waited for with EPOLLOUT; too many fds
 *            in flight, or no memory, with a timer, because the socket is writable all the while.
 * Use:       once per iteration of the loop the owner calls mm_kchan_service() and waits for
 *            mm_kchan_events() until mm_kchan_deadline() at the latest, regardless of what was sent
 *            or flushed meanwhile.
 * Ownership: the channel owns its socket and all fds given to it. When it ends, with its process,
 *            they stay open: connections are in it and in its queues, and their close may sleep
 *            (mm_sock_drain()). It does not sleep when the kernel closes them as the process exits.
 * Threading: one thread.
 * Limits:    MM_KCHAN_QUEUE messages; both roles bound what they have under way far below.
 */
#pragma once

#include <stdbool.h>

#include "mmd/common/fifo.h"
#include "mmd/common/proto.h"

#define MM_KCHAN_FDS   64 /* in one message; as many names */
#define MM_KCHAN_QUEUE 1024

struct mm_kpacket { /* a message as it is received; what is sent ends with the last name */
	struct mm_kmsg msg;
	struct mm_held_name name[MM_KCHAN_FDS];
	uint32_t n_names, n_fds;
	int fd[MM_KCHAN_FDS]; /* -1: none, or taken by the receiver */
};

/* Closes the fds that nobody took. */
void mm_kpacket_done(struct mm_kpacket *packet);

/* Takes the @index-th fd out of @packet; -1: there is none. */
int mm_kpacket_take(struct mm_kpacket *packet, size_t index);

struct mm_kchan {
	int fd;
	struct mm_fifo queue;
	uint64_t retry_ns; /* when to send again; UINT64_MAX: no timer, EPOLLOUT reports room */
};

void mm_kchan_init(struct mm_kchan *chan, int fd);
void mm_kchan_done(struct mm_kchan *chan);

/*
 * Ends the channel to a process that is dead, and closes the socket and what waits in the queue.
 * For an owner that holds what it had sent elsewhere as well, so that no close here is the last.
 */
void mm_kchan_close(struct mm_kchan *chan);

/**
 * mm_kchan_send() - send now, or when there is room
 * @chan:  any
 * @msg:   its magic is filled in
 * @fds:   @n_fds of them, taken over in any case; may be NULL
 * @n_fds: at most MM_KCHAN_FDS
 *
 * Return: 0; -ECONNRESET the other role is gone; -ENOBUFS, -ENOMEM.
 */
int mm_kchan_send(struct mm_kchan *chan, const struct mm_kmsg *msg, const int *fds, size_t n_fds);

/* As mm_kchan_send() of @packet's message, names and fds. */
int mm_kchan_send_packet(struct mm_kchan *chan, const struct mm_kpacket *packet);

/* Sends queued messages. Return: 0, also if some remain (mm_kchan_is_waiting()); -ECONNRESET. */
int mm_kchan_flush(struct mm_kchan *chan);

/* Whether messages wait for room. */
bool mm_kchan_is_waiting(const struct mm_kchan *chan);

/* Calls mm_kchan_flush() once the timer is due; else does nothing. */
int mm_kchan_service(struct mm_kchan *chan, uint64_t now_ns);

/*
 * The events to wait for: EPOLLIN, and EPOLLOUT while the socket is full; when it is writable the
 * owner calls mm_kchan_flush().
 */
uint32_t mm_kchan_events(const struct mm_kchan *chan);

/* When mm_kchan_service() has something to do. */
uint64_t mm_kchan_deadline(const struct mm_kchan *chan);

/**
 * mm_kchan_recv() - take the next message
 * @chan:       any
 * @ret_packet: a private copy, magic checked; give back with mm_kpacket_done(). Also written when
 *              fds are missing
 *
 * Return: 0; -EAGAIN; -ECONNRESET; -EPROTO; -EMFILE: its fds are missing, there was no room for
 * them.
 */
int mm_kchan_recv(struct mm_kchan *chan, struct mm_kpacket *ret_packet);
