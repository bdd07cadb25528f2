/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay - the process that may block on the reader of the log
 *
 * Concept:   stderr may be a pipe that nobody reads, a stopped terminal, a file on a disk that
 *            hangs. So stderr of all roles is a pipe of our own, whose writing end does not block:
 *            a line that finds no room is dropped and counted (log.h), and no role is delayed. A
 *            small process reads the pipe and writes to the original stderr. The original stderr
 *            itself is not changed: its flags are shared with processes that are not ours.
 * Last lines: stay in the pipe even if their writer dies. The relay ends when nobody can write any
 *            more, also after keeper was killed; at an orderly end keeper waits for it, but only
 *            for a bounded time.
 * Audit log: lines of it (common/audit.h) come by the same pipe. Where --audit names a file, the
 *            process opens it before it gives up its rights, and writes them there; lines that the
 *            file does not take go to stderr, so that they are not lost. It ends at SIGHUP, and the
 *            next one opens the file of that name, as after a rotation; lines wait in the pipe.
 * Ownership: struct mm_relay owns its fds; mm_relay_end() restores stderr.
 * Threading: keeper's thread; the role is a process of its own.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "mmd/config/config.h"

struct mm_relay {
	int pipe_fd;   /* the reading end, for the next relay if this one dies */
	int stderr_fd; /* the original stderr */
	pid_t pid;     /* 0 = none */
	bool reopens;  /* it was asked to end, for the next one to open the file of the audit log */
};
#define MM_RELAY_NULL ((struct mm_relay){ .pipe_fd = -1, .stderr_fd = -1 })

/* Makes stderr the pipe and starts the process. Return: 0; negative errno: stderr is as it was. */
int mm_relay_init(struct mm_relay *relay, const struct mm_config *config);

/**
 * mm_relay_check() - open the file of the audit log, if there is to be one, and close it
 * @config: any
 * @error:  MM_CONFIG_ERROR_BYTES: the sentence on failure
 *
 * Return: 0; negative errno.
 */
int mm_relay_check(const struct mm_config *config, char *error);

/* Has the file of the audit log opened anew. */
void mm_relay_reopen(struct mm_relay *relay, const struct mm_config *config);

/* Starts the process again after the old one was reaped. */
int mm_relay_restart(struct mm_relay *relay, const struct mm_config *config);

/*
 * Restores stderr and waits for the relay to write the rest, for a bounded time. All other roles
 * must have ended.
 */
void mm_relay_end(struct mm_relay *relay);

/**
 * mm_relay_main() - run the role
 * @fd:     the pipe's reading end; the next one is where to write
 * @config: has the place of the audit log
 *
 * Return: the exit status.
 */
int mm_relay_main(int fd, const struct mm_config *config);
