/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the options that mmbench serve and mmsim share
 *
 * Concept:    One table, so that the same line means the same case to the timed run and to the
 *             simulator. A program puts it among its sets of options, and calls mm_wl_settle() when
 *             its command line was read.
 * Ownership:  strings point into argv, which the parser modifies; nothing is to be freed.
 * Threading:  one thread.
 * Invariants: after mm_wl_settle() every field is in its range.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/model/shapes.h"
#include "libclient/support/options.h"
#include "mmd/core/core.h"

#define MM_WL_TENANTS_MAX    16
#define MM_WL_POLICIES_MAX   16
#define MM_WL_WINDOWS_MAX    1000
#define MM_WL_NAME_BYTES     64
#define MM_WL_SWAP_AUTO      UINT64_MAX
#define MM_WL_TOKENS_AUTO    0
#define MM_WL_QUANTUM_MAX_MS 60000 /* as mmd: MM_TURN_QUANTUM_LIMIT_NS */

enum mm_wl_sharing {
	MM_WL_TEMPORAL, /* one tenant computes at a time, by turns */
	MM_WL_SPATIAL,  /* all tenants compute at once on one device (MPS) */
	MM_WL_MIG,      /* each tenant has a fraction of memory, compute and link for itself */
	MM_WL_SHARINGS
};

enum mm_wl_turns { MM_WL_DRAIN, MM_WL_QUANTUM, MM_WL_TURNS };

enum mm_wl_arrivals {
	MM_WL_GAPS, /* a trace of gaps of a gamma distribution, of which each tenant has windows */
	MM_WL_STEADY,
	MM_WL_BURSTS,
	MM_WL_DAY,
};

struct mm_wl_policy {
	const char *name;
	enum mm_policy policy; /* mmd's policy */
	/* references of the laboratory, which mmd does not know */
	bool unlimited; /* with unlimited memory */
	bool ideal;     /* who has its turn sees the whole device: mm_wl_sizes_ideal() */
	bool pie;       /* layers of KV are on the host as Pie has them */
	bool swaps;     /* engines swap, although the policy does not provide for it */
	bool simulated; /* only the simulator has it */
};

struct mm_wl_tenant {
	const struct mm_shape *shape;
	uint32_t share_permille; /* of the device's memory */
	const char *lengths;     /* "alpaca", "sharegpt", "long", "short", "trace" or a file */
	double rate;             /* requests/s */
	uint32_t tokens_max;     /* prompt and output of one request */
};

/* Options whose meaning depends on others: as they were given. */
struct mm_wl_given {
	double rate[MM_WL_TENANTS_MAX];
	const char *lengths[MM_WL_TENANTS_MAX];
	uint32_t rates, n_lengths;
	uint32_t max_len; /* 0: none */
};

struct mm_wl_opts {
	struct mm_wl_given given;
	const char *profile;
	uint64_t pool_bytes; /* memory that the tenants share; 0 = the device's memory */
	uint64_t page_bytes;
	const char *combo; /* or NULL: --shapes */
	bool shares_whole; /* the shares give out the whole device */
	struct mm_wl_tenant tenant[MM_WL_TENANTS_MAX];
	uint32_t tenants;
	const char *trace_path; /* NULL: synthetic */
	enum mm_wl_arrivals arrivals;
	double seconds;
	uint32_t windows;
	uint64_t seed;
	struct mm_wl_policy policy[MM_WL_POLICIES_MAX];
	uint32_t policies;
	enum mm_wl_sharing sharing;
	enum mm_wl_turns turns;
	uint32_t quantum_ms;
	uint32_t max_seqs;
	uint32_t batched_tokens; /* or _AUTO, until mm_wl_tokens_set() (knobs.h) */
	uint32_t block_tokens;
	uint32_t kv_keep_permille;
	uint32_t slots;        /* 0 = auto */
	uint32_t goal_ttft_ms; /* a request's goals: record.h */
	double goal_factor;
	uint64_t swap_bytes;    /* swap space of each tenant, under remap and swap; or _AUTO */
	uint32_t cold_entries;  /* KV blocks in host memory that each step streams; 0: none */
	const char *controller; /* KEY=VALUE,... or NULL */
	bool json;
};

extern const struct mm_opt_choice mm_wl_profile_choices[]; /* for options that take a file, too */
extern const struct mm_opt mm_wl_options[]; /* into struct mm_wl_opts, which is zeroed at first */

/**
 * mm_wl_settle() - derive what follows from several options, and check them together
 * @opts: as a command line was read into it
 * @why:  MM_OPT_ERROR_BYTES: on failure what is wrong
 *
 * Return: 0; -EINVAL.
 */
int mm_wl_settle(struct mm_wl_opts *opts, char *why);

/* Names where arrivals come from: a trace's path, "synthetic", or a name of --arrivals. */
const char *mm_wl_arrivals_name(const struct mm_wl_opts *opts);
const char *mm_wl_sharing_name(enum mm_wl_sharing sharing);
const char *mm_wl_turns_name(enum mm_wl_turns turns);
