/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "mmd/common/log.h"

void mm_closer_add(struct mm_closer *c, int fd)
{
	if (fd < 0)
		return;
	/*
	 * Peers can fill the queue, so this is no assertion. Beyond it the fd stays open, because
	 * its close might sleep here.
	 */
	if (c->n_waiting < MM_CLOSER_WAITING)
		c->waiting[c->n_waiting++] = fd;
}

void mm_closer_release(struct mm_closer *c)
{
	c->n_released = c->n_waiting;
}

bool mm_closer_is_full(const struct mm_closer *c)
{
	return c->n_waiting >= MM_CLOSER_FULL;
}

bool mm_closer_reaped(struct mm_closer *c, pid_t pid)
{
	for (size_t i = 0; i < MM_CLOSER_CHILDREN; i++) {
		if (c->child[i] != pid)
			continue;
		c->child[i] = 0;
		c->n_children--;
		c->next_ns = 0;
		if (c->n_children <= MM_CLOSER_CHILDREN / 2)
			c->stuck_reported = false;
		return true;
	}
	return false;
}

/* Runs in the child: after keeper has closed its copies, the child's end closes the connections. */
_Noreturn static void child_wait_and_exit(int go_fd)
{
	char byte;

	while (read(go_fd, &byte, sizeof(byte)) < 0 && errno == EINTR)
		;
	_exit(0);
}

static void waiting_close(struct mm_closer *c)
{
	for (unsigned int i = 0; i < c->n_released; i++)
		close(c->waiting[i]);
	c->n_waiting -= c->n_released;
	memmove(c->waiting, c->waiting + c->n_released, c->n_waiting * sizeof(c->waiting[0]));
	c->n_released = 0;
}

static int child_start(struct mm_closer *c, pid_t *ret_pid)
{
	mm_cleanup(mm_close_fd) int wait_fd = -1;
	/* Closed after waiting_close(): the child then reads the end of file, and ends. */
	mm_cleanup(mm_close_fd) int go_fd = -1;
	int pair[2];
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	wait_fd = pair[0];
	go_fd = pair[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		close(go_fd);
		child_wait_and_exit(wait_fd);
	}
	waiting_close(c);
	*ret_pid = pid;
	return 0;
}

uint64_t mm_closer_due_ns(const struct mm_closer *c)
{
	return c->n_released && c->n_children < MM_CLOSER_CHILDREN ? c->next_ns : UINT64_MAX;
}

void mm_closer_service(struct mm_closer *c)
{
	uint64_t now = mm_now_ns();
	pid_t *child = c->child;
	int r;

	if (mm_closer_due_ns(c) > now)
		return;
	while (*child)
		child++;
	c->next_ns = now + MM_CLOSER_SLOW_NS;
	r = child_start(c, child);
	if (r < 0) {
		c->next_ns = now + MM_NS_PER_S;
		mm_log(MM_LOG_ERROR, "closer.start_failed", "waiting=%u error=%d", c->n_waiting, r);
		return;
	}
	c->n_children++;
	if (c->n_children == MM_CLOSER_CHILDREN && !c->stuck_reported) {
		c->stuck_reported = true;
		mm_log(MM_LOG_ERROR, "closer.stuck", "children=%u", c->n_children);
	}
}
