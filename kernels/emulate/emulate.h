/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulate - runs CUDA kernels, compiled as C, on the calling thread
 *
 * Concept:    blocks run one after the other; a block's threads are fibers that run until they wait
 *             for each other (__syncthreads(), a shuffle) or end. A kernel that never waits needs
 *             one fiber for all of its threads and no switch between them; under TSan each thread
 *             is a fiber always, so that races between them show. Threads and blocks go in the
 *             order that mm_emulate_order() sets: what depends on it, a barrier that is missing for
 *             example, gives different results. Shared memory holds 0xff bytes (as floats: NaN) at
 *             the start of each block, and dynamic shared memory ends at a page that cannot be
 *             touched.
 * Errors:     what CUDA leaves undefined ends the process with a message on stderr (abort()), never
 *             in a hang: threads of a block that wait at different barriers or for one that has
 *             ended; a shuffle whose mask names lanes that do not come, or that reads from a lane
 *             outside of it. Beyond the launch's dynamic shared memory there is a fault.
 * Ownership:  stacks and shared memory belong to an emulator; those that no launch uses are kept
 *             for the next one, of any thread, until the module is unloaded.
 * Faults:     a kernel that touches device memory it may not is left by mm_host_fault()
 *             (kernels/host/kernel.h): its stacks are given up, the emulator goes back.
 * Threading:  any thread; launches of several threads run side by side.
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
 * @thread: what one thread runs
 * @args:   for @thread; read by all of them
 */
void mm_emulate_launch(const char *name, const struct mm_host_launch *shape,
		       void (*thread)(const void *args), const void *args);

/* Of launches from now on, in this module: forward, reverse, or shuffled by any other number. */
MM_EXPORT void mm_emulate_order(uint64_t order);
