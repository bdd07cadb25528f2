/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perform - processes that do acts until they are stopped, and what came of them
 *
 * Concept:   A performer is a child with a user of its own, where we may give it one. It does one
 *            act after the other, each in a process that may be killed for it. What comes of them
 *            is counted in memory that is shared with the parent, act by act, and judged by the
 *            act's expectation.
 * Ownership: mm_performer_stop() ends the child and all its descendants; accepts a zeroed struct.
 * Threading: one thread; the process is forked.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/lab/hostile/act.h"

#define MM_ACTS_MAX 160 /* more than there are */

struct mm_act_tally {
	uint64_t rounds;     /* how often it was done */
	uint64_t operations; /* messages, requests and connections of these */
	uint64_t unexpected; /* rounds with another outcome than expected */
	uint64_t skipped;
	uint32_t outcomes;            /* all that came, a set of enum mm_act_outcome */
	char text[MM_ACT_TEXT_BYTES]; /* of the first that was unexpected, or skipped */
};

struct mm_performance { /* shared with the performer */
	uint32_t stop;
	struct mm_stage stage;                  /* of the round that runs */
	uint32_t outcome;                       /* of it; 0: it has none yet */
	struct mm_act_tally tally[MM_ACTS_MAX]; /* by mm_act_at() */
};

struct mm_performer_opts {
	const char *socket, *scratch;
	uint64_t seed;
	uint64_t flood_ns;        /* how long each flood lasts */
	uint32_t uid;             /* user that it becomes; 0: ours */
	const struct mm_act *act; /* the only one that it does; NULL: all, at random */
	bool slow;                /* with @act NULL: also those that take seconds, now and then */
};

struct mm_performer {
	pid_t pid;
	struct mm_performance *shared;
	uint64_t cpu_ns; /* what it took, with all its children; after the stop */
};

/* Return: 0; negative errno. */
int mm_performer_start(struct mm_performer *performer, const struct mm_performer_opts *opts);

/* Asks it to stop after the round that runs. Return: whether it has ended. */
bool mm_performer_halt(struct mm_performer *performer);

/*
 * Stops it after the round that runs, or kills it after @patience_ns. Its counts stay until
 * mm_performer_done().
 */
void mm_performer_stop(struct mm_performer *performer, uint64_t patience_ns);
void mm_performer_done(struct mm_performer *performer);

/* Adds the counts of @from to those of @to, both MM_ACTS_MAX long. */
void mm_tally_add(struct mm_act_tally *to, const struct mm_act_tally *from);
