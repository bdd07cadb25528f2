/* SPDX-License-Identifier: Apache-2.0 */
/*
 * below - faults from below: calls of the C library and of the driver that fail on request
 *
 * Concept:   libmm-below.so is preloaded into mmd and stands between each of its roles and the C
 *            library; the software GPU passes it each driver call, too. A call is counted at its
 *            *site*, the place in the program that makes it, so that a run lists every fault point
 *            of a role, and a later run lets the n-th call at one of them (or of all of them) fail,
 *            or stops or kills the process there. It also moves the clocks that a role reads.
 *            Orders and counts lie in a file that the test and all processes map, so that mmd need
 *            not be started anew for the next order, and counting goes on in a successor.
 * Trust:     none: who has the file says what fails.
 * Limits:    calls by the software GPU's own code pass untouched, and so do those that a library
 *            makes within itself. Not for builds with a sanitizer, which has the same calls.
 */
#pragma once

#include <stdint.h>

/* The file's path; in a tenant the role's name, too, because only mmd has --role. */
#define BELOW_FILE_ENV "MM_BELOW"
#define BELOW_ROLE_ENV "MM_BELOW_ROLE"

#define BELOW_SITES      1024u
#define BELOW_NAME_BYTES 32

enum below_role_index {
	BELOW_KEEPER,
	BELOW_CORE,
	BELOW_XFER,
	BELOW_LOAD,
	BELOW_SPOOL,
	BELOW_LOG,
	BELOW_CLIENT,
	BELOW_ROLES,
};

enum below_action {
	BELOW_FAIL,       /* the call fails, and is not made */
	BELOW_STICKY,     /* it fails, and all later driver calls of this process with it */
	BELOW_STOP,       /* SIGSTOP before the call */
	BELOW_KILL,       /* SIGKILL before the call */
	BELOW_KILL_AFTER, /* SIGKILL when it has been made */
};

/* Calls by the thing that they take from the system: orders can be for some of these alone. */
enum below_class {
	BELOW_MEMORY = 1,
	BELOW_FD = 2,
	BELOW_SOCKET = 4,
	BELOW_FILE = 8,
	BELOW_LOOP = 16,
	BELOW_PROCESS = 32,
	BELOW_DRIVER = 64,
};

/* A place in the program: function, object and offset of the return address in one number. */
struct below_site {
	uint64_t key; /* 0: free */
	uint64_t calls;
	char name[BELOW_NAME_BYTES]; /* of the function */
};

/* All of one role's processes; tests/e2e/lib/below.py has the same. */
struct below_role {
	/* The order: written by the test, nth last. */
	uint64_t nth;     /* 0: none; the n-th call from now on at the site */
	uint64_t site;    /* a key; 0: all sites count together */
	uint64_t count;   /* how many calls in a row; 0: one */
	uint64_t classes; /* mask of enum below_class; 0: all */
	uint32_t action;
	int32_t value; /* errno or CUresult; 0: the one of the table */
	int64_t jump_realtime_ns, jump_monotonic_ns;
	/* The result: written by the processes of the role. */
	uint64_t calls; /* of those that the order counts */
	uint64_t fired; /* how many of them failed */
	uint64_t fired_key;
	uint32_t fired_pid;
	uint32_t reserved;
	uint64_t sites_lost; /* calls whose site had no room */
	uint64_t padding[4];
	struct below_site sites[BELOW_SITES];
};

struct below_file {
	struct below_role role[BELOW_ROLES];
};
