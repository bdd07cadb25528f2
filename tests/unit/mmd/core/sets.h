/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of layers as bit masks and back, for comparisons with all sets
 * there are. Include cmocka.h first.
 */
#pragma once

#include "mmd/core/plan/plan.h"

static inline struct mm_plan_set set_from(uint32_t mask, uint32_t beta)
{
	struct mm_plan_set set = { .beta = beta };

	for (uint32_t i = 0; i < 32; i++)
		if (mask >> i & 1)
			set.layer[set.m++] = (uint16_t)i;
	return set;
}

static inline uint32_t mask_of(const struct mm_plan_set *set)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < set->m; i++) {
		assert_true(!i || set->layer[i] > set->layer[i - 1]);
		mask |= 1u << set->layer[i];
	}
	return mask;
}
