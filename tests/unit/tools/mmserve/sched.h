/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers shared by the tests of the batch scheduler. Include cmocka.h first. */
#pragma once

#include "tools/mmserve/sched/sched.h"

/* Fails the test if an invariant of the scheduler does not hold, and prints which. */
static inline void sched_check(const struct mm_sched *s)
{
	const char *wrong = mm_sched_check(s);

	if (wrong)
		fail_msg("%s", wrong);
}
