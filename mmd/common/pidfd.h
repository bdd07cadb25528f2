/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pidfd - the process behind a connection
 *
 * Concept:   A descriptor that names one process for good: it is readable once the process has
 *            ended, and a signal that is sent through it reaches no other one.
 * Ownership: the caller owns it.
 * Threading: none of its own.
 */
#pragma once

/**
 * mm_pidfd_of_peer() - the process that made a connection
 * @fd:        accepted from a Unix socket
 * @ret_pidfd: written only on success
 *
 * Before Linux 6.5 it is opened by pid. If the peer died between connecting and this call and its
 * pid was reused, it belongs to an unrelated process, which would be waited for, and killed if it
 * keeps pages.
 * Return: 0; -ESRCH it is gone; -EINVAL it is in another pid namespace; -EMFILE, -ENFILE, -ENOMEM.
 */
int mm_pidfd_of_peer(int fd, int *ret_pidfd);

/* Sends SIGKILL. Return: 0, also if the process has ended; -EPERM. */
int mm_pidfd_kill(int pidfd);
