/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress - one line on a terminal that says what a run is at
 *
 * Concept:    a thread writes the line anew a few times a second, because a load and a step block
 *             the caller; it says what was said to it last, and for how long. On what is no
 *             terminal nothing is ever written: a log shall not fill with it.
 * Ownership:  the caller's storage; mm_progress_stop() ends the thread and clears the line. Zeroed
 *             storage is one that shows nothing, and every call accepts it.
 * Threading:  one thread calls; what it says is a set of words that the other reads as they come.
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
	const char *subject; /* what is loaded; borrowed */
	pthread_t thread;
	int stop_fd;             /* eventfd */
	uint64_t requests, done; /* these five: atomic, relaxed */
	uint64_t running, waiting;
	uint64_t tokens;
	uint64_t serving_since_ns; /* atomic, release; 0: it loads */
};

/**
 * mm_progress_start() - begin with "loading"
 * @p:       zeroed
 * @fd:      a terminal, or nothing happens
 * @subject: the model
 *
 * Where there is no thread to be had there is no line.
 */
void mm_progress_start(struct mm_progress *p, int fd, const char *subject);

/* From now on it serves; says so at once. */
void mm_progress_serve(struct mm_progress *p, uint64_t requests);

/*
 * How far it is: requests that are @done (refused ones too), those in the batch, those that wait.
 */
void mm_progress_set(struct mm_progress *p, uint64_t done, uint64_t running, uint64_t waiting,
		     uint64_t tokens);

/* Clears the line, before anything else is written to the terminal. */
void mm_progress_stop(struct mm_progress *p);
