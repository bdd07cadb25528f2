/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alternate - hostile tenants for a while, then busy loops in their place, and so on
 *
 * Concept:   What hostile tenants cost others is what others lack beside what busy loops cost them
 *            that take as much of the processors. All else that goes on meets both. Spans of
 *            hostile tenants are three times as long as those of loops; in between the tenants end
 *            the rounds that they are in, which counts for neither.
 * Ownership: mm_alternate_done() ends all processes; accepts a zeroed one.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/hostile/busy.h"
#include "tools/lab/hostile/perform.h"
#include "tools/lab/mmbench/honest.h"

#define MM_ALTERNATE_HOSTILES_MAX 16
#define MM_ALTERNATE_SPANS_MAX    1024

enum mm_alternate_kind { MM_ALTERNATE_HOSTILES, MM_ALTERNATE_ENDING, MM_ALTERNATE_LOOPS };

struct mm_alternate_span {
	enum mm_alternate_kind kind;
	uint64_t from_ns, to_ns;
};

struct mm_alternate {
	struct mm_performer_opts opts[MM_ALTERNATE_HOSTILES_MAX]; /* set by the caller, */
	uint32_t n;                                               /* and how many there are, */
	uint64_t period_ns; /* and how long hostile tenants and loops take together */
	struct mm_performer hostile[MM_ALTERNATE_HOSTILES_MAX];
	struct mm_busy busy;
	struct mm_act_tally tally[MM_ACTS_MAX];
	struct mm_alternate_span span[MM_ALTERNATE_SPANS_MAX]; /* the last one runs */
	size_t spans;
	uint64_t cpu_ns, wild_ns; /* of all hostile tenants that have ended, and for how long */
};

/* Return: 0; negative errno. */
int mm_alternate_begin(struct mm_alternate *alternate);

/* Goes on to the next span when it is due. Return: 0; negative errno. */
int mm_alternate_poll(struct mm_alternate *alternate);

/* Ends what runs, and takes the counts of acts. */
void mm_alternate_end(struct mm_alternate *alternate, uint64_t patience_ns);
void mm_alternate_done(struct mm_alternate *alternate);

/* The part of the processors that the hostile tenants took, while there were any. */
double mm_alternate_share(const struct mm_alternate *alternate);

/* Adds to @into the steps of an engine within spans of @kind. Return: how many. */
size_t mm_alternate_gaps(const struct mm_alternate *alternate, enum mm_alternate_kind kind,
			 const struct mm_honest *honest, double *into, size_t max);
