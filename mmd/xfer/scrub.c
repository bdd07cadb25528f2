/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/xfer/role.h"

int mm_xscrub_init(struct mm_xfer *x)
{
	for (size_t i = 0; i < MM_XSCRUB_MAX; i++) {
		struct mm_xscrub *batch = &x->scrubs.batch[i];
		int rc = mm_xdev_result(
			&x->dev, "cuEventCreate",
			x->dev.gpu.cuEventCreate(&batch->event, CU_EVENT_DISABLE_TIMING));

		if (rc < 0)
			return rc;
		x->scrubs.events++;
	}
	return 0;
}

void mm_xscrub_done(struct mm_xfer *x)
{
	while (x->scrubs.events > 0)
		(void)x->dev.gpu.cuEventDestroy(x->scrubs.batch[--x->scrubs.events].event);
}

static struct mm_xscrub *free_batch(struct mm_xfer *x)
{
	for (size_t i = 0; i < MM_XSCRUB_MAX; i++)
		if (x->scrubs.batch[i].jobs == 0)
			return &x->scrubs.batch[i];
	return NULL;
}

static int fill(struct mm_xfer *x, uint32_t page, uint32_t n)
{
	const struct mm_gpu_api *gpu = &x->dev.gpu;

	return mm_xdev_result(&x->dev, "cuMemsetD32Async",
			      gpu->cuMemsetD32Async(mm_xpool_va(&x->pool, page), 0,
						    n * x->pool.page_bytes / 4, x->dev.scrub));
}

static void job_failed(struct mm_xfer *x, uint32_t page, int result)
{
	struct mm_xjob *job;

	TAILQ_FOREACH(job, &x->running, entry)
	if (job->scrub == x->scrubs.open && job->msg.arg[0] == page)
		job->result = result;
}

/*
 * Issues the fill of the run at hand; where that fails, page by page: the others need not fail with
 * one.
 */
static void run_end(struct mm_xfer *x)
{
	const uint32_t first = x->scrubs.first, n = x->scrubs.n;
	int rc;

	x->scrubs.n = 0;
	if (!n || !fill(x, first, n))
		return;
	for (uint32_t page = first; page < first + n; page++) {
		rc = fill(x, page, 1);
		if (rc < 0)
			job_failed(x, page, rc);
	}
}

static bool joins(struct mm_xscrubs *s, uint32_t page)
{
	if (s->n && page == s->first + s->n) {
		s->n++;
		return true;
	}
	if (s->n && page + 1 == s->first) {
		s->first--;
		s->n++;
		return true;
	}
	return false;
}

int mm_xscrub_add(struct mm_xfer *x, struct mm_xjob *job, uint32_t page)
{
	struct mm_xscrubs *s = &x->scrubs;

	if (s->open && (s->open->jobs + 1) * x->pool.page_bytes > MM_XSCRUB_BYTES)
		mm_xscrub_flush(x);
	if (!s->open) {
		s->open = free_batch(x);
		if (!s->open)
			return -EAGAIN;
		s->open->result = 0;
		s->open->recorded = false;
	}
	if (!joins(s, page)) {
		run_end(x);
		s->first = page;
		s->n = 1;
	}
	s->open->jobs++;
	job->scrub = s->open;
	return 0;
}

void mm_xscrub_flush(struct mm_xfer *x)
{
	struct mm_xscrub *batch = x->scrubs.open;
	int rc;

	if (!batch)
		return;
	run_end(x);
	x->scrubs.open = NULL;
	rc = mm_xdev_result(&x->dev, "cuEventRecord",
			    x->dev.gpu.cuEventRecord(batch->event, x->dev.scrub));
	batch->recorded = rc == 0;
	if (rc == 0)
		return;
	/* Nothing may still be filled when its job ends. */
	(void)x->dev.gpu.cuStreamSynchronize(x->dev.scrub);
	batch->result = rc;
}

void mm_xscrub_look(struct mm_xfer *x)
{
	for (size_t i = 0; i < MM_XSCRUB_MAX; i++) {
		struct mm_xscrub *batch = &x->scrubs.batch[i];
		int rc;

		if (!batch->jobs || !batch->recorded)
			continue;
		rc = mm_xdev_event(&x->dev, batch->event);
		if (rc == -EBUSY)
			continue;
		batch->recorded = false;
		batch->result = rc;
	}
}

bool mm_xscrub_ended(struct mm_xfer *x, struct mm_xjob *job, int *ret_result)
{
	struct mm_xscrub *batch = job->scrub;

	if (batch == x->scrubs.open || batch->recorded)
		return false;
	*ret_result = job->result ? job->result : batch->result;
	batch->jobs--;
	job->scrub = NULL;
	return true;
}
