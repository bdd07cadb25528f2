/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procs - child processes that never outlive us
 *
 * Concept:   A child is a program with a pipe to its stdin, a pipe from its stdout that is read by
 *            lines, and its stderr in a file. It gets SIGKILL when we die. We are the subreaper of
 *            all that descends from us, so that no role of a killed daemon is left over either.
 * Ownership: mm_child_done() kills what still runs and reaps it.
 * Threading: one thread; SIGINT and SIGTERM come through mm_signals_open()'s fd.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MM_CHILD_LINE_BYTES 16384

struct mm_child {
	const char *name;     /* borrowed; for messages */
	const char *err_path; /* borrowed; stderr goes there */
	pid_t pid;            /* 0 = not running */
	int in, out;          /* its stdin and stdout, or -1 */
	int status;           /* of wait, once pid is 0 again */
	bool started;
	char line[MM_CHILD_LINE_BYTES];
	size_t fill;
};

/* SIGINT and SIGTERM as a readable fd, and subreaping. Return: an fd, or negative errno. */
int mm_signals_open(void);

/**
 * mm_child_start() - run a program
 * @child: name and err_path are set, all else zero
 * @argv:  argv[0] is the path; NULL ends it
 *
 * Return: 0, or negative errno (a program that cannot be executed exits with 127).
 */
int mm_child_start(struct mm_child *child, char *const argv[]);

/**
 * mm_child_line() - the next whole line that the child wrote, if there is one
 * @child:    started
 * @ret_line: written when 1; a copy of at most @bytes, without the line end
 *
 * Never blocks. Return: 1 a line, 0 none now, negative errno or -EPIPE at the end.
 */
int mm_child_line(struct mm_child *child, char *ret_line, size_t bytes);

/* Writes a line to its stdin. Return: 0 or negative errno. */
int mm_child_send(struct mm_child *child, const char *line);

/* Takes notice of its end without waiting. Return: true when it has ended. */
bool mm_child_ended(struct mm_child *child);

/* Waits for its end until @deadline_ns, then kills it. Return: true when it ended by itself. */
bool mm_child_wait(struct mm_child *child, uint64_t deadline_ns);

/* "exit status 1" or "killed by signal 9", in @buf. */
const char *mm_child_how(const struct mm_child *child, char *buf, size_t bytes);

/*
 * The last sentence on its stderr; where there is none, the last lines of its log; or "". One role
 * of mmd may log that another has ended after that one said why.
 */
const char *mm_child_last_words(const struct mm_child *child, char *buf, size_t bytes);

void mm_child_done(struct mm_child *child);

/* Kills and reaps whatever still descends from us. Return: how many there were. */
int mm_procs_sweep(void);

uint64_t mm_now_ns(void);
