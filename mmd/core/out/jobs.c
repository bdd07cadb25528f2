/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/out/jobs.h"

#include "libclient/base/base.h"

/* The id of a job is slot | serial << 16, below 2^63: the shell's own jobs set the top bit. */
#define SLOT_BITS   16
#define SERIAL_MASK ((UINT64_C(1) << 47) - 1)

bool mm_job_is_control(uint16_t op)
{
	return op == MM_XOP_ACTIVATE || op == MM_XOP_QUIESCE || op == MM_XOP_DETACH ||
	       op == MM_XOP_REPLAN;
}

bool mm_jobs_room(const struct mm_jobs *jobs)
{
	return jobs->bulk_used < jobs->bulk_max;
}

static uint32_t bulk_slot_find(const struct mm_jobs *jobs)
{
	uint32_t i = 0;

	while (jobs->job[i].used)
		i++;
	mm_assert(i < jobs->bulk_max);
	return i;
}

static void job_append(struct mm_jobs *jobs, uint32_t job)
{
	struct mm_job *j = &jobs->job[job - 1];

	j->prev = jobs->last;
	j->next = MM_JOB_NONE;
	if (jobs->last)
		jobs->job[jobs->last - 1].next = job;
	else
		jobs->first = job;
	jobs->last = job;
}

uint32_t mm_jobs_add(struct mm_jobs *jobs, uint32_t tenant, uint32_t tenant_id,
		     const struct mm_msg *msg)
{
	bool control = mm_job_is_control(msg->opcode);
	uint32_t slot = control ? jobs->bulk_max + tenant : bulk_slot_find(jobs);
	struct mm_job *j = &jobs->job[slot];

	mm_assert(!j->used);
	jobs->serial = (jobs->serial + 1) & SERIAL_MASK;
	*j = (struct mm_job){ .used = true,
			      .tenant = tenant,
			      .tenant_id = tenant_id,
			      .id = slot | jobs->serial << SLOT_BITS,
			      .msg = *msg };
	j->msg.user_data = j->id;
	jobs->bulk_used += !control;
	job_append(jobs, slot + 1);
	return slot + 1;
}

void mm_jobs_push(struct mm_jobs *jobs, uint32_t job, struct mm_queue *queue, uint64_t now_ns)
{
	struct mm_job *j = &jobs->job[job - 1];

	j->issued_ns = now_ns;
	mm_queue_add(queue, MM_ACT_JOB, j->tenant_id)->msg = j->msg;
}

uint32_t mm_jobs_find(const struct mm_jobs *jobs, uint64_t id)
{
	uint64_t slot = id & ((1u << SLOT_BITS) - 1);

	if (slot >= jobs->n || !jobs->job[slot].used || jobs->job[slot].id != id)
		return MM_JOB_NONE;
	return (uint32_t)slot + 1;
}

void mm_jobs_end(struct mm_jobs *jobs, uint32_t job)
{
	struct mm_job *j = &jobs->job[job - 1];

	if (j->prev)
		jobs->job[j->prev - 1].next = j->next;
	else
		jobs->first = j->next;
	if (j->next)
		jobs->job[j->next - 1].prev = j->prev;
	else
		jobs->last = j->prev;
	j->used = false;
	if (!mm_job_is_control(j->msg.opcode))
		jobs->bulk_used--;
}
