/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the batch scheduler share. Include cmocka.h first. */
#pragma once

#include "tools/mmserve/sched/sched.h"

/* Fails, and prints which, when an invariant of the scheduler does not hold. */
static inline void sched_check(const struct mm_sched *s)
{
	const char *wrong = mm_sched_check(s);

	if (wrong)
		fail_msg("%s", wrong);
}
