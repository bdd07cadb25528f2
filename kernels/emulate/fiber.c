/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/emulate/fiber.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(MM_EMULATE_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(MM_EMULATE_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(MM_EMULATE_ASAN) || defined(MM_EMULATE_TSAN)
#define STACK_BYTES (512u << 10) /* frames and signal handlers are larger there */
#else
#define STACK_BYTES (128u << 10)
#endif

/* The fiber that switched to the running one. */
static __thread struct mm_fiber *previous __attribute__((tls_model("initial-exec")));

/* ---- what sanitizers are told ---- */

static void switch_begin(struct mm_fiber *from, struct mm_fiber *to)
{
	previous = from;
#if defined(MM_EMULATE_ASAN)
	__sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
#elif defined(MM_EMULATE_TSAN)
	__tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#else
	(void)to;
#endif
}

/* Called on the stack of @now after a switch to it. */
static void switch_end(struct mm_fiber *now)
{
#if defined(MM_EMULATE_ASAN)
	const void *stack;
	size_t bytes;

	__sanitizer_finish_switch_fiber(now->shadow, &stack, &bytes);
	if (!previous->entry) { /* the thread's own stack: only now are its bounds known */
		previous->stack = (char *)(uintptr_t)stack;
		previous->stack_bytes = bytes;
	}
#else
	(void)now;
#endif
}

void mm_fiber_publish(void *place)
{
#if defined(MM_EMULATE_TSAN)
	__tsan_release(place);
#else
	(void)place;
#endif
}

void mm_fiber_observe(void *place)
{
#if defined(MM_EMULATE_TSAN)
	__tsan_acquire(place);
#else
	(void)place;
#endif
}

void mm_fiber_close(char *p, size_t bytes)
{
#if defined(MM_EMULATE_ASAN)
	__asan_poison_memory_region(p, bytes);
#else
	(void)p;
	(void)bytes;
#endif
}

void mm_fiber_open(char *p, size_t bytes)
{
#if defined(MM_EMULATE_ASAN)
	__asan_unpoison_memory_region(p, bytes);
#else
	(void)p;
	(void)bytes;
#endif
}

/* ---- the switch ---- */

static void fiber_begin(struct mm_fiber *f)
{
	switch_end(f);
	f->entry(f->arg);
	abort();
}

#if defined(__x86_64__)

/*
 * mm_fiber_jump(save, sp) pushes the registers that a callee preserves, swaps stacks, and pops them
 * there. A new fiber's stack holds values for mm_fiber_first: its argument and the function to
 * call.
 */
void mm_fiber_jump(void **save, void *sp);
void mm_fiber_first(void);
__asm__(".text\n"
	".hidden mm_fiber_jump\n"
	".globl mm_fiber_jump\n"
	".type mm_fiber_jump, @function\n"
	"mm_fiber_jump:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size mm_fiber_jump, . - mm_fiber_jump\n"
	".hidden mm_fiber_first\n"
	".globl mm_fiber_first\n"
	".type mm_fiber_first, @function\n"
	"mm_fiber_first:\n"
	"	movq %r12, %rdi\n"
	"	xorl %ebp, %ebp\n"
	"	call *%r13\n"
	"	ud2\n"
	".size mm_fiber_first, . - mm_fiber_first\n");

/* Makes the stack look as if mm_fiber_jump() had left it just before mm_fiber_first. */
static int fiber_prepare(struct mm_fiber *f)
{
	uint64_t *sp = (uint64_t *)(void *)(f->stack + f->stack_bytes);

	*--sp = 0; /* the end of a backtrace */
	*--sp = 0;
	*--sp = (uintptr_t)mm_fiber_first;
	*--sp = 0;                      /* rbp */
	*--sp = 0;                      /* rbx */
	*--sp = (uintptr_t)f;           /* r12 */
	*--sp = (uintptr_t)fiber_begin; /* r13 */
	*--sp = 0;                      /* r14 */
	*--sp = 0;                      /* r15 */
	f->sp = sp;
	return 0;
}

void mm_fiber_switch(struct mm_fiber *from, struct mm_fiber *to)
{
	switch_begin(from, to);
	mm_fiber_jump(&from->sp, to->sp);
	switch_end(from);
}

#else

/* makecontext() passes only ints. */
static void fiber_begin_halves(unsigned int high, unsigned int low)
{
	fiber_begin((struct mm_fiber *)((uintptr_t)high << 16 << 16 | low));
}

static int fiber_prepare(struct mm_fiber *f)
{
	const uintptr_t self = (uintptr_t)f;

	if (getcontext(&f->context))
		return -ENOMEM;
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = f->stack_bytes;
	makecontext(&f->context, (void (*)(void))fiber_begin_halves, 2,
		    (unsigned int)(self >> 16 >> 16), (unsigned int)self);
	return 0;
}

void mm_fiber_switch(struct mm_fiber *from, struct mm_fiber *to)
{
	switch_begin(from, to);
	swapcontext(&from->context, &to->context);
	switch_end(from);
}

#endif

/* ---- stacks ---- */

int mm_fiber_create(struct mm_fiber *f, void (*entry)(void *arg), void *arg)
{
	const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
	char *map = mmap(NULL, STACK_BYTES + guard, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	*f = (struct mm_fiber){ .entry = entry, .arg = arg };
	if (map == MAP_FAILED)
		return -ENOMEM;
	f->stack = map + guard;
	f->stack_bytes = STACK_BYTES;
	if (mprotect(map, guard, PROT_NONE) || fiber_prepare(f)) {
		mm_fiber_destroy(f);
		return -ENOMEM;
	}
#if defined(MM_EMULATE_TSAN)
	f->tsan = __tsan_create_fiber(0);
#endif
	return 0;
}

void mm_fiber_destroy(struct mm_fiber *f)
{
	const size_t guard = (size_t)sysconf(_SC_PAGESIZE);

	if (!f->entry)
		return;
#if defined(MM_EMULATE_ASAN)
	__asan_unpoison_memory_region(f->stack, f->stack_bytes); /* frames that were never left */
#elif defined(MM_EMULATE_TSAN)
	if (f->tsan)
		__tsan_destroy_fiber(f->tsan);
#endif
	munmap(f->stack - guard, f->stack_bytes + guard);
	*f = (struct mm_fiber){ 0 };
}

void mm_fiber_here(struct mm_fiber *f)
{
	*f = (struct mm_fiber){ 0 };
#if defined(MM_EMULATE_TSAN)
	f->tsan = __tsan_get_current_fiber();
#endif
}
