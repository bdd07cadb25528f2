/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox - requests on their way from a server to the engine, and their tokens on the way back
 *
 * Concept:    the server makes a job, pushes it, and may cancel it; the engine serves it. The
 *             engine publishes each token by a count, and at the end how the job ended. Each side
 *             wakes the other by an eventfd; the engine once for a step, however many tokens that
 *             had. Neither side ever waits for the other, and there is no lock: the ring has one
 *             writer and one reader, and each shared word of a job has one writer.
 * Ownership:  jobs are the server's, which makes and frees them. From mm_inbox_push() until
 *             mm_job_end() is not MM_JOB_OPEN the engine borrows a job: then only the words that
 *             are named as shared may be accessed by the server, and the ids, times and logprobs
 *             below the published count.
 * Threading:  one thread of the server, and the engine's.
 * Limits:     jobs_max jobs are open at once. The server counts them, by making no more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/mmserve/engine/requests.h"
#include "tools/mmserve/engine/sample.h"

#define MM_JOB_ENDS_MAX 16u

enum mm_job_end {
	MM_JOB_OPEN,
	MM_JOB_LENGTH,    /* max_tokens were generated */
	MM_JOB_STOP,      /* the last token is one of the ends */
	MM_JOB_CANCELLED, /* by the server */
	MM_JOB_REFUSED,   /* request.error is the sentence: more tokens than memory could hold */
	MM_JOB_STARVED,   /* request.error is the sentence: no memory came for too long */
	MM_JOB_ABORTED    /* the engine ends */
};

struct mm_job {
	struct mm_request request; /* id, n_prompt, max_tokens and ids are set by the server */
	struct mm_sampling sampling;
	float *logprobs;                /* [max_tokens]; NULL: they are not wanted */
	uint32_t ends[MM_JOB_ENDS_MAX]; /* tokens that end the output */
	uint32_t n_ends;
	uint64_t arrival_ns; /* CLOCK_MONOTONIC */
	bool stopped;        /* the server's: by a text that it found in the output */
	struct mm_job *left; /* the server's: the next that nobody waits for */
	/* The engine's, while it borrows the job. */
	struct mm_job *next, *before;
	uint32_t seq;
	bool ended; /* the last token is one of the ends */
	/* Shared: written by the engine, release. */
	uint32_t published; /* output tokens that the server may read */
	uint32_t end;       /* enum mm_job_end */
	/* Shared: written by the server, relaxed. */
	uint32_t cancelled;
};

/* These are for a server to show: each is written by the engine after a step, relaxed. */
#define MM_STEP_BUCKETS   24u
#define MM_STEP_BUCKET_NS UINT64_C(16000)

struct mm_inbox_stats {
	uint64_t running, waiting; /* sequences */
	uint64_t steps, steps_void, step_ns;
	/* [i]: steps that took less than 2^i * MM_STEP_BUCKET_NS, and not less than half of it. */
	uint64_t step_buckets[MM_STEP_BUCKETS];
	uint64_t tokens, preemptions;
	uint64_t kv_chunks, kv_blocks_free;
	uint64_t cold_entries, cold_blocks, cold_out_bytes;
	uint64_t layers_away;
};

struct mm_inbox {
	uint32_t jobs_max;
	uint32_t room; /* of the ring, a power of two */
	struct mm_job **ring;
	uint32_t head, tail; /* shared: next to read, and next to write; release */
	uint32_t cancels;    /* shared: how often the server has cancelled; release */
	int to_engine_fd;    /* eventfds */
	int to_server_fd;
	uint32_t tokens_max; /* of a job, prompt and output; set before the server starts */
	uint32_t vocab;
	struct mm_inbox_stats stats;
};

/**
 * mm_inbox_init() - set up an empty inbox
 * @inbox:    any bytes; give back with mm_inbox_done(), also after failure
 * @jobs_max: jobs that may be open at once
 *
 * Return: 0; negative errno.
 */
int mm_inbox_init(struct mm_inbox *inbox, uint32_t jobs_max);
void mm_inbox_done(struct mm_inbox *inbox);

/* The server's: lends a job to the engine. No more than jobs_max may be open. */
void mm_inbox_push(struct mm_inbox *inbox, struct mm_job *job);

/* The server's: requests that the engine ends a job soon, and gives its memory back. */
void mm_inbox_cancel(struct mm_inbox *inbox, struct mm_job *job);

/* The engine's: the next job that was pushed; NULL: none. */
struct mm_job *mm_inbox_pop(struct mm_inbox *inbox);

/* Clears an eventfd that poll() found readable. */
void mm_inbox_clear(int fd);
void mm_inbox_wake(int fd);

static inline uint32_t mm_job_published(const struct mm_job *job)
{
	return __atomic_load_n(&job->published, __ATOMIC_ACQUIRE);
}

static inline enum mm_job_end mm_job_end(const struct mm_job *job)
{
	return (enum mm_job_end)__atomic_load_n(&job->end, __ATOMIC_ACQUIRE);
}
