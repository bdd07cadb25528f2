/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen - the directory of one mmd: its lock and its three sockets
 *
 * Concept:   DIR/mmd.lock is locked for as long as mmd lives, so a second mmd is refused, and files
 *            that a killed mmd left behind may be replaced. DIR/tenant.sock is open to all users
 *            (the kernel's credentials tell accounts apart); DIR/admin.sock is the owner's alone;
 *            DIR/view.sock is that of a group, whose members may look and change nothing.
 * Ownership: struct mm_place owns its fds; mm_place_done() removes the sockets from the directory.
 *            The listening fds stay open until the process ends: closing them would close, here and
 *            now, connections that nobody accepted and the fds that were passed in them (closer.h).
 * Threading: keeper's thread.
 */
#pragma once

#include "mmd/config/config.h"

struct mm_place {
	char dir[MM_CONFIG_PATH_BYTES];
	int lock_fd;
	int tenant_fd; /* SOCK_SEQPACKET */
	int admin_fd;  /* SOCK_STREAM */
	int view_fd;   /* SOCK_STREAM; -1: nobody but the owner may look */
};
#define MM_PLACE_NULL \
	((struct mm_place){ .lock_fd = -1, .tenant_fd = -1, .admin_fd = -1, .view_fd = -1 })

/**
 * mm_place_init() - make the directory, take the lock, listen
 * @place: written in any case; give back with mm_place_done()
 * @config: its directory is created if it is missing; else it must be ours or root's, and nobody
 *         else may write there
 * @error: MM_CONFIG_ERROR_BYTES: the sentence on failure
 *
 * Return: 0; -EBUSY another mmd runs there; -EPERM somebody else could write there; negative errno.
 */
int mm_place_init(struct mm_place *place, const struct mm_config *config, char *error);
void mm_place_done(struct mm_place *place);
