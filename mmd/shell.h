/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell - what is around the pure core: one thread that hears, tells and performs
 *
 * Concept:   Whatever happens on a socket is turned into one mm_core_on_*() call; what the core then
 *            wants done is performed at once (mm_shell_settle()), so the core's queue is empty between
 *            two events. A turn follows each wake-up: left-over requests, outboxes, ends of
 *            connections, doorbells. Nothing here blocks, on a disk, a driver or a peer.
 * Ownership: struct mm_shell owns all parts; they find each other through it.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>

#include "mmd/admin.h"
#include "mmd/config.h"
#include "mmd/core/core.h"
#include "mmd/kchan.h"
#include "mmd/loop.h"
#include "mmd/session.h"
#include "mmd/store.h"
#include "mmd/worker.h"

struct mm_shell {
	const struct mm_config *config;
	struct mm_loop loop;
	struct mm_kchan keeper;
	struct mm_source keeper_source;
	struct mm_core *core; /* NULL until the device is known */
	struct mm_worker worker;
	struct mm_stores stores;
	struct mm_fd_budget fd_budget;
	struct mm_session session[MM_SESSIONS_MAX];
	struct mm_admin admin;
	uint64_t started_ns;
	uint64_t sample_at_ns;
	uint64_t fds_max;             /* RLIMIT_NOFILE */
	uint64_t bytes_streamed_gone; /* by tenants that are forgotten */
	bool ready;                   /* the pool stands, tenants are accepted */
	bool stopping;
	bool failed;
};

/**
 * mm_shell_main() - run the role core
 * @fd:     our end of the pair with keeper; taken over
 * @config: outlives the call
 *
 * Return: the exit status.
 */
int mm_shell_main(int fd, const struct mm_config *config);

/* Performs all that the core wants done. Call after every mm_core_on_*(). */
void mm_shell_settle(struct mm_shell *shell);

/* To keeper; @id as the op wants it. */
void mm_shell_tell(struct mm_shell *shell, enum mm_kop op, enum mm_role role, uint64_t id);

/* mmd cannot go on: keeper prints the sentence and ends everything. */
void mm_shell_fail(struct mm_shell *shell, const char *fmt, ...) MM_PRINTF(2, 3);

/* The device is known: make the core. Return: 0 or negative errno. */
int mm_shell_device(struct mm_shell *shell);
