/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"

#define PATH_ROOM (MM_CONFIG_PATH_BYTES + 16)

static int place_fail(char *error, int r, const char *path, const char *what)
{
	snprintf(error, MM_CONFIG_ERROR_BYTES, "%.100s: %s: %s", path, what, strerror(-r));
	return r;
}

static void place_path(const char *dir, const char *name, char *ret_path)
{
	snprintf(ret_path, PATH_ROOM, "%s/%s", dir, name);
}

/*
 * Other users must not be able to write to the directory: they could put sockets in place of ours,
 * and the sticky bit does not prevent that.
 */
static int folder_check(const char *dir, char *error)
{
	struct stat st;

	if (lstat(dir, &st) < 0)
		return place_fail(error, -errno, dir, "cannot look at the directory");
	if (!S_ISDIR(st.st_mode))
		return place_fail(error, -ENOTDIR, dir,
				  S_ISLNK(st.st_mode) ? "a symbolic link; name what it leads to"
						      : "cannot use it");
	if (st.st_uid != geteuid() && st.st_uid != 0) {
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "%.100s: belongs to uid %u, who could put other sockets in place of ours; "
			 "we are uid %u: use a --dir of our own",
			 dir, st.st_uid, geteuid());
		return -EPERM;
	}
	if (st.st_mode & 022) {
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "%.100s: mode %04o: others may write there "
			 "and could put other sockets in place of ours; "
			 "chmod go-w it, or use a --dir of our own",
			 dir, st.st_mode & 07777);
		return -EPERM;
	}
	return 0;
}

static int place_lock_take(struct mm_place *place, char *error)
{
	char path[PATH_ROOM], pid[16] = "?";
	ssize_t n;

	place_path(place->dir, "mmd.lock", path);
	place->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (place->lock_fd < 0)
		return place_fail(error, -errno, path, "cannot open the lock");
	if (flock(place->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return place_fail(error, -errno, path, "cannot lock");
		n = pread(place->lock_fd, pid, sizeof(pid) - 1, 0);
		pid[n < 0 ? 0 : n] = 0;
		pid[strcspn(pid, "\n")] = 0;
		mm_close_fd(&place->lock_fd);
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "%s: another mmd (pid %s) runs in this directory; stop it or use --dir",
			 place->dir, pid);
		return -EBUSY;
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(place->lock_fd, 0) < 0 || pwrite(place->lock_fd, pid, (size_t)n, 0) != n)
		return place_fail(error, -errno, path, "cannot write the lock");
	return 0;
}

static int fd_set_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* We hold the lock, so a socket that exists was left behind by a dead mmd. */
static int admin_listen(const char *path, int *ret_fd)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	mm_assert(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	mm_sock_refuse_fds(
		fd); /* older kernels cannot; but only our own user reaches this socket */
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (chmod(path, 0600) < 0 || listen(fd, 16) < 0)
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

int mm_place_init(struct mm_place *place, const char *dir, bool refuse_fds, char *error)
{
	char path[PATH_ROOM];
	int r;

	*place = MM_PLACE_NULL;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return place_fail(error, -errno, dir, "cannot make the directory");
	r = folder_check(dir, error);
	if (r < 0)
		return r;
	snprintf(place->dir, sizeof(place->dir), "%s", dir);
	r = place_lock_take(place, error);
	if (r < 0)
		return r;
	place_path(dir, "tenant.sock", path);
	r = mm_sock_listen(path, 0666, refuse_fds, &place->tenant_fd);
	if (r == 0)
		r = fd_set_nonblocking(place->tenant_fd);
	if (r < 0)
		return place_fail(error, r, path, "cannot listen");
	/*
	 * The admin socket comes last: a client that can connect to it may direct tenants to the
	 * other one.
	 */
	place_path(dir, "admin.sock", path);
	r = admin_listen(path, &place->admin_fd);
	return r < 0 ? place_fail(error, r, path, "cannot listen") : 0;
}

static void listen_release_addr(struct mm_place *place, int *fd, const char *name)
{
	char path[PATH_ROOM];

	if (*fd < 0)
		return;
	place_path(place->dir, name, path);
	unlink(path);
	*fd = -1;
}

void mm_place_done(struct mm_place *place)
{
	listen_release_addr(place, &place->tenant_fd, "tenant.sock");
	listen_release_addr(place, &place->admin_fd, "admin.sock");
	/* The lock file stays: removing it would let two starters lock two different files. */
	mm_close_fd(&place->lock_fd);
}
