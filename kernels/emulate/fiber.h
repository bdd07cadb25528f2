/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_fiber - a stack to run on, without a thread
 *
 * Concept:    a switch saves the registers that a call preserves and goes on where the other fiber
 *             was: a few nanoseconds, no system call (elsewhere than on x86-64: swapcontext(),
 *             which has one). Sanitizers are told. TSan takes fibers for threads of their own and
 *             sees no order between them but what mm_fiber_publish() and mm_fiber_observe() say.
 * Ownership:  mm_fiber_create() maps the stack. A fiber may be destroyed wherever it stands.
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
	void *sp; /* where it stands */
#else
	ucontext_t context;
#endif
	char *stack;
	size_t stack_bytes;
	void *shadow; /* the sanitizers' */
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

/* Describes the calling thread's own stack, to switch back to. Undone by mm_fiber_destroy(). */
void mm_fiber_here(struct mm_fiber *f);

/* Saves the running fiber in @from, goes on with @to; returns when somebody switches to @from. */
void mm_fiber_switch(struct mm_fiber *from, struct mm_fiber *to);

/* What was written before publishing at @place is seen by who observes there afterwards. */
void mm_fiber_publish(void *place);
void mm_fiber_observe(void *place);

/* Tells ASan that nothing may touch these bytes, or that they may be touched. */
void mm_fiber_close(char *p, size_t bytes);
void mm_fiber_open(char *p, size_t bytes);
