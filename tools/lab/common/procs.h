/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procs - child processes that never outlive us
 *
 * Concept:   A child is a program with a pipe to its stdin, a pipe from its stdout that is read by
 *            lines, and its stderr in a file. It gets SIGKILL when the parent dies. The parent is
 *            the subreaper of all its descendants, so that no role of a killed mmd is left over.
 * Ownership: mm_child_done() kills a child that still runs, and reaps it.
 * Threading: one thread; SIGINT and SIGTERM arrive through the fd of mm_signals_open().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MM_CHILD_LINE_BYTES 16384

struct mm_child {
	const char *name;     /* borrowed; for messages */
	const char *err_path; /* borrowed; file for its stderr */
	uint32_t processor;   /* all its threads run on the n-th that we may use; 0: on any */
	pid_t pid;            /* 0 = not running */
	int in, out;          /* its stdin and stdout, or -1 */
	int status;           /* from waitpid(), once pid is 0 again */
	bool started;
	char line[MM_CHILD_LINE_BYTES];
	size_t fill;
};

/*
 * Makes SIGINT and SIGTERM readable from an fd, and the process a subreaper. Return: the fd, or
 * negative errno.
 */
int mm_signals_open(void);

/**
 * mm_child_start() - run a program
 * @child: name and err_path are set, and processor may be; all else is zero
 * @argv:  argv[0] is the path; NULL ends the list
 *
 * Return: 0, or negative errno (a program that cannot be executed exits with 127).
 */
int mm_child_start(struct mm_child *child, char *const argv[]);

/**
 * mm_child_line() - take the next whole line that the child wrote, if there is one
 * @child:    started
 * @ret_line: written when 1 is returned; a copy of at most @bytes, without the line end
 *
 * Never blocks. Return: 1 a line, 0 none yet, -EPIPE at the end of the output, negative errno.
 */
int mm_child_line(struct mm_child *child, char *ret_line, size_t bytes);

/* Writes a line to the child's stdin. Return: 0 or negative errno. */
int mm_child_send(struct mm_child *child, const char *line);

/* Reaps the child if it has ended; does not wait. Return: true when it has ended. */
bool mm_child_ended(struct mm_child *child);

/* Waits for its end until @deadline_ns, then kills it. Return: true if it ended by itself. */
bool mm_child_wait(struct mm_child *child, uint64_t deadline_ns);

/* Writes "exit status 1" or "killed by signal 9" into @buf, and returns it. */
const char *mm_child_how(const struct mm_child *child, char *buf, size_t bytes);

/*
 * Copies the last line on its stderr that is not a log line into @buf, and returns it. Lines that
 * begin with == are passed over: a sanitizer may have a word about its own after the reason. Where
 * there is none, it is the last lines of the log, joined; or "". The last log line alone would not
 * do: one role of mmd may log that another has ended, after that other has logged the reason.
 */
const char *mm_child_last_words(const struct mm_child *child, char *buf, size_t bytes);

/* Kills and reaps the child, and closes its pipes. Accepts a zeroed struct. */
void mm_child_done(struct mm_child *child);

/**
 * mm_child_run() - run a program to its end
 * @child:      as for mm_child_start()
 * @argv:       argv[0] is the path; NULL ends the list
 * @timeout_ns: after this the program is killed
 * @err:        gets a sentence on failure
 *
 * Return: 0; -ECHILD the program failed or was killed; another negative errno: it did not start.
 */
int mm_child_run(struct mm_child *child, char *const argv[], uint64_t timeout_ns, char *err,
		 size_t err_bytes);

/* Kills and reaps all descendants of this process. Return: how many there were. */
int mm_procs_sweep(void);

uint64_t mm_now_ns(void);
