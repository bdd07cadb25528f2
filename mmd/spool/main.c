/* SPDX-License-Identifier: Apache-2.0 */
/* The spool role: creates the file of a store on disk, and proves that no process writes it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <seccomp.h>
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
#include "mmd/common/rights.h"
#include "mmd/spool/spool.h"

#define SEAL_NS      (5 * MM_NS_PER_S) /* time for the load's exit to close its fds */
#define SEAL_LOOK_MS 10

struct spool {
	int core_fd;
	const char *dir;
	int write_fd, read_fd;
	struct mm_smsg answer;
};

static int spool_refuse(struct spool *s, int result, const char *fmt, ...) MM_PRINTF(3, 4);
static int spool_refuse(struct spool *s, int result, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->answer.text, sizeof(s->answer.text), fmt, ap);
	va_end(ap);
	return result;
}

/* Where the file system has no O_TMPFILE: creates a file with a name and removes the name. */
static int spool_open_named(const char *dir)
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

static int spool_open_file(struct spool *s)
{
	int r;

	/* O_EXCL: the file can never be given a name. */
	s->write_fd = open(s->dir, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (s->write_fd >= 0)
		return 0;
	r = -errno;
	if (r == -EOPNOTSUPP || r == -EISDIR) {
		r = spool_open_named(s->dir);
		s->write_fd = r;
	}
	return r < 0 ? spool_refuse(s, r, "--store-dir %.120s: %s", s->dir, strerror(-r)) : 0;
}

/* Refuses a file in memory: it would use the same memory, but outside the budget. */
static int spool_check_file_system(struct spool *s)
{
	struct statfs fs;

	if (fstatfs(s->write_fd, &fs) < 0)
		return spool_refuse(s, -errno, "--store-dir %.120s: %s", s->dir, strerror(errno));
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC)
		return spool_refuse(
			s, -EINVAL,
			"--store-dir %.120s: lies in memory; name a directory on a disk", s->dir);
	return 0;
}

static int spool_take_blocks(struct spool *s, uint64_t bytes)
{
	int r = fallocate(s->write_fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;

	/* A full disk then shows only when the load writes. */
	if (r == -EOPNOTSUPP)
		r = ftruncate(s->write_fd, (off_t)bytes) < 0 ? -errno : 0;
	if (r < 0)
		return spool_refuse(s, r, "--store-dir %.120s: no room for %" PRIu64 " bytes: %s",
				    s->dir, bytes, strerror(-r));
	return 0;
}

static int spool_open_again(struct spool *s)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->write_fd);
	s->read_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (s->read_fd < 0)
		s->read_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->read_fd < 0)
		return spool_refuse(s, -errno, "--store-dir %.120s: opening again to read: %s",
				    s->dir, strerror(errno));
	return 0;
}

/*
 * The directory may be root's, so it is root that makes the file; after that spool needs no rights.
 * As the owner of the file it can take a lease on it.
 */
static int spool_rights_drop(struct spool *s)
{
	static const int calls[] = { SCMP_SYS(fallocate), SCMP_SYS(ftruncate), SCMP_SYS(fcntl),
				     SCMP_SYS(fstatfs), SCMP_SYS(newfstatat) };
	static const struct mm_filter filter = { .calls = calls,
						 .n_calls = MM_ARRAY_SIZE(calls),
						 .opens_files = true };
	const struct mm_rights_user user = { .uid = MM_UID_SPOOL };
	struct mm_rights rights = { 0 };
	int r = 0;

	if (geteuid() == 0 && fchown(s->write_fd, MM_UID_SPOOL, MM_UID_SPOOL) < 0)
		mm_log(MM_LOG_DEBUG, "spool.root", "error=\"%s\"", strerror(errno));
	else
		r = mm_rights_leave_root(&user, &rights);
	if (r == 0 && rights.stays_root)
		mm_log(MM_LOG_DEBUG, "rights.root", "error=\"%s\"", strerror(rights.error));
	if (r == 0)
		r = mm_rights_close(&filter);
	return r < 0 ? spool_refuse(s, r, "giving up rights: %s", strerror(-r)) : 0;
}

static int spool_make_file(struct spool *s, uint64_t bytes)
{
	int r = spool_open_file(s);

	if (r == 0)
		r = spool_rights_drop(s);
	if (r == 0)
		r = spool_check_file_system(s);
	if (r == 0)
		r = spool_take_blocks(s, mm_round_up(bytes, MM_ABI_PAGE_BYTES));
	return r == 0 ? spool_open_again(s) : r;
}

/*
 * Takes a read lease. The fds of the process that wrote the file may be closed a moment after its
 * end.
 */
static int spool_seal(struct spool *s)
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
			return spool_refuse(s, -EBUSY,
					    "somebody still holds the store open for writing");
		nanosleep(&look, NULL);
	}
	return 0;
}

/* ---- the role ---- */

static int spool_answer(struct spool *s, enum mm_sop op, int result, const int *fds, size_t n_fds)
{
	s->answer.magic = MM_PROTO_MAGIC;
	s->answer.op = op;
	s->answer.result = result;
	if (result < 0)
		mm_log(MM_LOG_WARN, "spool.refused", "reason=\"%s\"", s->answer.text);
	return mm_sock_send(s->core_fd, &s->answer, sizeof(s->answer), fds, n_fds);
}

static int spool_on_open(struct spool *s, uint64_t bytes)
{
	int r = spool_make_file(s, bytes);
	int sent;

	if (r < 0) {
		(void)spool_answer(s, MM_S_OPENED, r, NULL, 0);
		return r;
	}
	sent = spool_answer(s, MM_S_OPENED, 0, (int[]){ s->write_fd, s->read_fd }, 2);
	mm_close_fd(&s->write_fd);
	return sent;
}

static int spool_serve(struct spool *s)
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
		return spool_on_open(s, msg.bytes);
	if (msg.op == MM_S_SEAL && s->read_fd >= 0)
		return spool_answer(s, MM_S_SEALED, spool_seal(s), NULL, 0);
	return -EPROTO;
}

int mm_spool_main(int core_fd, const struct mm_config *config)
{
	struct spool s = {
		.core_fd = core_fd, .dir = config->store_dir, .write_fd = -1, .read_fd = -1
	};
	int r = 0;

	/* sent when a process breaks the lease; root may, by opening /proc/PID/fd/N */
	signal(SIGIO, SIG_IGN);
	while (r == 0)
		r = spool_serve(&s);
	mm_close_fd(&s.write_fd);
	mm_close_fd(&s.read_fd);
	mm_close_fd(&s.core_fd);
	return r == -ECONNRESET ? 0 : 1;
}
