/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ipc/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "libclient/support/fault.h"

#ifndef SO_PASSRIGHTS /* Linux 6.16; absent from Debian 12's headers */
#define SO_PASSRIGHTS 83
#endif

#define DOORBELL_TRIES 8

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * MM_SOCK_FDS_MAX)];
};

static int sock_new(int *ret_fd)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int sock_address(const char *path, struct sockaddr_un *ret_address)
{
	size_t len = strlen(path);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (!len)
		return -EINVAL;
	if (len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, len + 1);
	*ret_address = address;
	return 0;
}

int mm_sock_pair(int ret_fds[2])
{
	if (mm_fault("sock.pair"))
		return -EMFILE;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_fds) < 0 ? -errno : 0;
}

/* Limits how long connect() waits: as long as a send may. 0: no limit. */
static int sock_limit(int fd, uint64_t timeout_ns)
{
	const uint64_t us = MM_MIN(timeout_ns, 86400 * MM_NS_PER_S) / 1000;
	const struct timeval limit = { .tv_sec = (time_t)(us / 1000000),
				       .tv_usec = (suseconds_t)(us % 1000000) };

	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ? -errno : 0;
}

int mm_sock_connect(const char *path, uint64_t timeout_ns, int *ret_fd)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	int r;

	if (mm_fault("sock.connect"))
		return -ECONNREFUSED;
	r = sock_address(path, &address);
	if (r)
		return r;
	r = sock_new(&fd);
	if (r)
		return r;
	r = sock_limit(fd, MM_MAX(timeout_ns, UINT64_C(1000)));
	while (!r && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			r = -errno;
		else if (mm_now_ns() >= deadline_ns)
			r = -EAGAIN;
	}
	if (!r)
		r = sock_limit(fd, 0);
	if (r)
		return r;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

/* Removes @path when it is a socket that nobody listens on. */
static int sock_remove_dead(const char *path)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EADDRINUSE;
	r = mm_sock_connect(path, MM_NS_PER_S, &fd);
	if (r != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(path) < 0 ? -errno : 0;
}

int mm_sock_listen(const char *path, mode_t mode, bool refuse_fds, int *ret_fd)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct sockaddr_un address;
	int r;

	r = sock_address(path, &address);
	if (r)
		return r;
	r = sock_new(&fd);
	if (r)
		return r;
	if (refuse_fds)
		/* before the first peer can connect; an older kernel cannot refuse */
		mm_sock_refuse_fds(fd);
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EADDRINUSE)
			return -errno;
		r = sock_remove_dead(path);
		if (r)
			return r;
		if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
			return -errno;
	}
	/*
	 * connect() fails between bind and listen, so the mode is set before any peer can connect.
	 */
	if (chmod(path, mode) < 0 || listen(fd, MM_SOCK_QUEUE) < 0) {
		r = -errno;
		unlink(path);
		return r;
	}
	*ret_fd = fd;
	fd = -1;
	return 0;
}

int mm_sock_wait(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };

	for (;;) {
		uint64_t now_ns = mm_now_ns();
		uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
		struct timespec left = mm_timespec(left_ns);
		int n = ppoll(&poll_fd, 1, deadline_ns == UINT64_MAX ? NULL : &left, NULL);

		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static int sock_send_message(int fd, const void *buf, size_t len, const int *fds, size_t n_fds)
{
	union control control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (!len || n_fds > MM_SOCK_FDS_MAX)
		return -EINVAL;
	if (n_fds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_LEN(sizeof(int) * n_fds);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * n_fds);
	}
	do
		n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EPIPE ? -ECONNRESET : -errno;
	return (size_t)n == len ? 0 : -EIO;
}

int mm_sock_send(int fd, const void *buf, size_t len, const int *fds, size_t n_fds)
{
	if (mm_fault("sock.send"))
		return -EAGAIN;
	return sock_send_message(fd, buf, len, fds, n_fds);
}

/* Moves the fds of @msg to @fds, which has room for @max, and closes the others. */
static size_t sock_take_fds(struct msghdr *msg, int *fds, size_t max)
{
	size_t n_fds = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n_fds < max)
				fds[n_fds++] = fd;
			else
				close(fd);
		}
	}
	return n_fds;
}

/*
 * A peer that dies with messages unread resets the connection. The kernel reports that once, before
 * the messages that the peer had sent; they are still there, and 0 bytes come after the last.
 */
static ssize_t sock_read(int fd, struct msghdr *msg, int flags)
{
	bool reset = false;
	ssize_t n;

	for (;;) {
		n = recvmsg(fd, msg, flags | MSG_DONTWAIT);
		if (n >= 0 || (errno != EINTR && (errno != ECONNRESET || reset)))
			return n;
		reset |= errno == ECONNRESET;
	}
}

static int sock_recvmsg(int fd, struct msghdr *msg, int flags, size_t *ret_len)
{
	ssize_t n = sock_read(fd, msg, flags | MSG_CMSG_CLOEXEC);

	if (n < 0) {
		msg->msg_controllen = 0; /* the kernel wrote nothing: no fd is in there */
		return -errno;
	}
	if (n == 0)
		return -ECONNRESET;
	*ret_len = (size_t)n;
	return 0;
}

static int sock_recv_fds(int fd, int flags, void *buf, size_t cap, int *fds, size_t max,
			 size_t *ret_n_fds, size_t *ret_len)
{
	union control control;
	struct iovec iov = { .iov_base = buf, .iov_len = cap };
	/* CMSG_LEN, not CMSG_SPACE: the padding would be room for one fd more than @max. */
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = CMSG_LEN(sizeof(int) * max) };
	size_t n_fds;
	int r;

	if (max > MM_SOCK_FDS_MAX)
		return -EINVAL;
	if (mm_fault("sock.recv"))
		return -ECONNRESET;
	r = sock_recvmsg(fd, &msg, flags, ret_len);
	n_fds = sock_take_fds(&msg, fds, max);
	if (!r && (msg.msg_flags & MSG_CTRUNC))
		r = -EMFILE;
	if (msg.msg_flags & MSG_TRUNC)
		r = -EMSGSIZE;
	if (r) {
		while (n_fds)
			close(fds[--n_fds]);
	}
	*ret_n_fds = n_fds;
	return r;
}

int mm_sock_recv(int fd, void *buf, size_t cap, int *fds, size_t max, size_t *ret_n_fds,
		 size_t *ret_len)
{
	return sock_recv_fds(fd, 0, buf, cap, fds, max, ret_n_fds, ret_len);
}

int mm_sock_look(int fd, void *buf, size_t cap, int *fds, size_t max, size_t *ret_n_fds,
		 size_t *ret_len)
{
	return sock_recv_fds(fd, MSG_PEEK, buf, cap, fds, max, ret_n_fds, ret_len);
}

int mm_sock_skip(int fd)
{
	char byte;
	size_t len;
	int r = mm_sock_recv_nofds(fd, &byte, sizeof(byte), &len);

	return r == -EMSGSIZE ? 0 : r;
}

int mm_sock_recv_nofds(int fd, void *buf, size_t cap, size_t *ret_len)
{
	struct iovec iov = { .iov_base = buf, .iov_len = cap };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int r = sock_recvmsg(fd, &msg, 0, ret_len);

	if (r)
		return r;
	/*
	 * MSG_CTRUNC only reports that the kernel dropped fds; the message is complete without
	 * them.
	 */
	return msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : 0;
}

bool mm_sock_retries_later(int error)
{
	return error == -ETOOMANYREFS || error == -ENOBUFS || error == -ENOMEM;
}

int mm_sock_peek(int fd, void *buf, size_t cap, size_t *ret_len)
{
	struct iovec iov = { .iov_base = buf, .iov_len = cap };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n = sock_read(fd, &msg, MSG_PEEK);

	if (n < 0)
		return -errno;
	/*
	 * Without a control buffer, this flag is all that the kernel reports about fds; they stay
	 * in the queue.
	 */
	if (msg.msg_flags & MSG_CTRUNC)
		return -EPERM;
	if (n == 0)
		return -ECONNRESET;
	*ret_len = (size_t)n;
	return msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : 0;
}

int mm_sock_recv_clean(int fd, void *buf, size_t cap, size_t *ret_len)
{
	int r = mm_sock_peek(fd, buf, cap, ret_len);

	return r && r != -EMSGSIZE ? r : mm_sock_recv_nofds(fd, buf, cap, ret_len);
}

int mm_sock_drain(int fd)
{
	char bytes[4096]; /* a stream takes as many rounds as it has such pieces */
	size_t len;
	int r;

	/* No message is added once this has returned, so the loop ends. */
	(void)shutdown(fd, SHUT_RDWR);
	for (;;) {
		r = mm_sock_recv_clean(fd, bytes, sizeof(bytes), &len);
		if (r && r != -EMSGSIZE)
			return r == -EPERM ? r : 0;
	}
}

int mm_sock_doorbell(int fd)
{
	const char byte = 0;
	int r = -ENOBUFS;

	/* Whoever rings does not come back to it: what the kernel lacks, it may have at once. */
	for (int i = 0; i < DOORBELL_TRIES && (r == -ENOBUFS || r == -ENOMEM); i++)
		r = sock_send_message(fd, &byte, sizeof(byte), NULL, 0);
	/*
	 * A full queue wakes the peer as well. There is no fault point here: the doorbell would be
	 * lost.
	 */
	return r == -EAGAIN ? 0 : r;
}

int mm_sock_refuse_fds(int fd)
{
	int off = 0;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) < 0 ? -errno : 0;
}

bool mm_sock_refuses_fds(int fd)
{
	socklen_t len = sizeof(int);
	int passes = 1;

	return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &passes, &len) == 0 && !passes;
}
