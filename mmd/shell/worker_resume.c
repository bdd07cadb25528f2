/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a core takes over the xfer of one that has died. An xfer that was up goes on as if nothing
 * had happened: what it was not told yet and what it was not given yet is found out from the book
 * and from the core's jobs. One that was only starting is replaced, which is no failure of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>

#include "libclient/protocol/xplan.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/worker_send.h"

/* ---- taking over ---- */

static int ring_resume(struct mm_pool *pool, uint64_t which, struct mm_region *ret_region)
{
	const struct mm_held_name name = { .kind = MM_HELD_XRING,
					   .index = pool->index,
					   .id = which };
	int fd = mm_held_take(&pool->shell->held, name);

	return fd < 0 ? -ENOENT : mm_region_open(fd, sizeof(struct mm_xq_region), true, ret_region);
}

static const struct mm_held_child *worker_child(const struct mm_pool *pool)
{
	return mm_held_child(&pool->shell->held, MM_ROLE_XFER, pool->index,
			     pool->worker.kept->epoch);
}

/* Whether keeper runs the xfer that the book has. */
static bool child_lives(const struct mm_held_child *child)
{
	return child && !child->ended && child->pid > 0;
}

/* Connects to an xfer that was up. Return: 0; negative errno: it cannot go on. */
static int worker_connect(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	const struct mm_held_name name = { .kind = MM_HELD_PEER,
					   .index = mm_held_peer(MM_ROLE_XFER, pool->index),
					   .id = w->kept->epoch };
	int r;

	if (w->kept->state != MM_WORKER_UP || !child_lives(worker_child(pool)))
		return -ENOENT;
	r = ring_resume(pool, 0, &w->jobs_region);
	if (r == 0)
		r = ring_resume(pool, 1, &w->done_region);
	if (r < 0)
		return r;
	w->fd = mm_held_take(&pool->shell->held, name);
	if (w->fd < 0)
		return -ENOENT;
	mm_pushed_adopt(&w->pushed, &w->kept->pushed, w->jobs_region.base, w->done_region.base);
	return 0;
}

int mm_worker_resume(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	w->resuming = true;
	for (uint32_t i = 0; i < w->device.pages; i++)
		w->page_fd[i] =
			mm_held_take(&pool->shell->held, mm_worker_page_name(pool->index, i));
	if (worker_connect(pool) < 0) {
		mm_region_done(&w->jobs_region);
		mm_region_done(&w->done_region);
	}
	return 0;
}

/* ---- what xfer has, and what it lacks ---- */

static bool job_is_open(const void *owner, const struct mm_pushed_job *job)
{
	const struct mm_pool *pool = owner;

	return (job->id & MM_WORKER_OWN_JOB) || mm_core_has_job(pool->core, job->id);
}

/*
 * Jobs that are over leave the table. The completion of the last one of them may still be in the
 * ring: it was handled.
 */
static void jobs_reconcile(struct mm_pool *pool)
{
	struct mm_pushed *p = &pool->worker.pushed;
	struct mm_msg msg;

	mm_pushed_retain(p, job_is_open, pool);
	if (mm_ring_peek(&p->done, &msg) == 0 && !mm_pushed_find(p, msg.user_data))
		mm_ring_drop(&p->done);
}

/* Tenants that are gone were detached before: the core would know them else. */
static void told_reconcile(struct mm_pool *pool, enum mm_told_kind kind)
{
	struct mm_told_kept *told = &pool->worker.kept->told;
	struct mm_core_tenant tenant;
	size_t at = 0;
	uint64_t id;

	while (mm_told_next(told, kind, &at, &id))
		if (!mm_core_tenant(pool->core, (uint32_t)id, &tenant))
			mm_told_remove(told, kind, id);
}

static bool store_is_dropping(const struct mm_pushed_kept *pushed, uint64_t store)
{
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++)
		if (pushed->job[i].id && pushed->job[i].opcode == MM_XOP_STORE_DROP &&
		    pushed->job[i].lets_go == store)
			return true;
	return false;
}

/* Stores that xfer has, or may have, and that there are no more. */
static void stores_drop_gone(struct mm_pool *pool)
{
	struct mm_worker_kept *kept = pool->worker.kept;
	size_t at = 0;
	uint64_t id;

	/* One that there is was queued, and is sent again. */
	if (kept->told.sending && !mm_store_find(pool->shell, kept->told.sending - 1) &&
	    mm_told_has_room(&kept->told, MM_TOLD_STORE))
		mm_told_add(&kept->told, MM_TOLD_STORE, kept->told.sending - 1);
	mm_kept_publish(&kept->told.sending, (uint64_t)0);
	while (mm_told_next(&kept->told, MM_TOLD_STORE, &at, &id))
		if (!mm_store_find(pool->shell, id) && !store_is_dropping(&kept->pushed, id))
			mm_worker_store_drop(pool, id);
}

static void jobs_put_unpushed(struct mm_pool *pool)
{
	struct mm_msg msg;
	uint32_t at = 0;

	while (mm_core_next_job(pool->core, &at, &msg))
		if (!mm_pushed_find(&pool->worker.pushed, msg.user_data))
			mm_worker_job(pool, &msg);
}

/* ---- going on ---- */

static void worker_go_on(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	struct mm_event up = { .kind = MM_EVENT_XFER_UP, .now_ns = mm_now_ns() };

	if (mm_worker_listen(pool) < 0) {
		mm_worker_down(pool, "core has no memory to listen to it");
		return;
	}
	jobs_reconcile(pool);
	told_reconcile(pool, MM_TOLD_TENANT);
	told_reconcile(pool, MM_TOLD_SWAP);
	mm_worker_attach(pool);
	/* A core that does not know yet that xfer is up issues its jobs when it is told. */
	if (mm_core_xfer_is_up(pool->core))
		jobs_put_unpushed(pool);
	stores_drop_gone(pool);
	if (w->kept->proven)
		mm_shell_send_keeper_xfer(pool, MM_K_READY);
	else
		w->proven_at_ns = mm_now_ns() + MM_WORKER_PROVEN_NS;
	w->busy = w->bell = true;
	up.xfer_epoch = w->kept->epoch;
	if (!mm_core_xfer_is_up(pool->core))
		mm_pool_event(pool, &up, NULL, NULL);
}

/*
 * Tells the core of pages of which keeper has lost the descriptor, though it was put before they
 * counted: they are created anew.
 */
static void lost_pages_report(struct mm_pool *pool)
{
	struct mm_event event = { .kind = MM_EVENT_PAGE_UNHELD, .now_ns = mm_now_ns() };
	uint32_t lost = 0, first = 0;

	for (uint32_t i = 0; i < pool->worker.device.pages; i++) {
		if (pool->worker.page_fd[i] >= 0 || !mm_core_page_is_made(pool->core, i))
			continue;
		first = lost++ ? first : i;
		event.page = i;
		mm_pool_event(pool, &event, NULL, NULL);
	}
	if (lost)
		mm_log(MM_LOG_ERROR, "page.lost", "device=%" PRIu64 " pages=%u first=%u",
		       pool->ordinal, lost, first);
}

/* Another xfer is started, once this one is reaped, if it still runs. */
static void worker_replace(struct mm_pool *pool)
{
	const struct mm_held_child *child = worker_child(pool);
	struct mm_worker_kept *kept = pool->worker.kept;

	if (child && !child->ended && child->pid == 0)
		return; /* keeper starts it a little later */
	if (!child && kept->state == MM_WORKER_DOWN) {
		mm_shell_send_keeper_xfer(pool, MM_K_START);
		return;
	}
	if (kept->state == MM_WORKER_UP || kept->state == MM_WORKER_DYING)
		kept->was_up = kept->was_up || mm_core_xfer_is_up(pool->core);
	if (child_lives(child)) {
		kept->state = MM_WORKER_DYING;
		mm_shell_kill_xfer(pool);
	}
	mm_worker_disconnect(pool);
	if (mm_core_xfer_is_up(pool->core))
		mm_pool_event_now(pool, MM_EVENT_XFER_DOWN, 0);
	if (!child_lives(child))
		mm_worker_gone(pool, kept->epoch, child ? child->status : SIGKILL);
}

void mm_worker_resume_end(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	/* The jobs that it causes are among those that xfer is found to lack. */
	lost_pages_report(pool);
	w->resuming = false;
	if (w->fd >= 0)
		worker_go_on(pool);
	else
		worker_replace(pool);
}
