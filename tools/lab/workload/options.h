/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the command line that mmbench serve and mmsim share
 *
 * Concept:    One table of flags, parsed once, so that the same line means the same case to the
 *             timed run and to the simulator. A program may add flags of its own.
 * Ownership:  strings point into argv, which the parser modifies; nothing is to be freed.
 * Threading:  one thread.
 * Invariants: after mm_wl_options() every field is in its range.
 */
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"
#include "libclient/model/shapes.h"

#define MM_WL_TENANTS_MAX      16
#define MM_WL_POLICIES_MAX     16
#define MM_WL_WINDOWS_MAX      1000
#define MM_WL_NAME_BYTES       64
#define MM_WL_SWAP_AUTO        UINT64_MAX
#define MM_WL_QUANTUM_MAX_MS   60000 /* as mmd: MM_TURN_QUANTUM_LIMIT_NS */
#define MM_WL_QUANTUM_MAX_TEXT "60000"

enum mm_wl_sharing {
	MM_WL_TEMPORAL, /* one tenant computes at a time, by turns */
	MM_WL_SPATIAL,  /* all tenants compute at once on one device (MPS) */
	MM_WL_MIG,      /* each tenant has a fraction of memory, compute and link for itself */
	MM_WL_SHARINGS
};

enum mm_wl_turns { MM_WL_DRAIN, MM_WL_QUANTUM, MM_WL_TURNS };

struct mm_wl_policy {
	const char *name;
	enum mm_policy policy; /* mmd's policy */
	bool unlimited;        /* with unlimited memory, as a reference */
};

struct mm_wl_tenant {
	const struct mm_shape *shape;
	uint32_t share_permille; /* of the device's memory */
	const char *lengths;     /* "alpaca", "sharegpt", "long", "short", "trace" or a file */
	double rate;             /* requests/s */
	uint32_t tokens_max;     /* prompt and output of one request */
};

struct mm_wl_opts {
	const char *profile;
	uint64_t pool_bytes; /* memory that the tenants share; 0 = the device's memory */
	uint64_t page_bytes;
	const char *combo; /* or NULL: --shapes */
	struct mm_wl_tenant tenant[MM_WL_TENANTS_MAX];
	uint32_t tenants;
	const char *trace_path; /* NULL: synthetic */
	double seconds;
	uint32_t windows;
	uint64_t seed;
	struct mm_wl_policy policy[MM_WL_POLICIES_MAX];
	uint32_t policies;
	enum mm_wl_sharing sharing;
	enum mm_wl_turns turns;
	uint32_t quantum_ms;
	uint32_t max_seqs;
	uint32_t batched_tokens;
	uint32_t block_tokens;
	uint32_t slots;         /* 0 = auto */
	uint64_t swap_bytes;    /* swap space of each tenant, under remap and swap; or _AUTO */
	const char *controller; /* KEY=VALUE,... or NULL */
	bool json;
};

/* The part of a command line that belongs to one program. */
struct mm_wl_program {
	const char *name;          /* prefix of messages: "mmsim" */
	const char *usage;         /* first lines of --help, up to the list of flags */
	const struct option *more; /* further flags, or NULL; val from MM_WL_OPT_MORE */
	const char *more_help;     /* lines of --help for them, or NULL */
	/* Takes one of these flags. Return: 0; 1 the program may end; -EINVAL, with a sentence. */
	int (*take)(void *user, int val, char *arg);
	void *user;
};

#define MM_WL_OPT_MORE 1000

/**
 * mm_wl_options() - read a command line
 * @argc, @argv: argv[0] is skipped; the strings are modified
 * @program:     the program that was started
 * @ret_opts:    written only on success
 *
 * Errors are reported on stderr. Return: 0; 1 --help or --version was answered; -EINVAL usage.
 */
int mm_wl_options(int argc, char **argv, const struct mm_wl_program *program,
		  struct mm_wl_opts *ret_opts);

const char *mm_wl_sharing_name(enum mm_wl_sharing sharing);
const char *mm_wl_turns_name(enum mm_wl_turns turns);

/* Returns a policy by index; NULL: there are not so many. */
const struct mm_wl_policy *mm_wl_policy_at(size_t index);
