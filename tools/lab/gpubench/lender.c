/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/lender.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/device.h"
#include "tools/lab/common/procs.h"

#define LEND_NS (60 * MM_NS_PER_S)

struct pages_request {
	uint64_t page_bytes;
	uint32_t n;
};

struct pages_answer {
	int error;
	char text[256];
};

struct stock { /* the pages that the lender's process has made */
	struct mm_gpu_dev dev;
	CUmemGenericAllocationHandle handle[MM_GPU_LENT_MAX];
	uint32_t n;
};

/* ---- in the other process ---- */

static void stock_drop(struct stock *s)
{
	while (s->n)
		s->dev.gpu.cuMemRelease(s->handle[--s->n]);
}

static int stock_make(struct stock *s, const struct pages_request *request)
{
	int r = 0;

	stock_drop(s);
	for (uint32_t i = 0; !r && i < request->n; i++) {
		r = MM_GPU_CALL(&s->dev, cuMemCreate, &s->handle[i], request->page_bytes,
				&s->dev.prop, 0);
		s->n += !r;
	}
	return r;
}

/* Sends an answer with some of the descriptors, or with an error. */
static int send_some(int fd, const struct pages_answer *answer, const int *fds, uint32_t n)
{
	int r = mm_sock_wait(fd, POLLOUT, mm_now_ns() + LEND_NS);

	return r ? r : mm_sock_send(fd, answer, sizeof(*answer), fds, n);
}

/* Exports pages. Return: how many descriptors were made; *ret_error: why not all of them. */
static uint32_t export_some(struct stock *s, uint32_t first, uint32_t n, int *fds, int *ret_error)
{
	for (uint32_t i = 0; i < n; i++) {
		*ret_error = MM_GPU_CALL(&s->dev, cuMemExportToShareableHandle, &fds[i],
					 s->handle[first + i],
					 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		if (*ret_error)
			return i;
	}
	return n;
}

static int export_all(struct stock *s, int fd)
{
	const struct pages_answer good = { 0 };
	int fds[MM_SOCK_FDS_MAX];
	int r = 0;

	for (uint32_t i = 0; !r && i < s->n;) {
		const uint32_t n =
			export_some(s, i, MM_MIN(s->n - i, (uint32_t)MM_SOCK_FDS_MAX), fds, &r);

		if (!r)
			r = send_some(fd, &good, fds, n);
		for (uint32_t k = 0; k < n; k++)
			close(fds[k]);
		i += n;
	}
	return r;
}

_Noreturn static void be_lender(struct mm_gpu_bench *bench, int fd)
{
	struct stock *s = calloc(1, sizeof(*s));
	struct pages_answer answer = { 0 };
	struct pages_request request;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = s ? mm_gpu_dev_open(&s->dev, bench) : -ENOMEM;
	while (!mm_sock_wait(fd, POLLIN, UINT64_MAX)) {
		size_t len;

		if (mm_sock_recv_nofds(fd, &request, sizeof(request), &len) ||
		    len != sizeof(request))
			break;
		if (!r)
			r = stock_make(s, &request);
		if (!r)
			r = export_all(s, fd);
		if (!r)
			continue;
		answer.error = r;
		snprintf(answer.text, sizeof(answer.text), "%.250s", bench->err);
		send_some(fd, &answer, NULL, 0);
	}
	_exit(0);
}

/* ---- in ours ---- */

int mm_gpu_lender_open(struct mm_gpu_lender *lender, struct mm_gpu_bench *bench)
{
	int ends[2];
	pid_t pid;
	int r = mm_sock_pair(ends);

	lender->bench = bench;
	lender->fd = -1;
	if (r)
		return mm_gpu_fail(bench, r, "a socket: %s", strerror(-r));
	pid = fork();
	if (!pid) {
		close(ends[0]);
		be_lender(bench, ends[1]);
	}
	close(ends[1]);
	lender->fd = ends[0];
	return pid < 0 ? mm_gpu_fail(bench, -errno, "fork: %m") : 0;
}

static int fds_receive(struct mm_gpu_lender *lender, int *fds, uint32_t room, size_t *ret_n)
{
	struct pages_answer answer;
	size_t len;
	int r = mm_sock_wait(lender->fd, POLLIN, mm_now_ns() + LEND_NS);

	*ret_n = 0;
	if (!r)
		r = mm_sock_recv(lender->fd, &answer, sizeof(answer), fds,
				 MM_MIN(room, (uint32_t)MM_SOCK_FDS_MAX), ret_n, &len);
	if (r)
		return mm_gpu_fail(lender->bench, r, "pages of another process: %s", strerror(-r));
	if (answer.error)
		return mm_gpu_fail(lender->bench, answer.error, "pages of another process: %.250s",
				   answer.text);
	return 0;
}

int mm_gpu_lender_lend(struct mm_gpu_lender *lender, uint64_t page_bytes, uint32_t n, int *ret_fds)
{
	const struct pages_request request = { .page_bytes = page_bytes, .n = n };
	uint32_t have = 0;
	int r;

	if (n > MM_GPU_LENT_MAX)
		return mm_gpu_fail(lender->bench, -E2BIG, "%u pages are more than %u", n,
				   MM_GPU_LENT_MAX);
	r = mm_sock_send(lender->fd, &request, sizeof(request), NULL, 0);
	if (r)
		return mm_gpu_fail(lender->bench, r, "pages of another process: %s", strerror(-r));
	while (!r && have < n) {
		size_t got;

		r = fds_receive(lender, ret_fds + have, n - have, &got);
		have += (uint32_t)got;
	}
	while (r && have)
		close(ret_fds[--have]);
	return r;
}

void mm_gpu_lender_close(struct mm_gpu_lender *lender)
{
	mm_close_fd(&lender->fd);
}
