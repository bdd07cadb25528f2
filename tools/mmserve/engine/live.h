/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live - the engine's side of an inbox: jobs that come while it runs
 *
 * Concept:    with an inbox the engine serves until it is stopped. Its sequences then stand for
 *             jobs in place of lines of a file. Tokens that need their logits are sampled here, on
 *             the host, after the step; all others are the device's. A job that meets one of its
 *             ends, or is cancelled, leaves the scheduler at once, and its KV is free.
 * Ownership:  the inbox and its jobs are the server's (inbox.h); the scratch is the engine's.
 * Threading:  the engine's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/mmserve/engine/inbox.h"

struct mm_engine;

struct mm_live {
	struct mm_inbox *inbox; /* NULL: the requests are those of a file */
	struct mm_job *open;    /* jobs in the scheduler, the last that came first */
	uint32_t cancels;       /* the inbox's, when they were last looked at */
	uint32_t n_ended;       /* open jobs that have met one of their ends */
	bool news;              /* the server is to be woken */
	float *logits;          /* [vocab] a row */
	struct mm_sample_scratch *scratch;
};

/* Return: the job that a sequence stands for. */
static inline struct mm_job *mm_live_job(uint64_t user)
{
	return (struct mm_job *)(uintptr_t)user;
}

/**
 * mm_live_open() - begin to serve an inbox
 * @e:     its scheduler and weights are set up; give back with mm_live_close()
 * @inbox: borrowed
 *
 * Return: 0; -ENOMEM.
 */
int mm_live_open(struct mm_engine *e, struct mm_inbox *inbox);
void mm_live_close(struct mm_engine *e);

/* Notes that a job is in the scheduler. */
void mm_live_began(struct mm_engine *e, struct mm_job *job);

/* Return: an open job that was cancelled, or has met an end; NULL: none. */
struct mm_job *mm_live_cancelled(struct mm_engine *e);
struct mm_job *mm_live_ended(struct mm_engine *e);

/**
 * mm_live_token() - choose and publish the next token of a job
 * @e:      a step was computed
 * @job:    one of those that it yields a token for
 * @sample: number of the token among those of the step
 * @now_s:  time of the token
 *
 * Return: 0; negative errno: the logits cannot be read.
 */
int mm_live_token(struct mm_engine *e, struct mm_job *job, uint32_t sample, double now_s);

/* Gives a job back to the server, which is not in the scheduler any more, or never was. */
void mm_live_end(struct mm_engine *e, struct mm_job *job, enum mm_job_end end);

/* Ends all jobs, also those that have not been taken out of the inbox. */
void mm_live_abort(struct mm_engine *e);

/* Notes a step of @step_ns for the server to show. */
void mm_live_note(struct mm_engine *e, uint64_t step_ns);

/* Wakes the server if there is news for it, and shows it what the engine holds. */
void mm_live_report(struct mm_engine *e);
