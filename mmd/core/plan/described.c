/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/described.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/plans.h"

static uint32_t set_used(const void *whole)
{
	return ((const struct mm_plan_set *)whole)->m;
}

MM_FIELDS_DEFINE(mm_plan_set_fields, struct mm_plan_set, MM_ONE(struct mm_plan_set, m),
		 MM_ONE(struct mm_plan_set, beta), MM_ONE(struct mm_plan_set, first_slot),
		 MM_ARRAY_USED(struct mm_plan_set, layer, set_used));

MM_FIELDS_DEFINE(mm_c_preload_fields, struct mm_c_preload, MM_ONE(struct mm_c_preload, n),
		 MM_ONE(struct mm_c_preload, issued), MM_ONE(struct mm_c_preload, done),
		 MM_NOT_SAVED(struct mm_c_preload, entry), MM_NOT_SAVED(struct mm_c_preload, page),
		 MM_ONE(struct mm_c_preload, error), MM_ONE(struct mm_c_preload, sent));

MM_FIELDS_DEFINE(mm_change_fields, struct mm_change,
		 MM_ENUM(struct mm_change, state, MM_CHANGE_STATES),
		 MM_ONE(struct mm_change, unload), MM_ONE(struct mm_change, broken),
		 MM_ONE(struct mm_change, served_epoch), MM_ONE(struct mm_change, mapped),
		 MM_ONE(struct mm_change, open), MM_ARRAY(struct mm_change, home),
		 MM_STRUCT(struct mm_change, set, mm_plan_set_fields),
		 MM_STRUCT(struct mm_change, next_set, mm_plan_set_fields),
		 MM_ONE(struct mm_change, next_alpha),
		 MM_OPTIONAL(struct mm_change, next_cold.classes),
		 MM_OPTIONAL(struct mm_change, next_cold.entries),
		 MM_OPTIONAL(struct mm_change, next_cold.first),
		 MM_OPTIONAL(struct mm_change, next_cold.chunks),
		 MM_OPTIONAL(struct mm_change, next_cold.unit_bytes),
		 MM_STRUCT(struct mm_change, pre, mm_c_preload_fields),
		 MM_ONE(struct mm_change, change_ns), MM_ONE(struct mm_change, spent_ns),
		 MM_ONE(struct mm_change, change_gain), MM_ONE(struct mm_change, retry_ns));

MM_FIELDS_DEFINE(mm_c_chosen_fields, struct mm_c_chosen, MM_ONE(struct mm_c_chosen, alpha),
		 MM_ONE(struct mm_c_chosen, beta), MM_ONE(struct mm_c_chosen, nested),
		 MM_ONE(struct mm_c_chosen, copies),
		 MM_STRUCT(struct mm_c_chosen, set, mm_plan_set_fields));

MM_FIELDS_DEFINE(mm_c_sets_fields, struct mm_c_sets, MM_ONE(struct mm_c_sets, alpha_max),
		 MM_ONE(struct mm_c_sets, alpha_max_two), MM_ONE(struct mm_c_sets, uneven),
		 MM_ARRAY_TRIMMED(struct mm_c_sets, c_weight),
		 MM_ARRAY_TRIMMED(struct mm_c_sets, t_weight), MM_ONE(struct mm_c_sets, claims),
		 MM_ONE(struct mm_c_sets, valid), MM_ONE(struct mm_c_sets, epoch),
		 MM_ONE(struct mm_c_sets, t_c_ns), MM_ONE(struct mm_c_sets, t_t_ns),
		 MM_ONE(struct mm_c_sets, times_ns), MM_ONE(struct mm_c_sets, next),
		 MM_STRUCTS(struct mm_c_sets, chosen, mm_c_chosen_fields));

MM_FIELDS_DEFINE(mm_c_swap_list_fields, struct mm_c_swap_list, MM_ONE(struct mm_c_swap_list, used),
		 MM_ONE(struct mm_c_swap_list, in), MM_ONE(struct mm_c_swap_list, user_data),
		 MM_ONE(struct mm_c_swap_list, n), MM_ONE(struct mm_c_swap_list, at),
		 MM_ONE(struct mm_c_swap_list, done), MM_ONE(struct mm_c_swap_list, jobs),
		 MM_ONE(struct mm_c_swap_list, error));

MM_FIELDS_DEFINE(mm_c_swap_fields, struct mm_c_swap, MM_ONE(struct mm_c_swap, bytes),
		 MM_ONE(struct mm_c_swap, jobs), MM_ONE(struct mm_c_swap, next_lot),
		 MM_STRUCTS(struct mm_c_swap, list, mm_c_swap_list_fields));

MM_FIELDS_DEFINE(mm_swap_piece_fields, struct mm_swap_piece,
		 MM_ONE(struct mm_swap_piece, arena_offset),
		 MM_ONE(struct mm_swap_piece, swap_offset), MM_ONE(struct mm_swap_piece, bytes),
		 MM_ONE(struct mm_swap_piece, range));

MM_FIELDS_DEFINE(mm_plans_fields, struct mm_plans, MM_NOT_SAVED(struct mm_plans, change),
		 MM_NOT_SAVED(struct mm_plans, sets), MM_NOT_SAVED(struct mm_plans, swap),
		 MM_NOT_SAVED(struct mm_plans, swap_pieces), MM_NOT_SAVED(struct mm_plans, spill),
		 MM_NOT_SAVED(struct mm_plans, n_spill), MM_NOT_SAVED(struct mm_plans, storage));
