/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - what the kernel says about a process at the other end
 *
 * Concept:   Nothing here is asked of the process itself. What is read by pid (/proc) is believed
 *            only when the pidfd shows afterwards that this very process still lives: the pid
 *            cannot have been another's in between.
 * Threading: any; the files read are the kernel's and do not block.
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
	MM_PEER_STOPPED, /* by a signal, or traced */
	MM_PEER_FROZEN,  /* its cgroup is */
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

/* Whether it could answer if it wanted to. */
enum mm_peer_state mm_peer_state(pid_t pid, int pidfd);

/* Of a line of /proc/PID/stat. */
char mm_peer_stat_state(const char *stat);
