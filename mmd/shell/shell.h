/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell - what surrounds the pure core: one thread with its sockets and clocks
 *
 * Concept:   Each event on a socket becomes one mm_pool_event(). The actions that the core then
 *            wants done are performed at once, so the core's queue is empty between two events.
 *            Each wake-up of the loop ends with an iteration: requests that were left over,
 *            outboxes, ends of connections, doorbells. Nothing here blocks on a disk, a driver or a
 *            peer.
 * Ownership: struct mm_shell owns all parts; they find each other through it.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>

#include "mmd/shell/actions.h"
#include "mmd/shell/admin.h"
#include "mmd/config/config.h"
#include "mmd/core/core.h"
#include "mmd/common/kchan.h"
#include "mmd/common/loop.h"
#include "mmd/common/rights.h"
#include "mmd/shell/builds.h"
#include "mmd/shell/groups.h"
#include "mmd/shell/held.h"
#include "mmd/shell/kept.h"
#include "mmd/shell/leave.h"
#include "mmd/common/pace.h"
#include "mmd/shell/peerlog.h"
#include "mmd/shell/pool.h"
#include "mmd/shell/quota.h"
#include "mmd/shell/settings.h"
#include "mmd/shell/session.h"
#include "mmd/shell/spools.h"
#include "mmd/shell/store.h"
#include "mmd/shell/trail.h"
#include "mmd/shell/upgrade.h"

struct mm_shell {
	const struct mm_config *config;
	struct mm_loop loop;
	struct mm_kchan keeper;
	struct mm_loop_source keeper_source;
	struct mm_held held;
	struct mm_kept kept;
	/*
	 * The serial of the next item that is put into an outbox, for the action or request that is
	 * being done; 0: none is.
	 */
	uint64_t serial;
	struct mm_pool pool[MM_DEVICES_MAX]; /* in the order of the configuration */
	uint32_t n_pools;
	struct mm_stores stores;
	struct mm_spools spools;
	struct mm_fd_budget fd_budget;
	struct mm_session session[MM_SESSIONS_MAX];
	uint32_t n_sessions; /* the most that its pools can have */
	struct mm_groups groups;
	struct mm_admin admin;
	struct mm_peerlog peerlog;
	struct mm_trail trail;
	struct mm_leave leave;
	struct mm_pace_users hellos; /* what users have spent on hellos */
	struct mm_shell_upgrade upgrade;
	struct mm_builds builds;
	char exe[MM_CONFIG_PATH_BYTES]; /* the file of this build; "": not known */
	struct mm_settings reload;
	uint64_t started_ns;
	uint64_t started_unix_s; /* the same by the wall clock, when somebody asked; else 0 */
	uint64_t sample_at_ns;
	uint64_t fds_max; /* RLIMIT_NOFILE */
	uid_t owner;      /* the user that mmd was started as */
	struct mm_rights rights;
	bool ready; /* all pools are complete, tenants are accepted */
	bool stopping;
	bool failed;    /* mmd ends, because it cannot go on */
	bool gives_way; /* only this core cannot go on: it ends without hanging up anybody */
	bool resumes;   /* it goes on where another core has died */
};

/**
 * mm_shell_main() - run the role core
 * @fd:     our end of the pair with keeper; taken over
 * @config: outlives the call
 *
 * Return: the exit status.
 */
int mm_shell_main(int fd, const struct mm_config *config);

/* Sends @op to keeper; what @id names depends on @op. For xfer use mm_shell_send_keeper_xfer(). */
void mm_shell_send_keeper(struct mm_shell *shell, enum mm_kop op, enum mm_role role, uint64_t id);
void mm_shell_send_keeper_xfer(struct mm_pool *pool, enum mm_kop op);
/* Has an xfer killed that did nothing wrong: its end does not count as a failure. */
void mm_shell_kill_xfer(struct mm_pool *pool);
/* Sends the lock of the pool's device for keeper to hold; @fds are taken over. */
void mm_shell_send_keeper_lock(struct mm_pool *pool, const int *fds, size_t n_fds, bool has_file);

/* Ends mmd because it cannot go on; keeper prints the sentence. */
void mm_shell_fail(struct mm_shell *shell, const char *fmt, ...) MM_PRINTF(2, 3);
