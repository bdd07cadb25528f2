/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs - runs many programs, some at a time
 *
 * Concept:   Each job is a command line; its stdout goes to one file, its stderr to another. Jobs
 *            start in order, and `at_once` of them run together.
 * Ownership: everything is borrowed. A child gets SIGKILL when this process dies.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mm_eval_job {
	char **argv; /* argv[0] is the path; NULL ends the list */
	const char *out_path, *err_path;
	int status;    /* written: from waitpid(); -1: the job never ran */
	double wall_s; /* written: how long it ran */
	pid_t pid;
	uint64_t begun_ns;
};

/**
 * mm_eval_jobs_run() - run all jobs
 * @jobs:    n jobs
 * @at_once: how many run at the same time, at least 1
 * @signals: from mm_signals_open(); a signal ends the running jobs
 * @done:    called each time that a job has ended, with how many have ended; may be NULL
 *
 * Return: 0, also if jobs failed; -EINTR a signal came; another negative errno.
 */
int mm_eval_jobs_run(struct mm_eval_job *jobs, size_t n, size_t at_once, int signals,
		     void (*done)(void *user, const struct mm_eval_job *job, size_t ended),
		     void *user);
