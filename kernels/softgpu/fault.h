/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_fault - device accesses that the device's mappings do not allow
 *
 * Concept:   device memory is mapped where its virtual address says, so a bad access raises SIGSEGV
 *            or SIGBUS. Inside sg_guarded() that ends the function with an error; anywhere else the
 *            signal goes to the handler that was installed before.
 * Threading: the guard belongs to the calling thread. A function that runs under it holds no lock.
 */
#pragma once

#include <stdbool.h>

/*
 * Installs the handlers unless they are installed; called again whenever a program may have
 * replaced them.
 */
void sg_fault_install(void);

/* Return: false if @fn was left by a fault. */
bool sg_guarded(void (*fn)(void *arg), void *arg);

/*
 * Sets a function that the handler calls before it leaves the guarded function of this thread;
 * NULL: none.
 */
void sg_fault_first(void (*fn)(void));
