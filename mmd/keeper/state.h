/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state - all that keeper has
 *
 * Concept:   One struct, which keeper.c, children.c and kcore.c share; each changes what its own
 *            header is about.
 * Ownership: struct mm_keeper owns the channel to core, the locks, the sockets, what it holds for
 *            core, and the children.
 * Threading: keeper's thread.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "libclient/ipc/region.h"
#include "mmd/common/devlock.h"
#include "mmd/common/kchan.h"
#include "mmd/common/loop.h"
#include "mmd/config/config.h"
#include "mmd/keeper/closer.h"
#include "mmd/keeper/hold.h"
#include "mmd/keeper/listen.h"
#include "mmd/keeper/relay.h"

#define MM_KEEPER_HELPERS_MAX 256 /* more than core uses: MM_LOADS_MAX + MM_SPOOLS_MAX */

/* Pauses before something that failed is tried again begin with this. */
#define MM_KEEPER_BACKOFF_NS (50 * MM_NS_PER_MS)
/* Time for core to end in order, and then for SIGKILL to take effect. */
#define MM_KEEPER_STOP_NS (30 * MM_NS_PER_S)

struct mm_keeper_helper { /* a load, or the spool of a store */
	enum mm_role role;
	uint64_t id;
	pid_t pid; /* 0 = free */
};

struct mm_keeper_xfer { /* one per device */
	uint64_t epoch;
	pid_t pid;
	uint64_t start_at_ns;  /* UINT64_MAX = no start is due */
	uint64_t started_ns;   /* when the running xfer was started */
	unsigned int failures; /* deaths in a row before the xfer was proven */
	unsigned int quick;    /* deaths in a row soon after the start */
	bool proven;           /* core has reported that it works (worker.h) */
	bool down;
	struct mm_devlock lock; /* lock of its device, held until mmd ends */
};

struct mm_keeper {
	const struct mm_config *config;
	struct mm_loop loop;
	struct mm_place place;
	struct mm_relay relay;
	uint64_t relay_at_ns; /* when the relay is started again; UINT64_MAX: it is not due */
	struct mm_kchan core;
	struct mm_closer closer;
	struct mm_hold hold;
	struct mm_region beat; /* written by core, held as MM_HELD_BEAT */
	bool inventory;        /* the new core has not got all of its inventory yet */
	uint64_t generation;   /* how many cores there were, with the one that runs */
	uint64_t conn_serial;  /* of the last connection */
	pid_t core_pid;
	struct mm_keeper_xfer xfer[MM_DEVICES_MAX];
	uint32_t n_xfers;
	struct mm_keeper_helper helpers[MM_KEEPER_HELPERS_MAX];
	struct mm_loop_source core_source, signal_source, tenant_source, admin_source;
	int signal_fd;
	bool ready, stopping, failed;
	char why[MM_TEXT_BYTES]; /* why mmd failed, if stderr did not take it */
	uint64_t accept_at_ns;   /* no connection is accepted before; 0: accepting is not paused */
	uint64_t end_at_ns;      /* end of the time for an orderly stop, then for killed roles */
};

/* Sends SIGKILL to @pid, unless it is 0. */
void mm_keeper_child_kill(pid_t pid);

/* Ends mmd with the sentence @text, which goes to stderr. */
void mm_keeper_fail(struct mm_keeper *keeper, const char *text);
