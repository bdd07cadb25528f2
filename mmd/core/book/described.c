/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/described.h"

#include "libclient/base/base.h"
#include "mmd/core/knobs.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/out/described.h"

static uint32_t slot_used(const void *whole)
{
	return ((const struct mm_core_slot *)whole)->n_layers;
}

static uint32_t slope_pairs(const void *whole)
{
	return ((const struct mm_slope *)whole)->n;
}

static uint32_t kv_words(const void *whole)
{
	return (uint32_t)mm_div_up(((const struct mm_c_kv *)whole)->chunks_max, 64);
}

static uint32_t tenant_groups(const void *whole)
{
	return ((const struct mm_c_tenant *)whole)->n_layers + 1;
}

static uint32_t tenant_layers(const void *whole)
{
	return ((const struct mm_c_tenant *)whole)->n_layers;
}

static uint32_t tenant_slot_pages_0(const void *whole)
{
	return ((const struct mm_c_tenant *)whole)->plan.slot[0].n_pages;
}

static uint32_t tenant_slot_pages_1(const void *whole)
{
	return ((const struct mm_c_tenant *)whole)->plan.slot[1].n_pages;
}

MM_FIELDS_DEFINE(mm_core_quota_fields, struct mm_core_quota,
		 MM_ONE(struct mm_core_quota, min_pages), MM_ONE(struct mm_core_quota, max_pages),
		 MM_ONE(struct mm_core_quota, weight), MM_ONE(struct mm_core_quota, priority),
		 MM_ENUM(struct mm_core_quota, on_timeout, MM_ON_TIMEOUTS),
		 MM_ONE(struct mm_core_quota, turn_quantum_max_ns),
		 MM_ONE(struct mm_core_quota, turn_priority_max),
		 MM_ONE(struct mm_core_quota, goal_ttft_ns),
		 MM_ONE(struct mm_core_quota, goal_tpot_ns));

MM_FIELDS_DEFINE(mm_account_turn_fields, struct mm_account_turn,
		 MM_ONE(struct mm_account_turn, interrupted),
		 MM_ONE(struct mm_account_turn, since_ns), MM_ONE(struct mm_account_turn, queued),
		 MM_ONE(struct mm_account_turn, left_ns),
		 MM_ONE(struct mm_account_turn, charged_ns), MM_ONE(struct mm_account_turn, n),
		 MM_ONE(struct mm_account_turn, priority), MM_ONE(struct mm_account_turn, most_ns));

MM_FIELDS_DEFINE(mm_account_fields, struct mm_account, MM_ONE(struct mm_account, used),
		 MM_ONE(struct mm_account, stays), MM_ONE(struct mm_account, key),
		 MM_ONE(struct mm_account, domain),
		 MM_STRUCT(struct mm_account, quota, mm_core_quota_fields),
		 MM_ONE(struct mm_account, revision), MM_ONE(struct mm_account, charged),
		 MM_ONE(struct mm_account, quarantined), MM_ONE(struct mm_account, tenants),
		 MM_ONE(struct mm_account, served), MM_ONE(struct mm_account, left_at),
		 MM_STRUCT(struct mm_account, turn, mm_account_turn_fields),
		 MM_NOT_SAVED(struct mm_account, tally));

MM_FIELDS_DEFINE(mm_page_fields, struct mm_page, MM_ONE(struct mm_page, next),
		 MM_ONE(struct mm_page, prev), MM_ONE(struct mm_page, tenant),
		 MM_ONE(struct mm_page, job), MM_ENUM(struct mm_page, state, MM_PAGE_STATES),
		 MM_ONE(struct mm_page, domain), MM_ONE(struct mm_page, last),
		 MM_ONE(struct mm_page, account), MM_ONE(struct mm_page, recreating),
		 MM_ONE(struct mm_page, poisoned), MM_ONE(struct mm_page, quarantined),
		 MM_ONE(struct mm_page, lost), MM_ONE(struct mm_page, suspect),
		 MM_ONE(struct mm_page, unheld));

MM_FIELDS_DEFINE(mm_page_list_fields, struct mm_page_list, MM_ONE(struct mm_page_list, head),
		 MM_ONE(struct mm_page_list, tail), MM_ONE(struct mm_page_list, length));

MM_FIELDS_DEFINE(mm_ledger_fields, struct mm_ledger, MM_NOT_SAVED(struct mm_ledger, page),
		 MM_ONE(struct mm_ledger, pages), MM_ARRAY(struct mm_ledger, count),
		 MM_STRUCTS(struct mm_ledger, free, mm_page_list_fields),
		 MM_STRUCT(struct mm_ledger, scrub, mm_page_list_fields),
		 MM_STRUCT(struct mm_ledger, quarantine, mm_page_list_fields),
		 MM_STRUCTS(struct mm_ledger, revoking, mm_page_list_fields),
		 MM_ARRAY(struct mm_ledger, inflight), MM_ONE(struct mm_ledger, inflight_all),
		 MM_ARRAY(struct mm_ledger, leaving), MM_ARRAY(struct mm_ledger, touched),
		 MM_ONE(struct mm_ledger, changes), MM_ONE(struct mm_ledger, suspects));

MM_FIELDS_DEFINE(mm_c_mins_fields, struct mm_c_mins, MM_ONE(struct mm_c_mins, changes),
		 MM_ONE(struct mm_c_mins, revision), MM_ONE(struct mm_c_mins, all),
		 MM_ONE(struct mm_c_mins, shortfall), MM_ARRAY_TRIMMED(struct mm_c_mins, unused));

MM_FIELDS_DEFINE(
	mm_core_opts_fields, struct mm_core_opts, MM_ONE(struct mm_core_opts, pages),
	MM_ONE(struct mm_core_opts, page_bytes),
	MM_ENUM(struct mm_core_opts, policy, MM_POLICY_COUNT),
	MM_ONE(struct mm_core_opts, tenants_max), MM_ONE(struct mm_core_opts, accounts_max),
	MM_ONE(struct mm_core_opts, account_max_pages), MM_ONE(struct mm_core_opts, jobs_max),
	MM_ONE(struct mm_core_opts, tag), MM_ONE(struct mm_core_opts, slots),
	MM_ENUM(struct mm_core_opts, on_timeout, MM_ON_TIMEOUTS),
	MM_ONE(struct mm_core_opts, turn_quantum_max_ns),
	MM_ONE(struct mm_core_opts, turn_priority_max), MM_ONE(struct mm_core_opts, swap_max_bytes),
	MM_ONE(struct mm_core_opts, swap_account_max_bytes),
	MM_ONE(struct mm_core_opts, full_drain), MM_ONE(struct mm_core_opts, reversion),
	MM_ONE(struct mm_core_opts, sharing), MM_ONE(struct mm_core_opts, turn_cost_permille),
	MM_ONE(struct mm_core_opts, idle_ns), MM_ONE(struct mm_core_opts, dwell_ns),
	MM_ONE(struct mm_core_opts, change_ns), MM_ONE(struct mm_core_opts, reclaim_ns),
	MM_ONE(struct mm_core_opts, link_slows_permille), MM_ONE(struct mm_core_opts, rho_permille),
	MM_ADDED(struct mm_core_opts, cold, MM_SWITCH_OFF),
	MM_ADDED(struct mm_core_opts, cold_max_permille, MM_COLD_MAX_PERMILLE),
	MM_ONE(struct mm_core_opts, time_scale), MM_ONE(struct mm_core_opts, revoke_ns),
	MM_ONE(struct mm_core_opts, reclaim_timeout_ns), MM_ONE(struct mm_core_opts, stop_ns),
	MM_ONE(struct mm_core_opts, kill_window_ns), MM_ONE(struct mm_core_opts, kill_max));

MM_FIELDS_DEFINE(
	mm_core_stats_fields, struct mm_core_stats, MM_ARRAY(struct mm_core_stats, pages),
	MM_ONE(struct mm_core_stats, grants), MM_ONE(struct mm_core_stats, takes),
	MM_ONE(struct mm_core_stats, returns), MM_ONE(struct mm_core_stats, plan_changes),
	MM_ONE(struct mm_core_stats, denials), MM_ONE(struct mm_core_stats, reclaims),
	MM_ONE(struct mm_core_stats, kicks), MM_ONE(struct mm_core_stats, kills),
	MM_ONE(struct mm_core_stats, plan_changes_limited), MM_ONE(struct mm_core_stats, overdue),
	MM_ONE(struct mm_core_stats, kills_withheld),
	MM_ONE(struct mm_core_stats, deadlines_restarted), MM_ONE(struct mm_core_stats, tenants),
	MM_ONE(struct mm_core_stats, memory_errors), MM_ONE(struct mm_core_stats, suspects),
	MM_ONE(struct mm_core_stats, suspects_quarantined), MM_ONE(struct mm_core_stats, turns),
	MM_ONE(struct mm_core_stats, turns_overdue), MM_ONE(struct mm_core_stats, turn_holder),
	MM_ONE(struct mm_core_stats, turns_beside), MM_ONE(struct mm_core_stats, alpha_sum),
	MM_ONE(struct mm_core_stats, alpha_sum_max));

MM_FIELDS_DEFINE(mm_c_copies_fields, struct mm_c_copies, MM_ONE(struct mm_c_copies, ns_per_mib),
		 MM_ONE(struct mm_c_copies, done_ns));

MM_FIELDS_DEFINE(mm_core_fields, struct mm_core,
		 MM_STRUCT(struct mm_core, opts, mm_core_opts_fields),
		 MM_ONE(struct mm_core, now_ns), MM_ONE(struct mm_core, settled_ns),
		 MM_NOT_SAVED(struct mm_core, ledger), MM_NOT_SAVED(struct mm_core, account),
		 MM_ONE(struct mm_core, accounts_end), MM_NOT_SAVED(struct mm_core, mins),
		 MM_ONE(struct mm_core, coming), MM_ONE(struct mm_core, waiting),
		 MM_ONE(struct mm_core, min_sum), MM_ONE(struct mm_core, quota_revision),
		 MM_ONE(struct mm_core, served), MM_ONE(struct mm_core, departures),
		 MM_ARRAY_TRIMMED(struct mm_core, kill_ns), MM_ONE(struct mm_core, lost),
		 MM_ONE(struct mm_core, mins_covered), MM_NOT_SAVED(struct mm_core, queue),
		 MM_NOT_SAVED(struct mm_core, jobs), MM_ONE(struct mm_core, xfer_up),
		 MM_ONE(struct mm_core, create_next), MM_ONE(struct mm_core, create_retry_ns),
		 MM_ONE(struct mm_core, quarantine_retry_ns),
		 MM_ONE(struct mm_core, quarantine_retries), MM_NOT_SAVED(struct mm_core, tenant),
		 MM_ONE(struct mm_core, tenants_end), MM_ARRAY_TRIMMED(struct mm_core, generation),
		 MM_ONE(struct mm_core, entries_max), MM_NOT_SAVED(struct mm_core, plans),
		 MM_NOT_SAVED(struct mm_core, market),
		 MM_STRUCT(struct mm_core, copies, mm_c_copies_fields),
		 MM_STRUCT(struct mm_core, stats, mm_core_stats_fields),
		 MM_NOT_SAVED(struct mm_core, tally), MM_NOT_SAVED(struct mm_core, scratch),
		 MM_ONE(struct mm_core, copy_next), MM_NOT_SAVED(struct mm_core, storage));

MM_FIELDS_DEFINE(mm_tenant_stats_fields, struct mm_tenant_stats,
		 MM_ONE(struct mm_tenant_stats, step_seq), MM_ONE(struct mm_tenant_stats, steps),
		 MM_ONE(struct mm_tenant_stats, samples), MM_ONE(struct mm_tenant_stats, step_ns),
		 MM_ONE(struct mm_tenant_stats, stall_ns),
		 MM_ONE(struct mm_tenant_stats, stall_total_ns),
		 MM_ONE(struct mm_tenant_stats, kv_chunks_used),
		 MM_ONE(struct mm_tenant_stats, waiting), MM_ONE(struct mm_tenant_stats, running),
		 MM_ARRAY_TRIMMED(struct mm_tenant_stats, compute),
		 MM_ONE(struct mm_tenant_stats, kv_chunks_queued),
		 MM_ONE(struct mm_tenant_stats, requests_done),
		 MM_ONE(struct mm_tenant_stats, requests_late),
		 MM_NOT_SAVED(struct mm_tenant_stats, reserved));

MM_FIELDS_DEFINE(mm_slope_fields, struct mm_slope, MM_ARRAY_USED(struct mm_slope, x, slope_pairs),
		 MM_ARRAY_USED(struct mm_slope, y, slope_pairs), MM_ONE(struct mm_slope, n),
		 MM_ONE(struct mm_slope, next), MM_ONE(struct mm_slope, sum_x),
		 MM_ONE(struct mm_slope, sum_y), MM_ONE(struct mm_slope, sum_xx),
		 MM_ONE(struct mm_slope, sum_xy));

MM_FIELDS_DEFINE(mm_c_steps_fields, struct mm_c_steps, MM_ARRAY(struct mm_c_steps, weight),
		 MM_ARRAY(struct mm_c_steps, ns));

MM_FIELDS_DEFINE(mm_c_load_fields, struct mm_c_load, MM_ONE(struct mm_c_load, known),
		 MM_STRUCT(struct mm_c_load, last, mm_tenant_stats_fields),
		 MM_ONE(struct mm_c_load, claimed), MM_ONE(struct mm_c_load, claimed_ns),
		 MM_ONE(struct mm_c_load, active_ns), MM_ONE(struct mm_c_load, stepped_ns),
		 MM_ONE(struct mm_c_load, t_c_ns), MM_ONE(struct mm_c_load, t_t_ns),
		 MM_ONE(struct mm_c_load, alone_ns), MM_ONE(struct mm_c_load, stall_permille),
		 MM_STRUCT(struct mm_c_load, steps, mm_c_steps_fields),
		 MM_ONE(struct mm_c_load, steps_seen),
		 MM_STRUCT(struct mm_c_load, slope, mm_slope_fields),
		 MM_ONE(struct mm_c_load, longest_ns));

MM_FIELDS_DEFINE(mm_c_kv_fields, struct mm_c_kv, MM_ONE(struct mm_c_kv, declared),
		 MM_ONE(struct mm_c_kv, chunk_pages), MM_ONE(struct mm_c_kv, ranges),
		 MM_ONE(struct mm_c_kv, chunks_max), MM_ONE(struct mm_c_kv, share),
		 MM_ONE(struct mm_c_kv, held), MM_ONE(struct mm_c_kv, releases),
		 MM_ONE(struct mm_c_kv, grouped), MM_ONE(struct mm_c_kv, offer),
		 MM_ONE(struct mm_c_kv, most), MM_OPTIONAL(struct mm_c_kv, first),
		 MM_ARRAY_USED(struct mm_c_kv, held_map, kv_words));

MM_FIELDS_DEFINE(mm_c_mem_fields, struct mm_c_mem, MM_ONE(struct mm_c_mem, held),
		 MM_ONE(struct mm_c_mem, depth), MM_ONE(struct mm_c_mem, wait.user_data),
		 MM_ONE(struct mm_c_mem, wait.until_ns), MM_ONE(struct mm_c_mem, wait.entry),
		 MM_ONE(struct mm_c_mem, wait.pages));

MM_FIELDS_DEFINE(mm_core_slot_fields, struct mm_core_slot, MM_ONE(struct mm_core_slot, n_layers),
		 MM_ONE(struct mm_core_slot, n_pages), MM_ONE(struct mm_core_slot, in_place),
		 MM_ARRAY_USED(struct mm_core_slot, layer, slot_used));

MM_FIELDS_DEFINE(mm_core_plan_fields, struct mm_core_plan, MM_ONE(struct mm_core_plan, epoch),
		 MM_ONE(struct mm_core_plan, alpha), MM_ONE(struct mm_core_plan, beta),
		 MM_ONE(struct mm_core_plan, m), MM_ONE(struct mm_core_plan, n_layers),
		 MM_ONE(struct mm_core_plan, alpha_by_hand),
		 MM_ONE(struct mm_core_plan, slots_by_hand), MM_ONE(struct mm_core_plan, store),
		 MM_ARRAY(struct mm_core_plan, closed),
		 MM_STRUCTS(struct mm_core_plan, slot, mm_core_slot_fields),
		 MM_OPTIONAL(struct mm_core_plan, cold.classes),
		 MM_OPTIONAL(struct mm_core_plan, cold.entries),
		 MM_OPTIONAL(struct mm_core_plan, cold.first),
		 MM_OPTIONAL(struct mm_core_plan, cold.chunks),
		 MM_OPTIONAL(struct mm_core_plan, cold.unit_bytes));

MM_FIELDS_DEFINE(mm_c_hold_fields, struct mm_c_hold, MM_ONE(struct mm_c_hold, on),
		 MM_ONE(struct mm_c_hold, due), MM_ONE(struct mm_c_hold, checked),
		 MM_STRUCT(struct mm_c_hold, asks, mm_msg_fields));

MM_FIELDS_DEFINE(mm_c_unload_fields, struct mm_c_unload, MM_ONE(struct mm_c_unload, due),
		 MM_STRUCT(struct mm_c_unload, asks, mm_msg_fields));

MM_FIELDS_DEFINE(mm_c_group_fields, struct mm_c_group, MM_ONE(struct mm_c_group, store_offset),
		 MM_ONE(struct mm_c_group, bytes), MM_ONE(struct mm_c_group, entry),
		 MM_ONE(struct mm_c_group, pages));

MM_FIELDS_DEFINE(
	mm_c_tenant_fields, struct mm_c_tenant,
	MM_ENUM(struct mm_c_tenant, life, MM_LIFE_PROVEN + 1), MM_ONE(struct mm_c_tenant, id),
	MM_ONE(struct mm_c_tenant, account), MM_ONE(struct mm_c_tenant, features),
	MM_ONE(struct mm_c_tenant, connected), MM_ONE(struct mm_c_tenant, bye),
	MM_ONE(struct mm_c_tenant, dead), MM_ONE(struct mm_c_tenant, kicked),
	MM_ONE(struct mm_c_tenant, killed), MM_ONE(struct mm_c_tenant, revoke_at_ns),
	MM_ONE(struct mm_c_tenant, reclaim_deadline_ns), MM_ONE(struct mm_c_tenant, stopped_ns),
	MM_ONE(struct mm_c_tenant, stopped_check_due), MM_ONE(struct mm_c_tenant, overdue),
	MM_ENUM(struct mm_c_tenant, suspect, MM_SUSPECT_SEEN + 1),
	MM_ONE(struct mm_c_tenant, suspect_steps), MM_ONE(struct mm_c_tenant, attached),
	MM_ONE(struct mm_c_tenant, ctl), MM_ONE(struct mm_c_tenant, copies),
	MM_ENUM(struct mm_c_tenant, model, MM_C_MODEL_LEAVING + 1),
	MM_ONE(struct mm_c_tenant, model_since_ns), MM_ONE(struct mm_c_tenant, has_store),
	MM_ONE(struct mm_c_tenant, n_layers), MM_ONE(struct mm_c_tenant, entries),
	MM_ONE(struct mm_c_tenant, layer_bytes_max),
	MM_STRUCTS_USED(struct mm_c_tenant, group, mm_c_group_fields, tenant_groups),
	MM_ARRAY_USED(struct mm_c_tenant, layer_pages, tenant_layers),
	MM_NOT_SAVED(struct mm_c_tenant, own), MM_NOT_SAVED(struct mm_c_tenant, map),
	MM_ONE(struct mm_c_tenant, map_end), MM_ONE(struct mm_c_tenant, kv_map_end),
	MM_ARRAY_USED(struct mm_c_tenant, slot_page[0], tenant_slot_pages_0),
	MM_ARRAY_USED(struct mm_c_tenant, slot_page[1], tenant_slot_pages_1),
	MM_STRUCT(struct mm_c_tenant, plan, mm_core_plan_fields),
	MM_STRUCT(struct mm_c_tenant, hold, mm_c_hold_fields),
	MM_OPTIONAL(struct mm_c_tenant, steer.drain_until_ns),
	MM_OPTIONAL(struct mm_c_tenant, steer.activate_until_ns),
	MM_OPTIONAL(struct mm_c_tenant, steer.revoke_keep),
	MM_OPTIONAL(struct mm_c_tenant, steer.pinned),
	MM_OPTIONAL(struct mm_c_tenant, steer.activates),
	MM_OPTIONAL(struct mm_c_tenant, steer.drains),
	MM_OPTIONAL(struct mm_c_tenant, steer.revokes),
	MM_STRUCT(struct mm_c_tenant, unload, mm_c_unload_fields),
	MM_OPTIONAL(struct mm_c_tenant, cold.classes),
	MM_OPTIONAL(struct mm_c_tenant, cold.entries_max),
	MM_OPTIONAL(struct mm_c_tenant, cold.floor),
	MM_OPTIONAL(struct mm_c_tenant, cold.unit_bytes),
	MM_OPTIONAL(struct mm_c_tenant, cold.offered), MM_OPTIONAL(struct mm_c_tenant, cold.live),
	MM_OPTIONAL(struct mm_c_tenant, cold.by_hand), MM_OPTIONAL(struct mm_c_tenant, cold.limit),
	MM_OPTIONAL(struct mm_c_tenant, cold.streamed),
	MM_OPTIONAL(struct mm_c_tenant, cold.limit_due),
	MM_OPTIONAL(struct mm_c_tenant, cold.cut_ns),
	MM_OPTIONAL(struct mm_c_tenant, cold.window_due),
	MM_OPTIONAL(struct mm_c_tenant, cold.window_asks),
	MM_OPTIONAL(struct mm_c_tenant, cold.first), MM_OPTIONAL(struct mm_c_tenant, cold.chunks),
	MM_OPTIONAL(struct mm_c_tenant, cold.was_first),
	MM_OPTIONAL(struct mm_c_tenant, cold.was_chunks), MM_NOT_SAVED(struct mm_c_tenant, change),
	MM_NOT_SAVED(struct mm_c_tenant, sets), MM_NOT_SAVED(struct mm_c_tenant, swap),
	MM_STRUCT(struct mm_c_tenant, kv, mm_c_kv_fields),
	MM_STRUCT(struct mm_c_tenant, mem, mm_c_mem_fields),
	MM_STRUCT(struct mm_c_tenant, load, mm_c_load_fields),
	MM_NOT_SAVED(struct mm_c_tenant, tally), MM_NOT_SAVED(struct mm_c_tenant, demand),
	MM_NOT_SAVED(struct mm_c_tenant, lends), MM_NOT_SAVED(struct mm_c_tenant, turn));

/*
 * All of it is optional: a build that does not count this goes on without, and one that does
 * begins at 0.
 */
MM_FIELDS_DEFINE(mm_core_times_fields, struct mm_core_times,
		 MM_ARRAY_AS(struct mm_core_times, count, .optional = true),
		 MM_OPTIONAL(struct mm_core_times, sum_ns));

#define OPTIONAL_TIMES(member)                                                                 \
	{                                                                                      \
		.name = #member, .kind = MM_KIND_STRUCT, .optional = true,                     \
		.offset = offsetof(struct mm_core_tally, member),                              \
		.bytes = sizeof(struct mm_core_times), .count = 1, .of = &mm_core_times_fields \
	}
MM_FIELDS_DEFINE(
	mm_core_tally_fields, struct mm_core_tally, MM_OPTIONAL(struct mm_core_tally, joins),
	MM_OPTIONAL(struct mm_core_tally, grants), MM_OPTIONAL(struct mm_core_tally, denials),
	MM_OPTIONAL(struct mm_core_tally, reclaims), MM_OPTIONAL(struct mm_core_tally, released),
	MM_OPTIONAL(struct mm_core_tally, takes), MM_OPTIONAL(struct mm_core_tally, returns),
	MM_OPTIONAL(struct mm_core_tally, plan_changes),
	MM_OPTIONAL(struct mm_core_tally, swapped_out_bytes),
	MM_OPTIONAL(struct mm_core_tally, swapped_in_bytes),
	MM_OPTIONAL(struct mm_core_tally, kicks), MM_OPTIONAL(struct mm_core_tally, kills),
	MM_OPTIONAL(struct mm_core_tally, steps), MM_OPTIONAL(struct mm_core_tally, stall_ns),
	OPTIONAL_TIMES(grant), OPTIONAL_TIMES(step), OPTIONAL_TIMES(stall));

MM_FIELDS_DEFINE(mm_wait_fields, struct mm_wait, MM_OPTIONAL(struct mm_wait, chunks),
		 MM_OPTIONAL(struct mm_wait, since_ns));

static uint32_t tally_waits(const void *whole)
{
	return ((const struct mm_c_tally *)whole)->waits;
}

MM_FIELDS_DEFINE(mm_c_tally_fields, struct mm_c_tally, MM_NOT_SAVED(struct mm_c_tally, happened),
		 MM_OPTIONAL(struct mm_c_tally, waits),
		 MM_STRUCTS_AS(struct mm_c_tally, wait, mm_wait_fields, .used = tally_waits,
			       .optional = true),
		 MM_OPTIONAL(struct mm_c_tally, reported_ns),
		 MM_OPTIONAL(struct mm_c_tally, sampled_ns));
