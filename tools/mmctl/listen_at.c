/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmctl/listen_at.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define BACKLOG   16
#define PORT_MAX  65535u
#define UNIX_MODE 0660

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un un;
	};
	socklen_t bytes;
};

/* ---- addresses ---- */

static int listen_refuse(char *err, size_t err_bytes, const char *text, const char *why)
{
	snprintf(err, err_bytes, "'%.100s' %s", text, why);
	return -EINVAL;
}

static int unix_address(const char *path, struct address *ret)
{
	ret->un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	ret->bytes = sizeof(ret->un);
	if (!*path || strlen(path) >= sizeof(ret->un.sun_path))
		return -EINVAL;
	strcpy(ret->un.sun_path, path);
	return 0;
}

static int port_parse(const char *text, uint16_t *ret_port)
{
	uint32_t port = 0;

	if (!*text || strlen(text) > 5)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		port = port * 10 + (uint32_t)(*text - '0');
	}
	if (port > PORT_MAX)
		return -EINVAL;
	*ret_port = htons((uint16_t)port);
	return 0;
}

/* Return: 0; -EINVAL: no address; -EACCES: an address of the network. */
static int ip_address(const char *text, struct address *ret)
{
	char host[64];
	const char *colon = strrchr(text, ':');
	uint16_t port;

	if (!colon || (size_t)(colon - text) >= sizeof(host) || port_parse(colon + 1, &port) < 0)
		return -EINVAL;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = '\0';
		ret->v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = port };
		ret->bytes = sizeof(ret->v6);
		if (inet_pton(AF_INET6, host + 1, &ret->v6.sin6_addr) != 1)
			return -EINVAL;
		return IN6_IS_ADDR_LOOPBACK(&ret->v6.sin6_addr) ? 0 : -EACCES;
	}
	ret->v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port };
	ret->bytes = sizeof(ret->v4);
	if (inet_pton(AF_INET, host, &ret->v4.sin_addr) != 1)
		return *host ? -EINVAL : -EACCES;
	return ntohl(ret->v4.sin_addr.s_addr) >> 24 == 127 ? 0 : -EACCES;
}

/* ---- sockets ---- */

/* A socket that is there, and at which nobody listens, is left from a process that was killed. */
static int unix_stale_remove(const struct address *at)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct stat st;

	if (lstat(at->un.sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, &at->any, at->bytes) == 0 || errno != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(at->un.sun_path) < 0 ? -errno : 0;
}

static int socket_listen(const struct address *at, int *ret_fd)
{
	const bool is_unix = at->any.sa_family == AF_UNIX;
	mm_cleanup(mm_close_fd) int fd =
		socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;
	int r = is_unix ? unix_stale_remove(at) : 0;

	if (r < 0)
		return r;
	if (fd < 0 || (!is_unix && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0))
		return -errno;
	if (bind(fd, &at->any, at->bytes) < 0 ||
	    (is_unix && chmod(at->un.sun_path, UNIX_MODE) < 0) || listen(fd, BACKLOG) < 0)
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

/* The port that the kernel has chosen, where 0 was given, is known only now. */
static void url_print(const struct address *at, int fd, struct mmctl_listen *l)
{
	char host[INET6_ADDRSTRLEN] = "";
	struct address now = *at;

	if (at->any.sa_family == AF_UNIX) {
		snprintf(l->path, sizeof(l->path), "%s", at->un.sun_path);
		snprintf(l->url, sizeof(l->url), "unix:%s", at->un.sun_path);
		return;
	}
	(void)getsockname(fd, &now.any, &now.bytes);
	if (at->any.sa_family == AF_INET6) {
		snprintf(l->url, sizeof(l->url), "http://[::1]:%u", ntohs(now.v6.sin6_port));
		return;
	}
	(void)inet_ntop(AF_INET, &now.v4.sin_addr, host, sizeof(host));
	snprintf(l->url, sizeof(l->url), "http://%s:%u", host, ntohs(now.v4.sin_port));
}

int mmctl_listen_open(const char *text, struct mmctl_listen *ret_listen, char *err,
		      size_t err_bytes)
{
	const bool is_unix = strncmp(text, "unix:", 5) == 0;
	struct mmctl_listen l = MMCTL_LISTEN_NULL;
	struct address at;
	int r = is_unix ? unix_address(text + 5, &at) : ip_address(text, &at);

	if (r == -EACCES)
		return listen_refuse(
			err, err_bytes, text,
			"can be reached from other hosts; want unix:PATH, "
			"127.0.0.1:PORT or [::1]:PORT, and a proxy with TLS before it");
	if (r == -EINVAL)
		return listen_refuse(err, err_bytes, text,
				     is_unix ? "is not the path of a socket, or is too long"
					     : "is not unix:PATH, 127.0.0.1:PORT or [::1]:PORT");
	r = socket_listen(&at, &l.fd);
	if (r == -EEXIST)
		snprintf(err, err_bytes, "%s: is a file, and no socket", text + 5);
	else if (r < 0)
		snprintf(err, err_bytes, "cannot listen at %s: %s", text, strerror(-r));
	if (r < 0)
		return r;
	url_print(&at, l.fd, &l);
	*ret_listen = l;
	return 0;
}

void mmctl_listen_close(struct mmctl_listen *l)
{
	if (l->fd >= 0 && *l->path)
		(void)unlink(l->path);
	mm_close_fd(&l->fd);
	*l = MMCTL_LISTEN_NULL;
}
