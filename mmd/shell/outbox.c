/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/outbox.h"

#include <errno.h>

#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

enum outbox_item_kind { ITEM_PAGE, ITEM_MAP, ITEM_EVENT, ITEM_FD, ITEM_GONE };

/* The number of items that are searched for pages of a batch. */
#define AHEAD_MAX (4 * MM_FD_BATCH_MAX)

struct outbox_item {
	uint8_t kind;
	uint8_t fd_kind;
	uint32_t entry;
	uint32_t value; /* page, map value or fd, by kind */
	uint64_t epoch;
};

void mm_outbox_init(struct mm_outbox *box, int sock, struct mm_ring *ring, uint32_t *map,
		    const int *page_fd, struct mm_fd_budget *budget)
{
	*box = (struct mm_outbox){
		.sock = sock,
		.ring = ring,
		.map = map,
		.page_fd = page_fd,
		.budget = budget,
		.retry_ns = UINT64_MAX,
		.single_fd = -1,
	};
	mm_fifo_init(&box->items, sizeof(struct outbox_item), MM_OUTBOX_ITEMS);
	mm_fifo_init(&box->events, sizeof(struct mm_msg), MM_OUTBOX_EVENTS);
}

static void batch_end(struct mm_outbox *box)
{
	if (box->batch.count)
		box->budget->used -= box->batch.count;
	box->batch.count = 0;
	mm_close_fd(&box->single_fd);
	box->unacked = false;
	box->again = false;
	box->resends = 0;
}

void mm_outbox_done(struct mm_outbox *box)
{
	for (size_t i = 0; i < box->items.count; i++) {
		struct outbox_item *item = mm_fifo_at(&box->items, i);
		int fd = (int)item->value;

		if (item->kind == ITEM_FD)
			mm_close_fd(&fd);
	}
	mm_fifo_done(&box->items);
	mm_fifo_done(&box->events);
	batch_end(box);
}

int mm_outbox_put_page(struct mm_outbox *box, uint32_t page, uint64_t epoch)
{
	struct outbox_item item = { .kind = ITEM_PAGE, .value = page, .epoch = epoch };

	return mm_fifo_push(&box->items, &item);
}

int mm_outbox_put_map(struct mm_outbox *box, uint32_t entry, uint32_t value)
{
	struct outbox_item item = { .kind = ITEM_MAP, .entry = entry, .value = value };

	return mm_fifo_push(&box->items, &item);
}

int mm_outbox_put_event(struct mm_outbox *box, const struct mm_msg *msg)
{
	struct outbox_item item = { .kind = ITEM_EVENT };
	int r = mm_fifo_push(&box->events, msg);

	return r < 0 ? r : mm_fifo_push(&box->items, &item);
}

int mm_outbox_put_fd(struct mm_outbox *box, enum mm_fd_kind kind, int fd)
{
	struct outbox_item item = { .kind = ITEM_FD,
				    .fd_kind = (uint8_t)kind,
				    .value = (uint32_t)fd };
	int r = mm_fifo_push(&box->items, &item);

	if (r < 0)
		mm_close_fd(&fd);
	return r;
}

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
	struct mm_fd_batch *batch = &box->batch;
	struct outbox_item *item;

	for (size_t i = 0; i < AHEAD_MAX && batch->count < max; i++) {
		item = mm_fifo_at(&box->items, i);
		if (!item || item->kind == ITEM_FD)
			break;
		if (item->kind != ITEM_PAGE || !page_is_owned(box, item->value))
			continue;
		if (batch->count && item->epoch != batch->epoch)
			break;
		batch->epoch = item->epoch;
		batch->page_id[batch->count++] = item->value;
		item->kind = ITEM_GONE;
	}
}

/*
 * Moves the fd at the head of the queue, or as many pages as may be in flight now, into the batch.
 */
static void batch_fill(struct mm_outbox *box, struct outbox_item *head)
{
	uint32_t room = box->budget->max - MM_MIN(box->budget->used, box->budget->max);
	uint32_t share = (uint32_t)mm_div_up(room, MM_OUTBOX_SHARES);

	if (!room)
		return;
	box->batch = (struct mm_fd_batch){ .magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES };
	if (head->kind == ITEM_FD) {
		box->batch.kind = head->fd_kind;
		box->batch.count = 1;
		box->single_fd = (int)head->value;
		head->kind = ITEM_GONE;
	} else {
		pages_take(box, MM_MIN(share, (uint32_t)MM_FD_BATCH_MAX));
	}
	box->budget->used += box->batch.count;
	box->again = true;
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

static int batch_send(struct mm_outbox *box, uint64_t now_ns)
{
	int fds[MM_FD_BATCH_MAX], r;

	for (uint32_t i = 0; i < box->batch.count; i++) {
		fds[i] = box->single_fd >= 0 ? box->single_fd : box->page_fd[box->batch.page_id[i]];
		if (fds[i] < 0 ||
		    (box->single_fd < 0 && !page_is_owned(box, box->batch.page_id[i])))
			return -EBADF;
	}
	box->batch.seq = box->seq + 1;
	r = mm_sock_send(box->sock, &box->batch, sizeof(box->batch), fds, box->batch.count);
	r = send_outcome(box, r, now_ns);
	if (r == 1) {
		box->seq++;
		box->again = false;
		box->unacked = true;
	}
	return r;
}

static int fds_flush(struct mm_outbox *box, struct outbox_item *head, uint64_t now_ns)
{
	batch_fill(box, head);
	if (!box->batch.count) {
		box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS; /* other outboxes use up the budget */
		return 0;
	}
	return batch_send(box, now_ns);
}

static int event_flush(struct mm_outbox *box, uint64_t now_ns)
{
	int r = mm_ring_push(box->ring, mm_fifo_at(&box->events, 0));

	if (r == MM_E_FULL) {
		box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS;
		return 0;
	}
	if (r > 0)
		return -EPROTO;
	mm_fifo_drop(&box->events, 1);
	mm_fifo_drop(&box->items, 1);
	box->bell = true;
	return 1;
}

static int item_flush(struct mm_outbox *box, struct outbox_item *item, uint64_t now_ns)
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
		return event_flush(box, now_ns);
	case ITEM_GONE:
		break;
	}
	mm_fifo_drop(&box->items, 1);
	return 1;
}

/* Only one batch may be unacknowledged. */
static bool item_must_wait(const struct mm_outbox *box, const struct outbox_item *item)
{
	return box->unacked && (item->kind == ITEM_PAGE || item->kind == ITEM_FD);
}

int mm_outbox_flush(struct mm_outbox *box, uint64_t now_ns)
{
	struct outbox_item *item;
	int r = 1;

	box->want_write = false;
	if (box->again && box->retry_ns != UINT64_MAX && now_ns < box->retry_ns)
		return 0;
	box->retry_ns = UINT64_MAX;
	if (box->again)
		r = batch_send(box, now_ns);
	while (r == 1 && (item = mm_fifo_at(&box->items, 0)) && !item_must_wait(box, item))
		r = item_flush(box, item, now_ns);
	if (r == -EPROTO)
		return MM_E_PROTOCOL;
	return r < 0 ? r : 0;
}

int mm_outbox_ack(struct mm_outbox *box, uint64_t seq, int result, uint64_t now_ns)
{
	if (!seq || (result != 0 && result != -EMFILE))
		return MM_E_PROTOCOL;
	if (seq <= box->acked)
		return 0; /* a tenant may say it twice */
	if (!box->unacked || seq != box->batch.seq)
		return MM_E_PROTOCOL;
	box->acked = seq;
	if (result == 0) {
		batch_end(box);
		return 0;
	}
	if (++box->resends > MM_OUTBOX_RESENDS)
		return MM_E_PROTOCOL;
	box->unacked = false;
	box->again = true;
	box->retry_ns = now_ns + MM_OUTBOX_RETRY_NS;
	return 0;
}
