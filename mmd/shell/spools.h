/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spools - core's end of the processes that hold stores on disk
 *
 * Concept:    A store that does not fit into the host budget lies in a file; a process of its own
 *             (mmd/spool) opens it, so that core never waits for a disk. STARTING -> OPENING ->
 *             OPEN -> SEALING -> OPEN; what comes of it is told to store.c. When the store is gone,
 *             the spool's socket is closed only after every xfer has let go of the file: its last
 *             close, which may take long, is then the spool's.
 * Ownership:  owns the sockets. A spool may outlive its store by a moment.
 * Trust:      spool is ours and reads nothing of a stranger's; its messages are checked all the
 *             same.
 * Threading:  core's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/common/loop.h"
#include "mmd/common/proto.h"

#define MM_SPOOLS_MAX 128

struct mm_shell;

enum mm_spool_state {
	MM_SPOOL_FREE,
	MM_SPOOL_STARTING, /* keeper was asked */
	MM_SPOOL_OPENING,
	MM_SPOOL_OPEN,
	MM_SPOOL_SEALING,
	MM_SPOOL_LEAVING, /* the store is gone, an xfer still has the file */
};

struct mm_spool {
	struct mm_shell *shell;
	enum mm_spool_state state;
	uint64_t store;
	uint64_t bytes;
	unsigned int drops; /* LEAVING: xfers that have yet to let go */
	int fd;
	struct mm_loop_source source;
};

struct mm_spools {
	struct mm_spool spool[MM_SPOOLS_MAX];
};

void mm_spools_init(struct mm_shell *shell);
void mm_spools_done(struct mm_shell *shell);

/* A file of @bytes for @store; mm_store_spooled() follows. Return: 0; -EAGAIN too many. */
int mm_spool_open(struct mm_shell *shell, uint64_t store, uint64_t bytes);
/* Its writer was reaped; mm_store_sealed() follows. */
void mm_spool_seal(struct mm_shell *shell, uint64_t store);
/* The store is gone; so many xfers were told to drop it. */
void mm_spool_release(struct mm_shell *shell, uint64_t store, unsigned int drops);

/* One xfer has dropped it; an xfer was reaped: what it had is closed. */
void mm_spool_dropped(struct mm_shell *shell, uint64_t store);
void mm_spools_xfer_gone(struct mm_shell *shell);

/* Keeper: started, with core's end (taken over); reaped. */
void mm_spool_started(struct mm_shell *shell, uint64_t store, int fd);
void mm_spool_gone(struct mm_shell *shell, uint64_t store, int status);
