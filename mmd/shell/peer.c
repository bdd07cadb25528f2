/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/peer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

static bool peer_is_alive(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* Reads a small file whole and terminates it with NUL. Return: bytes read or negative errno. */
static ssize_t file_read(const char *path, char *text, size_t bytes)
{
	mm_cleanup(mm_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	while (at + 1 < bytes && (n = read(fd, text + at, bytes - 1 - at)) > 0)
		at += (size_t)n;
	if (n < 0)
		return -errno;
	text[at] = 0;
	return (ssize_t)at;
}

int mm_peer_cgroup(pid_t pid, int pidfd, char *path)
{
	char name[64], text[MM_PEER_PATH_BYTES + 512], *line, *end;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid);
	n = file_read(name, text, sizeof(text));
	if (!peer_is_alive(pidfd))
		return -ESRCH;
	if (n < 0)
		return (int)n;
	/*
	 * The unified hierarchy has number 0 and names no controllers; other lines may precede it.
	 */
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!line) /* when the text filled the buffer the line may be behind it */
		return (size_t)n + 1 == sizeof(text) ? -ENAMETOOLONG : -ENOENT;
	line += line == text ? 3 : 4;
	end = strchr(line, '\n');
	if (!end || end - line >= MM_PEER_PATH_BYTES)
		return -ENAMETOOLONG;
	*end = 0;
	strcpy(path, line);
	return 0;
}

int mm_peer_groups(int fd, uint32_t *groups, uint32_t max)
{
	socklen_t bytes = max * (socklen_t)sizeof(gid_t);

	static_assert(sizeof(gid_t) == sizeof(*groups), "gid_t is 32 bits");
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
		return -errno;
	return (int)(bytes / sizeof(gid_t));
}

char mm_peer_stat_state(const char *stat)
{
	/* The name between the parentheses is chosen by the process and may contain any byte. */
	const char *end = strrchr(stat, ')');

	return end && end[1] == ' ' ? end[2] : 0;
}

/* The file has "frozen 1" also when an ancestor of the cgroup is frozen. */
static bool peer_is_frozen(pid_t pid, int pidfd)
{
	char cgroup[MM_PEER_PATH_BYTES], path[MM_PEER_PATH_BYTES + 64], text[256];

	if (mm_peer_cgroup(pid, pidfd, cgroup) < 0 || strstr(cgroup, "/.."))
		return false;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cgroup.events", cgroup);
	return file_read(path, text, sizeof(text)) > 0 && strstr(text, "frozen 1");
}

enum mm_peer_state mm_peer_state(pid_t pid, int pidfd)
{
	char path[64], text[1024], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(path, text, sizeof(text)) > 0)
		state = mm_peer_stat_state(text);
	if (!peer_is_alive(pidfd))
		return MM_PEER_GONE;
	if (state == 'T' || state == 't')
		return MM_PEER_STOPPED;
	return peer_is_frozen(pid, pidfd) ? MM_PEER_FROZEN : MM_PEER_RUNNING;
}
