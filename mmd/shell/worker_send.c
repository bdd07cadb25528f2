/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/worker_send.h"

#include <errno.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/protocol/xplan.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/swap.h"
#include "mmd/shell/worker_receive.h"

#define QUEUE_MAX (1u << 16)

enum worker_item_kind { OUT_PAGES, OUT_TENANT, OUT_SWAP, OUT_STORE, OUT_JOB };

struct worker_item {
	enum worker_item_kind kind;
	uint64_t id;          /* first page, tenant or store */
	uint64_t drop_serial; /* it leaves when keeper has done this DROP; 0: at any time */
	struct mm_msg msg;
};

void mm_worker_send_init(struct mm_worker *w)
{
	mm_fifo_init(&w->queue, sizeof(struct worker_item), QUEUE_MAX);
}

static void worker_queue_put(struct mm_pool *pool, const struct worker_item *item)
{
	struct mm_worker *w = &pool->worker;

	if (w->resuming || (w->kept->state != MM_WORKER_UP && w->kept->state != MM_WORKER_SETUP))
		return;
	/* That may be done for an action, when it must not be an event yet. */
	if (mm_fifo_push(&w->queue, item) < 0)
		w->overrun = true;
	w->busy = true;
}

/*
 * Lets go of a page that is to be recreated: while anybody holds its memory, the device may have
 * none for the new one. Return: a serial number for mm_held_is_dropped().
 */
static uint64_t page_drop(struct mm_pool *pool, uint64_t page)
{
	mm_close_fd(&pool->worker.page_fd[page]);
	return mm_held_drop_acked(&pool->shell->held,
				  mm_worker_page_name(pool->index, (uint32_t)page));
}

void mm_worker_job(struct mm_pool *pool, const struct mm_msg *msg)
{
	struct worker_item item = { .kind = OUT_JOB, .msg = *msg };

	if (pool->worker.kept->state != MM_WORKER_UP || pool->worker.resuming)
		return;
	if (msg->opcode == MM_XOP_RECREATE)
		item.drop_serial = page_drop(pool, msg->arg[0]);
	worker_queue_put(pool, &item);
}

void mm_worker_tenant(struct mm_pool *pool, uint32_t tenant)
{
	struct worker_item item = { .kind = OUT_TENANT, .id = tenant };

	if (pool->worker.kept->state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_swap(struct mm_pool *pool, uint32_t tenant)
{
	struct worker_item item = { .kind = OUT_SWAP, .id = tenant };

	if (pool->worker.kept->state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_store(struct mm_pool *pool, uint64_t store)
{
	struct worker_item item = { .kind = OUT_STORE, .id = store };

	if (pool->worker.kept->state == MM_WORKER_UP)
		worker_queue_put(pool, &item);
}

void mm_worker_store_drop(struct mm_pool *pool, uint64_t store)
{
	struct mm_msg msg = { .opcode = MM_XOP_STORE_DROP, .arg[0] = store };

	msg.user_data = MM_WORKER_OWN_JOB | ++pool->worker.kept->own_serial;
	mm_worker_job(pool, &msg);
}

/* ---- jobs ---- */

/* 1 = sent, 0 = later, negative errno = xfer is broken. */
static int job_send(struct mm_pool *pool, const struct worker_item *item)
{
	struct mm_worker *w = &pool->worker;
	int r;

	if (!mm_held_is_dropped(&pool->shell->held, item->drop_serial))
		return 0;
	r = mm_pushed_push(&w->pushed, &item->msg);
	if (r == MM_E_FULL)
		return 0;
	if (r > 0)
		return -EPROTO;
	w->bell = true;
	return 1;
}

static int worker_send_pages(struct mm_worker *w, uint32_t first)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC, .kind = MM_X_PAGES };
	uint32_t last = MM_MIN(first + MM_FD_BATCH_MAX, w->device.pages);
	int fds[MM_FD_BATCH_MAX];
	int r = 0;

	for (uint32_t i = first; i < last; i++) {
		if (w->page_fd[i] < 0)
			continue;
		fds[msg.count] = w->page_fd[i];
		msg.page_id[msg.count++] = i;
	}
	if (msg.count)
		r = mm_sock_send(w->fd, &msg, sizeof(msg), fds, msg.count);
	if (r == 0)
		w->kept->told.pages = last;
	return r;
}

/* Notes what was sent. */
static int told_note(struct mm_pool *pool, enum mm_told_kind kind, uint64_t id, int r)
{
	if (r == 0)
		mm_told_add(&pool->worker.kept->told, kind, id);
	return r;
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
	return told_note(
		pool, MM_TOLD_TENANT, tenant,
		mm_sock_send(pool->worker.fd, &msg, sizeof(msg),
			     (int[]){ s->gate_region.fd, s->plan_region.fd, s->cursor_region.fd },
			     3));
}

static int swap_send(struct mm_pool *pool, uint32_t tenant)
{
	const struct mm_session *s = mm_session_find(pool->shell, tenant);

	if (!s || !s->swap_bytes)
		return 0;
	return told_note(pool, MM_TOLD_SWAP, tenant, mm_session_swap_send(s, pool->worker.fd));
}

static int store_send(struct mm_pool *pool, uint64_t id)
{
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC, .kind = MM_X_STORE, .id = id, .count = 1 };
	struct mm_told_kept *told = &pool->worker.kept->told;
	const struct mm_store *store = mm_store_find(pool->shell, id);
	int r;

	if (!store)
		return 0;
	mm_kept_publish(&told->sending, id + 1);
	msg.bytes = store->bytes;
	msg.flags = store->on_disk ? MM_X_F_DISK : 0;
	r = told_note(pool, MM_TOLD_STORE, id,
		      mm_sock_send(pool->worker.fd, &msg, sizeof(msg),
				   store->on_disk        ? &store->disk_fd
				   : store->xfer_fd >= 0 ? &store->xfer_fd
							 : &store->fd,
				   1));
	mm_kept_publish(&told->sending, (uint64_t)0);
	return r;
}

/* Sends what xfer was not told of yet. Return: 0; -ENOBUFS: something must go first. */
static int untold_send(struct mm_pool *pool, enum mm_told_kind kind, uint64_t id)
{
	const struct mm_told_kept *told = &pool->worker.kept->told;

	if (mm_told_has(told, kind, id))
		return 0;
	if (!mm_told_has_room(told, kind))
		return -ENOBUFS;
	if (kind == MM_TOLD_TENANT)
		return tenant_send(pool, (uint32_t)id);
	return kind == MM_TOLD_SWAP ? swap_send(pool, (uint32_t)id) : store_send(pool, id);
}

/* 1 = sent, 0 = later, negative errno = xfer is broken. */
static int worker_out_send(struct mm_pool *pool, const struct worker_item *item)
{
	struct mm_worker *w = &pool->worker;
	bool later;
	int r;

	if (item->kind == OUT_JOB)
		return job_send(pool, item);
	if (item->kind == OUT_PAGES)
		r = worker_send_pages(w, (uint32_t)item->id);
	else if (item->kind == OUT_TENANT)
		r = untold_send(pool, MM_TOLD_TENANT, item->id);
	else if (item->kind == OUT_SWAP)
		r = untold_send(pool, MM_TOLD_SWAP, item->id);
	else
		r = untold_send(pool, MM_TOLD_STORE, item->id);
	if (r == 0)
		return 1;
	later = mm_sock_retries_later(r);
	w->want_write |= r == -EAGAIN;
	if (later)
		w->retry_ns = mm_now_ns() + MM_WORKER_RETRY_NS;
	return r == -EAGAIN || later ? 0 : r;
}

void mm_worker_flush(struct mm_pool *pool)
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
		mm_worker_receive(pool, UINT32_MAX);
	if (r < 0)
		mm_worker_down(pool, "connection broke");
}

void mm_worker_attach(struct mm_pool *pool)
{
	struct worker_item item = { .kind = OUT_PAGES };
	struct mm_shell *shell = pool->shell;

	for (uint32_t page = pool->worker.kept->told.pages; page < pool->worker.device.pages;
	     page += MM_FD_BATCH_MAX) {
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
