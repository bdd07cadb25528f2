/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described - the structs of this room, field by field, for images of a core
 *
 * Concept:    Each room describes its own structs, and image.h puts them together. What is not
 *             saved is saved elsewhere, rebuilt, or scratch space that no event finds in use.
 * Ownership:  constant data.
 * Threading:  any.
 */
#pragma once

#include "mmd/fields/fields.h"

extern const struct mm_fields mm_demand_fields;
extern const struct mm_fields mm_c_earmark_fields;
extern const struct mm_fields mm_view_point_fields;
extern const struct mm_fields mm_c_points_fields;
extern const struct mm_fields mm_c_lends_fields;
extern const struct mm_fields mm_c_turn_fields;
extern const struct mm_fields mm_c_turns_fields;
extern const struct mm_fields mm_c_expected_fields;
extern const struct mm_fields mm_c_sums_fields;
extern const struct mm_fields mm_c_part_fields;
extern const struct mm_fields mm_view_tenant_fields;
extern const struct mm_fields mm_view_account_fields;
extern const struct mm_fields mm_view_fields;
extern const struct mm_fields mm_value_fields;
extern const struct mm_fields mm_target_fields;
extern const struct mm_fields mm_targets_fields;
extern const struct mm_fields mm_market_memory_fields;
extern const struct mm_fields mm_market_fields;
