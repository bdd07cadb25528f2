/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_fault - device accesses that the device's mappings do not allow
 *
 * Concept:   device memory is mapped where its virtual address says, so a bad access raises SIGSEGV
 *            or SIGBUS. Inside sg_guarded() that ends the function with an error; anywhere else the
 *            signal goes to whoever handled it before us.
 * Threading: the guard is the calling thread's. A function run under it must hold no lock.
 */
#pragma once

#include <stdbool.h>

/* Installs the handlers where they are not ours; again whenever somebody may have replaced them. */
void sg_fault_install(void);

/* Return: false if @fn was left by a fault. */
bool sg_guarded(void (*fn)(void *arg), void *arg);

/* @fn, or nothing if NULL: called in the handler before what this thread runs guarded is left. */
void sg_fault_first(void (*fn)(void));
