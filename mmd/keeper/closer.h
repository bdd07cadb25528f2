/* SPDX-License-Identifier: Apache-2.0 */
/*
 * closer - closes connections whose close may sleep, in processes that may be lost
 *
 * Concept:   On kernels before Linux 6.16 anybody may pass file descriptors to mmd. They stay in
 *            the connection until it is closed, and its last close closes them too. A socket
 *            that lingers then sleeps for as long as its owner chose, a file of a network or
 *            user-space file system for as long as its server takes. So keeper forks a child, which
 *            shares the connections, and closes its own copies; the child's exit is the last close.
 *            Sockets do not linger at the exit of a process. A child that does not end is left
 *            alone, and another one takes later connections. Memory of stores goes the same way:
 *            to free hundreds of GB takes seconds.
 * Ownership: a connection given to mm_closer_add() is the closer's, and no other process has a
 *            copy. The child closes whatever else it shares before it is trusted with the last
 *            close: else one that hangs would keep all that keeper holds. Connections that still
 *            wait at mmd's end are left to the end of the process.
 * Threading: keeper's thread; the children are reaped by keeper's own waitpid().
 * Limits:    MM_CLOSER_CHILDREN at once, a new one only when the last has ended or has taken
 *            MM_CLOSER_SLOW_NS; each takes all connections that wait. When MM_CLOSER_FULL wait,
 *            keeper accepts no more connections. Beyond MM_CLOSER_WAITING connections stay open
 *            until mmd ends.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "libclient/base/base.h"
#include "mmd/common/proto.h"

#define MM_CLOSER_CHILDREN 32
#define MM_CLOSER_SLOW_NS  (100 * MM_NS_PER_MS)
#define MM_CLOSER_FULL     256
#define MM_CLOSER_WAITING  (MM_CLOSER_FULL + 1024 + MM_SESSIONS_MAX)

struct mm_closer {
	pid_t child[MM_CLOSER_CHILDREN]; /* 0 = free */
	unsigned int n_children;
	int waiting[MM_CLOSER_WAITING];
	unsigned int n_waiting;
	int spared_fd;    /* not closed in a child, because even that may hang; -1: none */
	uint64_t next_ns; /* no new child starts before, unless the last has ended */
	/* All children hang, and this was logged; reset when half of them have ended. */
	bool stuck_reported;
};

/* Closes @fd, which is taken over, at the next mm_closer_service(); -1 is ignored. */
void mm_closer_add(struct mm_closer *closer, int fd);

/* Notes the end of a child. Return: whether @pid was one. */
bool mm_closer_reaped(struct mm_closer *closer, pid_t pid);

/* Starts a child when one is due; does not wait for it. */
void mm_closer_service(struct mm_closer *closer);

/* When mm_closer_service() has to be called next at the latest; UINT64_MAX: never. */
uint64_t mm_closer_due_ns(const struct mm_closer *closer);

/* Whether so many connections wait that no more should be accepted. */
bool mm_closer_is_full(const struct mm_closer *closer);
