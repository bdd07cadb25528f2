/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_fiber - a stack to run on, without a thread
 *
 * Concept:    a switch saves the registers that a call preserves and goes on where the other fiber
 *             stopped: a few nanoseconds, no system call (elsewhere than on x86-64: swapcontext(),
 *             which has one). Sanitizers are informed. TSan takes fibers for threads of their own
 *             and knows no order between them but that of mm_fiber_publish() and
 *             mm_fiber_observe().
 * Ownership:  mm_fiber_create() maps the stack. A fiber may be destroyed wherever it was suspended.
 * Threading:  a fiber runs on the thread that first switched to it; a thread's own stack is the
 *             fiber that mm_fiber_here() describes.
 */
#pragma once

#include <stddef.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct mm_fiber {
#if defined(__x86_64__)
	void *sp; /* stack pointer of the suspended fiber */
#else
	ucontext_t context;
#endif
	char *stack;
	size_t stack_bytes;
	void *shadow; /* shadow and tsan: handles of the sanitizers */
	void *tsan;
	void (*entry)(void *arg);
	void *arg;
};

/**
 * mm_fiber_create() - a fiber that has not run yet
 * @f:     any bytes; must not move until mm_fiber_destroy()
 * @entry: must never return
 *
 * Return: 0; -ENOMEM.
 */
int mm_fiber_create(struct mm_fiber *f, void (*entry)(void *arg), void *arg);
void mm_fiber_destroy(struct mm_fiber *f);

/*
 * Describes the calling thread's own stack, so that fibers can switch back to it. Undone by
 * mm_fiber_destroy().
 */
void mm_fiber_here(struct mm_fiber *f);

/* Saves the running fiber in @from and goes on with @to; returns when a fiber switches to @from. */
void mm_fiber_switch(struct mm_fiber *from, struct mm_fiber *to);

/* A fiber that observes @place sees all writes that others made before they published there. */
void mm_fiber_publish(void *place);
void mm_fiber_observe(void *place);

/* Makes ASan report accesses to these bytes, or permit them again. */
void mm_fiber_close(char *p, size_t bytes);
void mm_fiber_open(char *p, size_t bytes);
