/* SPDX-License-Identifier: Apache-2.0 */
/*
 * busy - processes that take a part of the processors, and do nothing else
 *
 * Concept:   What a hostile tenant costs others is compared with what any process costs them that
 *            computes as much. A loop computes for its part of each millisecond and sleeps for the
 *            rest; a part above 1 is that of several processes.
 * Ownership: mm_busy_stop() ends them; accepts a zeroed struct.
 * Threading: one thread; the process is forked.
 */
#pragma once

#include <sys/types.h>

#define MM_BUSY_MAX 16

struct mm_busy {
	pid_t pid[MM_BUSY_MAX];
	int n;
};

/* @share: processors in all, 0 and more. Return: 0; negative errno. */
int mm_busy_start(struct mm_busy *busy, double share);
void mm_busy_stop(struct mm_busy *busy);
