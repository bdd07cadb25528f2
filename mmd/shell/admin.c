/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/admin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libclient/support/cleanup.h"
#include "mmd/shell/methods.h"
#include "mmd/shell/shell.h"

void mm_admin_init(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_ADMIN_CLIENTS; i++)
		shell->admin.client[i] = (struct mm_admin_client){ .shell = shell,
								   .fd = -1,
								   .source = MM_LOOP_SOURCE_NULL };
}

static void client_close(struct mm_admin_client *c)
{
	mm_loop_del(&c->shell->loop, &c->source);
	mm_close_fd(&c->fd);
	free(c->in);
	free(c->out);
	*c = (struct mm_admin_client){ .shell = c->shell, .fd = -1, .source = MM_LOOP_SOURCE_NULL };
}

void mm_admin_done(struct mm_shell *shell)
{
	for (size_t i = 0; i < MM_ADMIN_CLIENTS; i++)
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
	free(c->out);
	c->out = NULL;
	c->out_bytes = c->out_at = 0;
	return 0;
}

static int client_out_append(struct mm_admin_client *c, const char *line)
{
	size_t bytes = strlen(line);
	char *out;

	if (c->out_bytes + bytes > MM_ADMIN_OUT)
		return -ENOBUFS;
	out = realloc(c->out, c->out_bytes + bytes);
	if (!out)
		return -ENOMEM;
	memcpy(out + c->out_bytes, line, bytes);
	c->out = out;
	c->out_bytes += bytes;
	return 0;
}

static int client_line_answer(struct mm_admin_client *c, const char *line, size_t bytes)
{
	mm_cleanup(mm_free_ptr) char *reply = NULL;
	int r;

	if (bytes == 0)
		return 0;
	r = mm_rpc_line(mm_admin_methods, c->shell, line, bytes, &reply);
	if (r == 0 && reply)
		r = client_out_append(c, reply);
	return r;
}

static int client_lines_answer(struct mm_admin_client *c)
{
	size_t at = 0;
	char *end;
	int r;

	while ((end = memchr(c->in + at, '\n', c->in_bytes - at))) {
		r = client_line_answer(c, c->in + at, (size_t)(end - c->in) - at);
		if (r < 0)
			return r;
		at = (size_t)(end - c->in) + 1;
	}
	memmove(c->in, c->in + at, c->in_bytes - at);
	c->in_bytes -= at;
	return c->in_bytes == MM_ADMIN_LINE ? -EMSGSIZE : 0;
}

static int client_in_read(struct mm_admin_client *c)
{
	ssize_t n = recv(c->fd, c->in + c->in_bytes, MM_ADMIN_LINE - c->in_bytes, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	c->in_bytes += (size_t)n;
	return client_lines_answer(c);
}

static void admin_on_client(struct mm_loop_source *source, uint32_t events)
{
	struct mm_admin_client *c = mm_loop_source_owner(source, struct mm_admin_client, source);
	int r = 0;

	if (!c->out && (events & ~(uint32_t)EPOLLOUT))
		r = client_in_read(c);
	if (r == 0)
		r = client_out_send(c);
	if (r < 0 || (c->out && (events & (EPOLLHUP | EPOLLERR)))) {
		client_close(c);
		return;
	}
	mm_loop_want(&c->shell->loop, &c->source, c->out ? EPOLLOUT : EPOLLIN);
}

void mm_admin_accept(struct mm_shell *shell, int fd)
{
	for (size_t i = 0; i < MM_ADMIN_CLIENTS; i++) {
		struct mm_admin_client *c = &shell->admin.client[i];

		if (c->fd >= 0)
			continue;
		c->fd = fd;
		c->in = malloc(MM_ADMIN_LINE);
		if (!c->in ||
		    mm_loop_add(&shell->loop, &c->source, fd, EPOLLIN, admin_on_client) < 0)
			client_close(c);
		return;
	}
	mm_close_fd(&fd);
}
