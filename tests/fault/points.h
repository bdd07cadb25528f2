/* SPDX-License-Identifier: Apache-2.0 */
/*
 * points - what the tests of fault points share
 *
 * Concept:   A test runs its scenario once for each point. The part whose calls fail is a process
 *            of its own, so that only its points count; its exit status says if the point came.
 * Threading: none of its own.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "libclient/support/fault.h"

#define POINT_FIRED 64 /* or'ed to the exit status of a role */

/* Chooses the point for the processes that start from here on. */
static inline void point_choose(uint64_t nth)
{
	char number[24];

	snprintf(number, sizeof(number), "%lu", nth);
	setenv("MM_FAULT_NTH", number, 1);
}

/* Points count from here on, in such a process. */
static inline void point_arm(void)
{
	mm_fault_arm(strtoull(getenv("MM_FAULT_NTH"), NULL, 10));
}

/* Ends a role that has returned @status. */
static inline _Noreturn void point_exit(int status)
{
	exit(status | (mm_fault_fired() ? POINT_FIRED : 0));
}
