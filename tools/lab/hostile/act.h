/* SPDX-License-Identifier: Apache-2.0 */
/*
 * act - one thing that a hostile tenant does, and what has to come of it
 *
 * Concept:   An act is a named function that opens connections of its own, does one thing that the
 *            protocol forbids or does not foresee, and returns what came of it, as the tenant sees
 *            it. The table says what may come of it: an act that has another outcome has found a
 *            fault of mmd. An act may be repeated any number of times, beside others.
 * Ownership: an act closes what it opened, unless its process ends with it (alone).
 * Threading: one process per tenant; those that fork say so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/lab/hostile/raw.h"

/* Outcomes of an act. Expectations are sets of these. */
enum mm_act_outcome {
	MM_ACT_REFUSED = 1,  /* an answer says no, and nothing else has happened */
	MM_ACT_ENDED = 2,    /* mmd has ended the connection, with the act's reason */
	MM_ACT_IGNORED = 4,  /* nothing came of it: the connection is served as before */
	MM_ACT_CHARGED = 8,  /* it got what it took, which its account pays for */
	MM_ACT_TAKEN = 16,   /* what it kept was taken away */
	MM_ACT_KILLED = 32,  /* mmd has killed the process */
	MM_ACT_SKIPPED = 64, /* this machine cannot do it */
	MM_ACT_FAILED = 128, /* none of these; the stage's text says what */
};

#define MM_ACT_TEXT_BYTES 256

/*
 * A word of what a tenant writes into its pages: this, and its uid. Whoever reads one of another
 * uid reads foreign bytes.
 */
#define MM_HOSTILE_PATTERN          UINT64_C(0x6d6d686f00000000)
#define MM_HOSTILE_IS_PATTERN(word) (((word)&UINT64_C(0xffffffff00000000)) == MM_HOSTILE_PATTERN)

struct mm_act;

/* An act gets this to work with. */
struct mm_stage {
	const struct mm_act *act;
	const char *socket;           /* where mmd listens to tenants */
	const char *scratch;          /* a folder that it may write to */
	uint64_t random;              /* state of its random numbers (random.h) */
	uint64_t flood_ns;            /* how long a flood lasts */
	uint64_t operations;          /* what it did so far: messages, requests, connections */
	char text[MM_ACT_TEXT_BYTES]; /* of MM_ACT_FAILED, SKIPPED, and of ENDED the reason */
};

struct mm_act {
	const char *name;
	const char *text; /* what it does, for people; lower case, no full stop */
	enum mm_act_outcome (*run)(struct mm_stage *stage);
	unsigned int expected; /* a set of enum mm_act_outcome */
	const char *reason;    /* a part of mmd's sentence where it refuses or ends; NULL: any */
	bool alone;            /* its process ends with it, because it keeps pages or is killed */
	bool ours;             /* needs our rights, and is done as our own user */
	bool slow;             /* it takes seconds, and is left out where time is short */
	struct mm_msg msg;     /* for acts that are one request */
	uint64_t features;     /* that it offers */
	uint64_t number;       /* for acts that differ by a number */
};

/* The act of that name; NULL: there is none. */
const struct mm_act *mm_act_find(const char *name);

/* Whether @list, names with commas between them or "all", has @act. */
bool mm_act_is_listed(const struct mm_act *act, const char *list);

/* The @i-th of all; NULL behind the last. */
const struct mm_act *mm_act_at(size_t i);

/* "refused", ...; of a set the first of its members. */
const char *mm_act_outcome_name(unsigned int outcome);

/* ---- for acts ---- */

/* Return: MM_ACT_FAILED, with a sentence in the stage. */
enum mm_act_outcome mm_act_fail(struct mm_stage *stage, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
enum mm_act_outcome mm_act_skip(struct mm_stage *stage, const char *why);

/*
 * Opens a connection as a tenant. Places may be used up by others at the moment, so that it is
 * tried again for a while. Return: 0; negative errno, with a sentence in the stage.
 */
int mm_act_open(struct mm_stage *stage, struct mm_raw *raw);

/*
 * Looks at what has become of a connection behind what the act did: ENDED, with the reason in the
 * stage, or IGNORED if mmd answers.
 */
enum mm_act_outcome mm_act_look(struct mm_stage *stage, struct mm_raw *raw);

/* Counts what was done on @raw, gives it back and returns @outcome. */
enum mm_act_outcome mm_act_done(struct mm_stage *stage, struct mm_raw *raw,
				enum mm_act_outcome outcome);
