/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canary - a tenant that looks at every byte of every page that it is given
 *
 * Concept:   A child with a user of its own, where we may give it one, takes pages and gives them
 *            back, again and again. It reads each page as it comes, looks for what another user has
 *            written (MM_HOSTILE_PATTERN), fills it with its own pattern, and finds that again
 *            before it gives the page back. It honours the protocol, and may be killed at any time.
 * Ownership: mm_canary_stop() and mm_canary_kill() end the child, its counts stay;
 *            mm_canary_done() accepts a zeroed struct.
 * Threading: one thread; the process is forked.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct mm_canary_counts { /* shared with the child */
	uint32_t stop;
	uint64_t lives; /* connections that were welcomed */
	uint64_t pages_read;
	uint64_t foreign_bytes; /* of other users */
	uint64_t lost_bytes;    /* its own that had changed while it held the page */
	uint64_t ended;         /* connections that mmd ended, which it has no reason to */
	char reason[128];       /* of the first of these */
};

struct mm_canary_opts {
	const char *socket;
	uint64_t seed;
	uint32_t uid;   /* that it becomes; 0: ours */
	uint32_t pages; /* at most, at one time */
	bool once;      /* takes so many pages, reads them, and ends */
};

struct mm_canary {
	pid_t pid;
	struct mm_canary_counts *counts;
};

/* Starts it, again if it was killed; counts go on. Return: 0; negative errno. */
int mm_canary_start(struct mm_canary *canary, const struct mm_canary_opts *opts);

/* Waits for its end by itself. Return: its wait status; -1: it has not ended in time. */
int mm_canary_wait(struct mm_canary *canary, uint64_t patience_ns);
void mm_canary_stop(struct mm_canary *canary, uint64_t patience_ns);

/* SIGKILL. Return: whether it was there to be killed. */
bool mm_canary_kill(struct mm_canary *canary);
void mm_canary_done(struct mm_canary *canary);
