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

static int pages_received(struct mm_worker *w, const struct mm_xmsg *msg, int *fds, size_t n_fds)
{
	if (msg->count != n_fds)
		return -EPROTO;
	for (size_t i = 0; i < n_fds; i++) {
		if (msg->page_id[i] >= w->device.pages ||
		    !mm_pushed_creates(&w->pushed, msg->page_id[i]))
			return -EPROTO;
	}
	for (size_t i = 0; i < n_fds; i++) {
		mm_close_fd(&w->page_fd[msg->page_id[i]]);
		w->page_fd[msg->page_id[i]] = fds[i];
		fds[i] = -1;
	}
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
		return pages_received(w, msg, fds, n_fds);
	else if (msg->kind == MM_X_FAILED && w->kept->state == MM_WORKER_UP && n_fds == 0)
		tenant_on_failed(pool, msg);
	else if (msg->kind == MM_X_HEALTH && n_fds == 0)
		return w->kept->state == MM_WORKER_UP ? mm_health_message(pool, msg) : 0;
	else
		return -EPROTO;
	return 0;
}

int mm_worker_receive(struct mm_pool *pool, unsigned int max)
{
	struct mm_worker *w = &pool->worker;
	int fds[MM_FD_BATCH_MAX], r = 0;
	size_t n_fds, len;
	struct mm_xmsg msg;

	for (unsigned int i = 0; i < max && w->fd >= 0; i++) {
		n_fds = len = 0;
		r = mm_sock_recv(w->fd, &msg, sizeof(msg), fds, MM_FD_BATCH_MAX, &n_fds, &len);
		if (r == -EAGAIN)
			return 0;
		if (r == 0)
			r = worker_on_message(pool, &msg, len, fds, n_fds);
		for (size_t f = 0; f < n_fds; f++)
			mm_close_fd(&fds[f]);
		if (r < 0)
			return r;
	}
	return 0;
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
 * Waits for no fds: xfer sends those of a job's pages before it pushes the completion, so they are
 * in the socket by now. Return: NULL, also if xfer was found to be dead; else what is wrong.
 */
static const char *job_pages_collect(struct mm_pool *pool, const struct mm_pushed_job *job)
{
	struct mm_worker *w = &pool->worker;
	int r;

	if (job_pages_received(w, job))
		return NULL;
	r = mm_worker_receive(pool, UINT32_MAX);
	/* xfer was killed: that is no fault of its jobs, and the next one gets them again. */
	if (r == -ECONNRESET)
		mm_worker_down(pool, "connection closed");
	else if (r < 0 || w->kept->state != MM_WORKER_UP || !job_pages_received(w, job))
		return "pages without fds";
	return NULL;
}

/* A completion says something about the device and the pages, whoever issued the job. */
static void completion_note(struct mm_pool *pool, const struct mm_pushed_job *job, int result)
{
	struct mm_worker *w = &pool->worker;

	if (result == 0 && mm_pushed_uses_device(job))
		mm_worker_proven(pool);
	if (result < 0 && job->opcode == MM_XOP_SCRUB)
		w->kept->scrub_error = result;
	if (result < 0 && w->page_fd)
		mm_worker_pages_close(w, job->first, job->count);
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

static const char *completion_handle(struct mm_pool *pool, const struct mm_msg *msg)
{
	struct mm_worker *w = &pool->worker;
	struct mm_pushed_job *job = mm_pushed_find(&w->pushed, msg->user_data);
	const char *wrong = NULL;

	if (!job || msg->result > 0)
		return "completion of a job that does not run";
	if (msg->result == 0)
		wrong = job_pages_collect(pool, job);
	if (wrong || w->kept->state != MM_WORKER_UP)
		return wrong;
	completion_note(pool, job, msg->result);
	if (job->id & MM_WORKER_OWN_JOB)
		store_drop_done(pool, job->lets_go, msg->result);
	else
		wrong = completion_report(pool, job, msg->result);
	if (w->kept->state != MM_WORKER_UP)
		return wrong;
	mm_pushed_end(&w->pushed, job);
	mm_ring_drop(&w->pushed.done);
	return wrong;
}

void mm_worker_completions(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	const char *wrong = NULL;
	struct mm_msg msg;
	int r = 0;

	for (int i = 0; i < COMPLETIONS_PER_ITERATION && !wrong; i++) {
		if (w->kept->state != MM_WORKER_UP)
			break;
		r = mm_ring_peek(&w->pushed.done, &msg);
		if (r == MM_E_EMPTY) {
			w->busy = false;
			return;
		}
		wrong = r ? "impossible ring cursor" : completion_handle(pool, &msg);
	}
	w->busy = w->kept->state == MM_WORKER_UP;
	if (wrong)
		mm_worker_fault(pool, wrong);
}
