/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/described.h"

#include "libclient/base/base.h"
#include "mmd/core/market/market.h"

static uint32_t points_used(const void *whole)
{
	return ((const struct mm_c_points *)whole)->n;
}

static uint32_t points_next_used(const void *whole)
{
	return ((const struct mm_c_points *)whole)->next_n;
}

static uint32_t view_points_used(const void *whole)
{
	return ((const struct mm_view_tenant *)whole)->points;
}

MM_FIELDS_DEFINE(mm_demand_fields, struct mm_demand, MM_ONE(struct mm_demand, wanted),
		 MM_ONE(struct mm_demand, wanted_max), MM_ONE(struct mm_demand, since_ns),
		 MM_ONE(struct mm_demand, order), MM_ONE(struct mm_demand, kept_ns),
		 MM_ONE(struct mm_demand, answered), MM_ONE(struct mm_demand, denied_ns),
		 MM_ONE(struct mm_demand, error), MM_ONE(struct mm_demand, requests),
		 MM_ONE(struct mm_demand, reclaims), MM_ONE(struct mm_demand, reclaim_left),
		 MM_ONE(struct mm_demand, reclaim_last), MM_ONE(struct mm_demand, unresponsive),
		 MM_ONE(struct mm_demand, reclaim_until_ns));

MM_FIELDS_DEFINE(mm_c_earmark_fields, struct mm_c_earmark, MM_ONE(struct mm_c_earmark, alpha),
		 MM_ONE(struct mm_c_earmark, pages), MM_ONE(struct mm_c_earmark, most),
		 MM_ONE(struct mm_c_earmark, until_ns), MM_ONE(struct mm_c_earmark, expired));

MM_FIELDS_DEFINE(mm_view_point_fields, struct mm_view_point, MM_ONE(struct mm_view_point, alpha),
		 MM_ONE(struct mm_view_point, slow_permille),
		 MM_ONE(struct mm_view_point, link_permille));

MM_FIELDS_DEFINE(mm_c_points_fields, struct mm_c_points, MM_ONE(struct mm_c_points, epoch),
		 MM_ONE(struct mm_c_points, claims), MM_ONE(struct mm_c_points, transfer_ns),
		 MM_ONE(struct mm_c_points, step_ns), MM_ONE(struct mm_c_points, alpha),
		 MM_ONE(struct mm_c_points, n),
		 MM_STRUCTS_USED(struct mm_c_points, point, mm_view_point_fields, points_used),
		 MM_ONE(struct mm_c_points, next_n), MM_ONE(struct mm_c_points, next_at),
		 MM_STRUCTS_USED(struct mm_c_points, next, mm_view_point_fields, points_next_used));

MM_FIELDS_DEFINE(mm_c_lends_fields, struct mm_c_lends, MM_ONE(struct mm_c_lends, taken_ns),
		 MM_ONE(struct mm_c_lends, by_hand_ns),
		 MM_STRUCT(struct mm_c_lends, earmark, mm_c_earmark_fields),
		 MM_ONE(struct mm_c_lends, stuck_until_ns), MM_ONE(struct mm_c_lends, stuck_times),
		 MM_ONE(struct mm_c_lends, big_pages), MM_ONE(struct mm_c_lends, hungry_permille),
		 MM_ONE(struct mm_c_lends, late_permille), MM_ONE(struct mm_c_lends, requests_done),
		 MM_ONE(struct mm_c_lends, requests_late),
		 MM_STRUCT(struct mm_c_lends, points, mm_c_points_fields));

MM_FIELDS_DEFINE(mm_c_turn_fields, struct mm_c_turn, MM_ENUM(struct mm_c_turn, mode, MM_TURN_MODES),
		 MM_ONE(struct mm_c_turn, priority), MM_ONE(struct mm_c_turn, quantum_ns),
		 MM_ONE(struct mm_c_turn, wants), MM_ONE(struct mm_c_turn, interrupted),
		 MM_ONE(struct mm_c_turn, since_ns), MM_ONE(struct mm_c_turn, queued),
		 MM_ONE(struct mm_c_turn, left_ns), MM_ONE(struct mm_c_turn, charged_ns),
		 MM_ONE(struct mm_c_turn, lapses), MM_ONE(struct mm_c_turn, turns),
		 MM_ONE(struct mm_c_turn, overdue), MM_ONE(struct mm_c_turn, holds),
		 MM_ONE(struct mm_c_turn, serial), MM_ONE(struct mm_c_turn, begun_ns),
		 MM_ONE(struct mm_c_turn, home_ns), MM_ONE(struct mm_c_turn, rank),
		 MM_ONE(struct mm_c_turn, account_rank), MM_ONE(struct mm_c_turn, return_requested),
		 MM_ONE(struct mm_c_turn, until_ns), MM_ONE(struct mm_c_turn, alone),
		 MM_ONE(struct mm_c_turn, closing), MM_ONE(struct mm_c_turn, kv_left),
		 MM_ONE(struct mm_c_turn, kv_awaited), MM_ONE(struct mm_c_turn, kv_back),
		 MM_ONE(struct mm_c_turn, kv_ns), MM_ONE(struct mm_c_turn, home_ns_mean));

MM_FIELDS_DEFINE(mm_c_turns_fields, struct mm_c_turns, MM_ONE(struct mm_c_turns, beside),
		 MM_ONE(struct mm_c_turns, quantum_ns), MM_ONE(struct mm_c_turns, holders),
		 MM_NOT_SAVED(struct mm_c_turns, holder), MM_ONE(struct mm_c_turns, serial),
		 MM_ONE(struct mm_c_turns, begun_ns), MM_ONE(struct mm_c_turns, looked_ns),
		 MM_ONE(struct mm_c_turns, account_contended),
		 MM_ONE(struct mm_c_turns, device_contended), MM_ONE(struct mm_c_turns, most_ns));

MM_FIELDS_DEFINE(mm_c_expected_fields, struct mm_c_expected, MM_ONE(struct mm_c_expected, coming),
		 MM_ONE(struct mm_c_expected, all), MM_ARRAY_TRIMMED(struct mm_c_expected, of));

MM_FIELDS_DEFINE(mm_c_sums_fields, struct mm_c_sums, MM_ONE(struct mm_c_sums, coming),
		 MM_ONE(struct mm_c_sums, waiting), MM_ARRAY_TRIMMED(struct mm_c_sums, own));

MM_FIELDS_DEFINE(mm_c_part_fields, struct mm_c_part, MM_ONE(struct mm_c_part, demand),
		 MM_ONE(struct mm_c_part, kept), MM_ONE(struct mm_c_part, keeps),
		 MM_ONE(struct mm_c_part, room), MM_ONE(struct mm_c_part, min));

MM_FIELDS_DEFINE(
	mm_view_tenant_fields, struct mm_view_tenant, MM_ONE(struct mm_view_tenant, index),
	MM_ONE(struct mm_view_tenant, account), MM_ONE(struct mm_view_tenant, weight),
	MM_ONE(struct mm_view_tenant, priority), MM_ONE(struct mm_view_tenant, lends),
	MM_ONE(struct mm_view_tenant, changing), MM_ONE(struct mm_view_tenant, layers),
	MM_ONE(struct mm_view_tenant, layer_pages), MM_ONE(struct mm_view_tenant, fixed_pages),
	MM_ONE(struct mm_view_tenant, slot_pages), MM_ONE(struct mm_view_tenant, alpha_max),
	MM_ONE(struct mm_view_tenant, alpha), MM_ONE(struct mm_view_tenant, alpha_next),
	MM_ONE(struct mm_view_tenant, change_pages), MM_ONE(struct mm_view_tenant, alpha_two),
	MM_ONE(struct mm_view_tenant, cycling), MM_ONE(struct mm_view_tenant, taken_ns),
	MM_ONE(struct mm_view_tenant, change_from_ns), MM_ONE(struct mm_view_tenant, transfer_ns),
	MM_ONE(struct mm_view_tenant, big_pages), MM_ONE(struct mm_view_tenant, chunk_pages),
	MM_ONE(struct mm_view_tenant, kv_held), MM_ONE(struct mm_view_tenant, kv_share),
	MM_ONE(struct mm_view_tenant, kv_limit), MM_ONE(struct mm_view_tenant, gives),
	MM_ONE(struct mm_view_tenant, reclaims), MM_ONE(struct mm_view_tenant, asked),
	MM_ONE(struct mm_view_tenant, swap_bytes), MM_ONE(struct mm_view_tenant, kv_used),
	MM_ONE(struct mm_view_tenant, kv_wanted), MM_ONE(struct mm_view_tenant, kv_queued),
	MM_ONE(struct mm_view_tenant, running), MM_ONE(struct mm_view_tenant, waiting),
	MM_ONE(struct mm_view_tenant, late_permille), MM_ONE(struct mm_view_tenant, step_ns),
	MM_ONE(struct mm_view_tenant, longest_ns), MM_ONE(struct mm_view_tenant, layer_ns),
	MM_ONE(struct mm_view_tenant, largest_ns), MM_ONE(struct mm_view_tenant, kappa_permille),
	MM_ONE(struct mm_view_tenant, active), MM_ONE(struct mm_view_tenant, hungry_permille),
	MM_ONE(struct mm_view_tenant, active_ns), MM_ONE(struct mm_view_tenant, stepped_ns),
	MM_ONE(struct mm_view_tenant, home_mean_ns),
	MM_ENUM(struct mm_view_tenant, turn, MM_VIEW_HOLDS + 1),
	MM_ONE(struct mm_view_tenant, turn_ends), MM_ONE(struct mm_view_tenant, place),
	MM_ONE(struct mm_view_tenant, turn_since_ns), MM_ONE(struct mm_view_tenant, quantum_ns),
	MM_ONE(struct mm_view_tenant, goal_ttft_ns), MM_ONE(struct mm_view_tenant, goal_tpot_ns),
	MM_OPTIONAL(struct mm_view_tenant, cold_most),
	MM_OPTIONAL(struct mm_view_tenant, cold_floor),
	MM_OPTIONAL(struct mm_view_tenant, cold_limit),
	MM_OPTIONAL(struct mm_view_tenant, cold_by_hand),
	MM_OPTIONAL(struct mm_view_tenant, cold_classes),
	MM_OPTIONAL(struct mm_view_tenant, cold_unit_bytes),
	MM_OPTIONAL(struct mm_view_tenant, cold_entry_ns),
	MM_OPTIONAL(struct mm_view_tenant, cold_live),
	MM_OPTIONAL(struct mm_view_tenant, stall_permille),
	MM_ARRAY_AS(struct mm_view_tenant, load_slow, .optional = true, .trimmed = true),
	MM_ONE(struct mm_view_tenant, points),
	MM_STRUCTS_USED(struct mm_view_tenant, point, mm_view_point_fields, view_points_used));

MM_FIELDS_DEFINE(mm_view_account_fields, struct mm_view_account,
		 MM_ONE(struct mm_view_account, min_pages),
		 MM_ONE(struct mm_view_account, max_pages), MM_ONE(struct mm_view_account, charged),
		 MM_ONE(struct mm_view_account, owes), MM_ONE(struct mm_view_account, lacks),
		 MM_ONE(struct mm_view_account, spare), MM_ONE(struct mm_view_account, wants));

MM_FIELDS_DEFINE(mm_view_fields, struct mm_view, MM_ONE(struct mm_view, now_ns),
		 MM_ENUM(struct mm_view, policy, MM_POLICY_COUNT), MM_ONE(struct mm_view, pages),
		 MM_ONE(struct mm_view, free), MM_ONE(struct mm_view, coming),
		 MM_ONE(struct mm_view, unused_mins), MM_ONE(struct mm_view, big_pages),
		 MM_ONE(struct mm_view, needed), MM_ONE(struct mm_view, short_pages),
		 MM_ONE(struct mm_view, surplus), MM_ONE(struct mm_view, reversion),
		 MM_ONE(struct mm_view, link_slows_permille), MM_ONE(struct mm_view, rho_permille),
		 MM_ONE(struct mm_view, dwell_ns), MM_ONE(struct mm_view, turn_cost_permille),
		 MM_ONE(struct mm_view, may_beside), MM_ONE(struct mm_view, may_turns),
		 MM_OPTIONAL(struct mm_view, cold), MM_OPTIONAL(struct mm_view, page_bytes),
		 MM_ONE(struct mm_view, joined), MM_ONE(struct mm_view, n_tenants),
		 MM_ONE(struct mm_view, n_accounts), MM_NOT_SAVED(struct mm_view, tenant),
		 MM_NOT_SAVED(struct mm_view, account));

MM_FIELDS_DEFINE(mm_value_fields, struct mm_value, MM_ONE(struct mm_value, computing),
		 MM_ONE(struct mm_value, weight_permille), MM_ONE(struct mm_value, gain_permille),
		 MM_ONE(struct mm_value, kv_pages), MM_ONE(struct mm_value, kv_enough),
		 MM_ONE(struct mm_value, rho_permille),
		 MM_ONE(struct mm_value, link_slows_permille),
		 MM_ONE(struct mm_value, link_permille), MM_OPTIONAL(struct mm_value, cold_load),
		 MM_ONE(struct mm_value, slow_most), MM_ONE(struct mm_value, alpha_least),
		 MM_ONE(struct mm_value, alpha_most));

MM_FIELDS_DEFINE(mm_target_fields, struct mm_target, MM_ONE(struct mm_target, alpha),
		 MM_ONE(struct mm_target, kv_most), MM_ONE(struct mm_target, kv_keep),
		 MM_ENUM(struct mm_target, first, MM_FIRST_IDLE + 1),
		 MM_ENUM(struct mm_target, why, MM_WHYS), MM_ONE(struct mm_target, worth),
		 MM_ONE(struct mm_target, worth_more), MM_ONE(struct mm_target, valued),
		 MM_OPTIONAL(struct mm_target, cold),
		 MM_OPTIONAL_ENUM(struct mm_target, cold_why, MM_COOL_WHYS),
		 MM_STRUCT(struct mm_target, value, mm_value_fields));

MM_FIELDS_DEFINE(mm_targets_fields, struct mm_targets, MM_ONE(struct mm_targets, decided_ns),
		 MM_ONE(struct mm_targets, again_ns), MM_ONE(struct mm_targets, chunks_for_layers),
		 MM_ONE(struct mm_targets, as_needed), MM_ONE(struct mm_targets, keep_free),
		 MM_ONE(struct mm_targets, beside), MM_ONE(struct mm_targets, turn_of),
		 MM_ONE(struct mm_targets, memory_of), MM_ONE(struct mm_targets, turn_ns),
		 MM_ONE(struct mm_targets, demand), MM_ONE(struct mm_targets, supply),
		 MM_ONE(struct mm_targets, missed_beside), MM_ONE(struct mm_targets, missed_turns),
		 MM_NOT_SAVED(struct mm_targets, tenant));

MM_FIELDS_DEFINE(
	mm_market_memory_fields, struct mm_market_memory, MM_ONE(struct mm_market_memory, chosen),
	MM_ONE(struct mm_market_memory, surplus_ns), MM_ONE(struct mm_market_memory, beside),
	MM_ONE(struct mm_market_memory, mode_since_ns),
	MM_ONE(struct mm_market_memory, mode_changed_ns), MM_ONE(struct mm_market_memory, rotates),
	MM_ONE(struct mm_market_memory, rotates_since_ns),
	MM_ONE(struct mm_market_memory, memory_of), MM_ONE(struct mm_market_memory, memory_of_ns),
	MM_ONE(struct mm_market_memory, memory_account),
	MM_ONE(struct mm_market_memory, memory_weight),
	MM_ARRAY_TRIMMED(struct mm_market_memory, charged_ns),
	MM_ONE(struct mm_market_memory, charged_now_ns),
	MM_ARRAY_TRIMMED(struct mm_market_memory, memory_was_ns),
	MM_ARRAY_TRIMMED(struct mm_market_memory, taken_ns),
	MM_ARRAY_AS(struct mm_market_memory, cold_cap, .optional = true, .trimmed = true),
	MM_ARRAY_AS(struct mm_market_memory, cold_cut_ns, .optional = true, .trimmed = true),
	MM_ARRAY_AS(struct mm_market_memory, cold_used_ns, .optional = true, .trimmed = true),
	MM_ARRAY_AS(struct mm_market_memory, cold_bid_ns, .optional = true, .trimmed = true),
	MM_ARRAY_AS(struct mm_market_memory, cold_mean, .optional = true, .trimmed = true));

MM_FIELDS_DEFINE(mm_market_fields, struct mm_market, MM_NOT_SAVED(struct mm_market, policy),
		 MM_NOT_SAVED(struct mm_market, demand), MM_NOT_SAVED(struct mm_market, lends),
		 MM_NOT_SAVED(struct mm_market, tenant_turn),
		 MM_STRUCT(struct mm_market, turn, mm_c_turns_fields),
		 MM_STRUCT(struct mm_market, expected, mm_c_expected_fields),
		 MM_STRUCT(struct mm_market, sums, mm_c_sums_fields),
		 MM_STRUCTS_TRIMMED(struct mm_market, part, mm_c_part_fields),
		 MM_ONE(struct mm_market, kv_orders), MM_ONE(struct mm_market, unmet),
		 MM_ONE(struct mm_market, big_kept), MM_ONE(struct mm_market, big_mins),
		 MM_ONE(struct mm_market, sampled_ns), MM_ONE(struct mm_market, points_next),
		 MM_STRUCT(struct mm_market, view, mm_view_fields),
		 MM_STRUCT(struct mm_market, memory, mm_market_memory_fields),
		 MM_STRUCT(struct mm_market, targets, mm_targets_fields),
		 MM_ONE(struct mm_market, situation));
