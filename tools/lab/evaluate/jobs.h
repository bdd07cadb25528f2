/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs - many programs, some at a time
 *
 * Concept:   each job is a command line; what it prints goes to a file, what it complains of to
 *            another. They run in order, `at_once` of them together.
 * Ownership: everything is borrowed. A child gets SIGKILL when we die.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mm_eval_job {
	char **argv; /* argv[0] is the path; NULL ends it */
	const char *out_path, *err_path;
	int status;    /* written: of wait; -1: never ran */
	double wall_s; /* written */
	pid_t pid;
	uint64_t begun_ns;
};

/**
 * mm_eval_jobs_run() - run them all
 * @jobs:    n of them
 * @at_once: at least 1
 * @signals: from mm_signals_open(): a signal ends the running ones
 * @done:    called after each end, with how many have ended; NULL: nobody wants to know
 *
 * Return: 0, whatever became of each; -EINTR; another negative errno.
 */
int mm_eval_jobs_run(struct mm_eval_job *jobs, size_t n, size_t at_once, int signals,
		     void (*done)(void *user, const struct mm_eval_job *job, size_t ended),
		     void *user);
