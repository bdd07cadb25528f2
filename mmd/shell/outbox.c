/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/outbox.h"

#include <errno.h>
#include <string.h>

#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/kept.h"

enum outbox_item_kind { ITEM_PAGE, ITEM_MAP, ITEM_EVENT, ITEM_FD, ITEM_GONE };

/* The number of items that are searched for pages of a batch. */
#define AHEAD_MAX (4 * MM_FD_BATCH_MAX)

/* Queues that have used so much of their memory give it back when they are empty. */
#define RELEASE_ITEMS  2048
#define RELEASE_EVENTS 1024

/* ---- the queue ---- */

static struct mm_outbox_item *item_at(const struct mm_outbox *box, uint32_t n)
{
	return &box->kept->item[n & (MM_OUTBOX_RING - 1)];
}

static uint32_t items_count(const struct mm_outbox *box)
{
	return box->kept->items_tail - box->kept->items_head;
}

/* The @i-th item that waits; NULL: there are fewer. */
static struct mm_outbox_item *item_waiting(const struct mm_outbox *box, uint32_t i)
{
	return i < items_count(box) ? item_at(box, box->kept->items_head + i) : NULL;
}

static int item_put(struct mm_outbox *box, const struct mm_outbox_item *item)
{
	struct mm_outbox_kept *kept = box->kept;

	if (items_count(box) >= MM_OUTBOX_ITEMS)
		return -ENOBUFS;
	*item_at(box, kept->items_tail) = *item;
	mm_kept_publish(&kept->items_tail, kept->items_tail + 1);
	return 0;
}

bool mm_outbox_has(const struct mm_outbox *box, uint64_t serial)
{
	const uint32_t count = items_count(box);

	for (uint32_t i = 1; serial && i <= MM_MIN(count, MM_OUTBOX_RECENT); i++)
		if (item_at(box, box->kept->items_tail - i)->serial == serial)
			return true;
	return false;
}

int mm_outbox_put_page(struct mm_outbox *box, uint32_t page, uint64_t epoch, uint64_t serial)
{
	struct mm_outbox_item item = {
		.kind = ITEM_PAGE, .value = page, .epoch = epoch, .serial = serial
	};

	return item_put(box, &item);
}

int mm_outbox_put_map(struct mm_outbox *box, uint32_t entry, uint32_t value, uint64_t serial)
{
	struct mm_outbox_item item = {
		.kind = ITEM_MAP, .entry = entry, .value = value, .serial = serial
	};

	return item_put(box, &item);
}

int mm_outbox_put_event(struct mm_outbox *box, const struct mm_msg *msg, uint64_t serial)
{
	struct mm_outbox_kept *kept = box->kept;
	struct mm_outbox_item item = { .kind = ITEM_EVENT,
				       .value = kept->events_put,
				       .serial = serial };
	int r;

	if (kept->events_put - kept->cq_tail >= MM_OUTBOX_EVENTS)
		return -ENOBUFS;
	kept->event[kept->events_put % MM_OUTBOX_EVENTS] = *msg;
	r = item_put(box, &item);
	if (r == 0)
		mm_kept_publish(&kept->events_put, kept->events_put + 1);
	return r;
}

int mm_outbox_put_fd(struct mm_outbox *box, enum mm_fd_kind kind, int fd, uint64_t serial)
{
	struct mm_outbox_item item = { .kind = ITEM_FD,
				       .fd_kind = (uint8_t)kind,
				       .serial = serial };

	mm_assert(kind < MM_OUTBOX_FDS);
	mm_close_fd(&box->fd[kind]);
	box->fd[kind] = fd;
	return item_put(box, &item);
}

/* ---- beginning and end ---- */

static void box_connect(struct mm_outbox *box, struct mm_outbox_kept *kept, int sock,
			struct mm_ring *ring, uint32_t *map, const int *page_fd,
			struct mm_fd_budget *budget)
{
	*box = (struct mm_outbox){
		.kept = kept,
		.sock = sock,
		.ring = ring,
		.map = map,
		.page_fd = page_fd,
		.budget = budget,
		.retry_ns = UINT64_MAX,
	};
	for (size_t i = 0; i < MM_OUTBOX_FDS; i++)
		box->fd[i] = -1;
}

void mm_outbox_init(struct mm_outbox *box, struct mm_outbox_kept *kept, int sock,
		    struct mm_ring *ring, uint32_t *map, const int *page_fd,
		    struct mm_fd_budget *budget)
{
	box_connect(box, kept, sock, ring, map, page_fd, budget);
	if (!kept)
		return;
	/* Its predecessor's memory was given back, up to the counters. */
	memset(kept, 0, offsetof(struct mm_outbox_kept, item));
	mm_ring_keep(ring, &kept->cq_tail);
}

/*
 * Finishes what the predecessor may have left half-done: an event that was put and not counted, a
 * batch whose items are not marked yet, an event that was pushed and is still in the queue.
 */
void mm_outbox_resume(struct mm_outbox *box, struct mm_outbox_kept *kept, int sock,
		      struct mm_ring *ring, uint32_t *map, const int *page_fd,
		      struct mm_fd_budget *budget)
{
	struct mm_fd_batch *batch = &kept->batch;

	box_connect(box, kept, sock, ring, map, page_fd, budget);
	for (uint32_t n = kept->items_head; n != kept->items_tail; n++) {
		struct mm_outbox_item *item = item_at(box, n);

		if (item->kind == ITEM_EVENT)
			kept->events_put = item->value + 1;
		for (uint32_t i = 0; kept->batch_state != MM_BATCH_NONE && i < batch->count; i++)
			if (kept->batch_item[i] == n)
				item->kind = ITEM_GONE;
	}
	mm_ring_keep(ring, &kept->cq_tail);
	box->maybe_sent =
		kept->batch_state == MM_BATCH_DUE || kept->batch_state == MM_BATCH_SENDING;
	if (kept->batch_state != MM_BATCH_NONE)
		budget->used += batch->count;
	if (box->maybe_sent)
		kept->batch_state = MM_BATCH_DUE;
	/* The predecessor may have pushed events and died before it rang. */
	box->bell = true;
}

static void batch_end(struct mm_outbox *box)
{
	struct mm_outbox_kept *kept = box->kept;

	if (kept->batch_state == MM_BATCH_NONE)
		return;
	box->budget->used -= kept->batch.count;
	if (kept->batch.kind != MM_FD_PAGES) {
		mm_close_fd(&box->fd[kept->batch.kind]);
		box->fd_gone |= 1u << kept->batch.kind;
	}
	mm_kept_publish(&kept->batch_state, MM_BATCH_NONE);
	kept->resends = 0;
	box->maybe_sent = false;
}

/* Gives back the memory of a queue that is empty, once it has used a good part of it. */
static void memory_release(struct mm_outbox *box)
{
	struct mm_outbox_kept *kept = box->kept;

	if (kept->items_tail - box->items_released >= RELEASE_ITEMS) {
		mm_kept_release(kept->item, sizeof(kept->item));
		box->items_released = kept->items_tail;
	}
	if (kept->events_put - box->events_released >= RELEASE_EVENTS) {
		mm_kept_release(kept->event, sizeof(kept->event));
		box->events_released = kept->events_put;
	}
}

void mm_outbox_done(struct mm_outbox *box)
{
	struct mm_outbox_kept *kept = box->kept;

	if (kept) {
		batch_end(box);
		mm_kept_publish(&kept->items_head, kept->items_tail);
		if (kept->items_tail)
			mm_kept_release(kept->item, sizeof(kept->item));
		if (kept->events_put)
			mm_kept_release(kept->event, sizeof(kept->event));
	}
	for (size_t i = 0; i < MM_OUTBOX_FDS; i++)
		mm_close_fd(&box->fd[i]);
	box->kept = NULL;
}

/* ---- batches ---- */

static bool page_is_owned(const struct mm_outbox *box, uint32_t page)
{
	return !box->owns_page || box->owns_page(box->owner, page);
}

/*
 * Takes fds of pages ahead of the map entries and events between them. Otherwise each chunk would
 * need a batch and an acknowledgement of its own.
 */
static void pages_take(struct mm_outbox *box, uint32_t max)
{
	struct mm_fd_batch *batch = &box->kept->batch;
	const struct mm_outbox_item *item;

	for (uint32_t i = 0; i < AHEAD_MAX && batch->count < max; i++) {
		item = item_waiting(box, i);
		if (!item || item->kind == ITEM_FD)
			break;
		if (item->kind != ITEM_PAGE || !page_is_owned(box, item->value))
			continue;
		if (batch->count && item->epoch != batch->epoch)
			break;
		batch->epoch = item->epoch;
		box->kept->batch_item[batch->count] = box->kept->items_head + i;
		batch->page_id[batch->count++] = item->value;
	}
}

/*
 * Moves the fd at the head of the queue, or as many pages as may be in flight now, into the batch.
 * Return: whether there is a batch now.
 */
static bool batch_fill(struct mm_outbox *box, const struct mm_outbox_item *head)
{
	uint32_t room = box->budget->max - MM_MIN(box->budget->used, box->budget->max);
	uint32_t share = (uint32_t)mm_div_up(room, MM_OUTBOX_SHARES);
	struct mm_outbox_kept *kept = box->kept;
	struct mm_fd_batch *batch = &kept->batch;

	if (!room)
		return false;
	*batch = (struct mm_fd_batch){ .magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES };
	if (head->kind == ITEM_FD) {
		batch->kind = head->fd_kind;
		batch->count = 1;
		kept->batch_item[0] = kept->items_head;
	} else {
		pages_take(box, MM_MIN(share, (uint32_t)MM_FD_BATCH_MAX));
	}
	if (!batch->count)
		return false;
	box->budget->used += batch->count;
	mm_kept_publish(&kept->seq, kept->seq + 1);
	mm_kept_publish(&kept->batch_state, MM_BATCH_DUE);
	for (uint32_t i = 0; i < batch->count; i++)
		item_at(box, kept->batch_item[i])->kind = ITEM_GONE;
	return true;
}

/* 1 = sent or nothing to do, 0 = later, negative errno = broken. */
static int send_outcome(struct mm_outbox *box, int r, uint64_t now_ns)
{
	if (r == 0)
		return 1;
	if (r == -EAGAIN)
		box->want_write = true;
	else if (mm_sock_retries_later(r))
		box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS;
	else
		return r;
	return 0;
}

/*
 * Leaves pages that are not the tenant's any more out of a batch that a predecessor may have sent
 * already.
 */
static void batch_reduce(struct mm_outbox *box)
{
	struct mm_fd_batch *batch = &box->kept->batch;
	uint32_t n = 0;

	if (batch->kind != MM_FD_PAGES)
		return;
	for (uint32_t i = 0; i < batch->count; i++)
		if (page_is_owned(box, batch->page_id[i]))
			batch->page_id[n++] = batch->page_id[i];
	box->budget->used -= batch->count - n;
	batch->count = n;
}

static int batch_send(struct mm_outbox *box, uint64_t now_ns)
{
	struct mm_outbox_kept *kept = box->kept;
	struct mm_fd_batch *batch = &kept->batch;
	int fds[MM_FD_BATCH_MAX], r;

	if (box->maybe_sent)
		batch_reduce(box);
	/* A single fd that is gone was of a role that is gone, and means nothing any more. */
	if (!batch->count || (batch->kind != MM_FD_PAGES && box->fd[batch->kind] < 0)) {
		batch_end(box);
		return 1;
	}
	for (uint32_t i = 0; i < batch->count; i++) {
		fds[i] = batch->kind != MM_FD_PAGES ? box->fd[batch->kind]
						    : box->page_fd[batch->page_id[i]];
		if (fds[i] < 0 ||
		    (batch->kind == MM_FD_PAGES && !page_is_owned(box, batch->page_id[i])))
			return -EBADF;
	}
	batch->seq = kept->seq;
	mm_kept_publish(&kept->batch_state, MM_BATCH_SENDING);
	r = mm_sock_send(box->sock, batch, sizeof(*batch), fds, batch->count);
	mm_kept_publish(&kept->batch_state, r == 0 ? MM_BATCH_UNACKED : MM_BATCH_DUE);
	if (r == 0)
		box->maybe_sent = false;
	return send_outcome(box, r, now_ns);
}

static int fds_flush(struct mm_outbox *box, const struct mm_outbox_item *head, uint64_t now_ns)
{
	if (batch_fill(box, head))
		return batch_send(box, now_ns);
	box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS; /* other outboxes use up the budget */
	return 0;
}

/* ---- items ---- */

static void item_drop(struct mm_outbox *box)
{
	mm_kept_publish(&box->kept->items_head, box->kept->items_head + 1);
	if (!items_count(box))
		memory_release(box);
}

static int event_flush(struct mm_outbox *box, uint32_t number, uint64_t now_ns)
{
	struct mm_outbox_kept *kept = box->kept;
	int r = 0;

	/* A predecessor may have pushed it, but not dropped it from the queue. */
	if (number == kept->cq_tail)
		r = mm_ring_push(box->ring, &kept->event[number % MM_OUTBOX_EVENTS]);
	if (r == MM_E_FULL) {
		box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS;
		return 0;
	}
	if (r > 0)
		return -EPROTO;
	item_drop(box);
	box->bell = true;
	return 1;
}

static int item_flush(struct mm_outbox *box, const struct mm_outbox_item *item, uint64_t now_ns)
{
	switch ((enum outbox_item_kind)item->kind) {
	case ITEM_PAGE:
		if (!page_is_owned(box, item->value))
			break;
		return fds_flush(box, item, now_ns);
	case ITEM_FD:
		return fds_flush(box, item, now_ns);
	case ITEM_MAP:
		__atomic_store_n(&box->map[item->entry], item->value, __ATOMIC_RELEASE);
		break;
	case ITEM_EVENT:
		return event_flush(box, item->value, now_ns);
	case ITEM_GONE:
		break;
	}
	item_drop(box);
	return 1;
}

/* Only one batch may be unacknowledged. */
static bool item_must_wait(const struct mm_outbox *box, const struct mm_outbox_item *item)
{
	return box->kept->batch_state != MM_BATCH_NONE &&
	       (item->kind == ITEM_PAGE || item->kind == ITEM_FD);
}

int mm_outbox_flush(struct mm_outbox *box, uint64_t now_ns)
{
	bool due = box->kept->batch_state == MM_BATCH_DUE;
	const struct mm_outbox_item *item;
	int r = 1;

	box->want_write = false;
	if (due && box->retry_ns != UINT64_MAX && now_ns < box->retry_ns)
		return 0;
	box->retry_ns = UINT64_MAX;
	if (due)
		r = batch_send(box, now_ns);
	while (r == 1 && (item = item_waiting(box, 0)) && !item_must_wait(box, item))
		r = item_flush(box, item, now_ns);
	if (r == -EPROTO)
		return MM_E_PROTOCOL;
	return r < 0 ? r : 0;
}

int mm_outbox_ack(struct mm_outbox *box, uint64_t seq, int result, uint64_t now_ns)
{
	struct mm_outbox_kept *kept = box->kept;
	bool sent = kept->batch_state == MM_BATCH_UNACKED || box->maybe_sent;

	if (!seq || seq > kept->seq || (result != 0 && result != -EMFILE))
		return MM_E_PROTOCOL;
	/* A tenant may say it twice, and a batch that was not sent has no number that it knows. */
	if (seq < kept->seq || kept->batch_state == MM_BATCH_NONE)
		return 0;
	if (!sent)
		return MM_E_PROTOCOL;
	if (result == 0) {
		batch_end(box);
		return 0;
	}
	if (++kept->resends > MM_OUTBOX_RESENDS)
		return MM_E_PROTOCOL;
	/* Sent again it has a number of its own, since the tenant has answered this one. */
	mm_kept_publish(&kept->batch_state, MM_BATCH_DUE);
	mm_kept_publish(&kept->seq, kept->seq + 1);
	box->maybe_sent = false;
	box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS;
	return 0;
}
