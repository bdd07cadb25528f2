/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/protocol/xplan.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/worker_receive.h"
#include "mmd/shell/worker_send.h"

#define MESSAGES_PER_WAKEUP 64

void mm_worker_init(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	*w = (struct mm_worker){
		.fd = -1,
		.source = MM_LOOP_SOURCE_NULL,
		.jobs_region = MM_REGION_NULL,
		.done_region = MM_REGION_NULL,
		.retry_ns = UINT64_MAX,
		.hello_by_ns = UINT64_MAX,
		.proven_at_ns = UINT64_MAX,
		.device = { .numa_node = -1 },
	};
	w->kept = &pool->shell->kept.front->worker[pool->index];
	mm_worker_send_init(w);
}

void mm_worker_pages_close(struct mm_pool *pool, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++) {
		if (pool->worker.page_fd[i] < 0)
			continue;
		mm_close_fd(&pool->worker.page_fd[i]);
		mm_held_drop(&pool->shell->held, mm_worker_page_name(pool->index, i), false);
	}
}

void mm_worker_disconnect(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	mm_loop_del(&pool->shell->loop, &w->source);
	mm_close_fd(&w->fd);
	mm_fifo_done(&w->queue);
	mm_region_done(&w->jobs_region);
	mm_region_done(&w->done_region);
	/* Pages that it was creating may be incomplete; the next xfer creates them anew. */
	for (size_t i = 0; i < MM_PUSHED_JOBS; i++)
		mm_worker_pages_close(pool, w->kept->pushed.job[i].first,
				      w->kept->pushed.job[i].count);
	mm_pushed_done(&w->pushed, &w->kept->pushed);
	w->kept->proven = false;
	w->busy = w->bell = w->want_write = w->overrun = w->stalled = w->handled = false;
	w->retry_ns = w->hello_by_ns = w->proven_at_ns = UINT64_MAX;
}

void mm_worker_done(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	mm_worker_disconnect(pool);
	for (uint32_t i = 0; w->page_fd && i < w->device.pages; i++)
		mm_close_fd(&w->page_fd[i]);
	free(w->page_fd);
	w->page_fd = NULL;
}

void mm_worker_start(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	w->kept->state = MM_WORKER_DOWN;
	w->kept->epoch++;
	mm_shell_send_keeper_xfer(pool, MM_K_START);
}

void mm_worker_down(struct mm_pool *pool, const char *reason)
{
	struct mm_worker *w = &pool->worker;

	if (w->kept->state == MM_WORKER_DYING || w->kept->state == MM_WORKER_DOWN)
		return;
	w->kept->was_up = w->kept->state == MM_WORKER_UP;
	mm_log(MM_LOG_WARN, "xfer.down", "device=%" PRIu64 " epoch=%" PRIu64 " reason=\"%s\"",
	       pool->ordinal, w->kept->epoch, reason);
	w->kept->state = MM_WORKER_DYING;
	mm_shell_send_keeper_xfer(pool, MM_K_KILL);
	mm_worker_disconnect(pool);
	if (w->kept->was_up)
		mm_pool_event_now(pool, MM_EVENT_XFER_DOWN, 0);
}

void mm_worker_fault(struct mm_pool *pool, const char *reason)
{
	mm_worker_down(pool, reason);
	pool->worker.kept->fault = true;
}

void mm_worker_lost(struct mm_pool *pool)
{
	mm_shell_send_keeper_xfer(pool, MM_K_DOWN);
	mm_worker_fault(pool, "its device is lost");
	mm_pool_down(pool);
}

void mm_worker_gone(struct mm_pool *pool, uint64_t epoch, int status)
{
	struct mm_worker *w = &pool->worker;
	bool is_fault;

	if (epoch != w->kept->epoch)
		return;
	mm_worker_receive(pool, UINT32_MAX); /* its last message may say why it ended */
	mm_worker_down(pool, "process died");
	/* A SIGKILL that is not ours is no evidence against the jobs that were running. */
	is_fault = w->kept->was_up &&
		   (w->kept->fault || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL);
	w->kept->was_up = w->kept->fault = false;
	if (is_fault)
		mm_pool_event_now(pool, MM_EVENT_XFER_FAULT, 0);
	mm_spools_xfer_gone(pool->shell);
	w->kept->restarts++;
	if (!pool->shell->stopping)
		mm_worker_start(pool);
}

/* ---- setup ---- */

static int setup_send(struct mm_pool *pool)
{
	const struct mm_config *c = pool->shell->config;
	const struct mm_worker *w = &pool->worker;
	struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC,
		.kind = MM_X_SETUP,
		.count = 2,
		.id = pool->ordinal,
		.page_bytes = w->kept->known ? w->device.page_bytes
					     : mm_config_at(&c->page_bytes, pool->index),
		.pages = w->kept->known ? w->device.pages : 0,
		.bytes = mm_config_at(&c->pool_bytes, pool->index),
		.chunk_bytes = c->chunk_bytes,
		.stage_bytes = mm_config_stage_bytes(c),
		.numa_node = mm_store_node(pool),
		.headroom_bytes = mm_config_at(&c->headroom_bytes, pool->index),
		.flags = w->kept->known ? MM_X_F_LOCKED : 0,
	};

	mm_cleanup(mm_close_fd) int jobs_fd = mm_store_open_again(w->jobs_region.fd, O_RDONLY);

	if (jobs_fd < 0)
		return -errno;
	snprintf(msg.text, sizeof(msg.text), "%s", c->driver);
	snprintf(msg.wanted, sizeof(msg.wanted), "%s", c->device_uuid[pool->index]);
	return mm_sock_send(w->fd, &msg, sizeof(msg), (int[]){ jobs_fd, w->done_region.fd }, 2);
}

/* keeper holds both for a successor; xfer gets that of jobs for reading only. */
static int rings_create(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	struct mm_held_name name = { .kind = MM_HELD_XRING, .index = pool->index };
	int r = mm_region_create(sizeof(struct mm_xq_region), MM_REGION_SHARED, "mm-jobs",
				 &w->jobs_region);

	if (r == 0)
		r = mm_region_create(sizeof(struct mm_xq_region), MM_REGION_SHARED, "mm-done",
				     &w->done_region);
	if (r < 0)
		return r;
	mm_held_put(&pool->shell->held, name, w->jobs_region.fd);
	name.id = 1;
	mm_held_put(&pool->shell->held, name, w->done_region.fd);
	mm_pushed_start(&w->pushed, &w->kept->pushed, w->jobs_region.base, w->done_region.base);
	return 0;
}

static bool device_is_same(const struct mm_device *a, const struct mm_device *b)
{
	return a->page_bytes == b->page_bytes && a->pages == b->pages &&
	       memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

void mm_worker_proven(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	if (w->kept->proven)
		return;
	w->kept->proven = true;
	w->proven_at_ns = UINT64_MAX;
	mm_shell_send_keeper_xfer(pool, MM_K_READY);
	mm_pool_up(pool);
}

static void worker_on_up(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	struct mm_event event = { .kind = MM_EVENT_XFER_UP, .now_ns = mm_now_ns() };

	w->hello_by_ns = UINT64_MAX;
	w->proven_at_ns = mm_now_ns() + MM_WORKER_PROVEN_NS;
	w->kept->state = MM_WORKER_UP;
	mm_worker_attach(pool);
	mm_log(MM_LOG_INFO, "xfer.up", "device=%" PRIu64 " epoch=%" PRIu64 " pid=%" PRId64,
	       pool->ordinal, w->kept->epoch, w->kept->pid);
	event.xfer_epoch = w->kept->epoch;
	mm_pool_event(pool, &event, NULL, NULL);
}

/* Passes the lock to keeper, which holds it for as long as mmd lives. */
static void device_lock_pass_on(struct mm_pool *pool, const struct mm_xmsg *hello, int *fds,
				size_t n_fds)
{
	mm_shell_send_keeper_lock(pool, fds, n_fds, hello->flags & MM_X_F_LOCK_FILE);
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = -1;
}

static void worker_on_first_up(struct mm_pool *pool, const struct mm_device *device)
{
	struct mm_worker *w = &pool->worker;
	int r;

	if (!device->page_bytes || device->page_bytes % MM_ABI_PAGE_BYTES || !device->pages ||
	    device->pages > MM_POOL_PAGES_MAX) {
		mm_shell_fail(
			pool->shell,
			"device %" PRIu64 " (%s): %u pages of %" PRIu64 " bytes cannot be managed "
			"(at most %u pages, multiples of %d bytes); use another --page or --pool",
			pool->ordinal, device->name, device->pages, device->page_bytes,
			MM_POOL_PAGES_MAX, MM_ABI_PAGE_BYTES);
		return;
	}
	w->device = *device;
	r = mm_pool_device(pool);
	if (r < 0)
		return;
	w->kept->device = *device;
	w->kept->known = true;
	worker_on_up(pool);
}

void mm_worker_on_hello(struct mm_pool *pool, struct mm_xmsg *msg, int *fds, size_t n_fds)
{
	struct mm_worker *w = &pool->worker;
	struct mm_device device = {
		.page_bytes = msg->page_bytes,
		.total_bytes = msg->bytes,
		.pages = (uint32_t)MM_MIN(msg->pages, (uint64_t)UINT32_MAX),
		.driver_kind = (uint32_t)msg->id,
		.numa_node = msg->numa_node,
		.stage_bytes = msg->stage_bytes,
		.stage_pread = msg->flags & MM_X_F_PREAD,
		.facts = msg->facts,
	};

	memcpy(device.uuid, msg->device_uuid, sizeof(device.uuid));
	snprintf(device.name, sizeof(device.name), "%s", msg->text);
	if (msg->result < 0 && !w->kept->known)
		mm_shell_fail(pool->shell, "device %" PRIu64 ": %s", pool->ordinal, msg->text);
	else if (msg->result < 0)
		mm_worker_down(pool, device.name);
	else if (!w->kept->known) {
		w->device = device;
		device_lock_pass_on(pool, msg, fds, n_fds);
		worker_on_first_up(pool, &device);
	} else if (!device_is_same(&w->device, &device))
		mm_worker_down(pool, "it found another device");
	else {
		/* It may be of another build than the one before. */
		w->device.facts = w->kept->device.facts = device.facts;
		worker_on_up(pool);
	}
}

/* ---- service ---- */

/* Handles messages of xfer, and the end of the connection. */
static void worker_messages(struct mm_pool *pool)
{
	int r = mm_worker_receive(pool, MESSAGES_PER_WAKEUP);

	if (r < 0)
		r == -ECONNRESET ? mm_worker_down(pool, "connection closed")
				 : mm_worker_fault(pool, "protocol violated");
}

static void worker_on_socket(struct mm_loop_source *source, uint32_t events)
{
	struct mm_pool *pool = mm_loop_source_owner(source, struct mm_pool, worker.source);

	pool->worker.busy = true;
	if (events & ~(uint32_t)EPOLLOUT)
		worker_messages(pool);
}

int mm_worker_listen(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	return mm_loop_add(&pool->shell->loop, &w->source, w->fd, EPOLLIN, worker_on_socket);
}

void mm_worker_started(struct mm_pool *pool, uint64_t epoch, int64_t pid, int fd)
{
	struct mm_worker *w = &pool->worker;
	int r;

	if (epoch != w->kept->epoch || w->kept->state != MM_WORKER_DOWN || fd < 0) {
		mm_close_fd(&fd);
		/* Its end of the pair stays open at keeper, so it would not end by itself. */
		if (epoch == w->kept->epoch)
			mm_shell_send_keeper_xfer(pool, MM_K_KILL);
		return;
	}
	w->kept->told = (struct mm_told_kept){ 0 };
	w->kept->pid = pid;
	w->kept->state = MM_WORKER_SETUP;
	w->fd = fd;
	w->hello_by_ns = mm_now_ns() + MM_HELLO_WAIT_NS;
	r = mm_worker_listen(pool);
	if (r == 0)
		r = rings_create(pool);
	if (r == 0)
		r = setup_send(pool);
	if (r < 0)
		mm_worker_down(pool, "setup failed");
}

bool mm_worker_service(struct mm_pool *pool, uint64_t now_ns)
{
	struct mm_worker *w = &pool->worker;

	if (w->kept->state == MM_WORKER_SETUP && now_ns >= w->hello_by_ns)
		mm_worker_fault(pool, "it does not answer");
	if (w->overrun)
		mm_worker_fault(pool, "it takes no jobs");
	if (now_ns >= w->proven_at_ns)
		mm_worker_proven(pool);
	if (now_ns >= w->retry_ns)
		w->retry_ns = UINT64_MAX;
	if (w->stalled) {
		worker_messages(pool);
		w->busy |= !w->stalled;
	}
	if (w->kept->state == MM_WORKER_UP && w->busy)
		mm_worker_completions(pool);
	if (w->kept->state == MM_WORKER_UP && w->retry_ns == UINT64_MAX)
		mm_worker_flush(pool);
	return false;
}

void mm_worker_ring(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	if (w->fd < 0)
		return;
	if (w->bell)
		mm_sock_doorbell(w->fd);
	w->bell = false;
	/* While the retry timer runs, a writable socket is of no use. */
	mm_loop_want(&pool->shell->loop, &w->source,
		     (w->stalled ? 0 : (uint32_t)EPOLLIN) |
			     (w->want_write && w->retry_ns == UINT64_MAX ? (uint32_t)EPOLLOUT : 0));
}

uint64_t mm_worker_deadline(const struct mm_worker *w)
{
	if (w->kept->state == MM_WORKER_UP && w->busy)
		return 0;
	return MM_MIN(w->proven_at_ns, MM_MIN(w->retry_ns, w->hello_by_ns));
}
