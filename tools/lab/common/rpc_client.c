/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/rpc_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define TIMEOUT_S       180 /* mmd answers once its pages are made; generous, for a slow host */
#define REPLY_BYTES_MAX (1 << 20)

int mm_rpc_client_open(const char *socket_path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval timeout = { .tv_sec = TIMEOUT_S };
	mm_cleanup(mm_close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int ready;

	if (fd < 0)
		return -errno;
	if (strlen(socket_path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, socket_path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	ready = fd;
	fd = -1;
	return ready;
}

/* Reads one line into @text. Return: its length without the line end, or negative errno. */
static ssize_t reply_read_line(int fd, char *text, size_t room)
{
	size_t fill = 0;

	while (fill < room) {
		ssize_t got = recv(fd, text + fill, room - fill, 0);

		/* With SO_RCVTIMEO set, recv() fails with EINTR also after SIGSTOP and SIGCONT. */
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ECONNRESET;
		fill += (size_t)got;
		if (text[fill - 1] == '\n')
			return (ssize_t)fill - 1;
	}
	return -EMSGSIZE;
}

static int line_exchange(int fd, const char *request, json_t **ret_reply)
{
	mm_cleanup(mm_free_ptr) char *text = malloc(REPLY_BYTES_MAX);
	ssize_t length;

	if (!text || !request)
		return -ENOMEM;
	if (dprintf(fd, "%s\n", request) < 0)
		return errno == EPIPE ? -ECONNRESET : -errno;
	length = reply_read_line(fd, text, REPLY_BYTES_MAX);
	if (length < 0)
		return length == -EAGAIN ? -ETIMEDOUT : (int)length;
	*ret_reply = json_loadb(text, (size_t)length, 0, NULL);
	return *ret_reply ? 0 : -EPROTO;
}

int mm_rpc_client_request(int fd, const char *method, json_t *params, json_t **ret_result,
			  char *err, size_t err_bytes)
{
	json_t *request = json_pack("{s:s,s:i,s:s,s:o*}", "jsonrpc", "2.0", "id", 1, "method",
				    method, "params", params);
	mm_cleanup(mm_free_ptr) char *line = json_dumps(request, JSON_COMPACT);
	json_t *reply = NULL;
	int r = line_exchange(fd, line, &reply);
	json_t *result = json_object_get(reply, "result");
	const char *why =
		json_string_value(json_object_get(json_object_get(reply, "error"), "message"));

	if (result)
		*ret_result = json_incref(result);
	else if (r)
		snprintf(err, err_bytes, "%.100s: mmd does not answer on its admin socket: %s",
			 method, strerror(-r));
	else
		snprintf(err, err_bytes, "%.100s: %.300s", method, why ? why : "no result");
	json_decref(reply);
	json_decref(request);
	return result ? 0 : r ? r : -EREMOTEIO;
}

json_t *mm_rpc_client_call(int fd, const char *method)
{
	json_t *result = NULL;
	char err[512];

	return mm_rpc_client_request(fd, method, NULL, &result, err, sizeof(err)) ? NULL : result;
}
