/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spools - core's end of the processes that hold stores on disk
 *
 * Concept:    A store that does not fit into the host budget is a file; a process of its own
 *             (mmd/spool) opens it, so that core never waits for a disk. STARTING -> OPENING ->
 *             OPEN -> SEALING -> OPEN; outcomes are reported to store.c. When the store is gone,
 *             the spool's socket is closed only after every xfer has closed the file: the last
 *             close, which may take long, is then the spool's.
 * Ownership:  owns the sockets. A spool may outlive its store by a moment.
 * Trust:      a spool is our own process and reads nothing from tenants; its messages are checked
 *             all the same.
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
	MM_SPOOL_STARTING, /* keeper was asked to start it */
	MM_SPOOL_OPENING,
	MM_SPOOL_OPEN,
	MM_SPOOL_SEALING,
	MM_SPOOL_LEAVING, /* the store is gone, an xfer still has the file open */
};

struct mm_spool {
	struct mm_shell *shell;
	enum mm_spool_state state;
	uint64_t store;
	uint64_t bytes;
	unsigned int drops; /* LEAVING: xfers that have not dropped the store yet */
	int fd;
	struct mm_loop_source source;
};

struct mm_spools {
	struct mm_spool spool[MM_SPOOLS_MAX];
};

void mm_spools_init(struct mm_shell *shell);
void mm_spools_done(struct mm_shell *shell);

/*
 * Takes over the spools of a core that has died: those of stores that there are, and those that
 * wait for an xfer to let go of a store that is gone. The others end.
 */
void mm_spools_resume(struct mm_shell *shell);

/*
 * Starts a spool with a file of @bytes for @store; mm_load_on_spooled() follows. Return: 0; -EAGAIN
 * too many spools.
 */
int mm_spool_open(struct mm_shell *shell, uint64_t store, uint64_t bytes);
/*
 * Starts the check that nobody can write to a store whose load was reaped; mm_load_on_sealed()
 * follows.
 */
void mm_spool_seal(struct mm_shell *shell, uint64_t store);
/* Frees the spool of a store that is gone once @drops xfers have dropped it. */
void mm_spool_release(struct mm_shell *shell, uint64_t store, unsigned int drops);

/* An xfer has dropped the store; an xfer was reaped, which closed all files that it had. */
void mm_spool_dropped(struct mm_shell *shell, uint64_t store);
void mm_spools_xfer_gone(struct mm_shell *shell);

/* Messages of keeper: a spool was started, with core's end (taken over); a spool was reaped. */
void mm_spool_started(struct mm_shell *shell, uint64_t store, int fd);
void mm_spool_gone(struct mm_shell *shell, uint64_t store, int status);
