/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepped - what a process that is killed after any instruction leaves in shared memory
 *
 * Concept:   A script runs in a child, one instruction at a time, and changes memory that it shares
 *            with the test. Between two instructions that memory is what would be left if the child
 *            were killed there. The test copies it, recovers the copy and looks at the outcome;
 *            then the child goes on. So every instruction is covered in one run of the script.
 * Threading: one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory that the script's process shares with the test; undo with munmap(). */
void *stepped_memory(size_t bytes);

/**
 * stepped_run() - run a script, and stop it between instructions
 * @script: runs in the child; it must not end the process
 * @look:   is called in the test's process, while the child stands still
 * @arg:    of both
 * @every:  instructions between two looks; 1: each
 *
 * A script that crashes fails the test. Return: instructions of the script.
 */
uint64_t stepped_run(void (*script)(void *arg), void (*look)(void *arg), void *arg, uint64_t every);

/* @every for this build: 1 where the script is short and MM_TEST_LONG is set, else more. */
uint64_t stepped_every(uint64_t usual);
