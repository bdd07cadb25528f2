/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/rpc_client.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"

#define ANSWER_BYTES_FIRST ((size_t)64 << 10)

/* ---- connecting ---- */

int mm_rpc_client_open(const char *path, uint64_t timeout_ns)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	const uint64_t us = MM_MAX(timeout_ns / 1000, 1);
	const struct timeval timeout = { .tv_sec = (time_t)(us / 1000000),
					 .tv_usec = (suseconds_t)(us % 1000000) };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mm_cleanup(mm_close_fd) int fd = -1;
	int ready;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Where too many wait to be let in, connect() waits as long as a send may. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			return -errno;
		if (mm_now_ns() >= deadline_ns)
			return -EAGAIN;
	}
	ready = fd;
	fd = -1;
	return ready;
}

/* ---- one line there, one line back ---- */

static int request_write(int fd, const char *text, size_t bytes, uint64_t deadline_ns)
{
	while (bytes > 0) {
		const ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r;

		if (n > 0) {
			text += n;
			bytes -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return errno == EPIPE ? -ECONNRESET : -errno;
		r = mm_sock_wait(fd, POLLOUT, deadline_ns);
		if (r)
			return r;
	}
	return 0;
}

struct answer {
	char *text;
	size_t bytes, room;
	int lost; /* errno with which the connection ended; what had arrived is still read */
};

static void answer_done(struct answer *a)
{
	free(a->text);
}

static int answer_make_room(struct answer *a)
{
	const size_t room =
		a->room ? MM_MIN(2 * a->room, (size_t)MM_RPC_CLIENT_BYTES_MAX) : ANSWER_BYTES_FIRST;
	char *text;

	if (a->bytes < a->room)
		return 0;
	if (a->room == MM_RPC_CLIENT_BYTES_MAX)
		return -EMSGSIZE;
	text = realloc(a->text, room);
	if (!text)
		return -ENOMEM;
	a->text = text;
	a->room = room;
	return 0;
}

/*
 * Adds what has arrived, or waits for it. After an error on the connection reading goes on until
 * nothing is left. Return: 0; -ECONNRESET nothing more will come; another negative errno.
 */
static int answer_read(struct answer *a, int fd, uint64_t deadline_ns)
{
	int r = answer_make_room(a);
	ssize_t n;

	if (r)
		return r;
	n = recv(fd, a->text + a->bytes, a->room - a->bytes, MSG_DONTWAIT);
	if (n > 0) {
		a->bytes += (size_t)n;
		return 0;
	}
	if (n == 0)
		return a->lost ? a->lost : -ECONNRESET;
	if (errno == EINTR)
		return 0;
	if (errno != EAGAIN) {
		r = a->lost;
		a->lost = -errno;
		return r;
	}
	return a->lost ? a->lost : mm_sock_wait(fd, POLLIN, deadline_ns);
}

static int answer_receive(struct answer *a, int fd, uint64_t deadline_ns)
{
	bool late = false;
	size_t seen = 0;
	int r = 0;

	while (!r) {
		const char *end = memchr(a->text + seen, '\n', a->bytes - seen);

		if (end) {
			/* One request was made: who sends more than a line is no mmd. */
			r = end + 1 == a->text + a->bytes ? 0 : -EPROTO;
			a->bytes = (size_t)(end - a->text);
			return r;
		}
		/* Also for who sends a byte now and then. */
		if (late)
			return -ETIMEDOUT;
		seen = a->bytes;
		r = answer_read(a, fd, deadline_ns);
		late = mm_now_ns() >= deadline_ns;
	}
	return r;
}

static int line_exchange(int fd, uint64_t timeout_ns, const char *line, json_t **ret_reply)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	mm_cleanup(answer_done) struct answer a = { 0 };
	int r = request_write(fd, line, strlen(line), deadline_ns);

	if (r && r != -ECONNRESET)
		return r;
	a.lost = r;
	r = answer_make_room(&a);
	if (!r)
		r = answer_receive(&a, fd, deadline_ns);
	if (r)
		return r;
	*ret_reply = json_loadb(a.text, a.bytes, 0, NULL);
	return *ret_reply ? 0 : -EPROTO;
}

/* ---- JSON-RPC ---- */

/* Returns the line of a request, to be freed; NULL: no memory. @params is taken over. */
static char *request_print(const char *method, json_t *params)
{
	mm_cleanup(mm_json_done) json_t *request =
		json_pack("{s:s,s:i,s:s,s:o*}", "jsonrpc", "2.0", "id", 1, "method", method,
			  "params", params);
	mm_cleanup(mm_free_ptr) char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	char *line = NULL;

	return text && asprintf(&line, "%s\n", text) >= 0 ? line : NULL;
}

int mm_rpc_client_send(int fd, uint64_t timeout_ns, const char *method, json_t *params)
{
	mm_cleanup(mm_free_ptr) char *line = request_print(method, params);

	return line ? request_write(fd, line, strlen(line), mm_deadline_ns(timeout_ns)) : -ENOMEM;
}

static int exchange_fail(int r, uint64_t timeout_ns, char *err, size_t err_bytes)
{
	if (r == -ETIMEDOUT)
		snprintf(err, err_bytes, "mmd does not answer within %llu s",
			 (unsigned long long)mm_div_up(timeout_ns, MM_NS_PER_S));
	else if (r == -EMSGSIZE)
		snprintf(err, err_bytes, "the answer does not end");
	else if (r == -EPROTO)
		snprintf(err, err_bytes, "the answer is not one line of JSON");
	else if (r == -ENOMEM)
		snprintf(err, err_bytes, "out of memory");
	else
		snprintf(err, err_bytes, "no answer: %s; has mmd ended?", strerror(-r));
	return r;
}

int mm_rpc_client_request(int fd, uint64_t timeout_ns, const char *method, json_t *params,
			  json_t **ret_result, char *err, size_t err_bytes)
{
	mm_cleanup(mm_free_ptr) char *line = request_print(method, params);
	mm_cleanup(mm_json_done) json_t *reply = NULL;
	const char *why;
	json_t *result;
	int r = line ? line_exchange(fd, timeout_ns, line, &reply) : -ENOMEM;

	if (r)
		return exchange_fail(r, timeout_ns, err, err_bytes);
	result = json_object_get(reply, "result");
	if (result) {
		*ret_result = json_incref(result);
		return 0;
	}
	why = mm_json_text(json_object_get(reply, "error"), "message");
	snprintf(err, err_bytes, "%s", *why ? why : "the answer has neither a result nor a reason");
	return *why ? -EREMOTEIO : -EPROTO;
}
