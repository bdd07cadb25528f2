/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_jobs - jobs that were issued to xfer and are not done
 *
 * Concept:    A table in order of issue: jobs that are lost when xfer dies are issued again in that
 *             order. The caller knows what the end of a job means. The first bulk_max slots are for
 *             bulk jobs; after them there is one slot per tenant for its control job.
 * Ownership:  The core owns one. Inside the core a job is named by its slot + 1, and to xfer by an
 *             id that is never used again.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/out/queue.h"
#include "libclient/protocol/xplan.h"

#define MM_JOB_NONE 0

struct mm_job {
	bool used;
	uint8_t deaths;      /* times that xfer died while it was the oldest job */
	uint32_t next, prev; /* neighbours in order of issue: slot + 1, 0 at the ends */
	uint32_t tenant;     /* index of the tenant, or MM_NO_OWNER */
	uint32_t tenant_id;  /* id of the tenant, or MM_NO_TENANT */
	uint64_t id;
	uint64_t issued_ns;
	struct mm_msg msg;
};

struct mm_jobs {
	struct mm_job *job;
	uint32_t n, bulk_max, bulk_used;
	uint32_t first, last; /* first and last job in order of issue: slot + 1 */
	uint64_t serial;
};

/* True for a control job: a tenant has at most one at a time. */
bool mm_job_is_control(uint16_t op);
/* True if there is room for another bulk job. */
bool mm_jobs_room(const struct mm_jobs *jobs);
/* Adds a job to the table and returns it; it is not issued yet. */
uint32_t mm_jobs_add(struct mm_jobs *jobs, uint32_t tenant, uint32_t tenant_id,
		     const struct mm_msg *msg);
/* Issues the job to xfer, for the first time or again. */
void mm_jobs_push(struct mm_jobs *jobs, uint32_t job, struct mm_queue *queue, uint64_t now_ns);
/* Returns the job with this id; MM_JOB_NONE: there is none. */
uint32_t mm_jobs_find(const struct mm_jobs *jobs, uint64_t id);
/* Removes a job that is done. */
void mm_jobs_end(struct mm_jobs *jobs, uint32_t job);
