/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/scrub.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"

int mm_xscrub_init(struct mm_xfer *x)
{
	for (size_t i = 0; i < MM_XSCRUB_MAX; i++) {
		struct mm_xscrub *batch = &x->scrubs.batch[i];
		int r = mm_xdev_result(
			&x->dev, "cuEventCreate",
			x->dev.gpu.cuEventCreate(&batch->event, CU_EVENT_DISABLE_TIMING));

		if (r < 0)
			return r;
		x->scrubs.events++;
	}
	return 0;
}

void mm_xscrub_done(struct mm_xfer *x)
{
	while (x->scrubs.events > 0)
		(void)x->dev.gpu.cuEventDestroy(x->scrubs.batch[--x->scrubs.events].event);
}

static struct mm_xscrub *batch_find_free(struct mm_xfer *x)
{
	for (size_t i = 0; i < MM_XSCRUB_MAX; i++)
		if (x->scrubs.batch[i].jobs == 0)
			return &x->scrubs.batch[i];
	return NULL;
}

static int pages_zero(struct mm_xfer *x, uint32_t page, uint32_t n)
{
	const struct mm_gpu_api *gpu = &x->dev.gpu;

	return mm_xdev_result(&x->dev, "cuMemsetD32Async",
			      gpu->cuMemsetD32Async(mm_xpool_va(&x->pool, page), 0,
						    n * x->pool.page_bytes / 4, x->dev.scrub));
}

static void scrub_job_fail(struct mm_xfer *x, uint32_t page, int result)
{
	struct mm_xjob *job;

	TAILQ_FOREACH(job, &x->running, entry)
	if (job->scrub == x->scrubs.open && job->msg.arg[0] == page)
		job->result = result;
}

/*
 * Issues the fill of the pending run of neighbours. If it fails, fills page by page, so that only
 * the pages that cannot be filled fail.
 */
static void scrub_issue_run(struct mm_xfer *x)
{
	const uint32_t first = x->scrubs.first, n = x->scrubs.n;
	int r;

	x->scrubs.n = 0;
	if (!n || !pages_zero(x, first, n))
		return;
	for (uint32_t page = first; page < first + n; page++) {
		r = pages_zero(x, page, 1);
		if (r < 0)
			scrub_job_fail(x, page, r);
	}
}

static bool scrub_run_extend(struct mm_xscrubs *s, uint32_t page)
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
		s->open = batch_find_free(x);
		if (!s->open)
			return -EAGAIN;
		s->open->recorded = false;
	}
	if (!scrub_run_extend(s, page)) {
		scrub_issue_run(x);
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
	int r;

	if (!batch)
		return;
	scrub_issue_run(x);
	x->scrubs.open = NULL;
	r = mm_xdev_result(&x->dev, "cuEventRecord",
			   x->dev.gpu.cuEventRecord(batch->event, x->dev.scrub));
	batch->recorded = r == 0;
	/* Without an event the fills are waited for here; they have not failed. */
	if (r < 0)
		mm_xdev_settle(&x->dev, x->dev.scrub);
}

void mm_xscrub_poll(struct mm_xfer *x)
{
	for (size_t i = 0; i < MM_XSCRUB_MAX; i++) {
		struct mm_xscrub *batch = &x->scrubs.batch[i];

		if (batch->jobs && batch->recorded &&
		    mm_xdev_has_happened(&x->dev, batch->event, x->dev.scrub))
			batch->recorded = false;
	}
}

bool mm_xscrub_ended(struct mm_xfer *x, struct mm_xjob *job, int *ret_result)
{
	struct mm_xscrub *batch = job->scrub;

	if (batch == x->scrubs.open || batch->recorded)
		return false;
	*ret_result = job->result;
	batch->jobs--;
	job->scrub = NULL;
	return true;
}
