/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pushed - the jobs that an xfer has, and core's ends of its two rings
 *
 * Concept:    core pushes jobs into one ring and reads completions from the other. The jobs that
 *             were pushed and have not ended are in a table, which outlives core with the cursors
 *             of both rings (kept.h): a successor goes on with the same xfer, pushes no job twice
 *             and misses no completion.
 * Order:      push: the place in the table is marked -> job -> slot of the ring -> cursor -> mark
 *             off. A job that is marked when core dies was pushed if the cursor has moved since.
 *             completion: read -> journaled -> cursor -> the job leaves the table. So a job in the
 *             table may be over in the core; its owner takes it out (mm_pushed_retain()).
 * Ownership:  the memory of the rings and of the table is the caller's.
 * Threading:  core's thread.
 * Limits:     MM_PUSHED_JOBS.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/ipc/ring.h"
#include "libclient/protocol/xplan.h"

#define MM_PUSHED_JOBS 1088 /* those of a core, and some of the shell's own */

struct mm_pushed_job {
	uint64_t id;           /* 0 = free */
	uint64_t lets_go;      /* the store that it drops, the tenant that it detaches */
	uint32_t first, count; /* pages that it creates; count 0 = none */
	uint16_t opcode;
	uint16_t reserved[3];
};

/* The part that outlives core (kept.h). */
struct mm_pushed_kept {
	uint32_t tail, head; /* jobs that were pushed, completions that were handled */
	uint32_t marked;     /* place of the job that is being pushed + 1; 0: none is */
	uint32_t marked_at;  /* the tail before that */
	struct mm_pushed_job job[MM_PUSHED_JOBS];
};

struct mm_pushed {
	struct mm_pushed_kept *kept;
	struct mm_ring jobs, done;
	uint32_t running;  /* jobs in the table */
	uint32_t creating; /* those of them that create pages */
};

/* For a new xfer: empties the table; @ours and @theirs are fresh. */
void mm_pushed_start(struct mm_pushed *pushed, struct mm_pushed_kept *kept,
		     struct mm_xq_region *ours, struct mm_xq_region *theirs);

/* For the xfer of a core that has died: goes on where it stopped. */
void mm_pushed_adopt(struct mm_pushed *pushed, struct mm_pushed_kept *kept,
		     struct mm_xq_region *ours, struct mm_xq_region *theirs);

/* The xfer is gone: empties the table. @pushed may never have been started. */
void mm_pushed_done(struct mm_pushed *pushed, struct mm_pushed_kept *kept);

/*
 * Pushes a job that is not in the table. Return: 0; MM_E_FULL the ring or the table is full;
 * MM_E_PROTOCOL xfer's cursor is impossible.
 */
int mm_pushed_push(struct mm_pushed *pushed, const struct mm_msg *msg);

/* The job with this id, not 0; NULL: xfer does not have it. */
struct mm_pushed_job *mm_pushed_find(struct mm_pushed *pushed, uint64_t id);

/* Takes a job out of the table. */
void mm_pushed_end(struct mm_pushed *pushed, struct mm_pushed_job *job);

/* Takes all jobs out of the table for which @keeps is false. */
void mm_pushed_retain(struct mm_pushed *pushed,
		      bool (*keeps)(const void *owner, const struct mm_pushed_job *job),
		      const void *owner);

/*
 * Whether the device itself works for the job. An xfer whose device is broken can still complete
 * the other jobs, so they prove nothing.
 */
bool mm_pushed_uses_device(const struct mm_pushed_job *job);

/* Whether a job that xfer has creates the page. */
bool mm_pushed_creates(const struct mm_pushed *pushed, uint32_t page);
