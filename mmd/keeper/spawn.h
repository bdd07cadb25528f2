/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn - start another role of this program
 *
 * Concept:   fork, then exec of the very file that runs (also after an upgrade replaced it on
 *            disk). The new role has its sockets as fds 3 and up, stdin, stdout and stderr, and
 *            nothing else; it dies with its parent.
 * Threading: the caller is single-threaded.
 */
#pragma once

#include <sys/types.h>

#include "mmd/config/config.h"

#define MM_SPAWN_FDS_MAX 3

/**
 * mm_spawn() - start @role
 * @config:  handed on as flags
 * @role:    any
 * @fds:     @n_fds of them become MM_ROLE_FD and up; they stay the caller's
 * @n_fds:   at most MM_SPAWN_FDS_MAX
 * @ret_pid: written only on success; the caller reaps it
 *
 * Return: 0; -ENOMEM, -EAGAIN.
 */
int mm_spawn(const struct mm_config *config, enum mm_role role, const int *fds, size_t n_fds,
	     pid_t *ret_pid);

/* Sets the file from which roles start; -1: the one that keeper runs. It stays the caller's. */
void mm_spawn_program(int fd);

/*
 * Exempts @fd, which has FD_CLOEXEC and whose close may sleep: no start of a role waits for the
 * child to close it. -1: none.
 */
void mm_spawn_spare(int fd);
