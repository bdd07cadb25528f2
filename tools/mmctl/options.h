/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the command line of mmctl
 *
 * Concept:   One table (libclient/support/options.h) has the options of all subcommands, of which
 *            each reads those that it has from one struct.
 * Ownership: texts are borrowed from argv.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/support/options.h"

#define MMCTL_PAGE_SIZES_MAX 8
#define MMCTL_BATCHES_MAX    16
#define MMCTL_UNSET          UINT64_MAX       /* the option was not given */
#define MMCTL_AUTO           (UINT64_MAX - 1) /* "auto" */

enum mmctl_command_index {
	MMCTL_STATUS,
	MMCTL_POOL_SHOW,
	MMCTL_PLAN_SHOW,
	MMCTL_PLAN_WHY,
	MMCTL_PLAN_SET,
	MMCTL_DEVICES,
	MMCTL_FOOTPRINT,
	MMCTL_QUOTA_SHOW,
	MMCTL_QUOTA_SET,
	MMCTL_EVENTS,
	MMCTL_CONFIG_SHOW,
	MMCTL_CONFIG_RELOAD,
	MMCTL_WAIT,
	MMCTL_DOCTOR,
	MMCTL_EXPORTER,
	MMCTL_UPGRADE,
	MMCTL_SHUTDOWN,
	MMCTL_REVOKE,
	MMCTL_DRAIN,
	MMCTL_ACTIVATE,
	MMCTL_PIN,
	MMCTL_UNPIN,
	MMCTL_PLAN_ESTIMATE,
	MMCTL_TOP,
	MMCTL_LIST,
	MMCTL_MPS_START,
	MMCTL_MPS_STOP,
	MMCTL_MPS_STATUS,
	MMCTL_MPS_LIMIT,
	MMCTL_MIG_LIST,
	MMCTL_MIG_CREATE,
	MMCTL_MIG_DESTROY,
	MMCTL_COMMANDS
};

struct mmctl_options {
	const char *socket, *dir; /* NULL: not given */
	int64_t device;           /* ordinal; -1: all devices, or the one that uuid names */
	const char *uuid;         /* GPU-…, MIG-…, or the beginning of one; NULL: not given */
	bool json;
	/* For plan set; MMCTL_AUTO: mmd decides; layers and cold may be MMCTL_UNSET. */
	uint64_t layers, slots, cold;
	/* For quota set; MMCTL_UNSET: stays. */
	uint64_t min_bytes, max_bytes, weight, priority;
	uint64_t on_timeout; /* among mmctl_timeout_choices */
	uint64_t turn_quantum_max_ms, turn_priority_max, goal_ttft_ms, goal_tpot_us, revision;
	bool save; /* for quota set */
	/* For events. */
	bool follow;
	const char *since, *tenant; /* NULL: all */
	double timeout_s;           /* for wait */
	bool host_only;             /* for doctor */
	bool check;                 /* for upgrade */
	/* For shutdown. */
	uint64_t within_s;
	bool release, dry_run;
	/* For revoke, drain, activate and pin. */
	uint64_t drain_within_s; /* MMCTL_UNSET: as long as it takes */
	bool no_wait, cancel;
	/* For exporter. */
	const char *listen;
	bool list;
	/* For footprint. */
	const char *models; /* path of a file of shapes; NULL: none */
	uint64_t page_bytes[MMCTL_PAGE_SIZES_MAX];
	size_t n_pages;
	uint64_t kv_bytes;
	/* For plan estimate. */
	const char *profile;
	uint64_t pool_bytes; /* MMCTL_UNSET: the device's memory, but for headroom */
	uint64_t estimate_page_bytes, context;
	uint64_t batch[MMCTL_BATCHES_MAX];
	size_t n_batches;
	/* For top. */
	double interval_s;
	bool once;
	/* For mps. */
	const char *pipe_dir, *log_dir; /* NULL: as the environment has it */
	uint64_t percent;               /* MMCTL_UNSET: not given */
	bool yes;                       /* for mig destroy */
};

extern const struct mm_opt_program mmctl_program;
extern const struct mm_opt_choice mmctl_timeout_choices[];

/* As mm_opt_main(). */
int mmctl_options_parse(int argc, char **argv, struct mmctl_options *ret_options,
			struct mm_opt_line *ret_line);
