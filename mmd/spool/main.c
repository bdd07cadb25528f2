/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "mmd/common/log.h"
#include "mmd/common/proto.h"
#include "mmd/spool/spool.h"

#define SEAL_NS      (5 * MM_NS_PER_S) /* for the last words of the load's exit */
#define SEAL_LOOK_MS 10

struct spool {
	int core_fd;
	const char *dir;
	int write_fd, read_fd;
	struct mm_smsg answer;
};

static int refuse(struct spool *s, int result, const char *fmt, ...) MM_PRINTF(3, 4);
static int refuse(struct spool *s, int result, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->answer.text, sizeof(s->answer.text), fmt, ap);
	va_end(ap);
	return result;
}

/* Where the file system has no files without a name: one whose name goes at once. */
static int open_named(const char *dir)
{
	char path[MM_CONFIG_STORE_DIR_BYTES + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/.mmd-store-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0 && unlink(path) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd < 0 ? -errno : fd;
}

static int open_file(struct spool *s)
{
	int r;

	/* O_EXCL: it can never be given a name. */
	s->write_fd = open(s->dir, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (s->write_fd >= 0)
		return 0;
	r = -errno;
	if (r == -EOPNOTSUPP || r == -EISDIR) {
		r = open_named(s->dir);
		s->write_fd = r;
	}
	return r < 0 ? refuse(s, r, "--store-dir %.120s: %s", s->dir, strerror(-r)) : 0;
}

/* A file in memory would only be the same memory by another name, outside the budget. */
static int check_file_system(struct spool *s)
{
	struct statfs fs;

	if (fstatfs(s->write_fd, &fs) < 0)
		return refuse(s, -errno, "--store-dir %.120s: %s", s->dir, strerror(errno));
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC)
		return refuse(s, -EINVAL,
			      "--store-dir %.120s: lies in memory; name a directory on a disk",
			      s->dir);
	return 0;
}

static int take_blocks(struct spool *s, uint64_t bytes)
{
	int r = fallocate(s->write_fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;

	/* Then a full disk shows when the load writes. */
	if (r == -EOPNOTSUPP)
		r = ftruncate(s->write_fd, (off_t)bytes) < 0 ? -errno : 0;
	if (r < 0)
		return refuse(s, r, "--store-dir %.120s: no room for %" PRIu64 " bytes: %s", s->dir,
			      bytes, strerror(-r));
	return 0;
}

static int open_again(struct spool *s)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->write_fd);
	s->read_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (s->read_fd < 0)
		s->read_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->read_fd < 0)
		return refuse(s, -errno, "--store-dir %.120s: opening again to read: %s", s->dir,
			      strerror(errno));
	return 0;
}

static int make_file(struct spool *s, uint64_t bytes)
{
	int r = open_file(s);

	if (r == 0)
		r = check_file_system(s);
	if (r == 0)
		r = take_blocks(s, mm_round_up(bytes, MM_ABI_PAGE_BYTES));
	return r == 0 ? open_again(s) : r;
}

/* The writer's fds go as it ends, some of them a moment later. */
static int seal(struct spool *s)
{
	uint64_t until_ns = mm_deadline_ns(SEAL_NS);
	const struct timespec look = mm_timespec(SEAL_LOOK_MS * MM_NS_PER_MS);

	while (fcntl(s->read_fd, F_SETLEASE, F_RDLCK) < 0) {
		if (errno != EAGAIN) {
			/* This file system, or this kernel, has no leases. */
			mm_log(MM_LOG_DEBUG, "spool.no_lease", "error=\"%s\"", strerror(errno));
			return 0;
		}
		if (mm_now_ns() > until_ns)
			return refuse(s, -EBUSY, "somebody still holds the store open for writing");
		nanosleep(&look, NULL);
	}
	return 0;
}

/* ---- the role ---- */

static int answer(struct spool *s, enum mm_sop op, int result, const int *fds, size_t n_fds)
{
	s->answer.magic = MM_PROTO_MAGIC;
	s->answer.op = op;
	s->answer.result = result;
	if (result < 0)
		mm_log(MM_LOG_WARN, "spool.refused", "reason=\"%s\"", s->answer.text);
	return mm_sock_send(s->core_fd, &s->answer, sizeof(s->answer), fds, n_fds);
}

static int on_open(struct spool *s, uint64_t bytes)
{
	int r = make_file(s, bytes);
	int rc;

	if (r < 0) {
		(void)answer(s, MM_S_OPENED, r, NULL, 0);
		return r;
	}
	rc = answer(s, MM_S_OPENED, 0, (int[]){ s->write_fd, s->read_fd }, 2);
	mm_close_fd(&s->write_fd);
	return rc;
}

static int serve(struct spool *s)
{
	struct mm_smsg msg;
	size_t len = 0;
	int r;

	r = mm_sock_wait(s->core_fd, POLLIN, UINT64_MAX);
	if (r == 0)
		r = mm_sock_recv_nofds(s->core_fd, &msg, sizeof(msg), &len);
	if (r < 0)
		return r;
	if (len != sizeof(msg) || msg.magic != MM_PROTO_MAGIC)
		return -EPROTO;
	if (msg.op == MM_S_OPEN && s->read_fd < 0)
		return on_open(s, msg.bytes);
	if (msg.op == MM_S_SEAL && s->read_fd >= 0)
		return answer(s, MM_S_SEALED, seal(s), NULL, 0);
	return -EPROTO;
}

int mm_spool_main(int core_fd, const struct mm_config *config)
{
	struct spool s = {
		.core_fd = core_fd, .dir = config->store_dir, .write_fd = -1, .read_fd = -1
	};
	int r = 0;

	signal(SIGIO, SIG_IGN); /* the lease's breaking: root opens /proc/PID/fd/N */
	while (r == 0)
		r = serve(&s);
	mm_close_fd(&s.write_fd);
	mm_close_fd(&s.read_fd);
	mm_close_fd(&s.core_fd);
	return r == -ECONNRESET ? 0 : 1;
}
