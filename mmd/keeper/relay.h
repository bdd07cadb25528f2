/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay - the process that may wait for whoever reads the log
 *
 * Concept:   stderr may be a pipe that nobody reads, a stopped terminal, a file on a disk that
 *            hangs. So stderr of all roles is a pipe of our own, whose writing end does not block:
 *            a line that finds no room is dropped and counted (log.h), and nobody waits. A small
 *            process of its own reads it and writes to what stderr was. The inherited stderr is
 *            left as it is: its flags are shared with processes that are not ours.
 * Last words: lie in the pipe whatever becomes of their writer. The relay ends when nobody can write any
 *            more, also after keeper was killed; at an orderly end keeper waits for it a bounded time.
 * Ownership: struct mm_relay owns its fds; mm_relay_end() puts stderr back.
 */
#pragma once

#include <sys/types.h>

#include "mmd/config/config.h"

struct mm_relay {
	int pipe_fd;   /* the reading end, for the next relay if this one dies */
	int stderr_fd; /* what stderr was */
	pid_t pid;     /* 0 = none */
};
#define MM_RELAY_NULL ((struct mm_relay){ .pipe_fd = -1, .stderr_fd = -1 })

/*
 * Turns stderr into the pipe, starts the process. Return: 0; negative errno: stderr is as it was.
 */
int mm_relay_init(struct mm_relay *relay, const struct mm_config *config);

/* Starts it again; the old one was reaped. */
int mm_relay_restart(struct mm_relay *relay, const struct mm_config *config);

/* No other role lives: waits for the rest to be written, but not for ever. */
void mm_relay_end(struct mm_relay *relay);

/**
 * mm_relay_main() - run the role
 * @fd: the pipe's reading end; the next one is where to write
 *
 * Return: the exit status.
 */
int mm_relay_main(int fd);
