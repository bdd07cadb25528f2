/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen - the address at which a server listens
 *
 * Concept:    HOST:PORT with a numeric host, [HOST]:PORT for IPv6, or unix:PATH. Whoever can
 *             connect can use the model, and nothing is encrypted: an address that others than this
 *             machine reach must be asked for explicitly.
 * Ownership:  mm_listen_open() and mm_listen_close(), which removes the socket's file.
 * Threading:  none; the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

#define MM_LISTEN_NAME_BYTES (sizeof(((struct sockaddr_un *)NULL)->sun_path) + 16)

struct mm_listen {
	int fd;
	char name[MM_LISTEN_NAME_BYTES]; /* as a URL, with the port that was given */
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* "": no file to remove */
};

/**
 * mm_listen_open() - bind a socket, without listening yet
 * @text:       the address; port 0 takes any that is free
 * @anywhere:   addresses that are not of the loopback are allowed
 * @ret_listen: written only on success
 * @err:        gets one sentence
 *
 * Return: 0; -EINVAL no such address; other negative errno.
 */
int mm_listen_open(const char *text, bool anywhere, struct mm_listen *ret_listen, char *err,
		   size_t err_bytes);

/* Accepts zeroed ones. */
void mm_listen_close(struct mm_listen *l);
