/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter - the system calls that a role may make
 *
 * Concept:   A list of calls. Those of a role that could be written completely are allowed, with
 *            what every role needs, and any other call kills the process. The list of a role that
 *            runs a driver names what is refused instead, with EPERM. Code that needs another call
 *            adds it to its role's list; a role that dies of SIGSYS lacks one. The filter holds in
 *            all threads. Memory is never executable in a role with a list of what is allowed.
 * Threading: any.
 * Limits:    in sanitizer builds there is no filter: their run-times make calls of their own. A
 *            filter sees numbers, not strings: a call that takes a path takes any path.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MM_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MM_SANITIZED 1
#endif
#endif
#ifndef MM_SANITIZED
#define MM_SANITIZED 0
#endif

enum mm_sandbox {
	MM_SANDBOX_ON,
	MM_SANDBOX_LOG, /* a call that is not allowed is made, and the kernel logs it */
	MM_SANDBOX_OFF, /* no filter; debuggers may attach */
};

struct mm_filter {
	const int *calls; /* SCMP_SYS() of each */
	size_t n_calls;
	const int *failing; /* calls that fail with EPERM, because libraries try them */
	size_t n_failing;
	bool threads;     /* it may start threads */
	bool opens_files; /* it may open files that exist */
	bool refuses;     /* @calls, and the network, are refused with EPERM; else all is allowed */
};

/* Return: 0; -errno. */
int mm_filter_load(const struct mm_filter *filter, enum mm_sandbox sandbox);
