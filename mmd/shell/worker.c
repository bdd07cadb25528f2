/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/worker.h"

#include <errno.h>
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
#include "mmd/shell/swap.h"

#define MESSAGES_PER_WAKEUP       64
#define COMPLETIONS_PER_ITERATION 256
#define QUEUE_MAX                 (1u << 16)
#define RETRY_NS                  (10 * MM_NS_PER_MS)
/* Marks ids of jobs that the shell made and the core does not know. */
#define OWN_JOB (UINT64_C(1) << 63)

enum worker_item_kind { OUT_PAGES, OUT_TENANT, OUT_SWAP, OUT_STORE, OUT_JOB };

/* An item has ids, no fds: they are looked up when it is sent. */
struct worker_item {
	enum worker_item_kind kind;
	uint64_t id; /* first page, tenant or store */
	struct mm_msg msg;
};

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
	mm_fifo_init(&w->queue, sizeof(struct worker_item), QUEUE_MAX);
}

static void pages_close(struct mm_worker *w, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		mm_close_fd(&w->page_fd[i]);
}

static void worker_disconnect(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	mm_loop_del(&pool->shell->loop, &w->source);
	mm_close_fd(&w->fd);
	mm_fifo_done(&w->queue);
	mm_region_done(&w->jobs_region);
	mm_region_done(&w->done_region);
	/* Pages that it was creating may be incomplete; the next xfer creates them anew. */
	for (size_t i = 0; i < MM_WORKER_JOBS_MAX; i++)
		pages_close(w, w->job[i].first, w->job[i].count);
	memset(w->job, 0, sizeof(w->job));
	w->jobs_running = 0;
	w->busy = w->bell = w->want_write = w->proven = false;
	w->retry_ns = w->hello_by_ns = w->proven_at_ns = UINT64_MAX;
}

void mm_worker_done(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	worker_disconnect(pool);
	if (w->page_fd)
		pages_close(w, 0, w->device.pages);
	free(w->page_fd);
	w->page_fd = NULL;
}

void mm_worker_start(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	w->state = MM_WORKER_DOWN;
	w->epoch++;
	mm_shell_send_keeper_xfer(pool, MM_K_START);
}

/*
 * Stops using the xfer, which died, broke the protocol or hangs, and kills it; a new one starts
 * once it was reaped.
 */
static void worker_down(struct mm_pool *pool, const char *reason)
{
	struct mm_worker *w = &pool->worker;

	if (w->state == MM_WORKER_DYING || w->state == MM_WORKER_DOWN)
		return;
	w->was_up = w->state == MM_WORKER_UP;
	mm_log(MM_LOG_WARN, "xfer.down", "device=%" PRIu64 " epoch=%" PRIu64 " reason=\"%s\"",
	       pool->ordinal, w->epoch, reason);
	w->state = MM_WORKER_DYING;
	mm_shell_send_keeper_xfer(pool, MM_K_KILL);
	worker_disconnect(pool);
	if (w->was_up) {
		mm_core_on_xfer_down(pool->core, mm_now_ns());
		mm_pool_settle(pool);
	}
}

/* As worker_down() for an xfer that broke the protocol or hangs: its end is its own fault. */
static void worker_fault(struct mm_pool *pool, const char *reason)
{
	worker_down(pool, reason);
	pool->worker.fault = true;
}

void mm_worker_lost(struct mm_pool *pool)
{
	mm_shell_send_keeper_xfer(pool, MM_K_DOWN);
	worker_fault(pool, "its device is lost");
	mm_pool_down(pool);
}

static int worker_receive(struct mm_pool *pool, unsigned int max);

void mm_worker_gone(struct mm_pool *pool, uint64_t epoch, int status)
{
	struct mm_worker *w = &pool->worker;

	if (epoch != w->epoch)
		return;
	worker_receive(pool, UINT32_MAX); /* its last message may say why it ended */
	worker_down(pool, "process died");
	/* A SIGKILL that is not ours is no evidence against the jobs that were running. */
	if (w->was_up && (w->fault || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)) {
		mm_core_on_xfer_fault(pool->core, mm_now_ns());
		mm_pool_settle(pool);
	}
	w->was_up = w->fault = false;
	mm_spools_xfer_gone(pool->shell);
	w->restarts++;
	if (!pool->shell->stopping)
		mm_worker_start(pool);
}

/* ---- queue ---- */

static void worker_queue_put(struct mm_pool *pool, const struct worker_item *item)
{
	struct mm_worker *w = &pool->worker;

	if (w->state != MM_WORKER_UP && w->state != MM_WORKER_SETUP)
		return;
	if (mm_fifo_push(&w->queue, item) < 0)
		worker_fault(pool, "it takes no jobs");
	w->busy = true;
}

void mm_worker_job(struct mm_pool *pool, const struct mm_msg *msg)
{
	struct worker_item item = { .kind = OUT_JOB, .msg = *msg };

	if (pool->worker.state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_tenant(struct mm_pool *pool, uint32_t tenant)
{
	struct worker_item item = { .kind = OUT_TENANT, .id = tenant };

	if (pool->worker.state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_swap(struct mm_pool *pool, uint32_t tenant)
{
	struct worker_item item = { .kind = OUT_SWAP, .id = tenant };

	if (pool->worker.state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_store(struct mm_pool *pool, uint64_t store)
{
	struct worker_item item = { .kind = OUT_STORE, .id = store };

	if (pool->worker.state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_store_drop(struct mm_pool *pool, uint64_t store)
{
	struct mm_msg msg = { .opcode = MM_XOP_STORE_DROP, .arg[0] = store };

	msg.user_data = OWN_JOB | ++pool->worker.own_serial;
	mm_worker_job(pool, &msg);
}

/* ---- jobs ---- */

static struct mm_worker_job *job_find(struct mm_worker *w, uint64_t id)
{
	for (size_t i = 0; i < MM_WORKER_JOBS_MAX; i++) {
		if (w->job[i].id == id)
			return &w->job[i];
	}
	return NULL;
}

/*
 * Whether the device itself works for the job. An xfer whose device is broken can still complete
 * the other jobs, so they prove nothing.
 */
static bool job_uses_device(uint32_t opcode)
{
	switch (opcode) {
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

/* 1 = sent, 0 = later, negative errno = xfer is broken. */
static int job_send(struct mm_worker *w, const struct mm_msg *msg)
{
	struct mm_worker_job *job = job_find(w, 0);
	int r;

	if (!job)
		return 0;
	if (msg->opcode == MM_XOP_RECREATE)
		pages_close(w, (uint32_t)msg->arg[0], 1);
	r = mm_ring_push(&w->jobs, msg);
	if (r == MM_E_FULL)
		return 0;
	if (r > 0)
		return -EPROTO;
	*job = (struct mm_worker_job){ .id = msg->user_data,
				       .scrub = msg->opcode == MM_XOP_SCRUB,
				       .works = job_uses_device(msg->opcode) };
	if (msg->opcode == MM_XOP_CREATE || msg->opcode == MM_XOP_RECREATE)
		job->first = (uint32_t)msg->arg[0];
	if (msg->opcode == MM_XOP_CREATE)
		job->count = (uint32_t)msg->arg[1];
	else if (msg->opcode == MM_XOP_RECREATE)
		job->count = 1;
	else if (msg->opcode == MM_XOP_STORE_DROP)
		job->store = msg->arg[0];
	w->jobs_running++;
	w->bell = true;
	return 1;
}

static int worker_send_pages(const struct mm_worker *w, uint32_t first)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC, .kind = MM_X_PAGES };
	uint32_t last = MM_MIN(first + MM_FD_BATCH_MAX, w->device.pages);
	int fds[MM_FD_BATCH_MAX];

	for (uint32_t i = first; i < last; i++) {
		if (w->page_fd[i] < 0)
			continue;
		fds[msg.count] = w->page_fd[i];
		msg.page_id[msg.count++] = i;
	}
	return msg.count ? mm_sock_send(w->fd, &msg, sizeof(msg), fds, msg.count) : 0;
}

static int tenant_send(struct mm_pool *pool, uint32_t tenant)
{
	struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC, .kind = MM_X_TENANT, .id = tenant, .count = 3
	};
	const struct mm_session *s = mm_session_find(pool->shell, tenant);
	struct mm_core_tenant known;

	/* A detached tenant that is sent again would stay in this xfer for good. */
	if (!s || !mm_core_tenant(pool->core, tenant, &known) || !known.attached)
		return 0;
	return mm_sock_send(pool->worker.fd, &msg, sizeof(msg),
			    (int[]){ s->gate_region.fd, s->plan_region.fd, s->cursor_region.fd },
			    3);
}

static int swap_send(struct mm_pool *pool, uint32_t tenant)
{
	const struct mm_session *s = mm_session_find(pool->shell, tenant);

	return s ? mm_session_swap_send(s, pool->worker.fd) : 0;
}

static int store_send(struct mm_pool *pool, uint64_t id)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC, .kind = MM_X_STORE, .id = id, .count = 1 };
	const struct mm_store *store = mm_store_find(pool->shell, id);

	if (!store)
		return 0;
	msg.bytes = store->bytes;
	msg.flags = store->on_disk ? MM_X_F_DISK : 0;
	return mm_sock_send(pool->worker.fd, &msg, sizeof(msg),
			    store->on_disk        ? &store->disk_fd
			    : store->xfer_fd >= 0 ? &store->xfer_fd
						  : &store->fd,
			    1);
}

/* 1 = sent, 0 = later, negative errno = xfer is broken. */
static int worker_out_send(struct mm_pool *pool, const struct worker_item *item)
{
	struct mm_worker *w = &pool->worker;
	bool later;
	int r;

	if (item->kind == OUT_JOB)
		return job_send(w, &item->msg);
	if (item->kind == OUT_PAGES)
		r = worker_send_pages(w, (uint32_t)item->id);
	else if (item->kind == OUT_TENANT)
		r = tenant_send(pool, (uint32_t)item->id);
	else if (item->kind == OUT_SWAP)
		r = swap_send(pool, (uint32_t)item->id);
	else
		r = store_send(pool, item->id);
	if (r == 0)
		return 1;
	later = mm_sock_retries_later(r);
	w->want_write |= r == -EAGAIN;
	if (later)
		w->retry_ns = mm_now_ns() + RETRY_NS;
	return r == -EAGAIN || later ? 0 : r;
}

static void worker_flush(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	const struct worker_item *item;
	int r = 1;

	w->want_write = false;
	while (r == 1 && (item = mm_fifo_at(&w->queue, 0))) {
		r = worker_out_send(pool, item);
		if (r == 1)
			mm_fifo_drop(&w->queue, 1);
	}
	if (r == -ECONNRESET)
		worker_receive(pool, UINT32_MAX);
	if (r < 0)
		worker_down(pool, "connection broke");
}

/* ---- setup ---- */

static void tenants_and_stores_attach(struct mm_pool *pool)
{
	struct worker_item item = { .kind = OUT_PAGES };
	struct mm_shell *shell = pool->shell;

	for (uint32_t page = 0; page < pool->worker.device.pages; page += MM_FD_BATCH_MAX) {
		item.id = page;
		worker_queue_put(pool, &item);
	}
	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		if (shell->stores.store[i].ready)
			mm_worker_store(pool, shell->stores.store[i].id);
	}
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN && s->pool == pool)
			mm_worker_tenant(pool, s->tenant);
		if (s->swap_bytes && s->pool == pool)
			mm_worker_swap(pool, s->tenant);
	}
}

static int setup_send(struct mm_pool *pool)
{
	const struct mm_config *c = pool->shell->config;
	const struct mm_worker *w = &pool->worker;
	struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC,
		.kind = MM_X_SETUP,
		.count = 2,
		.id = pool->ordinal,
		.page_bytes =
			w->known ? w->device.page_bytes : mm_config_at(&c->page_bytes, pool->index),
		.pages = w->known ? w->device.pages : 0,
		.bytes = mm_config_at(&c->pool_bytes, pool->index),
		.chunk_bytes = c->chunk_bytes,
		.stage_bytes = mm_config_stage_bytes(c),
		.numa_node = mm_store_node(pool),
		.headroom_bytes = mm_config_at(&c->headroom_bytes, pool->index),
		.flags = w->known ? MM_X_F_LOCKED : 0,
	};

	snprintf(msg.text, sizeof(msg.text), "%s", c->driver);
	snprintf(msg.wanted, sizeof(msg.wanted), "%s", c->device_uuid[pool->index]);
	return mm_sock_send(w->fd, &msg, sizeof(msg),
			    (int[]){ w->jobs_region.fd, w->done_region.fd }, 2);
}

static int rings_create(struct mm_worker *w)
{
	struct mm_xq_region *ours, *theirs;
	int r = mm_region_create(sizeof(*ours), MM_REGION_READONLY, "mm-jobs", &w->jobs_region);

	if (r == 0)
		r = mm_region_create(sizeof(*theirs), MM_REGION_SHARED, "mm-done", &w->done_region);
	if (r < 0)
		return r;
	ours = w->jobs_region.base;
	theirs = w->done_region.base;
	mm_ring_init(&w->jobs, ours->slot, MM_XQ_SLOTS, &ours->tail, &theirs->head);
	mm_ring_init(&w->done, theirs->slot, MM_XQ_SLOTS, &ours->head, &theirs->tail);
	return 0;
}

static bool device_is_same(const struct mm_device *a, const struct mm_device *b)
{
	return a->page_bytes == b->page_bytes && a->pages == b->pages &&
	       memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

/* The xfer is proven: keeper resets its count of failures, and a device that was down is up. */
static void worker_proven(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	if (w->proven)
		return;
	w->proven = true;
	w->proven_at_ns = UINT64_MAX;
	mm_shell_send_keeper_xfer(pool, MM_K_READY);
	mm_pool_up(pool);
}

static void worker_on_up(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;

	w->hello_by_ns = UINT64_MAX;
	w->proven_at_ns = mm_now_ns() + MM_WORKER_PROVEN_NS;
	w->state = MM_WORKER_UP;
	tenants_and_stores_attach(pool);
	mm_log(MM_LOG_INFO, "xfer.up", "device=%" PRIu64 " epoch=%" PRIu64 " pid=%" PRId64,
	       pool->ordinal, w->epoch, w->pid);
	mm_core_on_xfer_up(pool->core, mm_now_ns(), w->epoch);
	mm_pool_settle(pool);
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
	w->known = true;
	worker_on_up(pool);
}

static void worker_on_hello(struct mm_pool *pool, struct mm_xmsg *msg, int *fds, size_t n_fds)
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
	if (msg->result < 0 && !w->known)
		mm_shell_fail(pool->shell, "device %" PRIu64 ": %s", pool->ordinal, msg->text);
	else if (msg->result < 0)
		worker_down(pool, device.name);
	else if (!w->known) {
		w->device = device;
		device_lock_pass_on(pool, msg, fds, n_fds);
		worker_on_first_up(pool, &device);
	} else if (!device_is_same(&w->device, &device))
		worker_down(pool, "it found another device");
	else
		worker_on_up(pool);
}

/* ---- messages of xfer ---- */

static bool page_is_expected(const struct mm_worker *w, uint32_t page)
{
	for (size_t i = 0; i < MM_WORKER_JOBS_MAX; i++) {
		const struct mm_worker_job *job = &w->job[i];

		if (job->id && page >= job->first && page - job->first < job->count)
			return true;
	}
	return false;
}

static int pages_received(struct mm_worker *w, const struct mm_xmsg *msg, int *fds, size_t n_fds)
{
	if (msg->count != n_fds)
		return -EPROTO;
	for (size_t i = 0; i < n_fds; i++) {
		if (msg->page_id[i] >= w->device.pages || !page_is_expected(w, msg->page_id[i]))
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
	if (msg->kind == MM_X_HELLO && w->state == MM_WORKER_SETUP && n_fds <= MM_KCHAN_FDS)
		worker_on_hello(pool, msg, fds, n_fds);
	else if (msg->kind == MM_X_PAGES && w->state == MM_WORKER_UP)
		return pages_received(w, msg, fds, n_fds);
	else if (msg->kind == MM_X_FAILED && w->state == MM_WORKER_UP && n_fds == 0)
		tenant_on_failed(pool, msg);
	else if (msg->kind == MM_X_HEALTH && n_fds == 0)
		return w->state == MM_WORKER_UP ? mm_health_message(pool, msg) : 0;
	else
		return -EPROTO;
	return 0;
}

/*
 * Reads at most @max messages from the socket. Return: 0; negative errno: the connection is broken.
 */
static int worker_receive(struct mm_pool *pool, unsigned int max)
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

static void worker_on_socket(struct mm_loop_source *source, uint32_t events)
{
	struct mm_pool *pool = mm_loop_source_owner(source, struct mm_pool, worker.source);
	int r = 0;

	pool->worker.busy = true;
	if (events & ~(uint32_t)EPOLLOUT)
		r = worker_receive(pool, MESSAGES_PER_WAKEUP);
	if (r < 0)
		r == -ECONNRESET ? worker_down(pool, "connection closed")
				 : worker_fault(pool, "protocol violated");
}

void mm_worker_started(struct mm_pool *pool, uint64_t epoch, int64_t pid, int fd)
{
	struct mm_worker *w = &pool->worker;
	int r;

	if (epoch != w->epoch || w->state != MM_WORKER_DOWN || fd < 0) {
		mm_close_fd(&fd);
		return;
	}
	w->state = MM_WORKER_SETUP;
	w->pid = pid;
	w->fd = fd;
	w->hello_by_ns = mm_now_ns() + MM_HELLO_WAIT_NS;
	r = mm_loop_add(&pool->shell->loop, &w->source, fd, EPOLLIN, worker_on_socket);
	if (r == 0)
		r = rings_create(w);
	if (r == 0)
		r = setup_send(pool);
	if (r < 0)
		worker_down(pool, "setup failed");
}

/* ---- completions ---- */

static bool job_pages_received(const struct mm_worker *w, const struct mm_worker_job *job)
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
static void own_job_done(struct mm_pool *pool, const struct mm_worker_job *job, int result)
{
	struct mm_worker *w = &pool->worker;

	if (result != -EBUSY) {
		mm_spool_dropped(pool->shell, job->store);
		return;
	}
	mm_worker_store_drop(pool, job->store);
	w->retry_ns = MM_MIN(w->retry_ns, mm_now_ns() + RETRY_NS);
}

static const char *completion_handle(struct mm_pool *pool, const struct mm_msg *msg)
{
	struct mm_worker *w = &pool->worker;
	struct mm_worker_job *found = msg->user_data ? job_find(w, msg->user_data) : NULL;
	struct mm_worker_job job;

	if (!found || msg->result > 0)
		return "completion of a job that does not run";
	/* xfer sends the fds before it pushes the completion, so they are in the socket by now. */
	if (msg->result == 0 && !job_pages_received(w, found)) {
		int r = worker_receive(pool, UINT32_MAX);

		/*
		 * xfer was killed meanwhile; that is no fault of its jobs, and the next one gets
		 * them again.
		 */
		if (r == -ECONNRESET) {
			worker_down(pool, "connection closed");
			return NULL;
		}
		if (r < 0 || w->state != MM_WORKER_UP || !job_pages_received(w, found))
			return "pages without fds";
	}
	job = *found;
	*found = (struct mm_worker_job){ 0 };
	w->jobs_running--;
	if (msg->result == 0 && job.works)
		worker_proven(pool);
	if (msg->result < 0 && job.scrub)
		w->scrub_error = msg->result;
	if (msg->result < 0 && w->page_fd)
		pages_close(w, job.first, job.count);
	if (job.id & OWN_JOB) {
		own_job_done(pool, &job, msg->result);
		return NULL;
	}
	if (job.count && msg->result < 0 && !pool->ready) {
		/* The messages that are left may name the processes that hold the memory. */
		(void)worker_receive(pool, MESSAGES_PER_WAKEUP);
		pool_fail_creation(pool, msg->result);
		return NULL;
	}
	if (mm_core_on_job_done(pool->core, mm_now_ns(), job.id, msg->result) != 0)
		return "completion of a job that the core does not know";
	mm_pool_settle(pool);
	return NULL;
}

static void completions_handle(struct mm_pool *pool)
{
	struct mm_worker *w = &pool->worker;
	const char *wrong = NULL;
	struct mm_msg msg;
	int r = 0;

	for (int i = 0; i < COMPLETIONS_PER_ITERATION && w->state == MM_WORKER_UP && !wrong; i++) {
		r = mm_ring_pop(&w->done, &msg);
		if (r == MM_E_EMPTY) {
			w->busy = false;
			return;
		}
		wrong = r ? "impossible ring cursor" : completion_handle(pool, &msg);
	}
	w->busy = w->state == MM_WORKER_UP;
	if (wrong)
		worker_fault(pool, wrong);
}

bool mm_worker_service(struct mm_pool *pool, uint64_t now_ns)
{
	struct mm_worker *w = &pool->worker;

	if (w->state == MM_WORKER_SETUP && now_ns >= w->hello_by_ns)
		worker_fault(pool, "it does not answer");
	if (now_ns >= w->proven_at_ns)
		worker_proven(pool);
	if (now_ns >= w->retry_ns)
		w->retry_ns = UINT64_MAX;
	if (w->state == MM_WORKER_UP && w->busy)
		completions_handle(pool);
	if (w->state == MM_WORKER_UP && w->retry_ns == UINT64_MAX)
		worker_flush(pool);
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
		     EPOLLIN |
			     (w->want_write && w->retry_ns == UINT64_MAX ? (uint32_t)EPOLLOUT : 0));
}

uint64_t mm_worker_deadline(const struct mm_worker *w)
{
	if (w->state == MM_WORKER_UP && w->busy)
		return 0;
	return MM_MIN(w->proven_at_ns, MM_MIN(w->retry_ns, w->hello_by_ns));
}
