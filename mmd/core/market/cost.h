/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - what streaming a set of layers costs its tenant, and the link
 *
 * Concept:   Steps differ: one that computes a prompt takes ten times as long as one that only
 *            decodes, and hides ten times as much. A mean says nothing then; so a set is played
 *            against the steps of late by size. What it costs is by how much each of those steps
 *            would be longer.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/plan/plan.h"

#define MM_STEPS_LEAST 16 /* that must have been seen */

/*
 * By how much a step would be longer, on average, in permille of its computing; UINT32_MAX: nothing
 * was measured.
 */
uint32_t mm_c_slow_permille(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns);
/* A transfer that has the link to itself. */
uint64_t mm_c_alone_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/* Of the link's time, what @set takes in each step that streaming makes @slow permille longer. */
uint64_t mm_c_set_link_permille(const struct mm_core *c, const struct mm_c_tenant *t,
				const struct mm_plan_set *set, uint32_t slow);
/* Of the link's time, what @t's streaming takes; 0: it does not stream, or is idle. */
uint64_t mm_c_link_permille(const struct mm_core *c, const struct mm_c_tenant *t);
