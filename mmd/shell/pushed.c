/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/pushed.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/shell/kept.h"

static void pushed_rings_init(struct mm_pushed *p, struct mm_pushed_kept *kept,
			      struct mm_xq_region *ours, struct mm_xq_region *theirs)
{
	*p = (struct mm_pushed){ .kept = kept };
	mm_ring_init(&p->jobs, ours->slot, MM_XQ_SLOTS, &ours->tail, &theirs->head);
	mm_ring_init(&p->done, theirs->slot, MM_XQ_SLOTS, &ours->head, &theirs->tail);
	mm_ring_keep(&p->jobs, &kept->tail);
	mm_ring_keep(&p->done, &kept->head);
}

void mm_pushed_start(struct mm_pushed *p, struct mm_pushed_kept *kept, struct mm_xq_region *ours,
		     struct mm_xq_region *theirs)
{
	memset(kept, 0, sizeof(*kept));
	pushed_rings_init(p, kept, ours, theirs);
}

void mm_pushed_adopt(struct mm_pushed *p, struct mm_pushed_kept *kept, struct mm_xq_region *ours,
		     struct mm_xq_region *theirs)
{
	if (kept->marked && kept->tail == kept->marked_at)
		kept->job[kept->marked - 1] = (struct mm_pushed_job){ 0 };
	mm_kept_publish(&kept->marked, 0);
	pushed_rings_init(p, kept, ours, theirs);
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++) {
		p->running += kept->job[i].id != 0;
		p->creating += kept->job[i].id && kept->job[i].count;
	}
}

void mm_pushed_done(struct mm_pushed *p, struct mm_pushed_kept *kept)
{
	memset(kept->job, 0, sizeof(kept->job));
	*p = (struct mm_pushed){ 0 };
}

/* 0 finds a free place. */
static struct mm_pushed_job *pushed_place(struct mm_pushed *p, uint64_t id)
{
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++) {
		if (p->kept->job[i].id == id)
			return &p->kept->job[i];
	}
	return NULL;
}

struct mm_pushed_job *mm_pushed_find(struct mm_pushed *p, uint64_t id)
{
	return id ? pushed_place(p, id) : NULL;
}

bool mm_pushed_uses_device(const struct mm_pushed_job *job)
{
	switch (job->opcode) {
	case MM_XOP_CREATE:
	case MM_XOP_SCRUB:
	case MM_XOP_COPY:
	case MM_XOP_RECREATE:
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		return true;
	default:
		return false;
	}
}

static struct mm_pushed_job job_of_message(const struct mm_msg *msg)
{
	struct mm_pushed_job job = { .id = msg->user_data, .opcode = msg->opcode };

	if (msg->opcode == MM_XOP_CREATE || msg->opcode == MM_XOP_RECREATE)
		job.first = (uint32_t)msg->arg[0];
	if (msg->opcode == MM_XOP_CREATE)
		job.count = (uint32_t)msg->arg[1];
	else if (msg->opcode == MM_XOP_RECREATE)
		job.count = 1;
	else if (msg->opcode == MM_XOP_STORE_DROP || msg->opcode == MM_XOP_DETACH)
		job.lets_go = msg->arg[0];
	return job;
}

int mm_pushed_push(struct mm_pushed *p, const struct mm_msg *msg)
{
	struct mm_pushed_kept *kept = p->kept;
	struct mm_pushed_job *job = pushed_place(p, 0);
	int r;

	if (!job)
		return MM_E_FULL;
	kept->marked_at = kept->tail;
	mm_kept_publish(&kept->marked, (uint32_t)(job - kept->job) + 1);
	*job = job_of_message(msg);
	r = mm_ring_push(&p->jobs, msg);
	if (r)
		*job = (struct mm_pushed_job){ 0 };
	mm_kept_publish(&kept->marked, 0);
	p->running += !r;
	p->creating += !r && job->count;
	return r;
}

void mm_pushed_end(struct mm_pushed *p, struct mm_pushed_job *job)
{
	p->creating -= job->count != 0;
	p->running--;
	mm_kept_publish(&job->id, 0);
	*job = (struct mm_pushed_job){ 0 };
}

void mm_pushed_retain(struct mm_pushed *p,
		      bool (*keeps)(const void *owner, const struct mm_pushed_job *job),
		      const void *owner)
{
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++) {
		struct mm_pushed_job *job = &p->kept->job[i];

		if (job->id && !keeps(owner, job))
			mm_pushed_end(p, job);
	}
}

bool mm_pushed_creates(const struct mm_pushed *p, uint32_t page)
{
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++) {
		const struct mm_pushed_job *job = &p->kept->job[i];

		if (job->id && page >= job->first && page - job->first < job->count)
			return true;
	}
	return false;
}
