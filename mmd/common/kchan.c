/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/kchan.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"

#define RETRY_NS (10 * MM_NS_PER_MS)

struct kchan_item {
	struct mm_kmsg msg;
	int fds[MM_KCHAN_FDS];
	size_t n_fds;
};

void mm_kchan_init(struct mm_kchan *chan, int fd)
{
	chan->fd = fd;
	chan->retry_ns = UINT64_MAX;
	mm_fifo_init(&chan->queue, sizeof(struct kchan_item), MM_KCHAN_QUEUE);
}

static void item_done(struct kchan_item *item)
{
	for (size_t i = 0; i < item->n_fds; i++)
		mm_close_fd(&item->fds[i]);
}

void mm_kchan_done(struct mm_kchan *chan)
{
	mm_fifo_done(&chan->queue);
	chan->fd = -1;
}

int mm_kchan_flush(struct mm_kchan *chan)
{
	struct kchan_item *item;
	int r;

	chan->retry_ns = UINT64_MAX;
	while ((item = mm_fifo_at(&chan->queue, 0))) {
		r = mm_sock_send(chan->fd, &item->msg, sizeof(item->msg), item->fds, item->n_fds);
		if (mm_sock_retries_later(r))
			chan->retry_ns = mm_now_ns() + RETRY_NS;
		if (r == -EAGAIN || mm_sock_retries_later(r))
			return 0;
		if (r < 0)
			return r;
		item_done(item);
		mm_fifo_drop(&chan->queue, 1);
	}
	return 0;
}

int mm_kchan_send(struct mm_kchan *chan, const struct mm_kmsg *msg, const int *fds, size_t n_fds)
{
	struct kchan_item item = { .msg = *msg, .n_fds = n_fds };
	int r;

	mm_assert(n_fds <= MM_KCHAN_FDS);
	item.msg.magic = MM_PROTO_MAGIC;
	for (size_t i = 0; i < n_fds; i++)
		item.fds[i] = fds[i];
	r = mm_fifo_push(&chan->queue, &item);
	if (r < 0) {
		item_done(&item);
		return r;
	}
	return mm_kchan_flush(chan);
}

bool mm_kchan_is_waiting(const struct mm_kchan *chan)
{
	return chan->queue.count > 0;
}

int mm_kchan_service(struct mm_kchan *chan, uint64_t now_ns)
{
	return now_ns >= chan->retry_ns ? mm_kchan_flush(chan) : 0;
}

uint32_t mm_kchan_events(const struct mm_kchan *chan)
{
	bool full = mm_kchan_is_waiting(chan) && chan->retry_ns == UINT64_MAX;

	return EPOLLIN | (full ? (uint32_t)EPOLLOUT : 0);
}

uint64_t mm_kchan_deadline(const struct mm_kchan *chan)
{
	return chan->retry_ns;
}

int mm_kchan_recv(struct mm_kchan *chan, struct mm_kmsg *ret_msg, int *ret_fds)
{
	struct mm_kmsg msg;
	int fds[MM_KCHAN_FDS];
	size_t n_fds = 0, len = 0;
	int r = mm_sock_recv(chan->fd, &msg, sizeof(msg), fds, MM_KCHAN_FDS, &n_fds, &len);

	if (r < 0)
		return r;
	if (len != sizeof(msg) || msg.magic != MM_PROTO_MAGIC) {
		while (n_fds)
			mm_close_fd(&fds[--n_fds]);
		return -EPROTO;
	}
	msg.text[sizeof(msg.text) - 1] = 0;
	for (size_t i = 0; i < MM_KCHAN_FDS; i++)
		ret_fds[i] = i < n_fds ? fds[i] : -1;
	*ret_msg = msg;
	return 0;
}
