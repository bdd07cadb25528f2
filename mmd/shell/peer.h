/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - what the kernel knows about a process at the other end
 *
 * Concept:   Nothing here depends on the process's own statements. What was read by pid (/proc) is
 *            trusted only if the pidfd shows afterwards that the process still lives: then the pid
 *            cannot have belonged to another one meanwhile.
 * Threading: any; the files are the kernel's, and reading them does not block.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MM_PEER_PATH_BYTES 4096
#define MM_PEER_GROUPS_MAX 256

enum mm_peer_state {
	MM_PEER_RUNNING,
	MM_PEER_STOPPED, /* stopped by a signal, or traced */
	MM_PEER_FROZEN,  /* its cgroup is frozen */
	MM_PEER_GONE,
};

/**
 * mm_peer_cgroup() - the cgroup (v2) that a process is in
 * @pid:   of the process
 * @pidfd: of the same
 * @path:  MM_PEER_PATH_BYTES; as seen from our own cgroup namespace
 *
 * Return: 0; -ESRCH it is dead; -ENOENT there is no unified hierarchy; negative errno.
 */
int mm_peer_cgroup(pid_t pid, int pidfd, char *path);

/*
 * Supplementary groups that the socket's peer had when it connected. Return: how many; negative
 * errno.
 */
int mm_peer_groups(int fd, uint32_t *groups, uint32_t max);

/* Whether the process could act on a request now. */
enum mm_peer_state mm_peer_state(pid_t pid, int pidfd);

/* The state letter of a line of /proc/PID/stat; 0: the line has none. */
char mm_peer_stat_state(const char *stat);
