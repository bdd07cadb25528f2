/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/hostile/oddfd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"

#define LINGER_S  20
#define PATH_ROOM 512

/* A connected socket with data that nobody reads: its last close sleeps. */
static int linger_open(void)
{
	static int taker = -1; /* stays open, and reads nothing */
	const struct linger linger = { .l_onoff = 1, .l_linger = LINGER_S };
	mm_cleanup(mm_close_fd) int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	static char data[1 << 16];
	int fd, little = 4096;

	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)) ||
	    bind(listener, (struct sockaddr *)&at, bytes) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &bytes))
		return -ENOTSUP;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	mm_close_fd(&taker);
	if (connect(fd, (struct sockaddr *)&at, bytes) ||
	    (taker = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) {
		close(fd);
		return -ENOTSUP;
	}
	while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	return fd;
}

static int pipe_open(void)
{
	static int writer = -1; /* stays open, so that a reader blocks */
	int fds[2];

	mm_close_fd(&writer);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	writer = fds[1];
	return fds[0];
}

static int memory_open(void)
{
	int fd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && ftruncate(fd, 1 << 20))
		mm_close_fd(&fd);
	return fd;
}

static int shrinking_open(const char *scratch)
{
	char path[PATH_ROOM];
	int fd;

	snprintf(path, sizeof(path), "%s/shrinking.%d", scratch, (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	unlink(path);
	if (fd >= 0 && (ftruncate(fd, 1 << 20) || ftruncate(fd, 100)))
		mm_close_fd(&fd);
	return fd < 0 ? -ENOTSUP : fd;
}

static int cycle_open(void)
{
	int fds[2], r = mm_sock_pair(fds);

	if (r < 0)
		return r;
	mm_sock_send(fds[0], "!", 1, &fds[1], 1);
	close(fds[0]);
	return fds[1];
}

/* The root of a file system of FUSE, opened without asking the server, which never answers. */
static int fuse_open(const char *scratch)
{
	char path[PATH_ROOM], options[128];
	static int server = -1;
	int fd;

	server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/fuse", scratch);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", server);
	mkdir(path, 0700);
	if (server < 0 || mount("odd", path, "fuse", MS_NOSUID | MS_NODEV, options))
		return -ENOTSUP;
	fd = open(path, O_PATH | O_CLOEXEC);
	umount2(path, MNT_DETACH);
	return fd < 0 ? -ENOTSUP : fd;
}

int mm_odd_fd_open(enum mm_odd_fd kind, const char *scratch)
{
	switch (kind) {
	case MM_ODD_PIPE:
		return pipe_open();
	case MM_ODD_DIRECTORY:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case MM_ODD_LINGER:
		return linger_open();
	case MM_ODD_MEMORY:
		return memory_open();
	case MM_ODD_SHRINKING:
		return shrinking_open(scratch);
	case MM_ODD_PROCESS:
		return (int)syscall(SYS_pidfd_open, getpid(), 0);
	case MM_ODD_EPOLL:
		return epoll_create1(EPOLL_CLOEXEC);
	case MM_ODD_CYCLE:
		return cycle_open();
	case MM_ODD_FUSE:
		return fuse_open(scratch);
	}
	return -ENOTSUP;
}

void mm_odd_fd_calm(enum mm_odd_fd kind, int fd)
{
	const struct linger none = { .l_onoff = 1, .l_linger = 0 };

	if (kind == MM_ODD_LINGER)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}
