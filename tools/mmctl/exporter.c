/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exporter - `mmctl exporter`: mmd's numbers over HTTP, for Prometheus and others that scrape
 *
 * A process of its own, and for mmd a client like any other: it asks for `metrics` once per scrape
 * and keeps no connection in between. Everything happens in one thread, which sleeps in poll()
 * without a time-out while there is no connection. Each connection serves one request and has
 * CONNECTION_NS for it. With mmd away a scrape still succeeds, and says mmd_up 0.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/mmctl/ctl.h"
#include "tools/mmctl/exposition.h"
#include "tools/mmctl/listen_at.h"
#include "tools/mmctl/metrics_table.h"

#ifdef MMCTL_HTTP
#include <microhttpd.h>

#define CONNECTIONS_MAX   32u
#define CONNECTION_NS     (10 * MM_NS_PER_S)
#define CONNECTION_MEMORY 16384u /* for the head of a request; what is longer is refused */
#define ANSWER_NS         (2 * MM_NS_PER_S)

struct connection {
	int fd; /* -1: none */
	uint64_t until_ns;
};

struct exporter {
	struct mmctl ctl; /* for requests: quiet, and with a short time-out */
	struct mmctl_listen listen;
	struct MHD_Daemon *daemon;
	struct connection connection[CONNECTIONS_MAX];
	struct mmctl_names names;
	bool closed; /* a connection was, in this iteration */
	uint64_t scrapes, failures;
	int error; /* errno for which mmd was not reached */
	bool away; /* mmd did not answer the last scrape, and that has been said */
};

/* ---- a scrape ---- */

static void memory_read(json_t *own)
{
	mm_cleanup(mm_close_file) FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	char line[128];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
			mm_json_put_u64(own, "memory_bytes", kib * 1024);
		else if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			mm_json_put_u64(own, "memory_available_bytes", kib * 1024);
	}
}

static json_t *own_json(const struct exporter *e, bool up, uint64_t answer_ns)
{
	struct timespec cpu = { 0 };
	json_t *own = json_object();

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	mm_json_put_u64(own, "up", up);
	mm_json_put_u64(own, "scrapes", e->scrapes);
	mm_json_put_u64(own, "failures", e->failures);
	if (up)
		mm_json_put_u64(own, "answer_ns", answer_ns);
	mm_json_put_u64(own, "cpu_ns", (uint64_t)cpu.tv_sec * MM_NS_PER_S + (uint64_t)cpu.tv_nsec);
	memory_read(own);
	return own;
}

/* Says once that mmd is away, and once that it is there again. */
static void away_note(struct exporter *e, bool up)
{
	if (up == !e->away)
		return;
	e->away = !up;
	fprintf(stderr, "mmctl: exporter: %s: %s\n", e->ctl.socket,
		up         ? "mmd answers again"
		: e->error ? strerror(e->error)
			   : "mmd gives no metrics");
}

/* Return: a text of @ret_bytes, to be freed; NULL: no memory. */
static char *metrics_text(struct exporter *e, bool open, size_t *ret_bytes)
{
	mm_cleanup(mm_json_done) json_t *answer = NULL;
	mm_cleanup(mm_json_done) json_t *own = NULL;
	const uint64_t began_ns = mm_now_ns();
	char *text = NULL;
	FILE *to;
	bool up, failed;

	e->error = 0;
	up = mmctl_request(&e->ctl, "metrics", NULL, &answer) == MM_EXIT_DONE;
	e->scrapes++;
	e->failures += !up;
	away_note(e, up);
	own = own_json(e, up, mm_now_ns() - began_ns);
	to = open_memstream(&text, ret_bytes);
	if (!to)
		return NULL;
	mmctl_exposition_write(to, open, own, answer, &e->names);
	failed = ferror(to);
	if (fclose(to) == 0 && !failed)
		return text;
	free(text);
	return NULL;
}

/* ---- HTTP ---- */

static const char page_text[] =
	"<!doctype html><title>mmd</title><h1>mmd</h1>"
	"<p><a href=\"/metrics\">/metrics</a> <a href=\"/-/healthy\">/-/healthy</a></p>\n";

/* Sends @text, which is freed if @frees, and ends the connection. */
static enum MHD_Result response_send(struct MHD_Connection *connection, unsigned int status,
				     const char *type, const char *text, size_t bytes, bool frees)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		bytes, (void *)(uintptr_t)text,
		frees ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result;

	if (!response) {
		if (frees)
			free((void *)(uintptr_t)text);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result text_send(struct MHD_Connection *connection, unsigned int status,
				 const char *text)
{
	return response_send(connection, status, "text/plain; charset=utf-8", text, strlen(text),
			     false);
}

static enum MHD_Result metrics_send(struct exporter *e, struct MHD_Connection *connection)
{
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	const bool open = mmctl_exposition_is_open(accept);
	size_t bytes = 0;
	char *text = metrics_text(e, open, &bytes);

	if (!text)
		return text_send(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	return response_send(connection, MHD_HTTP_OK,
			     open ? MMCTL_EXPOSITION_OM : MMCTL_EXPOSITION_TXT, text, bytes, true);
}

/* Answers before a body is read: none is wanted, and the connection ends then. */
static enum MHD_Result request_serve(void *owner, struct MHD_Connection *connection,
				     const char *url, const char *method, const char *version,
				     const char *body, size_t *body_bytes, void **state)
{
	struct exporter *e = owner;

	(void)version;
	(void)body;
	(void)body_bytes;
	(void)state;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return text_send(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
	if (strcmp(url, "/metrics") == 0)
		return metrics_send(e, connection);
	if (strcmp(url, "/-/healthy") == 0)
		return text_send(connection, MHD_HTTP_OK, "the exporter runs\n");
	if (strcmp(url, "/") == 0)
		return response_send(connection, MHD_HTTP_OK, "text/html; charset=utf-8", page_text,
				     sizeof(page_text) - 1, false);
	return text_send(connection, MHD_HTTP_NOT_FOUND, "want /metrics or /-/healthy\n");
}

/* ---- connections and their deadlines ---- */

static void connection_note(void *owner, struct MHD_Connection *connection, void **state,
			    enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct exporter *e = owner;
	struct connection *c = *state;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (c)
			c->fd = -1;
		e->closed = true;
		return;
	}
	for (uint32_t i = 0; i < CONNECTIONS_MAX && !*state; i++) {
		if (e->connection[i].fd >= 0)
			continue;
		e->connection[i] =
			(struct connection){ info->connect_fd, mm_now_ns() + CONNECTION_NS };
		*state = &e->connection[i];
	}
}

/* Ends connections that are late. Returns when the next one is; UINT64_MAX: there is none. */
static uint64_t connections_expire(struct exporter *e, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
		struct connection *c = &e->connection[i];

		if (c->fd < 0)
			continue;
		if (now_ns < c->until_ns) {
			next_ns = MM_MIN(next_ns, c->until_ns);
			continue;
		}
		(void)shutdown(c->fd, SHUT_RDWR);
		c->until_ns = UINT64_MAX; /* the library sees its end, and closes it */
	}
	return next_ns;
}

static int poll_timeout_ms(struct exporter *e)
{
	const uint64_t now_ns = mm_now_ns();
	const uint64_t next_ns = connections_expire(e, now_ns);
	MHD_UNSIGNED_LONG_LONG ms = UINT64_MAX, library_ms;

	if (next_ns != UINT64_MAX)
		ms = (next_ns - now_ns) / MM_NS_PER_MS + 1;
	if (MHD_get_timeout(e->daemon, &library_ms) == MHD_YES)
		ms = MM_MIN(ms, library_ms);
	return ms == UINT64_MAX ? -1 : (int)MM_MIN(ms, (MHD_UNSIGNED_LONG_LONG)INT32_MAX);
}

/* ---- the process ---- */

static void exporter_done(struct exporter **at)
{
	struct exporter *e = *at;

	if (!e)
		return;
	if (e->daemon)
		MHD_stop_daemon(e->daemon);
	mmctl_listen_close(&e->listen);
	free(e);
	*at = NULL;
}

static int daemon_start(struct exporter *e)
{
	const int fd = dup(e->listen.fd); /* the library closes it */

	for (uint32_t i = 0; i < CONNECTIONS_MAX; i++)
		e->connection[i].fd = -1;
	e->daemon =
		fd < 0 ? NULL
		       : MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, request_serve, e,
					  MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
					  CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
					  (size_t)CONNECTION_MEMORY, MHD_OPTION_NOTIFY_CONNECTION,
					  connection_note, e, MHD_OPTION_END);
	if (e->daemon)
		return MM_EXIT_DONE;
	if (fd >= 0)
		close(fd);
	return mmctl_error(MM_EXIT_FAILED, "exporter: the HTTP server cannot start");
}

static int signals_open(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &ends, NULL) < 0)
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * At its limit the library listens no more, and begins again only in the run that follows the one
 * in which it has closed a connection.
 */
static bool connections_serve(struct exporter *e)
{
	bool serves;

	do {
		e->closed = false;
		serves = MHD_run(e->daemon) == MHD_YES;
	} while (serves && e->closed);
	return serves;
}

/* Serves until a signal ends it. */
static int exporter_serve(struct exporter *e)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(e->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	mm_cleanup(mm_close_fd) int signals = signals_open();
	struct pollfd fds[] = { { .fd = info->epoll_fd, .events = POLLIN },
				{ .fd = signals, .events = POLLIN } };

	if (signals < 0)
		return mmctl_error(MM_EXIT_FAILED, "exporter: %s", strerror(errno));
	while (!fds[1].revents) {
		if (poll(fds, MM_ARRAY_SIZE(fds), poll_timeout_ms(e)) < 0 && errno != EINTR)
			return mmctl_error(MM_EXIT_FAILED, "exporter: %s", strerror(errno));
		if (!connections_serve(e))
			return mmctl_error(MM_EXIT_FAILED, "exporter: the HTTP server failed");
	}
	return MM_EXIT_DONE;
}

static int listen_report(const struct mmctl *ctl, const struct exporter *e)
{
	mm_cleanup(mm_json_done) json_t *json = NULL;

	if (ctl->json) {
		json = json_pack("{s:i,s:s}", "schema", 1, "listens", e->listen.url);
		return mmctl_print_json(json);
	}
	printf("mmctl exporter listens at %s\n", e->listen.url);
	return fflush(stdout) ? mmctl_error(MM_EXIT_FAILED, "standard output: %s", strerror(errno))
			      : MM_EXIT_DONE;
}

static int exporter_run(const struct mmctl *ctl)
{
	mm_cleanup(exporter_done) struct exporter *e = calloc(1, sizeof(*e));
	char why[512];
	int r;

	if (!e)
		return mmctl_error(MM_EXIT_FAILED, "out of memory");
	e->listen = MMCTL_LISTEN_NULL;
	e->ctl = *ctl;
	/* It only looks, whatever its user may do. */
	if (ctl->view)
		e->ctl.socket = ctl->view;
	e->ctl.view = NULL;
	e->ctl.quiet = true;
	e->ctl.timeout_ns = ANSWER_NS;
	e->ctl.ret_error = &e->error;
	r = mmctl_listen_open(ctl->options->listen, &e->listen, why, sizeof(why));
	if (r < 0)
		return mmctl_error(r == -EINVAL ? MM_EXIT_USAGE : MM_EXIT_FAILED, "--listen: %s",
				   why);
	r = daemon_start(e);
	if (r == MM_EXIT_DONE)
		r = listen_report(ctl, e);
	return r == MM_EXIT_DONE ? exporter_serve(e) : r;
}
#else
static int exporter_run(const struct mmctl *ctl)
{
	(void)ctl;
	return mmctl_error(MM_EXIT_FAILED,
			   "exporter: built without libmicrohttpd, it has only --list");
}
#endif

/* ---- which metrics there are ---- */

static void labels_list(const struct mmctl_metric *m, char *text, size_t bytes)
{
	const char *const *labels = mmctl_metric_labels[m->scope];
	size_t n = 0;

	*text = '\0';
	for (size_t i = 0; labels[i] && n < bytes; i++)
		n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? " " : "", labels[i]);
	for (size_t i = 0; m->extra[i] && n < bytes; i++)
		n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? " " : "", m->extra[i]);
	if (m->spread && n < bytes)
		snprintf(text + n, bytes - n, "%s%s", n ? " " : "", m->spread);
}

static json_t *metric_json(const struct mmctl_metric *m, const char *labels)
{
	json_t *json = json_object();
	char name[128];

	snprintf(name, sizeof(name), "%s%s", m->name, m->type == MMCTL_COUNTER ? "_total" : "");
	mm_json_put_text(json, "name", name);
	mm_json_put_text(json, "type", mmctl_metric_types[m->type]);
	mm_json_put_text(json, "of", mmctl_metric_scopes[m->scope]);
	mm_json_put_text(json, "labels", labels);
	mm_json_put_text(json, "help", m->help);
	mm_json_put_flag(json, "claim", m->claim);
	return json;
}

static int metrics_list(const struct mmctl *ctl)
{
	mm_cleanup(mm_json_done) json_t *result = json_object();
	json_t *all = json_array();
	char labels[128];

	for (size_t i = 0; i < mmctl_metrics_n; i++) {
		const struct mmctl_metric *m = &mmctl_metrics[i];

		labels_list(m, labels, sizeof(labels));
		json_array_append_new(all, metric_json(m, labels));
		if (!ctl->json)
			printf("%s%s (%s)\n    %s\n", m->name,
			       m->type == MMCTL_COUNTER ? "_total" : "",
			       mmctl_metric_types[m->type], m->help);
	}
	mm_json_put_u64(result, "schema", 1);
	mm_json_put(result, "metrics", all);
	return ctl->json ? mmctl_print_json(result) : MM_EXIT_DONE;
}

int mmctl_exporter_run(const struct mmctl *ctl, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (ctl->device >= 0 || ctl->uuid)
		return mmctl_error(MM_EXIT_USAGE, "--device: exporter has all devices");
	return ctl->options->list ? metrics_list(ctl) : exporter_run(ctl);
}
