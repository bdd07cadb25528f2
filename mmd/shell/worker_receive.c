/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/worker_receive.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/worker_send.h"

#define COMPLETIONS_PER_ITERATION 256
#define MESSAGES_PER_FAILURE      64

/*
 * Takes over fds of pages. keeper gets them, too, before the completion of the job counts
 * (mm_worker_receive()).
 */
static int pages_received(struct mm_pool *pool, const struct mm_xmsg *msg, int *fds, size_t n_fds)
{
	struct mm_worker *w = &pool->worker;

	if (msg->count != n_fds)
		return -EPROTO;
	for (size_t i = 0; i < n_fds; i++) {
		if (msg->page_id[i] >= w->device.pages ||
		    !mm_pushed_creates(&w->pushed, msg->page_id[i]))
			return -EPROTO;
	}
	for (size_t i = 0; i < n_fds; i++) {
		mm_held_put(&pool->shell->held, mm_worker_page_name(pool->index, msg->page_id[i]),
			    fds[i]);
		mm_close_fd(&w->page_fd[msg->page_id[i]]);
		w->page_fd[msg->page_id[i]] = fds[i];
		fds[i] = -1;
	}
	mm_held_flush(&pool->shell->held);
	return 0;
}

/* Ends the tenant whose plan xfer cannot serve any more, if it is still connected. */
static void tenant_on_failed(struct mm_pool *pool, const struct mm_xmsg *msg)
{
	struct mm_session *s = mm_session_find(pool->shell, (uint32_t)msg->id);

	if (!s || s->pool != pool || msg->id > UINT32_MAX)
		return;
	mm_session_log(s, MM_LOG_ERROR, "tenant.unreadable",
		       "tenant=%u name=%s error=\"%s\" reason=\"%s\"", s->tenant, s->name,
		       strerror(msg->result < 0 && msg->result > -4096 ? -msg->result : EIO),
		       msg->text);
	mm_session_end(s, "a layer of its model cannot be read from --store-dir");
}

static int worker_on_message(struct mm_pool *pool, struct mm_xmsg *msg, size_t len, int *fds,
			     size_t n_fds)
{
	struct mm_worker *w = &pool->worker;

	if (len == 1 && n_fds == 0)
		return 0; /* doorbell */
	if (len != sizeof(*msg) || msg->magic != MM_PROTO_MAGIC || msg->count > MM_FD_BATCH_MAX)
		return -EPROTO;
	msg->text[sizeof(msg->text) - 1] = 0;
	if (msg->kind == MM_X_HELLO && w->kept->state == MM_WORKER_SETUP && n_fds <= MM_KCHAN_FDS)
		mm_worker_on_hello(pool, msg, fds, n_fds);
	else if (msg->kind == MM_X_PAGES && w->kept->state == MM_WORKER_UP)
		return pages_received(pool, msg, fds, n_fds);
	else if (msg->kind == MM_X_FAILED && w->kept->state == MM_WORKER_UP && n_fds == 0)
		tenant_on_failed(pool, msg);
	else if (msg->kind == MM_X_HEALTH && n_fds == 0)
		return w->kept->state == MM_WORKER_UP ? mm_health_message(pool, msg) : 0;
	else
		return -EPROTO;
	return 0;
}

/* Takes the message that was handled out of the socket. Return: 0; -EAGAIN: it must stay yet. */
static int message_finish(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	if (!w->handled || w->fd < 0)
		return 0;
	w->stalled = mm_held_is_waiting(&pool->shell->held);
	if (w->stalled)
		return -EAGAIN;
	w->handled = false;
	return mm_sock_skip(w->fd);
}

/*
 * Receives and handles a message. While pages are being created it stays in the socket until keeper
 * holds their fds: if core dies before, its successor receives it again (tests/model/recreate.pml).
 * So it does where layers can lie on a disk, until what follows is in the book: that one of them
 * cannot be read is said once. Return: 0; -EAGAIN: there is none, or it must stay; other negative
 * errno.
 */
static int message_receive(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	bool looks = w->pushed.creating || *pool->shell->config->store_dir;
	int fds[MM_FD_BATCH_MAX], r;
	size_t n_fds = 0, len = 0;
	struct mm_xmsg msg;

	r = (looks ? mm_sock_look : mm_sock_recv)(w->fd, &msg, sizeof(msg), fds, MM_FD_BATCH_MAX,
						  &n_fds, &len);
	/* No room for its fds: it is still there, and there may be room a little later. */
	if (looks && r == -EMFILE) {
		w->stalled = true;
		w->retry_ns = MM_MIN(w->retry_ns, mm_now_ns() + MM_WORKER_RETRY_NS);
		return -EAGAIN;
	}
	if (r < 0)
		return r;
	w->handled = looks;
	r = worker_on_message(pool, &msg, len, fds, n_fds);
	for (size_t f = 0; f < n_fds; f++)
		mm_close_fd(&fds[f]);
	return r < 0 ? r : message_finish(pool);
}

int mm_worker_receive(struct mm_pool *pool, unsigned int max)
{
	int r = message_finish(pool);

	if (pool->worker.stalled && pool->worker.retry_ns != UINT64_MAX)
		return 0;
	pool->worker.stalled = r == -EAGAIN;
	for (unsigned int i = 0; i < max && pool->worker.fd >= 0 && r == 0; i++)
		r = message_receive(pool);
	return r == -EAGAIN ? 0 : r;
}

/* ---- completions ---- */

static bool job_pages_received(const struct mm_worker *w, const struct mm_pushed_job *job)
{
	for (uint32_t i = job->first; i < job->first + job->count; i++) {
		if (w->page_fd[i] < 0)
			return false;
	}
	return true;
}

static void pool_fail_creation(struct mm_pool *pool, int result)
{
	const struct mm_device *d = &pool->worker.device;
	char explanation[MM_TEXT_BYTES] = "";

	mm_health_explain(pool, explanation, sizeof(explanation));
	mm_shell_fail(pool->shell,
		      "the pool of %u pages of %" PRIu64
		      " bytes cannot be created on device %" PRIu64 " (%s): %s; "
		      "use a smaller --pool or a larger --headroom%s",
		      d->pages, d->page_bytes, pool->ordinal, d->name, strerror(-result),
		      explanation);
}

/* While a tenant that is leaving still uses the store, the drop is sent again a little later. */
static void store_drop_done(struct mm_pool *pool, uint64_t store, int result)
{
	struct mm_worker *w = &pool->worker;

	if (result != -EBUSY) {
		mm_told_remove(&w->kept->told, MM_TOLD_STORE, store);
		mm_spool_dropped(pool->shell, store);
		return;
	}
	mm_worker_store_drop(pool, store);
	w->retry_ns = MM_MIN(w->retry_ns, mm_now_ns() + MM_WORKER_RETRY_NS);
}

/*
 * Receives the fds of a job's pages: xfer sends them before it pushes the completion, so they are
 * in the socket by now. Return: 0; -EAGAIN: the completion waits, because keeper does not hold them
 * yet, or xfer is found to be dead; -EPROTO: they are not there.
 */
static int job_pages_collect(struct mm_pool *pool, const struct mm_pushed_job *job)
{
	struct mm_worker *w = &pool->worker;
	int r;

	if (!job_pages_received(w, job)) {
		r = mm_worker_receive(pool, UINT32_MAX);
		/* It was killed: no fault of its jobs, and the next xfer gets them again. */
		if (r == -ECONNRESET)
			mm_worker_down(pool, "connection closed");
		else if (r < 0)
			return -EPROTO;
	}
	if (w->kept->state != MM_WORKER_UP || (job->count && w->stalled))
		return -EAGAIN;
	return job_pages_received(w, job) ? 0 : -EPROTO;
}

/* A completion says something about the device and the pages, whoever issued the job. */
static void completion_note(struct mm_pool *pool, const struct mm_pushed_job *job, int result)
{
	struct mm_worker *w = &pool->worker;

	if (result == 0 && mm_pushed_uses_device(job))
		mm_worker_proven(pool);
	if (result < 0 && job->opcode == MM_XOP_SCRUB)
		w->kept->scrub_error = result;
	if (result < 0)
		mm_worker_pages_close(pool, job->first, job->count);
}

/* Reports the end of a job to the core. Return: NULL; else what is wrong. */
static const char *completion_report(struct mm_pool *pool, const struct mm_pushed_job *job,
				     int job_result)
{
	struct mm_told_kept *told = &pool->worker.kept->told;
	const struct mm_event event = { .kind = MM_EVENT_JOB_DONE,
					.now_ns = mm_now_ns(),
					.job = { .id = job->id, .result = job_result } };
	struct mm_event_result result;

	if (job->count && job_result < 0 && !pool->ready) {
		/* The messages that are left may name the processes that hold the memory. */
		(void)mm_worker_receive(pool, MESSAGES_PER_FAILURE);
		pool_fail_creation(pool, job_result);
		return NULL;
	}
	mm_pool_event(pool, &event, NULL, &result);
	if (job->opcode == MM_XOP_DETACH && job_result == 0) {
		mm_told_remove(told, MM_TOLD_TENANT, job->lets_go);
		mm_told_remove(told, MM_TOLD_SWAP, job->lets_go);
	}
	return result.r ? "completion of a job that the core does not know" : NULL;
}

/*
 * Handles the oldest completion, @msg. Return: 0; -EAGAIN: later; -EPROTO: *ret_wrong is what is
 * wrong.
 */
static int completion_handle(struct mm_pool *pool, const struct mm_msg *msg, const char **ret_wrong)
{
	struct mm_worker *w = &pool->worker;
	struct mm_pushed_job *job = mm_pushed_find(&w->pushed, msg->user_data);
	int r = 0;

	*ret_wrong = "completion of a job that does not run";
	if (!job || msg->result > 0)
		return -EPROTO;
	if (msg->result == 0)
		r = job_pages_collect(pool, job);
	*ret_wrong = "pages without fds";
	if (r < 0)
		return r;
	completion_note(pool, job, msg->result);
	*ret_wrong = NULL;
	if (job->id & MM_WORKER_OWN_JOB)
		store_drop_done(pool, job->lets_go, msg->result);
	else
		*ret_wrong = completion_report(pool, job, msg->result);
	if (w->kept->state != MM_WORKER_UP)
		return -EAGAIN;
	mm_pushed_end(&w->pushed, job);
	mm_ring_drop(&w->pushed.done);
	return *ret_wrong ? -EPROTO : 0;
}

void mm_worker_completions(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	const char *wrong = NULL;
	struct mm_msg msg;
	int r = 0;

	w->busy = false;
	for (int i = 0; i < COMPLETIONS_PER_ITERATION && w->kept->state == MM_WORKER_UP; i++) {
		r = mm_ring_peek(&w->pushed.done, &msg);
		if (r == MM_E_EMPTY)
			return;
		wrong = "impossible ring cursor";
		r = r ? -EPROTO : completion_handle(pool, &msg, &wrong);
		if (r < 0)
			break;
	}
	if (r == -EPROTO)
		mm_worker_fault(pool, wrong);
	w->busy = r == 0 && w->kept->state == MM_WORKER_UP;
}
