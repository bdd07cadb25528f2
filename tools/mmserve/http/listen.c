/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un local;
};

static int listen_fail(char *err, size_t bytes, int error, const char *text, const char *why)
{
	snprintf(err, bytes, "--listen %.200s: %s", text, why);
	return error;
}

/* A socket's file that nobody listens at is left from a process that died. */
static void remove_stale(const union address *to, socklen_t bytes)
{
	mm_cleanup(mm_close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat s;

	if (fd < 0 || lstat(to->local.sun_path, &s) || !S_ISSOCK(s.st_mode))
		return;
	if (connect(fd, &to->any, bytes) && errno == ECONNREFUSED)
		unlink(to->local.sun_path);
}

static bool is_loopback(const union address *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->any.sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

/* Splits HOST:PORT or [HOST]:PORT. Return: whether it is of that form. */
static bool split_host(const char *text, char *host, size_t host_bytes, const char **ret_port)
{
	const char *colon = strrchr(text, ':');
	size_t n;

	if (!colon || !colon[1])
		return false;
	n = (size_t)(colon - text);
	if (n > 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	} else if (memchr(text, ':', n)) {
		return false;
	}
	if (!n || n >= host_bytes)
		return false;
	memcpy(host, text, n);
	host[n] = '\0';
	if (!strcmp(host, "localhost"))
		snprintf(host, host_bytes, "127.0.0.1");
	*ret_port = colon + 1;
	return true;
}

static int resolve_host(const char *text, union address *ret, socklen_t *ret_bytes, char *err,
			size_t err_bytes)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE };
	struct addrinfo *found;
	const char *port;
	char host[64];

	if (!split_host(text, host, sizeof(host), &port) ||
	    getaddrinfo(host, port, &hints, &found) != 0)
		return listen_fail(
			err, err_bytes, -EINVAL, text,
			"needs HOST:PORT with a numeric host, such as 127.0.0.1:8000, or "
			"unix:PATH");
	memcpy(ret, found->ai_addr, MM_MIN(found->ai_addrlen, sizeof(*ret)));
	*ret_bytes = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int resolve_path(const char *text, union address *ret, socklen_t *ret_bytes, char *err,
			size_t err_bytes)
{
	const char *path = text + strlen("unix:");

	if (!*path || strlen(path) >= sizeof(ret->local.sun_path))
		return listen_fail(err, err_bytes, -EINVAL, text,
				   "the path must have 1 to 107 bytes");
	ret->local.sun_family = AF_UNIX;
	memcpy(ret->local.sun_path, path, strlen(path) + 1);
	*ret_bytes = sizeof(ret->local);
	remove_stale(ret, *ret_bytes);
	return 0;
}

static void listen_name(struct mm_listen *l, const union address *bound)
{
	char host[INET6_ADDRSTRLEN];

	if (bound->any.sa_family == AF_UNIX) {
		memcpy(l->path, bound->local.sun_path, sizeof(l->path));
		snprintf(l->name, sizeof(l->name), "unix:%s", l->path);
	} else if (bound->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &bound->v4.sin_addr, host, sizeof(host));
		snprintf(l->name, sizeof(l->name), "http://%s:%u", host, ntohs(bound->v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &bound->v6.sin6_addr, host, sizeof(host));
		snprintf(l->name, sizeof(l->name), "http://[%s]:%u", host,
			 ntohs(bound->v6.sin6_port));
	}
}

int mm_listen_open(const char *text, bool anywhere, struct mm_listen *ret_listen, char *err,
		   size_t err_bytes)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct mm_listen l = { .fd = -1 };
	union address a = { 0 };
	const int on = 1;
	socklen_t bytes;
	int r;

	r = strncmp(text, "unix:", 5) ? resolve_host(text, &a, &bytes, err, err_bytes)
				      : resolve_path(text, &a, &bytes, err, err_bytes);
	if (r)
		return r;
	if (!anywhere && !is_loopback(&a))
		return listen_fail(err, err_bytes, -EINVAL, text,
				   "is not a loopback address: with --anywhere it is allowed; "
				   "encryption and users are a proxy's job");
	fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return listen_fail(err, err_bytes, -errno, text, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, &a.any, bytes))
		return listen_fail(err, err_bytes, -errno, text, strerror(errno));
	bytes = sizeof(a);
	getsockname(fd, &a.any, &bytes);
	listen_name(&l, &a);
	l.fd = fd;
	fd = -1;
	*ret_listen = l;
	return 0;
}

void mm_listen_close(struct mm_listen *l)
{
	if (!l->name[0])
		return;
	mm_close_fd(&l->fd);
	if (l->path[0])
		unlink(l->path);
	*l = (struct mm_listen){ .fd = -1 };
}
