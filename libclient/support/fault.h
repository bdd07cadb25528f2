/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault - fault points: lets every failure be tested (tests/fault)
 *
 * Concept:   The first line of a function that can fail calls mm_fault("what.where") and fails if
 *            it returns true. A test lets the 1st, 2nd, 3rd... call in a process fail, until its
 *            scenario passes without a failure. Without MM_FAULT_INJECTION it is a constant false.
 * Threading: mm_fault() may be called by any thread; mm_fault_arm() is for single-threaded moments.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef MM_FAULT_INJECTION
/**
 * mm_fault() - whether this call is to fail
 * @point: noun.verb, for the reader
 *
 * Return: true once after mm_fault_arm(n), at the n-th call of this process.
 */
bool mm_fault(const char *point);

/**
 * mm_fault_arm() - let the @nth call of mm_fault() from now on return true
 * @nth: from 1; 0: no call
 */
void mm_fault_arm(uint64_t nth);

/**
 * mm_fault_fired() - whether the armed call has happened
 *
 * Return: true when the armed call has come since mm_fault_arm().
 */
bool mm_fault_fired(void);
#else
static inline bool mm_fault(const char *point)
{
	(void)point;
	return false;
}
#endif
