/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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

static int fds_compare(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Closes all fds from stderr on but @keep, of which there are @n, in ascending order. */
static void others_close(const int *keep, size_t n)
{
	unsigned int first = STDERR_FILENO + 1;

	for (size_t i = 0; i < n; i++) {
		if (keep[i] < (int)first)
			continue;
		if (keep[i] > (int)first)
			close_range(first, (unsigned int)keep[i] - 1, 0);
		first = (unsigned int)keep[i] + 1;
	}
	close_range(first, ~0u, 0);
}

/*
 * Runs in the child: it closes what is not its own while keeper has copies, so that this sleeps
 * nowhere, and says so by the end of @clean_fd. After keeper has closed its copies of the
 * connections, which is the end of @go_fd, the child's end closes them.
 */
_Noreturn static void child_run(const struct mm_closer *c, int clean_fd, int go_fd)
{
	int keep[MM_CLOSER_WAITING + 3];
	size_t n = c->n_waiting;
	char byte;

	memcpy(keep, c->waiting, n * sizeof(keep[0]));
	keep[n++] = clean_fd;
	keep[n++] = go_fd;
	keep[n++] = c->spared_fd;
	qsort(keep, n, sizeof(keep[0]), fds_compare);
	others_close(keep, n);
	close(clean_fd);
	while (read(go_fd, &byte, sizeof(byte)) < 0 && errno == EINTR)
		;
	_exit(0);
}

static void waiting_close(struct mm_closer *c)
{
	for (unsigned int i = 0; i < c->n_waiting; i++)
		close(c->waiting[i]);
	c->n_waiting = 0;
}

static int child_start(struct mm_closer *c, pid_t *ret_pid)
{
	mm_cleanup(mm_close_fd) int clean_fd = -1;
	mm_cleanup(mm_close_fd) int clean_child_fd = -1;
	mm_cleanup(mm_close_fd) int go_child_fd = -1;
	/* Closed after waiting_close(): the child then reads the end of file, and ends. */
	mm_cleanup(mm_close_fd) int go_fd = -1;
	int pair[2];
	char byte;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	clean_fd = pair[0];
	clean_child_fd = pair[1];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	go_child_fd = pair[0];
	go_fd = pair[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child_run(c, clean_child_fd, go_child_fd);
	mm_close_fd(&clean_child_fd);
	while (read(clean_fd, &byte, sizeof(byte)) < 0 && errno == EINTR)
		;
	waiting_close(c);
	*ret_pid = pid;
	return 0;
}

uint64_t mm_closer_due_ns(const struct mm_closer *c)
{
	return c->n_waiting && c->n_children < MM_CLOSER_CHILDREN ? c->next_ns : UINT64_MAX;
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
