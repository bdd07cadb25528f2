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
#include "mmd/common/build.h"
#include "mmd/common/devlock.h"
#include "mmd/common/kchan.h"
#include "mmd/common/loop.h"
#include "mmd/common/pace.h"
#include "mmd/config/config.h"
#include "mmd/keeper/closer.h"
#include "mmd/keeper/hold.h"
#include "mmd/keeper/listen.h"
#include "mmd/keeper/notify.h"
#include "mmd/keeper/relay.h"
#include "mmd/keeper/reload.h"
#include "mmd/keeper/upgrade.h"

#define MM_KEEPER_HELPERS_MAX 256 /* more than core uses: MM_LOADS_MAX + MM_SPOOLS_MAX */

/* Pauses before something that failed is tried again begin with this. */
#define MM_KEEPER_BACKOFF_NS (50 * MM_NS_PER_MS)
/* More ends of core by its own fault than this, within MM_KEEPER_FAULTS_NS, end mmd. */
#define MM_KEEPER_FAULTS_MAX 5
#define MM_KEEPER_FAULTS_NS  (60 * MM_NS_PER_S)
/* Time for core to end in order, and then for SIGKILL to take effect. */
#define MM_KEEPER_STOP_NS (30 * MM_NS_PER_S)

struct mm_keeper_helper { /* a load, or the spool of a store */
	enum mm_role role;
	uint64_t id;
	pid_t pid;
	bool ended; /* reaped, which no core has been told; without it, pid 0 is a free entry */
	int status; /* the wait status then */
	char build[MM_BUILD_BYTES];
};

struct mm_keeper_xfer { /* one per device */
	uint64_t epoch; /* 0: core has not requested one yet */
	pid_t pid;
	int status;            /* of the last one that was reaped */
	uint64_t start_at_ns;  /* UINT64_MAX = no start is due */
	uint64_t started_ns;   /* when the running xfer was started */
	unsigned int failures; /* deaths in a row before the xfer was proven */
	unsigned int quick;    /* deaths in a row soon after the start */
	bool proven;           /* core has reported that it works (worker.h) */
	bool excused;          /* core has it killed for a reason that is none of its own */
	bool down;
	struct mm_devlock lock; /* lock of its device, held until mmd ends */
	char build[MM_BUILD_BYTES];
};

struct mm_keeper_core {        /* what is known of the process core, and of those before it */
	pid_t pid;             /* 0 = there is none now */
	uint64_t generation;   /* how many there were, with this one */
	uint64_t start_at_ns;  /* when a successor starts; UINT64_MAX = none is due */
	uint64_t loads_by_ns;  /* it does not wait longer for loads to end */
	bool inventory;        /* it has not got all of its inventory yet */
	bool serves;           /* it has said that it serves tenants */
	bool resumable;        /* a successor can go on where it ends */
	bool stopped;          /* by a signal or a debugger */
	bool killed;           /* by keeper, because it did not work */
	unsigned int failures; /* cores in a row that ended before they served */
	uint64_t fault_at_ns[MM_KEEPER_FAULTS_MAX]; /* when cores ended by themselves; a ring */
	bool at_fault;                              /* the last core ended by its own fault */
	unsigned int n_faults;
	struct mm_region beat; /* written by core, held as MM_HELD_BEAT */
	uint64_t beat_ns;      /* at the last check of the beat */
	uint64_t check_at_ns;  /* when the next check is due */
	unsigned int late;     /* checks in a row that found no beat */
};

/* A socket at which anybody may connect: how often it accepts. */
struct mm_keeper_door {
	struct mm_pace pace;
	uint64_t open_at_ns; /* it accepts nothing before; 0: it accepts */
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
	uint64_t conn_serial; /* of the last connection */
	struct mm_keeper_core process;
	struct mm_upgrade upgrade;
	struct mm_notify notify;
	struct mm_reload reload;
	struct mm_keeper_xfer xfer[MM_DEVICES_MAX];
	uint32_t n_xfers;
	struct mm_keeper_helper helpers[MM_KEEPER_HELPERS_MAX];
	struct mm_loop_source core_source, signal_source, tenant_source, admin_source, view_source;
	int signal_fd;
	bool ready; /* a core has served once */
	bool stopping, failed;
	char why[MM_TEXT_BYTES]; /* why mmd failed, if stderr did not take it */
	uint64_t accept_at_ns;   /* no connection is accepted before; 0: accepting is not paused */
	struct mm_keeper_door tenant_door, view_door;
	uint64_t end_at_ns; /* end of the time for an orderly stop, then for killed roles */
};

/* Whether there is a core that takes messages; what happens meanwhile is in its inventory. */
static inline bool mm_keeper_has_core(const struct mm_keeper *keeper)
{
	return keeper->process.pid && !keeper->process.inventory;
}

/* The pause before try number @times, from 0, of something that fails; it grows up to @max_ns. */
uint64_t mm_keeper_backoff_ns(unsigned int times, uint64_t max_ns);

/* Sends SIGKILL to @pid, unless it is 0. */
void mm_keeper_child_kill(pid_t pid);

/* Ends mmd with the sentence @text, which goes to stderr. */
void mm_keeper_fail(struct mm_keeper *keeper, const char *text);
