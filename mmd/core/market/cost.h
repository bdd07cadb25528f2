/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - what streaming a set of layers costs its tenant, and the link
 *
 * Concept:   Steps differ: one that computes a prompt takes ten times as long as one that only
 *            decodes, and hides ten times as much. A mean would be useless, so a set is played
 *            against the recent steps of each size. Its cost is by how much each of those steps
 *            would be longer.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/plan/plan.h"

#define MM_STEPS_LEAST 16 /* that must have been seen before a cost is known */

/*
 * Returns by how much @set would make a step longer on average, in permille of its computing time,
 * if the largest layer's transfer takes @t_t_ns; UINT32_MAX: too little was measured.
 */
uint32_t mm_c_slow_permille(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns);
/*
 * Returns by how much steps would be longer on average if transfers of @load_ns were in each, in
 * permille of their computing time; UINT32_MAX: too little was measured.
 */
uint32_t mm_c_load_permille(const struct mm_c_tenant *t, uint64_t load_ns);
/*
 * Returns the transfer time of the largest layer when no other tenant uses the link; 0: not known.
 */
uint64_t mm_c_alone_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/*
 * Returns the permille of the link's time that @set takes if it makes steps @slow permille longer.
 */
uint64_t mm_c_set_link_permille(const struct mm_core *c, const struct mm_c_tenant *t,
				const struct mm_plan_set *set, uint32_t slow);
