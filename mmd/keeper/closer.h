/* SPDX-License-Identifier: Apache-2.0 */
/*
 * closer - closes connections whose close may sleep, in processes that may be lost
 *
 * Concept:   On kernels before Linux 6.16 anybody may pass file descriptors to mmd. They lie in the
 *            connection until it is closed, and whoever closes it last closes them: a socket that
 *            lingers sleeps for as long as its owner said, a file of a network or user-space file
 *            system for as long as its server likes. So keeper forks, and lets go of what the child
 *            still has; the child ends, and it is its end that closes. Sockets do not linger at the
 *            end of a process. A child that does not end is left alone, and another one takes what
 *            comes.
 * Ownership: a connection given to mm_closer_add() is the closer's. What waits at mmd's end is left
 *            to the end of the process.
 * Threading: keeper's thread; the children are reaped by keeper's own waitpid().
 * Limits:    MM_CLOSER_CHILDREN at once, a new one only when the last has ended or has taken
 *            MM_CLOSER_SLOW_NS; each takes all that wait. When MM_CLOSER_FULL wait, keeper accepts
 *            no connection more. Beyond MM_CLOSER_WAITING, which takes more on their way to core
 *            than a socket has room for by default, connections stay open until mmd ends.
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
	unsigned int n_released; /* of them, the first */
	uint64_t next_ns;        /* no new child before, unless the last has ended */
	bool stuck_reported;     /* that all children hang; until half of them have ended */
};

/* @fd is taken over; -1 is ignored. It is kept until mm_closer_release(). */
void mm_closer_add(struct mm_closer *closer, int fd);

/* Whoever gave what waits has no copy of it any more: mm_closer_service() may see to it. */
void mm_closer_release(struct mm_closer *closer);

/* Whether @pid was a child of it, which is gone now. */
bool mm_closer_reaped(struct mm_closer *closer, pid_t pid);

/* Starts a child when one is due; never waits for it. */
void mm_closer_service(struct mm_closer *closer);

/* When mm_closer_service() has to be called, if nothing happens before; UINT64_MAX: never. */
uint64_t mm_closer_due_ns(const struct mm_closer *closer);

/* Whether nothing more should be accepted. */
bool mm_closer_full(const struct mm_closer *closer);
