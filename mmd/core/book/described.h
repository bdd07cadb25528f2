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

extern const struct mm_fields mm_core_quota_fields;
extern const struct mm_fields mm_account_turn_fields;
extern const struct mm_fields mm_account_fields;
extern const struct mm_fields mm_page_fields;
extern const struct mm_fields mm_page_list_fields;
extern const struct mm_fields mm_ledger_fields;
extern const struct mm_fields mm_c_mins_fields;
extern const struct mm_fields mm_core_opts_fields;
extern const struct mm_fields mm_core_stats_fields;
extern const struct mm_fields mm_c_copies_fields;
extern const struct mm_fields mm_core_fields;
extern const struct mm_fields mm_tenant_stats_fields;
extern const struct mm_fields mm_slope_fields;
extern const struct mm_fields mm_c_steps_fields;
extern const struct mm_fields mm_c_load_fields;
extern const struct mm_fields mm_c_kv_fields;
extern const struct mm_fields mm_c_mem_fields;
extern const struct mm_fields mm_core_slot_fields;
extern const struct mm_fields mm_core_plan_fields;
extern const struct mm_fields mm_c_hold_fields;
extern const struct mm_fields mm_c_unload_fields;
extern const struct mm_fields mm_c_group_fields;
extern const struct mm_fields mm_c_tenant_fields;
extern const struct mm_fields mm_core_times_fields;
extern const struct mm_fields mm_core_tally_fields;
extern const struct mm_fields mm_wait_fields;
extern const struct mm_fields mm_c_tally_fields;
