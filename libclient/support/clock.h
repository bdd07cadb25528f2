/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock - CLOCK_MONOTONIC in nanoseconds
 *
 * Concept:   It is the only clock whose times mmd and its tenants exchange and compare.
 * Threading: any.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#include "libclient/base/base.h"

static inline struct timespec mm_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / MM_NS_PER_S),
				  .tv_nsec = (long)(ns % MM_NS_PER_S) };
}

static inline uint64_t mm_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The time @after_ns from now; UINT64_MAX stays "never". */
static inline uint64_t mm_deadline_ns(uint64_t after_ns)
{
	uint64_t now_ns = mm_now_ns();

	return after_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + after_ns;
}
