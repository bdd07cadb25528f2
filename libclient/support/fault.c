/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault - counts the calls of fault points in this process, and lets one of them fail
 *
 * Several threads call fault points, so the count is atomic; arming is for single-threaded moments.
 */
#include "libclient/support/fault.h"

#ifdef MM_FAULT_INJECTION

static uint64_t fault_nth; /* 0: disarmed */
static uint64_t fault_calls;
static bool fault_hit;

void mm_fault_arm(uint64_t nth)
{
	__atomic_store_n(&fault_nth, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&fault_calls, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&fault_hit, false, __ATOMIC_SEQ_CST);
	__atomic_store_n(&fault_nth, nth, __ATOMIC_SEQ_CST);
}

bool mm_fault_fired(void)
{
	return __atomic_load_n(&fault_hit, __ATOMIC_SEQ_CST);
}

bool mm_fault(const char *point)
{
	uint64_t nth = __atomic_load_n(&fault_nth, __ATOMIC_SEQ_CST);

	(void)point; /* for the reader and for breakpoints */
	if (!nth || __atomic_add_fetch(&fault_calls, 1, __ATOMIC_SEQ_CST) != nth)
		return false;
	__atomic_store_n(&fault_hit, true, __ATOMIC_SEQ_CST);
	return true;
}

#endif
