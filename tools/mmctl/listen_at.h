/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen_at - a socket for HTTP that only this host can reach
 *
 * Concept:   "unix:PATH", "127.0.0.1:PORT" or "[::1]:PORT". Any other address is refused: TLS and
 *            who may ask from outside are the matter of a proxy.
 * Ownership: the caller owns the socket, and closes it by mmctl_listen_close(), which removes the
 *            file of a Unix socket.
 * Threading: one thread.
 */
#pragma once

#include <stddef.h>

#define MMCTL_LISTEN_BYTES 160 /* room for any address, and for its URL */

struct mmctl_listen {
	int fd;
	char path[MMCTL_LISTEN_BYTES]; /* of a Unix socket; else "" */
	char url[MMCTL_LISTEN_BYTES];  /* for people */
};

#define MMCTL_LISTEN_NULL ((struct mmctl_listen){ .fd = -1 })

/**
 * mmctl_listen_open() - begin to listen
 * @text:       the address
 * @ret_listen: written only on success
 * @err:        why not, as the rest of a sentence
 *
 * A Unix socket that nobody listens at any more is replaced; another file is not. Its mode is 0660.
 * Return: 0; -EINVAL: no such address may be used; another negative errno.
 */
int mmctl_listen_open(const char *text, struct mmctl_listen *ret_listen, char *err,
		      size_t err_bytes);
void mmctl_listen_close(struct mmctl_listen *listen);
