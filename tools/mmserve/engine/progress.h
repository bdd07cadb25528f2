/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress - shows the state of a run in one line on a terminal
 *
 * Concept:    a thread rewrites the line a few times a second, because a load and a step block the
 *             caller. The line shows the last values that were set, and how long the load or the
 *             run has taken. Nothing is written to a file or pipe, so that logs do not fill up.
 * Ownership:  the caller's storage; mm_progress_stop() ends the thread and clears the line. Zeroed
 *             storage shows nothing, and every call accepts it.
 * Threading:  one thread calls. It shares atomic words with the thread that writes the line, which
 *             may read some of them before and some after an update.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mm_progress {
	bool on;
	int fd;
	uint64_t started_ns;
	const char *subject; /* name of what is loaded; borrowed */
	pthread_t thread;
	int stop_fd;             /* eventfd */
	uint64_t requests, done; /* these five are atomic, relaxed */
	uint64_t running, waiting;
	uint64_t tokens;
	uint64_t serving_since_ns; /* atomic, release; 0: the model is being loaded */
};

/**
 * mm_progress_start() - start the line, with "loading"
 * @p:       zeroed
 * @fd:      where to write; if it is not a terminal, nothing is shown
 * @subject: the model's name
 *
 * If no thread can be created, nothing more is shown.
 */
void mm_progress_start(struct mm_progress *p, int fd, const char *subject);

/* Switches the line to "serving", at once. */
void mm_progress_serve(struct mm_progress *p, uint64_t requests);

/*
 * Sets the numbers to show: requests that are @done (the refused ones included), @running in the
 * batch, and @waiting, and the output @tokens so far.
 */
void mm_progress_set(struct mm_progress *p, uint64_t done, uint64_t running, uint64_t waiting,
		     uint64_t tokens);

/* Ends the thread and clears the line; to be called before other output to the terminal. */
void mm_progress_stop(struct mm_progress *p);
