/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_jobs - what xfer was asked to do and has not done
 *
 * Concept:    A table, in order of issue: jobs that die with xfer are issued again in that order.
 *             What a job's end means is not known here. bulk_max slots are for jobs of bulk, then
 *             there is one per tenant for its control job.
 * Ownership:  the core owns one. A job is named by its slot + 1, and to xfer by an id that is never
 *             used again.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/out/queue.h"
#include "libclient/protocol/xplan.h"

#define MM_JOB_NONE 0

struct mm_job {
	bool used;
	uint8_t deaths;
	uint32_t next, prev; /* in order of issue; slot + 1, 0 at the ends */
	uint32_t tenant;     /* index, MM_NOBODY */
	uint32_t tenant_id;  /* MM_NO_TENANT */
	uint64_t id;
	uint64_t issued_ns;
	struct mm_msg msg;
};

struct mm_jobs {
	struct mm_job *job;
	uint32_t n, bulk_max, bulk_used;
	uint32_t first, last; /* slot + 1 */
	uint64_t serial;
};

/* Of those there is one per tenant at a time. */
bool mm_job_is_control(uint16_t op);
/* For one of bulk more? */
bool mm_jobs_room(const struct mm_jobs *jobs);
/* Return: the job. */
uint32_t mm_jobs_add(struct mm_jobs *jobs, uint32_t tenant, uint32_t tenant_id,
		     const struct mm_msg *msg);
/* To xfer, for the first time or again. */
void mm_jobs_push(struct mm_jobs *jobs, uint32_t job, struct mm_queue *queue, uint64_t now_ns);
/* By its id; MM_JOB_NONE: no such job. */
uint32_t mm_jobs_find(const struct mm_jobs *jobs, uint64_t id);
void mm_jobs_end(struct mm_jobs *jobs, uint32_t job);
