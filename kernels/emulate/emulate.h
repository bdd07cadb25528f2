/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulate - runs CUDA kernels, compiled as C, on the calling thread
 *
 * Concept:    blocks run one after the other; a block's threads are fibers that run until they wait
 *             for each other (__syncthreads(), a shuffle) or end. A kernel that never waits needs
 *             one fiber for all of its threads and no switch between them; under TSan each thread
 *             is always a fiber, so that races between them are found. Threads and blocks run in
 *             the order that mm_emulate_order() sets: a result that depends on it, because a
 *             barrier is missing for example, changes. Shared memory holds 0xff bytes (as floats:
 *             NaN) at the start of each block, and dynamic shared memory ends at a page that cannot
 *             be accessed.
 * Errors:     a kernel whose behaviour CUDA leaves undefined ends the process with a message on
 *             stderr (abort()), and never hangs: threads of a block that wait at different barriers
 *             or for one that has ended; a shuffle whose mask names lanes that do not come, or that
 *             reads from a lane outside of it. An access beyond the launch's dynamic shared memory
 *             faults.
 * Ownership:  stacks and shared memory belong to an emulator; idle ones are kept for the next
 *             launch, of any thread, until the module is unloaded.
 * Faults:     a kernel that makes a forbidden access to device memory is left by mm_host_fault()
 *             (kernels/host/kernel.h): its stacks are freed with the emulator.
 * Threading:  any thread; launches of several threads run in parallel.
 */
#pragma once

#include "kernels/host/kernel.h"
#include "libclient/base/base.h"

#define MM_EMULATE_FORWARD 0u
#define MM_EMULATE_REVERSE 1u

/**
 * mm_emulate_launch() - run a kernel's whole grid
 * @name:   for messages
 * @shape:  at most 1024 threads a block
 * @thread: the function of one thread
 * @args:   for @thread; read by all threads
 */
void mm_emulate_launch(const char *name, const struct mm_host_launch *shape,
		       void (*thread)(const void *args), const void *args);

/*
 * Sets the order of threads and blocks for later launches of this module: forward, reverse, or
 * shuffled by any other number.
 */
MM_EXPORT void mm_emulate_order(uint64_t order);
