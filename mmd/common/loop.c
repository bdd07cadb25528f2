/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/loop.h"

#include <errno.h>
#include <limits.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/fault.h"

int mm_loop_init(struct mm_loop *loop)
{
	*loop = MM_LOOP_NULL;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return loop->epoll_fd < 0 ? -errno : 0;
}

void mm_loop_done(struct mm_loop *loop)
{
	mm_close_fd(&loop->epoll_fd);
}

int mm_loop_add(struct mm_loop *loop, struct mm_loop_source *source, int fd, uint32_t events,
		void (*ready)(struct mm_loop_source *source, uint32_t events))
{
	struct epoll_event ev = { .events = events, .data.ptr = source };

	if (mm_fault("loop.add"))
		return -ENOSPC;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*source = (struct mm_loop_source){ .fd = fd, .events = events, .ready = ready };
	return 0;
}

void mm_loop_want(struct mm_loop *loop, struct mm_loop_source *source, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = source };

	if (source->fd < 0 || source->events == events)
		return;
	mm_assert(epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &ev) == 0);
	source->events = events;
}

void mm_loop_del(struct mm_loop *loop, struct mm_loop_source *source)
{
	if (source->fd < 0)
		return;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	source->fd = -1;
	/*
	 * An event of this batch that was not dispatched yet must not reach a source that is gone.
	 */
	for (int i = 0; i < loop->n_batch; i++) {
		if (loop->batch[i].data.ptr == source)
			loop->batch[i].data.ptr = NULL;
	}
}

static int timeout_ms(uint64_t deadline_ns)
{
	uint64_t now = mm_now_ns();
	uint64_t ms;

	if (deadline_ns == UINT64_MAX)
		return -1;
	if (deadline_ns <= now)
		return 0;
	ms = mm_div_up(deadline_ns - now, MM_NS_PER_MS);
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

int mm_loop_run_once(struct mm_loop *loop, uint64_t deadline_ns)
{
	int n = epoll_wait(loop->epoll_fd, loop->batch, MM_LOOP_BATCH, timeout_ms(deadline_ns));

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	loop->n_batch = n;
	for (int i = 0; i < n; i++) {
		struct mm_loop_source *source = loop->batch[i].data.ptr;

		if (source)
			source->ready(source, loop->batch[i].events);
	}
	loop->n_batch = 0;
	return 0;
}
