/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/kchan.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"

#define RETRY_NS (10 * MM_NS_PER_MS)

static_assert(offsetof(struct mm_kpacket, name) == sizeof(struct mm_kmsg), "names follow");

void mm_kchan_init(struct mm_kchan *chan, int fd)
{
	chan->fd = fd;
	chan->retry_ns = UINT64_MAX;
	mm_fifo_init(&chan->queue, sizeof(struct mm_kpacket), MM_KCHAN_QUEUE);
}

void mm_kpacket_done(struct mm_kpacket *packet)
{
	for (size_t i = 0; i < packet->n_fds; i++)
		mm_close_fd(&packet->fd[i]);
}

int mm_kpacket_take(struct mm_kpacket *packet, size_t index)
{
	int fd = index < packet->n_fds ? packet->fd[index] : -1;

	if (fd >= 0)
		packet->fd[index] = -1;
	return fd;
}

static size_t packet_bytes(const struct mm_kpacket *packet)
{
	return sizeof(packet->msg) + packet->n_names * sizeof(packet->name[0]);
}

void mm_kchan_done(struct mm_kchan *chan)
{
	mm_fifo_done(&chan->queue);
	chan->fd = -1;
}

void mm_kchan_close(struct mm_kchan *chan)
{
	struct mm_kpacket *item;

	while ((item = mm_fifo_at(&chan->queue, 0))) {
		mm_kpacket_done(item);
		mm_fifo_drop(&chan->queue, 1);
	}
	mm_close_fd(&chan->fd);
	mm_kchan_done(chan);
	chan->retry_ns = UINT64_MAX;
}

int mm_kchan_flush(struct mm_kchan *chan)
{
	struct mm_kpacket *item;
	int r;

	chan->retry_ns = UINT64_MAX;
	while ((item = mm_fifo_at(&chan->queue, 0))) {
		r = mm_sock_send(chan->fd, item, packet_bytes(item), item->fd, item->n_fds);
		if (mm_sock_retries_later(r))
			chan->retry_ns = mm_now_ns() + RETRY_NS;
		if (r == -EAGAIN || mm_sock_retries_later(r))
			return 0;
		if (r < 0)
			return r;
		mm_kpacket_done(item);
		mm_fifo_drop(&chan->queue, 1);
	}
	return 0;
}

int mm_kchan_send_packet(struct mm_kchan *chan, const struct mm_kpacket *packet)
{
	struct mm_kpacket item = *packet;
	int r;

	mm_assert(item.n_names <= MM_KCHAN_FDS && item.n_fds <= MM_KCHAN_FDS);
	item.msg.magic = MM_PROTO_MAGIC;
	r = mm_fifo_push(&chan->queue, &item);
	if (r < 0) {
		mm_kpacket_done(&item);
		return r;
	}
	return mm_kchan_flush(chan);
}

int mm_kchan_send(struct mm_kchan *chan, const struct mm_kmsg *msg, const int *fds, size_t n_fds)
{
	struct mm_kpacket packet = { .msg = *msg, .n_fds = (uint32_t)n_fds };

	mm_assert(n_fds <= MM_KCHAN_FDS);
	for (size_t i = 0; i < n_fds; i++)
		packet.fd[i] = fds[i];
	return mm_kchan_send_packet(chan, &packet);
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

/* Return: whether @bytes are a whole message with whole names. */
static bool packet_check(struct mm_kpacket *packet, size_t bytes)
{
	size_t names_bytes = bytes - sizeof(packet->msg);

	if (bytes < sizeof(packet->msg) || packet->msg.magic != MM_PROTO_MAGIC ||
	    names_bytes % sizeof(packet->name[0]))
		return false;
	packet->n_names = (uint32_t)(names_bytes / sizeof(packet->name[0]));
	packet->msg.text[sizeof(packet->msg.text) - 1] = 0;
	for (uint32_t i = 0; i < packet->n_names; i++)
		if (!packet->name[i].kind)
			return false;
	return true;
}

int mm_kchan_recv(struct mm_kchan *chan, struct mm_kpacket *ret_packet)
{
	struct mm_kpacket packet;
	size_t n_fds = 0, bytes = 0;
	int r = mm_sock_recv(chan->fd, &packet, offsetof(struct mm_kpacket, n_names), packet.fd,
			     MM_KCHAN_FDS, &n_fds, &bytes);

	if (r < 0 && r != -EMFILE)
		return r;
	packet.n_names = 0;
	packet.n_fds = (uint32_t)n_fds;
	if (!packet_check(&packet, bytes)) {
		mm_kpacket_done(&packet);
		return -EPROTO;
	}
	*ret_packet = packet;
	return r;
}
