/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "mmd/common/log.h"

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

/*
 * Makes a stream socket for requests; nobody can connect before request_listen(). We hold the
 * lock, so a socket that exists was left behind by a dead mmd.
 */
static int request_bind(const char *path, bool refuse_fds, int *ret_fd)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	mm_assert(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* On older kernels they may come all the same, and are core's to avoid (admin.h). */
	if (refuse_fds)
		mm_sock_refuse_fds(fd);
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(path, 0600) < 0)
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

static int request_listen(int fd)
{
	return listen(fd, 64) < 0 ? -errno : 0;
}

static int admin_listen(const char *path, int *ret_fd)
{
	int r = request_bind(path, true, ret_fd);

	return r < 0 ? r : request_listen(*ret_fd);
}

/*
 * Looks a group up by number, or by name in the file alone: other sources may block, and load code
 * into keeper. Return: whether there is one.
 */
static bool view_group_find(const char *name, gid_t *ret_gid)
{
	mm_cleanup(mm_close_file) FILE *file = NULL;
	const struct group *group;
	unsigned long number;
	char *end;

	if (*name >= '0' && *name <= '9') {
		number = strtoul(name, &end, 10);
		*ret_gid = (gid_t)number;
		return !*end && number < (gid_t)-1;
	}
	file = fopen("/etc/group", "re");
	while (file && (group = fgetgrent(file))) {
		if (strcmp(group->gr_name, name) == 0) {
			*ret_gid = group->gr_gid;
			return true;
		}
	}
	return false;
}

/* Lets the members of @name connect. Return: 0; -ENOENT there is no such group; negative errno. */
static int view_share(const char *path, const char *name)
{
	gid_t gid;

	if (!view_group_find(name, &gid))
		return -ENOENT;
	/* The mode comes last: until then the socket is of a group that was not meant. */
	return chown(path, (uid_t)-1, gid) < 0 || chmod(path, 0660) < 0 ? -errno : 0;
}

static int group_fail(const char *path, const char *name, int r, char *error)
{
	if (r == -ENOENT)
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "--view-group: there is no group '%s' in /etc/group, and it is no number; "
			 "groupadd --system %s makes it",
			 name, name);
	else
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "--view-group: cannot give %.100s to group '%s': %s; an ordinary user can "
			 "do so only with groups that it is in",
			 path, name, strerror(-r));
	return r;
}

/* A group that was named must be there; without the usual one the socket is the owner's alone. */
static int view_listen(struct mm_place *place, const struct mm_config *config, char *error)
{
	const char *name = *config->view_group ? config->view_group : MM_VIEW_GROUP;
	char path[PATH_ROOM];
	int r;

	place_path(place->dir, "view.sock", path);
	if (strcmp(name, "none") == 0) {
		/* One that a killed mmd left behind would say that nobody listens. */
		unlink(path);
		return 0;
	}
	r = request_bind(path, !config->discard_fds, &place->view_fd);
	if (r < 0)
		return place_fail(error, r, path, "cannot listen");
	r = view_share(path, name);
	if (r < 0 && *config->view_group)
		return group_fail(path, name, r, error);
	if (r < 0)
		mm_log(MM_LOG_INFO, "view.owner_only", "group=%s error=%d", name, r);
	r = request_listen(place->view_fd);
	return r < 0 ? place_fail(error, r, path, "cannot listen") : 0;
}

int mm_place_init(struct mm_place *place, const struct mm_config *config, char *error)
{
	const char *dir = config->dir;
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
	r = mm_sock_listen(path, 0666, !config->discard_fds, &place->tenant_fd);
	if (r == 0)
		r = fd_set_nonblocking(place->tenant_fd);
	if (r < 0)
		return place_fail(error, r, path, "cannot listen");
	r = view_listen(place, config, error);
	if (r < 0)
		return r;
	/*
	 * The admin socket comes last: a client that can connect to it may direct tenants and
	 * observers to the others.
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
	listen_release_addr(place, &place->view_fd, "view.sock");
	/* The lock file stays: removing it would let two starters lock two different files. */
	mm_close_fd(&place->lock_fd);
}
