/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/job.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"
#include "mmd/xfer/scrub.h"

/* ---- pages: CREATE, RECREATE ---- */

/*
 * -EAGAIN: core has not received the last messages yet, or the kernel has no memory for one now,
 * which must not look as if the device had none. @fds stay the caller's.
 */
static int pages_send_core(struct mm_xfer *x, const uint32_t *page, const int *fds, size_t count)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
			       .kind = MM_X_PAGES,
			       .count = (uint32_t)count };
	int r;

	memcpy(msg.page_id, page, count * sizeof(*page));
	r = mm_sock_send(x->fd, &msg, sizeof(msg), fds, count);
	return mm_sock_retries_later(r) ? -EAGAIN : r;
}

/* Pages whose fds could not be sent are dropped again. */
static int pages_create_and_send(struct mm_xfer *x, const uint32_t *page, size_t count)
{
	int fds[MM_FD_BATCH_MAX];
	int r;

	if (mm_sock_wait(x->fd, POLLOUT, 0) < 0)
		return -EAGAIN; /* not created in vain: creating pages is expensive */
	r = mm_xpool_create(&x->pool, page, count, fds);
	if (r < 0)
		return r;
	r = pages_send_core(x, page, fds, count);
	for (size_t i = 0; i < count; i++) {
		close(fds[i]);
		if (r < 0)
			mm_xpool_drop(&x->pool, page[i]);
	}
	return r;
}

/*
 * Creates one batch of pages in each round of the loop, so that streaming goes on. Pages that are
 * there already were adopted.
 */
static int job_run_create(struct mm_xfer *x, struct mm_xjob *job)
{
	uint64_t first = job->msg.arg[0], count = job->msg.arg[1];
	uint32_t page[MM_FD_BATCH_MAX];
	uint64_t at = job->progress;
	size_t n = 0;
	int r = 0;

	if (first > x->pool.pages || count > x->pool.pages - first)
		return -EINVAL;
	for (; at < count && n < MM_FD_BATCH_MAX; at++)
		if (!mm_xpool_has(&x->pool, first + at))
			page[n++] = (uint32_t)(first + at);
	if (n > 0)
		r = pages_create_and_send(x, page, n);
	if (r < 0)
		return r;
	job->progress = at;
	return at < count ? -EINPROGRESS : 0;
}

static bool slot_has_page(const struct mm_xplan_slot *slot, uint32_t page)
{
	for (uint32_t i = 0; i < slot->n_pages; i++)
		if (slot->page[i] == page)
			return true;
	return false;
}

/*
 * 0 if a job may use @page. -EBUSY: it is in a slot or in the window of an active plan, which is a
 * fault of core.
 * -EAGAIN: the last chunks of a plan that was quiesced are still landing in it.
 */
static int page_check_free(const struct mm_xfer *x, uint32_t page)
{
	for (const struct mm_xtenant *t = x->tenants; t; t = t->next) {
		bool landing = mm_xtenant_copying(t);

		for (uint32_t s = 0; (t->cycles.active || landing) && s < t->plan->n_slots; s++)
			if (slot_has_page(&t->plan->slot[s], page))
				return t->cycles.active ? -EBUSY : -EAGAIN;
		if (mm_xcold_has_page(t->cold, page))
			return t->cycles.active ? -EBUSY : -EAGAIN;
	}
	return 0;
}

static int job_run_recreate(struct mm_xfer *x, struct mm_xjob *job)
{
	uint32_t page = (uint32_t)job->msg.arg[0];
	int r;

	if (job->msg.arg[0] >= x->pool.pages)
		return -EINVAL;
	r = page_check_free(x, page);
	if (r < 0)
		return r;
	mm_xpool_drop(&x->pool, page);
	return pages_create_and_send(x, &page, 1);
}

/* ---- bytes: SCRUB, COPY ---- */

static int job_run_scrub(struct mm_xfer *x, struct mm_xjob *job)
{
	const uint64_t page = job->msg.arg[0];
	int r;

	if (!mm_xpool_has(&x->pool, page))
		return -EINVAL;
	r = page_check_free(x, (uint32_t)page);
	if (r < 0)
		return r;
	if (mm_fault("xfer.scrub"))
		return -EIO;
	r = mm_xscrub_add(x, job, (uint32_t)page);
	return r < 0 ? r : -EINPROGRESS;
}

static void job_finish(struct mm_xjob *job, int result)
{
	job->result = result;
	job->state = MM_XJOB_DONE;
}

static void job_copy_landed(struct mm_xtransfer *transfer, int result)
{
	struct mm_xjob *job =
		(struct mm_xjob *)((char *)transfer - offsetof(struct mm_xjob, transfer));

	job_finish(job, result);
}

static int job_run_copy(struct mm_xfer *x, struct mm_xjob *job)
{
	const uint64_t *arg = job->msg.arg; /* page; store; offset; bytes */
	struct mm_xstore *store = mm_xstores_find(&x->stores, arg[1]);
	int r;

	if (!store)
		return -ENOENT;
	if (!mm_xpool_has(&x->pool, arg[0]) || arg[3] > x->pool.page_bytes ||
	    !mm_xstore_holds(store, arg[2], arg[3]))
		return -EINVAL;
	r = page_check_free(x, (uint32_t)arg[0]);
	if (r < 0)
		return r;
	job->page = (uint32_t)arg[0];
	job->transfer = (struct mm_xtransfer){ .store = store,
					       .store_offset = arg[2],
					       .bytes = arg[3],
					       .page = &job->page,
					       .zero_tail = true,
					       .landed = job_copy_landed };
	mm_xlink_start(&x->link, &x->copies, &job->transfer);
	return -EINPROGRESS;
}

static void job_swap_landed(struct mm_xtransfer *transfer, int result)
{
	struct mm_xjob *job =
		(struct mm_xjob *)((char *)transfer - offsetof(struct mm_xjob, transfer));

	job->swap->copies--;
	job_finish(job, result);
}

static int job_run_swap(struct mm_xfer *x, struct mm_xjob *job)
{
	const uint64_t *arg = job->msg.arg; /* tenant | lot << 32; pool byte; swap byte; bytes */
	uint64_t page = arg[1] / x->pool.page_bytes, offset = arg[1] % x->pool.page_bytes;
	int r;

	job->swap = mm_xswap_find(x->swaps, (uint32_t)arg[0]);
	if (!job->swap)
		return -ENOENT;
	if (!mm_xpool_has(&x->pool, page) || arg[3] > x->pool.page_bytes - offset)
		return -EINVAL;
	r = page_check_free(x, (uint32_t)page);
	if (r < 0)
		return r;
	job->page = (uint32_t)page;
	job->transfer = (struct mm_xtransfer){ .page = &job->page,
					       .page_offset = offset,
					       .bytes = arg[3],
					       .to_host = job->msg.opcode == MM_XOP_SWAP_OUT,
					       .landed = job_swap_landed };
	r = mm_xswap_copy(job->swap, &job->transfer, arg[2]);
	if (r < 0)
		return r;
	job->swap->copies++;
	return -EINPROGRESS;
}

/* ---- tenants and stores ---- */

static int job_run_activate(struct mm_xfer *x, struct mm_xjob *job)
{
	struct mm_xtenant *tenant = mm_xfer_tenant(x, job->msg.arg[0]);

	return tenant ? mm_xtenant_activate(tenant, job->msg.epoch) : -ENOENT;
}

static int job_run_replan(struct mm_xfer *x, struct mm_xjob *job)
{
	struct mm_xtenant *tenant = mm_xfer_tenant(x, job->msg.arg[0]);

	return tenant ? mm_xtenant_replan(tenant, job->msg.epoch) : -ENOENT;
}

static int job_run_quiesce(struct mm_xfer *x, struct mm_xjob *job)
{
	struct mm_xtenant *tenant = mm_xfer_tenant(x, job->msg.arg[0]);

	if (!tenant)
		return -ENOENT;
	if (tenant->cycles.active && mm_xtenant_epoch(tenant) > job->msg.epoch)
		return -ESTALE;
	mm_xtenant_quiesce(tenant);
	return mm_xtenant_copying(tenant) ? -EINPROGRESS : 0;
}

static void job_release_tenant(struct mm_xfer *x, struct mm_xtenant *tenant)
{
	struct mm_xtenant **link = &x->tenants;

	while (*link != tenant)
		link = &(*link)->next;
	*link = tenant->next;
	mm_xtenant_destroy(tenant);
}

/* Idempotent: nothing is to be done for a tenant that is not there. */
static int job_run_detach(struct mm_xfer *x, struct mm_xjob *job)
{
	struct mm_xtenant *tenant = mm_xfer_tenant(x, job->msg.arg[0]);
	struct mm_xswap *swap = mm_xswap_find(x->swaps, job->msg.arg[0]);

	if (tenant)
		mm_xtenant_quiesce(tenant);
	if ((tenant && mm_xtenant_copying(tenant)) || (swap && swap->copies))
		return -EINPROGRESS;
	mm_xswap_drop(&x->swaps, swap);
	if (tenant)
		job_release_tenant(x, tenant);
	return 0;
}

static int job_run_store_drop(struct mm_xfer *x, struct mm_xjob *job)
{
	struct mm_xstore *store = mm_xstores_find(&x->stores, job->msg.arg[0]);
	const struct mm_xjob *other;

	if (!store)
		return 0;
	for (const struct mm_xtenant *t = x->tenants; t; t = t->next)
		if (mm_xtenant_uses(t, store))
			return -EBUSY;
	TAILQ_FOREACH(other, &x->running, entry)
	if (other->msg.opcode == MM_XOP_COPY && other->state == MM_XJOB_RUNNING &&
	    other->transfer.store == store)
		return -EBUSY;
	if (mm_xstage_reads(&x->stage, store))
		return -EAGAIN; /* a read of a cancelled transfer, soon over */
	mm_xstores_drop(&x->stores, store);
	return 0;
}

/* ---- the table ---- */

static int job_run_nop(struct mm_xfer *x, struct mm_xjob *job)
{
	(void)x;
	(void)job;
	return 0;
}

static const struct {
	int (*run)(struct mm_xfer *x, struct mm_xjob *job);
	/*
	 * -EINPROGRESS: run it again, since a tenant's copies are landing or more pages are to be
	 * created; otherwise another event finishes the job
	 */
	bool is_polled;
} job_ops[MM_XOP_COUNT] = {
	[MM_XOP_NOP] = { job_run_nop, false },
	[MM_XOP_CREATE] = { job_run_create, true },
	[MM_XOP_SCRUB] = { job_run_scrub, false },
	[MM_XOP_COPY] = { job_run_copy, false },
	[MM_XOP_RECREATE] = { job_run_recreate, false },
	[MM_XOP_ACTIVATE] = { job_run_activate, false },
	[MM_XOP_QUIESCE] = { job_run_quiesce, true },
	[MM_XOP_DETACH] = { job_run_detach, true },
	[MM_XOP_STORE_DROP] = { job_run_store_drop, false },
	[MM_XOP_SWAP_OUT] = { job_run_swap, false },
	[MM_XOP_SWAP_IN] = { job_run_swap, false },
	[MM_XOP_REPLAN] = { job_run_replan, true },
};

static bool job_begin(struct mm_xfer *x, struct mm_xjob *job)
{
	uint64_t progress = job->progress;
	int r = job->msg.opcode < MM_XOP_COUNT ? job_ops[job->msg.opcode].run(x, job) : -EINVAL;

	if (r == -EAGAIN)
		return false;
	if (r == -EINPROGRESS) {
		if (!job_ops[job->msg.opcode].is_polled)
			job->state = MM_XJOB_RUNNING;
		return job->state == MM_XJOB_RUNNING || job->progress != progress;
	}
	job_finish(job, r);
	return true;
}

static bool job_check_scrub(struct mm_xfer *x, struct mm_xjob *job)
{
	int result;

	if (!mm_xscrub_ended(x, job, &result))
		return false;
	job_finish(job, result);
	return true;
}

/* False: the completion ring is full. */
static bool job_report(struct mm_xfer *x, struct mm_xjob *job)
{
	const struct mm_msg done = { .opcode = job->msg.opcode,
				     .result = job->result,
				     .user_data = job->msg.user_data,
				     .epoch = job->msg.epoch };
	int r = mm_ring_push(&x->completions, &done);

	if (r == MM_E_FULL)
		return false;
	if (r) {
		mm_log(MM_LOG_ERROR, "xfer.ring", "reason=impossible-cursor");
		x->core_gone = true;
	}
	TAILQ_REMOVE(&x->running, job, entry);
	TAILQ_INSERT_TAIL(&x->idle, job, entry);
	return true;
}

static bool job_advance(struct mm_xfer *x, struct mm_xjob *job)
{
	bool moved = false;

	if (job->state == MM_XJOB_NEW)
		moved = job_begin(x, job);
	else if (job->state == MM_XJOB_RUNNING && job->msg.opcode == MM_XOP_SCRUB)
		moved = job_check_scrub(x, job);
	return moved;
}

bool mm_xjobs_run(struct mm_xfer *x)
{
	struct mm_xjob *job, *next;
	bool moved = false, reported = false;

	mm_xscrub_poll(x);
	for (job = TAILQ_FIRST(&x->running); job; job = next) {
		next = TAILQ_NEXT(job, entry);
		moved |= job_advance(x, job);
		if (job->state == MM_XJOB_DONE)
			reported |= job_report(x, job);
	}
	mm_xscrub_flush(x);
	if (reported)
		(void)mm_sock_doorbell(x->fd);
	return moved || reported;
}

bool mm_xjobs_room(const struct mm_xfer *x)
{
	return !TAILQ_EMPTY(&x->idle);
}

void mm_xjobs_add(struct mm_xfer *x, const struct mm_msg *msg)
{
	struct mm_xjob *job = TAILQ_FIRST(&x->idle);

	TAILQ_REMOVE(&x->idle, job, entry);
	*job = (struct mm_xjob){ .msg = *msg, .state = MM_XJOB_NEW, .x = x };
	TAILQ_INSERT_TAIL(&x->running, job, entry);
}

int mm_xjobs_init(struct mm_xfer *x)
{
	int r;

	TAILQ_INIT(&x->running);
	TAILQ_INIT(&x->idle);
	for (size_t i = 0; i < MM_XJOBS_MAX; i++)
		TAILQ_INSERT_TAIL(&x->idle, &x->job[i], entry);
	if (mm_fault("xfer.jobs"))
		return -ENOMEM;
	r = mm_xscrub_init(x);
	if (r < 0)
		return r;
	mm_xlink_join(&x->link, &x->copies, MM_XLINK_WEIGHT_COPIES);
	return 0;
}

void mm_xjobs_done(struct mm_xfer *x)
{
	mm_xscrub_done(x);
}
