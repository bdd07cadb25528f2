/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/ipc/region.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mm/abi.h"

#define REGIONS_PER_TENANT 5
#define FDS_PER_TENANT     (REGIONS_PER_TENANT + 2) /* its connection, its pidfd */
#define UNREAD_MAX         4                        /* messages, as keeper has it */
#define WAIT_NS            (60 * MM_NS_PER_S)

int mm_handover_init(struct mm_handover *h, uint64_t pages, uint32_t tenants)
{
	struct mm_region region = MM_REGION_NULL;
	int r = 0;

	*h = (struct mm_handover){ .regions = tenants * REGIONS_PER_TENANT };
	h->fd = calloc(pages + tenants * FDS_PER_TENANT, sizeof(*h->fd));
	if (!h->fd)
		return -ENOMEM;
	while (h->n < pages + tenants * FDS_PER_TENANT) {
		int fd = -1;

		if (h->n < h->regions) {
			r = mm_region_create(sizeof(struct mm_tenant_region), MM_REGION_SHARED,
					     "bench-region", &region);
			if (r < 0)
				return r;
			munmap(region.base, region.size_bytes);
			fd = region.fd;
		} else {
			fd = memfd_create("bench-page", MFD_CLOEXEC);
		}
		if (fd < 0)
			return -errno;
		h->fd[h->n++] = fd;
	}
	return 0;
}

void mm_handover_done(struct mm_handover *h)
{
	for (size_t i = 0; i < h->n; i++)
		close(h->fd[i]);
	free(h->fd);
	*h = (struct mm_handover){ 0 };
}

/* The successor: receives all, maps the regions, and answers each message with a byte. */
static int handover_receive(int sock, size_t n, size_t regions)
{
	int fds[MM_SOCK_FDS_MAX];
	size_t got = 0, n_fds, len;
	char byte;
	int r = 0;

	while (!r && got < n) {
		r = mm_sock_wait(sock, POLLIN, mm_deadline_ns(WAIT_NS));
		if (!r)
			r = mm_sock_recv(sock, &byte, sizeof(byte), fds, MM_SOCK_FDS_MAX, &n_fds,
					 &len);
		for (size_t i = 0; !r && i < n_fds; i++, got++) {
			struct mm_region region = MM_REGION_NULL;

			if (got < regions)
				r = mm_region_open(fds[i], sizeof(struct mm_tenant_region), true,
						   &region);
		}
		if (!r)
			r = mm_sock_send(sock, &byte, sizeof(byte), NULL, 0);
	}
	return r;
}

static int handover_answer(int sock)
{
	size_t len;
	char byte;
	int r = mm_sock_wait(sock, POLLIN, mm_deadline_ns(WAIT_NS));

	return r ? r : mm_sock_recv_nofds(sock, &byte, sizeof(byte), &len);
}

static int handover_send(const struct mm_handover *h, int sock)
{
	const char byte = 1;
	unsigned int unread = 0;
	int r = 0;

	for (size_t at = 0; !r && at < h->n;) {
		size_t n = MM_MIN(h->n - at, (size_t)MM_SOCK_FDS_MAX);

		if (unread == UNREAD_MAX) {
			r = handover_answer(sock);
			unread--;
			continue;
		}
		r = mm_sock_send(sock, &byte, sizeof(byte), h->fd + at, n);
		at += n;
		unread++;
	}
	while (!r && unread--)
		r = handover_answer(sock);
	return r;
}

int mm_handover_run(const struct mm_handover *h, double *ret_ms)
{
	const uint64_t began_ns = mm_now_ns();
	mm_cleanup(mm_close_fd) int ours = -1;
	mm_cleanup(mm_close_fd) int theirs = -1;
	int pair[2], r = mm_sock_pair(pair);
	pid_t pid;

	if (r)
		return r;
	ours = pair[0];
	theirs = pair[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		/* A successor begins without descriptors. */
		close_range(3, (unsigned int)theirs - 1, 0);
		close_range((unsigned int)theirs + 1, ~0u, 0);
		_exit(handover_receive(theirs, h->n, h->regions) ? 1 : 0);
	}
	r = handover_send(h, ours);
	*ret_ms = (double)(mm_now_ns() - began_ns) / 1e6;
	if (r)
		kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return r;
}
