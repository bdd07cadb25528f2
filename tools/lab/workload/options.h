/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the command line that mmbench serve and mmsim share
 *
 * Concept:    one table of flags, parsed once, so that the same line means the same case to the
 *             timed run and to the simulator. A program brings its own flags besides.
 * Ownership:  strings point into argv, which the parser cuts up; nothing is to be freed.
 * Invariants: after mm_wl_options() every field is in its range; who reads them need not check
 *             again.
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
	MM_WL_SPATIAL,  /* all compute at once on one device (MPS) */
	MM_WL_MIG,      /* each has its own fraction of memory, compute and link */
	MM_WL_SHARINGS
};

enum mm_wl_turns { MM_WL_DRAIN, MM_WL_QUANTUM, MM_WL_TURNS };

struct mm_wl_policy {
	const char *name;
	enum mm_policy policy; /* of mmd */
	bool unlimited;        /* with memory without end: the reference */
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
	uint64_t pool_bytes; /* what the shares are shares of; 0 = the device's memory */
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
	uint64_t swap_bytes;    /* of each tenant, under remap and swap; MM_WL_SWAP_AUTO */
	const char *controller; /* KEY=VALUE,... or NULL */
	bool json;
};

/* What a program adds to the shared flags. */
struct mm_wl_program {
	const char *name;          /* of messages: "mmsim" */
	const char *usage;         /* first lines of --help, up to the list of flags */
	const struct option *more; /* its own flags, or NULL; val from MM_WL_OPT_MORE */
	const char *more_help;     /* lines of --help, or NULL */
	/* Return: 0; 1 done, nothing else is to be done; -EINVAL, said on stderr. */
	int (*take)(void *user, int val, char *arg);
	void *user;
};

#define MM_WL_OPT_MORE 1000

/**
 * mm_wl_options() - read a command line
 * @argc, @argv: argv[0] is skipped; the strings are cut up
 * @program:     whose it is
 * @ret_opts:    written only on success
 *
 * Says on stderr what is wrong. Return: 0; 1 = --help or --version was answered; -EINVAL usage.
 */
int mm_wl_options(int argc, char **argv, const struct mm_wl_program *program,
		  struct mm_wl_opts *ret_opts);

const char *mm_wl_sharing_name(enum mm_wl_sharing sharing);
const char *mm_wl_turns_name(enum mm_wl_turns turns);

/* By index; NULL behind the last. */
const struct mm_wl_policy *mm_wl_policy_at(size_t index);
