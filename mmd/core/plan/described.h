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

extern const struct mm_fields mm_plan_set_fields;
extern const struct mm_fields mm_c_preload_fields;
extern const struct mm_fields mm_change_fields;
extern const struct mm_fields mm_c_chosen_fields;
extern const struct mm_fields mm_c_sets_fields;
extern const struct mm_fields mm_c_swap_list_fields;
extern const struct mm_fields mm_c_swap_fields;
extern const struct mm_fields mm_swap_piece_fields;
extern const struct mm_fields mm_plans_fields;
