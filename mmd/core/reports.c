/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of xfer: that it started or ended, and the results of its jobs.
 */
#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/preload.h"
#include "mmd/core/plan/control.h"
#include "mmd/core/book/health.h"
#include "mmd/core/ladder.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/settle.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/book/emit.h"

static bool op_is_swap(uint16_t op)
{
	return op == MM_XOP_SWAP_OUT || op == MM_XOP_SWAP_IN;
}

static void create_job_done(struct mm_core *c, const struct mm_job *j, int result, bool fatal)
{
	uint32_t first = (uint32_t)j->msg.arg[0], n = (uint32_t)j->msg.arg[1];

	for (uint32_t i = first; i < first + n; i++) {
		mm_ledger_job(&c->ledger, i, MM_JOB_NONE);
		c->ledger.page[i].poisoned = fatal;
		if (!result)
			mm_ledger_created(&c->ledger, i);
	}
	if (result)
		c->create_retry_ns = c->now_ns + MM_PAGE_RETRY_NS;
}

static void copy_job_done(struct mm_core *c, const struct mm_job *j, int result, bool fatal)
{
	uint32_t page = (uint32_t)j->msg.arg[0];
	struct mm_c_tenant *t = &c->tenant[j->tenant];

	mm_ledger_job(&c->ledger, page, MM_JOB_NONE);
	t->copies--;
	if (!result)
		mm_c_load_copied(c, j->issued_ns, j->msg.arg[3]);
	if (c->ledger.page[page].tenant == j->tenant)
		mm_c_preload_copied(c, t, page, result);
	if (fatal)
		mm_c_page_quarantine(c, page, true);
	else if (result && c->ledger.page[page].tenant == j->tenant)
		mm_c_page_drop(c, page);
}

/* An xfer that was started after a page had become unheld does not have it, and cannot scrub it. */
static void scrub_job_done(struct mm_core *c, const struct mm_job *j, int result, bool fatal)
{
	uint32_t page = (uint32_t)j->msg.arg[0];

	if (!fatal && mm_c_page_is_unfit(c, page) && (!result || c->ledger.page[page].unheld))
		mm_c_quarantine_unfit(c, page);
	else if (!result)
		mm_c_page_scrubbed(c, page);
	else
		mm_c_page_quarantine(c, page, fatal || j->msg.opcode == MM_XOP_SCRUB);
}

/*
 * Ends a job with @result. @fatal: xfer ended because of it, and it is not tried again; a QUIESCE
 * or DETACH then counts as done, since xfer serves no plan.
 */
static void core_job_finish(struct mm_core *c, uint32_t job, int result, bool fatal)
{
	struct mm_job j = c->jobs.job[job - 1];

	mm_jobs_end(&c->jobs, job);
	switch (j.msg.opcode) {
	case MM_XOP_CREATE:
		create_job_done(c, &j, result, fatal);
		break;
	case MM_XOP_COPY:
		copy_job_done(c, &j, result, fatal);
		break;
	case MM_XOP_SCRUB:
	case MM_XOP_RECREATE:
		scrub_job_done(c, &j, result, fatal);
		break;
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		mm_c_swap_job_done(c, &j.msg, &c->tenant[j.tenant], result);
		break;
	default:
		mm_c_control_done(c, &c->tenant[j.tenant], &j.msg, result);
	}
}

int mm_core_on_job_done(struct mm_core *c, uint64_t now_ns, uint64_t job, int result)
{
	uint32_t slot = mm_jobs_find(&c->jobs, job);

	if (!slot)
		return MM_E_PROTOCOL;
	mm_c_event_begin(c, now_ns);
	core_job_finish(c, slot, result, false);
	mm_c_settle(c, now_ns);
	return 0;
}

void mm_core_on_xfer_up(struct mm_core *c, uint64_t now_ns, uint64_t xfer_epoch)
{
	uint32_t next;

	(void)xfer_epoch;
	mm_c_event_begin(c, now_ns);
	if (c->xfer_up)
		mm_core_on_xfer_down(c, now_ns);
	c->xfer_up = true;
	mm_c_ladder_restart(c);
	for (uint32_t job = c->jobs.first; job; job = next) {
		struct mm_job *j = &c->jobs.job[job - 1];

		next = j->next;
		if (j->msg.opcode == MM_XOP_COPY &&
		    c->ledger.page[j->msg.arg[0]].tenant != j->tenant)
			core_job_finish(c, job, -ECANCELED, false);
		else if (op_is_swap(j->msg.opcode) && c->tenant[j->tenant].life != MM_LIFE_LIVE)
			core_job_finish(c, job, -ECANCELED, false);
		else
			mm_jobs_push(&c->jobs, job, &c->queue, c->now_ns);
	}
	MM_FOREACH_TENANT(c, t)
		mm_c_change_xfer_up(t);
	mm_c_settle(c, now_ns);
}

void mm_core_on_restarted(struct mm_core *c, uint64_t now_ns)
{
	mm_c_event_begin(c, now_ns);
	mm_c_ladder_restart(c);
	mm_c_settle(c, now_ns);
}

/* The queue may have actions: the shell finds xfer down when it pushes a job. */
void mm_core_on_xfer_down(struct mm_core *c, uint64_t now_ns)
{
	c->now_ns = MM_MAX(c->now_ns, now_ns);
	c->xfer_up = false;
	mm_c_settle(c, now_ns);
}

/* xfer works in the order of issue, so the oldest job is the one that may have ended it. */
void mm_core_on_xfer_fault(struct mm_core *c, uint64_t now_ns)
{
	uint32_t job = c->jobs.first;

	mm_c_event_begin(c, now_ns);
	if (c->xfer_up)
		return;
	if (job && ++c->jobs.job[job - 1].deaths >= 2)
		core_job_finish(c, job, -EIO, true);
	mm_c_settle(c, now_ns);
}
