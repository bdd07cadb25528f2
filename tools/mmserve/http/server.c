/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/mmserve/http/exchange.h"

#define HEADERS_BYTES_MAX (32u << 10) /* of a connection: its headers and what is to be sent */
#define BACKLOG           1024
#define ACCEPTS_MAX       64 /* connections in a row, so that open ones get their turn */
#define EVENTS_MAX        64
#define CHECK_NS          (100 * MM_NS_PER_MS) /* between two looks at deadlines */
#define GOODBYE_NS        (2 * MM_NS_PER_S)    /* for answers that are left when the server ends */

/* The low word of an event's tag; above it is the generation of a connection. */
enum { TAG_DAEMON, TAG_NEWS, TAG_LISTEN, TAG_CONNECTION };

static int server_fail(char *err, int error, const char *what)
{
	snprintf(err, MM_HTTP_ERROR_BYTES, "cannot serve HTTP: %s: %s", what, strerror(-error));
	return error;
}

static int epoll_watch(struct mm_http *h, int fd, uint32_t events, uint64_t tag)
{
	struct epoll_event event = { .events = events, .data.u64 = tag };

	return epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* ---- connections ---- */

static struct mm_connection *find_place(struct mm_http *h)
{
	struct mm_connection *c = h->connections;

	if (h->n_connections == h->opts.connections_max)
		return NULL;
	while (c->fd >= 0)
		c++;
	return c;
}

/* Answers a connection beyond the most, in one piece, and closes it. */
static void connection_refuse(struct mm_http *h, int fd)
{
	static const char answer[] =
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
		"Connection: close\r\nRetry-After: 1\r\n\r\n"
		"{\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\","
		"\"param\":null,\"code\":null}}\n";

	h->counts.refused++;
	(void)!send(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	close(fd);
}

/*
 * Gives a connection to libmicrohttpd, which owns the descriptor from then on. Ours only watches
 * for a client that closes its side while its request is suspended.
 */
static void connection_add(struct mm_http *h, int fd, const struct sockaddr *from, socklen_t bytes)
{
	struct mm_connection *place = find_place(h);
	const int on = 1;

	if (!place) {
		connection_refuse(h, fd);
		return;
	}
	if (from->sa_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	place->fd = fd;
	place->generation++;
	place->hung = place->served = false;
	place->exchange = NULL;
	place->deadline_ns = mm_now_ns() + h->opts.timeout_ns;
	h->n_connections++;
	if (epoll_watch(h, fd, EPOLLRDHUP | EPOLLET,
			TAG_CONNECTION + (uint64_t)(place - h->connections) +
				((uint64_t)place->generation << 32))) {
		place->fd = -1;
		h->n_connections--;
		close(fd);
		return;
	}
	h->counts.connections++;
	/* If it fails, it has closed the descriptor and no callback is called. */
	if (MHD_add_connection(h->daemon, fd, from, bytes) != MHD_YES && place->fd == fd) {
		place->fd = -1;
		h->n_connections--;
	}
}

/* libmicrohttpd's callback: a connection begins, or has ended. */
static void server_notify(void *context, struct MHD_Connection *mhd, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct mm_http *h = context;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct mm_connection *c = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		for (uint32_t i = 0; i < h->opts.connections_max; i++)
			if (h->connections[i].fd == info->connect_fd)
				*socket_context = &h->connections[i];
		return;
	}
	if (!c)
		return;
	c->fd = -1;
	c->deadline_ns = 0;
	h->n_connections--;
}

/* Return: false: there is nothing more to accept. */
static bool accept_one(struct mm_http *h)
{
	struct sockaddr_storage from = { 0 };
	socklen_t bytes = sizeof(from);
	const int fd = accept4(h->listen.fd, (struct sockaddr *)&from, &bytes,
			       SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
		/* It stays in the backlog, and the socket readable: not at once again. */
		nanosleep(&(struct timespec){ .tv_nsec = 10 * (long)MM_NS_PER_MS }, NULL);
		return false;
	}
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR;
	connection_add(h, fd, (struct sockaddr *)&from, bytes);
	return true;
}

static void connection_hung(struct mm_http *h, uint64_t tag)
{
	struct mm_connection *c = &h->connections[(uint32_t)tag - TAG_CONNECTION];

	if (c->fd >= 0 && c->generation == (uint32_t)(tag >> 32))
		c->hung = true;
}

/* Ends connections that take too long; libmicrohttpd then finds them closed. */
static void check_deadlines(struct mm_http *h)
{
	const uint64_t now = mm_now_ns();

	if (now - h->checked_ns < CHECK_NS)
		return;
	h->checked_ns = now;
	for (uint32_t i = 0; i < h->opts.connections_max; i++) {
		struct mm_connection *c = &h->connections[i];

		if (c->fd < 0 || !c->deadline_ns || now < c->deadline_ns)
			continue;
		c->deadline_ns = 0;
		c->hung = true;
		/* One that waits between two requests is not slow. */
		h->counts.slow += c->exchange || !c->served;
		shutdown(c->fd, SHUT_RDWR);
	}
}

/* ---- the loop ---- */

/* Frees jobs that nobody waits for and that the engine has given back. */
static void check_left(struct mm_http *h)
{
	struct mm_job **link = &h->left;

	while (*link) {
		struct mm_job *job = *link;

		if (mm_job_end(job) == MM_JOB_OPEN) {
			link = &job->left;
			continue;
		}
		*link = job->left;
		mm_exchange_count(h, job);
		mm_exchange_free_job(h, job);
	}
}

static void check_exchanges(struct mm_http *h)
{
	struct mm_exchange *next;

	for (struct mm_exchange *x = h->waiting; x; x = next) {
		next = x->next;
		mm_exchange_advance(x);
	}
	check_left(h);
}

/* Return: how long to wait, in milliseconds. */
static int wait_ms(struct mm_http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;
	int wait = h->n_connections ? (int)(CHECK_NS / MM_NS_PER_MS) : -1;

	if (MHD_get_timeout(h->daemon, &ms) == MHD_YES && (wait < 0 || ms < (unsigned int)wait))
		wait = (int)ms;
	return wait;
}

static void serve_events(struct mm_http *h, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	const int n = epoll_wait(h->epoll_fd, events, EVENTS_MAX, timeout_ms);

	for (int i = 0; i < n; i++) {
		const uint64_t tag = events[i].data.u64;

		if (tag == TAG_NEWS)
			mm_inbox_clear(h->opts.inbox->to_server_fd);
		else if (tag == TAG_LISTEN)
			for (int k = 0; k < ACCEPTS_MAX && accept_one(h); k++)
				;
		else if (tag != TAG_DAEMON)
			connection_hung(h, tag);
	}
	check_deadlines(h);
	check_exchanges(h);
	MHD_run(h->daemon);
}

/* The engine takes no jobs any more: ends those that it has not taken. */
static void jobs_abort(struct mm_http *h)
{
	struct mm_job *job;

	while ((job = mm_inbox_pop(h->opts.inbox)))
		__atomic_store_n(&job->end, MM_JOB_ABORTED, __ATOMIC_RELEASE);
}

static bool is_answering(const struct mm_http *h)
{
	for (uint32_t i = 0; i < h->opts.connections_max; i++)
		if (h->connections[i].fd >= 0 && h->connections[i].exchange)
			return true;
	return false;
}

/* Writes what is left to clients that take it. */
static void server_finish(struct mm_http *h)
{
	const uint64_t until = mm_now_ns() + GOODBYE_NS;

	mm_close_fd(&h->listen.fd);
	jobs_abort(h);
	do
		serve_events(h, 10);
	while (is_answering(h) && mm_now_ns() < until);
	for (uint32_t i = 0; i < h->opts.connections_max; i++)
		if (h->connections[i].fd >= 0) {
			h->connections[i].hung = true;
			shutdown(h->connections[i].fd, SHUT_RDWR);
		}
	for (int i = 0; i < 3; i++)
		serve_events(h, 0);
}

static void *server_main(void *context)
{
	struct mm_http *h = context;

	while (!__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE))
		serve_events(h, wait_ms(h));
	server_finish(h);
	return NULL;
}

/* ---- setting up ---- */

static void server_log(void *context, const char *format, va_list args)
{
	/* Mistakes of clients are answered, not logged: they could fill a disk. */
	(void)context;
	(void)format;
	(void)args;
}

static int daemon_open(struct mm_http *h, char *err)
{
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
			MHD_USE_ERROR_LOG,
		0, NULL, NULL, mm_exchange_handle, h, MHD_OPTION_EXTERNAL_LOGGER, server_log, NULL,
		MHD_OPTION_NOTIFY_COMPLETED, mm_exchange_end, h, MHD_OPTION_NOTIFY_CONNECTION,
		server_notify, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_BYTES_MAX,
		MHD_OPTION_CONNECTION_LIMIT, h->opts.connections_max + 1, MHD_OPTION_END);
	if (!h->daemon) {
		snprintf(err, MM_HTTP_ERROR_BYTES, "cannot serve HTTP: libmicrohttpd refuses");
		return -EIO;
	}
	return 0;
}

int mm_http_open(const struct mm_http_opts *opts, struct mm_http **ret_http, char *err)
{
	struct mm_http *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return server_fail(err, -ENOMEM, "no memory");
	h->opts = *opts;
	h->created = time(NULL);
	h->epoll_fd = -1;
	h->connections = calloc(opts->connections_max, sizeof(*h->connections));
	for (uint32_t i = 0; h->connections && i < opts->connections_max; i++)
		h->connections[i].fd = -1;
	(void)!getrandom(&h->id_salt, sizeof(h->id_salt), 0);
	r = mm_listen_open(opts->listen, opts->anywhere, &h->listen, err, MM_HTTP_ERROR_BYTES);
	if (!r && !h->connections)
		r = server_fail(err, -ENOMEM, "no memory");
	if (r) {
		mm_http_close(h);
		return r;
	}
	*ret_http = h;
	return 0;
}

/* Signals are for the engine's thread. */
static int thread_start(struct mm_http *h)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	r = pthread_create(&h->thread, NULL, server_main, h);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	h->started = !r;
	if (!r)
		pthread_setname_np(h->thread, "mmserve-http");
	return -r;
}

int mm_http_start(struct mm_http *h, char *err)
{
	const union MHD_DaemonInfo *info;
	int r = daemon_open(h, err);

	if (r)
		return r;
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (h->epoll_fd < 0)
		return server_fail(err, -errno, "epoll");
	info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return server_fail(err, -ENOTSUP, "libmicrohttpd has no epoll");
	if (listen(h->listen.fd, BACKLOG))
		return server_fail(err, -errno, h->listen.name);
	r = epoll_watch(h, info->epoll_fd, EPOLLIN, TAG_DAEMON);
	if (!r)
		r = epoll_watch(h, h->opts.inbox->to_server_fd, EPOLLIN, TAG_NEWS);
	if (!r)
		r = epoll_watch(h, h->listen.fd, EPOLLIN, TAG_LISTEN);
	if (r)
		return server_fail(err, r, "epoll");
	r = thread_start(h);
	return r ? server_fail(err, r, "no thread") : 0;
}

const char *mm_http_name(const struct mm_http *h)
{
	return h->listen.name;
}

void mm_http_close(struct mm_http *h)
{
	if (!h)
		return;
	if (h->started) {
		__atomic_store_n(&h->stop, 1, __ATOMIC_RELEASE);
		mm_inbox_wake(h->opts.inbox->to_server_fd);
		pthread_join(h->thread, NULL);
	}
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	check_left(h);
	mm_assert(!h->left && !h->waiting);
	mm_close_fd(&h->epoll_fd);
	mm_listen_close(&h->listen);
	free(h->connections);
	free(h);
}
