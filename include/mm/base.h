/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base - the few helpers that every part of the tree shares
 *
 * Concept:   scope cleanup, always-on asserts, arithmetic that cannot wrap, fault points. Nothing
 *            here knows what a page or a tenant is.
 * Threading: everything is safe from any thread; mm_fault_arm() is for single-threaded tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define mm_cleanup(fn)   __attribute__((cleanup(fn)))
#define MM_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MM_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MM_MAX(a, b)     ((a) > (b) ? (a) : (b))
#define MM_EXPORT        __attribute__((visibility("default")))
#define MM_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define MM_NS_PER_S      UINT64_C(1000000000)
#define MM_NS_PER_MS     UINT64_C(1000000)

/*
 * Outcomes of a call, as opposed to our own failures (negative errno). A positive outcome is handled
 * by the caller and never passed up (style.md §5).
 */
enum mm_outcome { MM_E_EMPTY = 1, MM_E_FULL, MM_E_PROTOCOL, MM_E_QUOTA, MM_E_STALE, MM_E_RANGE };

/* An assert may depend only on bytes we wrote; it stays on in production. */
_Noreturn static inline void mm_panic(const char *expr, const char *file, int line)
{
	fprintf(stderr, "panic: %s:%d: %s\n", file, line, expr);
	abort();
}
#define mm_assert(e) ((e) ? (void)0 : mm_panic(#e, __FILE__, __LINE__))

static inline void mm_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static inline void mm_free_ptr(void *p)
{
	free(*(void **)p);
	*(void **)p = NULL;
}

/* What --driver may be: how mm_gpu_open() reads it. */
#define MM_DRIVER_CHOICES "software, cuda, or the path of a driver library"

static inline bool mm_is_driver(const char *word)
{
	return strcmp(word, "software") == 0 || strcmp(word, "cuda") == 0 || strchr(word, '/');
}

/* Rounds up to a multiple of @unit, which need not be a power of two; 0 when that would wrap. */
static inline uint64_t mm_round_up(uint64_t value, uint64_t unit)
{
	uint64_t rest = value % unit;

	if (!rest)
		return value;
	return value > UINT64_MAX - (unit - rest) ? 0 : value + (unit - rest);
}

static inline uint64_t mm_div_up(uint64_t value, uint64_t unit)
{
	return value / unit + (value % unit != 0);
}

/*
 * Fault points (tests/fault): the first line of a fallible function asks mm_fault("what.where") and
 * fails if told to. A constant false in release builds.
 */
#ifdef MM_FAULT_INJECTION
/**
 * mm_fault() - is this call the one that was asked to fail?
 * @point: noun.verb, for the reader
 *
 * Return: true once after mm_fault_arm(n), at the n-th call of this process.
 */
bool mm_fault(const char *point);

/**
 * mm_fault_arm() - ask the @nth call of mm_fault() from now on to say true
 * @nth: from 1; 0 = none
 */
void mm_fault_arm(uint64_t nth);

/**
 * mm_fault_fired() - did it?
 *
 * Return: true when the armed call has come since mm_fault_arm().
 */
bool mm_fault_fired(void);
#else
static inline bool mm_fault(const char *point)
{
	(void)point;
	return false;
}
#endif
