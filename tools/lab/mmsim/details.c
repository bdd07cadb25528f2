/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/details.h"

#include "libclient/support/json.h"

static double share_of(double sum, double of)
{
	return of > 0 ? sum / of : 0;
}

static json_t *sim_tenant_json(const struct ms_tenant *t)
{
	const double n = (double)t->s.samples;
	const double chunk = (double)mm_kv_arena_chunk_total(&t->kv);
	const double block = (double)(t->kv.block_bytes * t->kv.ranges);

	json_t *all = json_pack(
		"{s:s, s:I, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:I}",
		"name", t->name, "steps", (json_int_t)t->s.steps, "step_s",
		(double)t->s.step_ns / 1e9, "stall_s", (double)t->s.stall_ns / 1e9, "plan_held_s",
		(double)t->c.held_ns / 1e9, "alpha_mean", share_of(t->s.alpha_sum, n), "alpha_max",
		(int)t->s.alpha_max, "kv_bytes_mean", share_of(t->s.chunks_sum, n) * chunk,
		"kv_used_bytes_mean", share_of(t->s.blocks_sum, n) * block, "preemptions",
		(json_int_t)t->e.sched.preemptions, "plan_changes", (json_int_t)t->s.plan_changes,
		"blocks_moved", (json_int_t)t->e.kvman.blocks_moved, "chunks_released",
		(json_int_t)t->e.kvman.chunks_released, "computed_tokens",
		(double)t->s.computed_tokens, "batch_max", (json_int_t)t->s.batch_max);

	if (t->e.sched.config.slice_tokens)
		mm_json_put_u64(all, "slices", t->e.sched.slices);
	if (t->e.cold.entries_max) {
		mm_json_put_u64(all, "blocks_cooled", t->e.cold.cooled);
		mm_json_put_u64(all, "cold_bytes", t->x.cold_bytes);
		if (t->sim->opts.policy->pie)
			mm_json_put_u64(all, "pie_layers_max", t->pie.m_max);
		json_object_set_new(all, "cold_live_mean", json_real(share_of(t->s.cold_sum, n)));
	}
	if (t->sim->opts.broken_permille)
		mm_json_put_u64(all, "steps_broken", t->s.steps_broken);
	return all;
}

static json_t *sim_device_json(const struct ms_device *dev)
{
	const double elapsed = (double)(dev->sim->end_ns - dev->sim->start_ns);
	struct mm_core_stats s;

	mm_core_stats(dev->core, &s);
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "pages",
			 (json_int_t)dev->opts.pages, "compute_busy",
			 share_of((double)dev->compute.busy_ns, elapsed), "link_busy",
			 share_of((double)dev->link.lane[MS_LANE_IN].busy_ns, elapsed),
			 "link_out_busy",
			 share_of((double)dev->link.lane[MS_LANE_OUT].busy_ns, elapsed),
			 "copied_bytes", dev->copied_bytes, "swapped_bytes", dev->swapped_bytes,
			 "grants", (json_int_t)s.grants, "denials", (json_int_t)s.denials,
			 "reclaims", (json_int_t)s.reclaims, "layers_taken", (json_int_t)s.takes,
			 "layers_returned", (json_int_t)s.returns);
}

json_t *ms_details(const struct ms_sim *sim)
{
	json_t *tenants = json_array(), *devices = json_array();

	for (uint32_t i = 0; i < sim->n_tenants; i++)
		json_array_append_new(tenants, sim_tenant_json(&sim->tenants[i]));
	for (uint32_t i = 0; i < sim->n_devices; i++)
		json_array_append_new(devices, sim_device_json(&sim->devices[i]));
	return json_pack("{s:f, s:I, s:o, s:o}", "seconds",
			 (double)(sim->end_ns - sim->start_ns) / 1e9, "events",
			 (json_int_t)sim->events, "tenants", tenants, "devices", devices);
}
