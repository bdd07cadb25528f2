/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base - the helpers that every part of the tree uses
 *
 * Concept:   Asserts that stay on in production, arithmetic that cannot wrap, attributes of the
 *            compiler under short names. It is freestanding: core and the machines of the protocol
 *            include it, and it must not give them files, processes or a heap. Nothing here depends
 *            on what a page or a tenant is.
 * Threading: everything is safe from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define mm_cleanup(fn)   __attribute__((cleanup(fn)))
#define MM_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MM_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MM_MAX(a, b)     ((a) > (b) ? (a) : (b))
#define MM_EXPORT        __attribute__((visibility("default")))
#define MM_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define MM_NS_PER_S      UINT64_C(1000000000)
#define MM_NS_PER_MS     UINT64_C(1000000)
#define MM_NS_PER_US     UINT64_C(1000)

/*
 * Outcomes of a call, as opposed to failures of this process (negative errno). The caller handles a
 * positive outcome and never passes it up (CONTRIBUTING.md, "Errors").
 */
enum mm_outcome { MM_E_EMPTY = 1, MM_E_FULL, MM_E_PROTOCOL, MM_E_QUOTA, MM_E_STALE, MM_E_RANGE };

/**
 * mm_panic() - print which assertion failed, and abort
 * @expr: the condition that does not hold
 */
_Noreturn void mm_panic(const char *expr, const char *file, int line);

/* The condition may depend only on bytes that this process wrote; asserts stay on in production. */
#define mm_assert(e) ((e) ? (void)0 : mm_panic(#e, __FILE__, __LINE__))

/* In a function that returns the first condition that does not hold, or NULL. */
#define mm_must(e)                 \
	do {                       \
		if (!(e))          \
			return #e; \
	} while (0)
/* Calls such a function, and returns from this one what does not hold there. */
#define mm_must_pass(call)                        \
	do {                                      \
		const char *const must_ = (call); \
                                                  \
		if (must_)                        \
			return must_;             \
	} while (0)

/*
 * Rounds up to a multiple of @unit, which need not be a power of two; 0 if the result would wrap.
 */
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
