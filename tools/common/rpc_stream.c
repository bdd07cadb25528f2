/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/rpc_stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "tools/common/rpc_client.h"

#define ROOM_FIRST ((size_t)64 << 10)

void mm_rpc_stream_init(struct mm_rpc_stream *stream, int fd)
{
	*stream = (struct mm_rpc_stream){ .fd = fd };
}

void mm_rpc_stream_done(struct mm_rpc_stream *stream)
{
	free(stream->text);
	mm_rpc_stream_init(stream, -1);
}

static int stream_make_room(struct mm_rpc_stream *s)
{
	const size_t room = s->room ? 2 * s->room : ROOM_FIRST;
	char *text;

	if (s->bytes < s->room)
		return 0;
	if (room > MM_RPC_CLIENT_BYTES_MAX)
		return -EMSGSIZE;
	text = realloc(s->text, room);
	if (!text)
		return -ENOMEM;
	s->text = text;
	s->room = room;
	return 0;
}

/* Adds what has arrived, or waits for it. */
static int stream_read(struct mm_rpc_stream *s, uint64_t deadline_ns)
{
	int r = stream_make_room(s);
	ssize_t n;

	if (r)
		return r;
	n = recv(s->fd, s->text + s->bytes, s->room - s->bytes, MSG_DONTWAIT);
	if (n > 0) {
		s->bytes += (size_t)n;
		return 0;
	}
	if (n == 0)
		return -ECONNRESET;
	if (errno == EINTR)
		return 0;
	return errno == EAGAIN ? mm_sock_wait(s->fd, POLLIN, deadline_ns) : -errno;
}

int mm_rpc_stream_next(struct mm_rpc_stream *s, uint64_t deadline_ns, json_t **ret_json)
{
	const char *end;
	json_t *json;
	size_t seen = 0;

	s->bytes -= s->taken;
	if (s->taken)
		memmove(s->text, s->text + s->taken, s->bytes);
	s->taken = 0;
	while (!s->bytes || !(end = memchr(s->text + seen, '\n', s->bytes - seen))) {
		int r;

		seen = s->bytes;
		r = stream_read(s, deadline_ns);
		if (r)
			return r;
	}
	s->taken = (size_t)(end - s->text) + 1;
	json = json_loadb(s->text, s->taken - 1, 0, NULL);
	if (json_is_object(json)) {
		*ret_json = json;
		return 0;
	}
	json_decref(json);
	return -EPROTO;
}
