/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/shell/methods.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/trail_show.h"

#define DENIED_BYTES 128
#define PARAMS_BYTES 256
/* A wake-up of the loop serves an observer once: that it takes long is paid for afterwards. */
#define VIEW_BUCKET_NS (MM_VIEW_PART * MM_VIEW_BURST_NS)

static void client_clear(struct mm_admin_client *c, struct mm_shell *shell)
{
	*c = (struct mm_admin_client){
		.shell = shell, .fd = -1, .source = MM_LOOP_SOURCE_NULL, .at_ns = UINT64_MAX
	};
}

void mm_admin_init(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(shell->admin.client); i++)
		client_clear(&shell->admin.client[i], shell);
}

/*
 * The close of a connection with passed fds in it may sleep; ours is not the last one, because
 * keeper holds a copy until it reads the drop.
 */
static void socket_close(struct mm_shell *shell, int *fd, uint64_t conn)
{
	const struct mm_held_name name = { .kind = MM_HELD_VIEW, .id = conn };
	const bool slow = conn && mm_sock_drain(*fd) < 0;

	mm_close_fd(fd);
	if (conn)
		mm_held_drop(&shell->held, name, slow);
}

static void client_out_free(struct mm_admin_client *c)
{
	if (c->conn)
		c->shell->admin.view_out_bytes -= c->out_bytes;
	free(c->out);
	c->out = NULL;
	c->out_bytes = c->out_at = 0;
}

static void client_close(struct mm_admin_client *c)
{
	if (c->fd < 0)
		return;
	mm_loop_del(&c->shell->loop, &c->source);
	socket_close(c->shell, &c->fd, c->conn);
	client_out_free(c);
	free(c->in);
	client_clear(c, c->shell);
}

void mm_admin_done(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(shell->admin.client); i++)
		client_close(&shell->admin.client[i]);
}

/* Sends what is queued for the client. Return: 0; negative errno: the client must be closed. */
static int client_out_send(struct mm_admin_client *c)
{
	while (c->out_at < c->out_bytes) {
		ssize_t n = send(c->fd, c->out + c->out_at, c->out_bytes - c->out_at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		c->out_at += (size_t)n;
	}
	client_out_free(c);
	return 0;
}

static int client_out_append(struct mm_admin_client *c, const char *line)
{
	size_t bytes = strlen(line);
	char *out;

	if (c->out_bytes + bytes > MM_ADMIN_OUT ||
	    (c->conn && c->shell->admin.view_out_bytes + bytes > MM_VIEW_OUT))
		return -ENOBUFS;
	out = realloc(c->out, c->out_bytes + bytes);
	if (!out)
		return -ENOMEM;
	memcpy(out + c->out_bytes, line, bytes);
	c->out = out;
	c->out_bytes += bytes;
	if (c->conn)
		c->shell->admin.view_out_bytes += bytes;
	return 0;
}

/* ---- answering ---- */

/* Writes parameters so that they fit between the quotes of a line of the log. */
static void params_print(const json_t *params, char *text)
{
	mm_cleanup(mm_free_ptr) char *dumped =
		params ? json_dumps(params, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	snprintf(text, PARAMS_BYTES, "%s", dumped ? dumped : "{}");
	for (; *text; text++)
		*text = *text == '"' ? '\'' : *text;
}

/* Logs who asks for a change, and what came of it: the audit log has these events. */
static void request_log(const struct mm_rpc *rpc, enum mm_rpc_stage stage, const char *method,
			const json_t *params, const struct mm_rpc_error *error)
{
	struct mm_shell *shell = rpc->context;
	const struct mm_admin_client *c = shell->admin.asking;
	char text[PARAMS_BYTES];

	if (stage == MM_RPC_ASKED) {
		params_print(params, text);
		mm_log(MM_LOG_INFO, "admin.request", "method=%s uid=%u pid=%d params=\"%s\"",
		       method, c->uid, (int)c->pid, text);
	} else if (stage == MM_RPC_ANSWERED) {
		mm_log(MM_LOG_INFO, "admin.answer",
		       "method=%s uid=%u pid=%d result=%s reason=\"%s\"", method, c->uid,
		       (int)c->pid, error->code ? "refused" : "done", error->text);
	} else if (mm_peerlog_allows(&shell->peerlog, MM_PEERLOG_UID(c->uid), mm_now_ns())) {
		mm_log(MM_LOG_WARN, "admin.denied", "method=%s uid=%u pid=%d", method, c->uid,
		       (int)c->pid);
	}
}

static int client_line_answer(struct mm_admin_client *c, const char *line, size_t bytes)
{
	mm_cleanup(mm_free_ptr) char *reply = NULL;
	char denied[DENIED_BYTES], user[32];
	struct mm_rpc rpc = { .methods = mm_admin_methods,
			      .context = c->shell,
			      .note = request_log };
	int r;

	if (bytes == 0)
		return 0;
	if (c->conn) {
		snprintf(user, sizeof(user), c->shell->owner ? "uid %u and root" : "root",
			 c->shell->owner);
		snprintf(denied, sizeof(denied),
			 "changes something, and view.sock is for looking: only admin.sock takes "
			 "it, which is for %s",
			 user);
		rpc.denied = denied;
		rpc.batch_max = MM_VIEW_BATCH_MAX;
	}
	c->shell->admin.observed = c->conn != 0;
	c->shell->admin.asking = c;
	r = mm_rpc_line(&rpc, line, bytes, &reply);
	c->shell->admin.observed = false;
	c->shell->admin.asking = NULL;
	if (r == 0 && reply)
		r = client_out_append(c, reply);
	return r;
}

void mm_admin_follow(struct mm_shell *shell, uint64_t next)
{
	shell->admin.asking->follow = next;
}

static int client_events_append(struct mm_admin_client *c)
{
	mm_cleanup(mm_free_ptr) char *lines = NULL;
	int r = mm_trail_lines(&c->shell->trail, &c->follow, &lines);

	return r == 0 && lines ? client_out_append(c, lines) : r;
}

/* Answers the first line, if it is there to its end. Return: 0; negative errno. */
static int client_next_answer(struct mm_admin_client *c)
{
	char *end = memchr(c->in, '\n', c->in_bytes);
	size_t bytes;
	int r;

	if (!end)
		return client_events_append(c);
	bytes = (size_t)(end - c->in);
	r = client_line_answer(c, c->in, bytes);
	c->in_bytes -= bytes + 1;
	memmove(c->in, end + 1, c->in_bytes);
	return r;
}

static bool client_has_events(const struct mm_admin_client *c)
{
	return c->follow && c->follow < mm_trail_next(&c->shell->trail);
}

/*
 * Says when the client's next line is answered, or it gets the next events. Return: 0; -EMSGSIZE:
 * its line is longer than any may be.
 */
static int client_schedule(struct mm_admin_client *c, uint64_t now_ns)
{
	const bool whole = memchr(c->in, '\n', c->in_bytes), more = client_has_events(c);
	uint64_t due_ns;

	c->at_ns = UINT64_MAX;
	if (!whole && c->in_bytes == MM_ADMIN_LINE)
		return -EMSGSIZE;
	if ((!whole && !more) || c->out)
		return 0;
	c->at_ns = now_ns;
	if (!c->conn)
		return 0;
	due_ns = mm_pace_due(mm_pace_of_user(&c->shell->admin.views, c->uid, now_ns),
			     VIEW_BUCKET_NS, now_ns);
	c->at_ns = due_ns ? due_ns : now_ns;
	return 0;
}

/* Sends, schedules or closes, after anything that was done with a client; @r is how that went. */
static void client_settle(struct mm_admin_client *c, int r)
{
	if (r == 0)
		r = client_out_send(c);
	if (r == 0)
		r = client_schedule(c, mm_now_ns());
	if (r < 0) {
		client_close(c);
		return;
	}
	/* A client that follows may go, or ask for more, at any time. */
	mm_loop_want(&c->shell->loop, &c->source,
		     c->out                   ? EPOLLOUT
		     : c->at_ns == UINT64_MAX ? EPOLLIN
					      : 0);
}

/* Time that core has had a processor: nobody pays for what else runs on this host. */
static uint64_t core_spent_ns(void)
{
	struct timespec spent;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
	return (uint64_t)spent.tv_sec * MM_NS_PER_S + (uint64_t)spent.tv_nsec;
}

static void client_serve(struct mm_admin_client *c)
{
	const uint64_t began_ns = c->conn ? core_spent_ns() : 0, now = mm_now_ns();
	int r = client_next_answer(c);

	if (c->conn)
		mm_pace_charge(mm_pace_of_user(&c->shell->admin.views, c->uid, now),
			       MM_VIEW_PART * (core_spent_ns() - began_ns), now);
	client_settle(c, r);
}

void mm_admin_service(struct mm_shell *shell, uint64_t now_ns)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(shell->admin.client); i++) {
		struct mm_admin_client *c = &shell->admin.client[i];

		if (c->at_ns == UINT64_MAX && !c->out && client_has_events(c))
			client_settle(c, 0);
		if (c->at_ns <= now_ns)
			client_serve(c);
	}
}

uint64_t mm_admin_deadline(const struct mm_shell *shell)
{
	uint64_t at = UINT64_MAX;

	for (size_t i = 0; i < MM_ARRAY_SIZE(shell->admin.client); i++) {
		const struct mm_admin_client *c = &shell->admin.client[i];

		at = MM_MIN(at, c->at_ns);
		if (c->at_ns == UINT64_MAX && !c->out && client_has_events(c))
			at = 0;
	}
	return at;
}

/* ---- reading ---- */

/*
 * Reads what has no passed fds in it: to receive those would close them, which may sleep, and who
 * passes some is no client of ours. Return: 0; negative errno.
 */
static int client_in_read(struct mm_admin_client *c)
{
	size_t bytes;
	ssize_t n;
	int r = mm_sock_peek(c->fd, c->in + c->in_bytes, MM_ADMIN_LINE - c->in_bytes, &bytes);

	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	/* No more than was seen: what has come since then may have some. */
	n = recv(c->fd, c->in + c->in_bytes, bytes, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->in_bytes += (size_t)n;
	return 0;
}

static void admin_on_client(struct mm_loop_source *source, uint32_t events)
{
	struct mm_admin_client *c = mm_loop_source_owner(source, struct mm_admin_client, source);
	const bool gone = events & (EPOLLHUP | EPOLLERR);
	int r = 0;

	/* An administrator need not wait for the answer: its request has effects. */
	if (gone && (c->out || (c->conn && c->at_ns != UINT64_MAX)))
		r = -ECONNRESET;
	else if (!c->out && c->at_ns == UINT64_MAX)
		r = client_in_read(c);
	client_settle(c, r);
}

/* ---- accepting ---- */

/* Return: a free client for @uid; NULL, and *ret_why says who has all of them. */
static struct mm_admin_client *client_find_free(struct mm_admin *admin, bool views, uid_t uid,
						const char **ret_why)
{
	const size_t begin = views ? MM_ADMIN_CLIENTS : 0;
	const size_t end = views ? MM_ARRAY_SIZE(admin->client) : MM_ADMIN_CLIENTS;
	struct mm_admin_client *found = NULL;
	size_t own = 0;

	for (size_t i = begin; i < end; i++) {
		if (admin->client[i].fd < 0)
			found = found ? found : &admin->client[i];
		else
			own += admin->client[i].uid == uid;
	}
	if (views && own >= MM_VIEW_USER_MAX) {
		*ret_why = "this user has as many connections to view.sock as one may have; close "
			   "some";
		return NULL;
	}
	*ret_why = views ? "observers have all connections to view.sock that there are; try again "
			   "later"
			 : "administrators have all connections to admin.sock that there are; "
			   "close some";
	return found;
}

static void socket_refuse(int fd, const char *why)
{
	mm_cleanup(mm_free_ptr) char *line = NULL;

	/* A fresh connection has room for it. */
	if (mm_rpc_refuse(MM_RPC_DENIED, why, &line) == 0)
		(void)send(fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void mm_admin_accept(struct mm_shell *shell, int fd, uint64_t conn)
{
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t bytes = sizeof(peer);
	struct mm_admin_client *c;
	const char *why;

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
	c = client_find_free(&shell->admin, conn != 0, peer.uid, &why);
	if (!c) {
		socket_refuse(fd, why);
		socket_close(shell, &fd, conn);
		return;
	}
	c->fd = fd;
	c->conn = conn;
	c->uid = peer.uid;
	c->pid = peer.pid;
	c->in = malloc(MM_ADMIN_LINE);
	if (!c->in || mm_loop_add(&shell->loop, &c->source, fd, EPOLLIN, admin_on_client) < 0)
		client_close(c);
}
