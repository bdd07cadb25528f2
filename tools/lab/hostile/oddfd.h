/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oddfd - file descriptors that whoever gets them may regret
 *
 * Concept:   A lingering socket sleeps when its last copy is closed; a file of FUSE for as long as
 *            its server likes; a pipe blocks its reader; a file may shrink while it is mapped.
 * Ownership: the fd is the caller's. What must stay open beside it stays until the process ends.
 * Threading: one thread.
 */
#pragma once

enum mm_odd_fd {
	MM_ODD_PIPE,
	MM_ODD_DIRECTORY,
	MM_ODD_LINGER,
	MM_ODD_MEMORY,    /* a memfd that can shrink */
	MM_ODD_SHRINKING, /* a file that was cut off when it was opened */
	MM_ODD_PROCESS,
	MM_ODD_EPOLL,
	MM_ODD_CYCLE, /* a socket in whose queue it lies itself */
	MM_ODD_FUSE,
};

/* Return: the fd; -ENOTSUP this machine has none; another negative errno. */
int mm_odd_fd_open(enum mm_odd_fd kind, const char *scratch);

/* Lets @fd be closed without a wait, where our own close is the last one. */
void mm_odd_fd_calm(enum mm_odd_fd kind, int fd);
