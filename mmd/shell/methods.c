/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/methods.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "libclient/protocol/xplan.h"
#include "mmd/explain/explain.h"
#include "mmd/shell/doctor.h"
#include "mmd/shell/metrics.h"
#include "mmd/shell/named.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/steer.h"
#include "mmd/shell/swap.h"
#include "mmd/shell/trail_show.h"

#define SCHEMA 1

static const char *const plan_phase_names[] = {
	[MM_PLAN_STEADY] = "steady",     [MM_PLAN_PRELOAD] = "preload",
	[MM_PLAN_PREPARED] = "prepared", [MM_PLAN_QUIESCING] = "quiescing",
	[MM_PLAN_SWITCHED] = "switched",
};

/* A negative node becomes null: any node, or none known. */
static void methods_put_node(json_t *object, const char *key, int node)
{
	mm_json_put_known(object, key, node >= 0, (uint64_t)node);
}

static void methods_put_hex(json_t *object, const char *key, const uint8_t *bytes, size_t n)
{
	char text[2 * 32 + 1] = "";

	mm_assert(2 * n < sizeof(text));
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	mm_json_put_text(object, key, text);
}

/* ---- pool ---- */

static json_t *pages_json(const struct mm_core_stats *stats)
{
	json_t *pages = json_object();

	for (size_t i = 0; i < MM_PAGE_STATES; i++)
		mm_json_put_u64(pages, mm_page_state_name((enum mm_page_state)i), stats->pages[i]);
	return pages;
}

static bool pages_are_accounted(const struct mm_pool *pool, const struct mm_core_stats *stats)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < MM_PAGE_STATES; i++)
		sum += stats->pages[i];
	return sum == pool->worker.device.pages;
}

static void facts_fill(const struct mm_xfacts *facts, json_t *device)
{
	const uint32_t version = facts->driver_version, flags = facts->attributes;
	char text[24];

	snprintf(text, sizeof(text), "%u.%u", version / 1000, version % 1000 / 10);
	mm_json_put_text(device, "cuda", text);
	snprintf(text, sizeof(text), "%u.%u", facts->capability / 10, facts->capability % 10);
	mm_json_put_text(device, "compute_capability", text);
	mm_json_put_flag(device, "host_read_only", flags & MM_XFACT_HOST_READ_ONLY);
	mm_json_put_flag(device, "gpudirect", flags & MM_XFACT_GPUDIRECT);
	mm_json_put_flag(device, "wait_nor", flags & MM_XFACT_WAIT_NOR);
	mm_json_put_flag(device, "mps", flags & MM_XFACT_MPS);
	mm_json_put_flag(device, "ecc", flags & MM_XFACT_ECC);
	mm_json_put_flag(device, "integrated", flags & MM_XFACT_INTEGRATED);
}

static json_t *others_json(const struct mm_pool *pool)
{
	const struct mm_xhealth *sample = &pool->health.sample;
	json_t *others = json_array();

	for (uint32_t i = 0; i < sample->n_holders; i++) {
		json_t *other;

		if (mm_health_is_ours(pool, sample->holder[i].pid))
			continue;
		other = json_object();
		mm_json_put_u64(other, "pid", sample->holder[i].pid);
		mm_json_put_text(other, "name", sample->holder[i].name);
		mm_json_put_u64(other, "bytes", sample->holder[i].bytes);
		json_array_append_new(others, other);
	}
	return others;
}

static json_t *health_json(const struct mm_pool *pool, const struct mm_core_stats *stats)
{
	const struct mm_health *h = &pool->health;
	json_t *health = json_object();

	mm_json_put_flag(health, "seen", h->sample.flags & MM_XHEALTH_SEEN);
	mm_json_put_flag(health, "events", h->sample.flags & MM_XHEALTH_EVENTS);
	mm_json_put_flag(health, "repair_pending", h->sample.flags & MM_XHEALTH_REPAIR_PENDING);
	mm_json_put_flag(health, "repair_failed", h->sample.flags & MM_XHEALTH_REPAIR_FAILED);
	mm_json_put_u64(health, "xids", h->xids);
	mm_json_put_u64(health, "last_xid", h->last_xid);
	mm_json_put_u64(health, "memory_errors", h->memory_errors);
	mm_json_put_u64(health, "lost", h->lost);
	mm_json_put_u64(health, "single_bit_events", h->single_bit);
	mm_json_put_u64(health, "double_bit_events", h->double_bit);
	mm_json_put_u64(health, "pages_suspect", stats->suspects);
	mm_json_put_u64(health, "pages_quarantined", stats->suspects_quarantined);
	mm_json_put_u64(health, "memory_total_bytes", h->sample.total_bytes);
	mm_json_put_u64(health, "memory_free_bytes", h->sample.free_bytes);
	mm_json_put(health, "others", others_json(pool));
	return health;
}

static json_t *device_json(const struct mm_pool *pool)
{
	const struct mm_device *d = &pool->worker.device;
	json_t *device = json_object();

	mm_json_put_u64(device, "ordinal", pool->ordinal);
	mm_json_put_text(device, "name", d->name);
	mm_json_put_text(device, "driver", mm_driver_name(d->driver_kind));
	methods_put_hex(device, "uuid", d->uuid, sizeof(d->uuid));
	if (*pool->shell->config->device_uuid[pool->index])
		mm_json_put_text(device, "named", pool->shell->config->device_uuid[pool->index]);
	mm_json_put_u64(device, "total_bytes", d->total_bytes);
	methods_put_node(device, "numa_node", d->numa_node);
	mm_json_put_flag(device, "mig", pool->health.sample.flags & MM_XHEALTH_MIG);
	facts_fill(&d->facts, device);
	return device;
}

static uint64_t stores_huge_bytes(const struct mm_shell *shell)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		if (shell->stores.store[i].hugepage_bytes)
			sum += shell->stores.store[i].host_bytes;
	}
	return sum;
}

static void pool_fill(const struct mm_pool *pool, json_t *to, const struct mm_core_stats *stats)
{
	mm_json_put(to, "device", device_json(pool));
	mm_json_put_text(to, "state", pool->down ? "down" : "up");
	mm_json_put_u64(to, "page_bytes", pool->worker.device.page_bytes);
	mm_json_put_u64(to, "pool_pages", pool->worker.device.pages);
	mm_json_put(to, "pages", pages_json(stats));
	mm_json_put_flag(to, "pages_accounted", pages_are_accounted(pool, stats));
	methods_put_node(to, "numa_node", mm_store_node(pool));
}

static bool key_is_summed(const char *key)
{
	return strcmp(key, "page_bytes") != 0 && strcmp(key, "numa_node") != 0;
}

/*
 * Adds one device's object to the node's: numbers as sums; values that have no sum are the first
 * device's.
 */
static void device_json_fold(json_t *all, const json_t *one)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)one, key, value) {
		json_t *sum = json_object_get(all, key);

		if (!sum)
			mm_json_put(all, key, json_deep_copy(value));
		else if (strcmp(key, "pages") == 0)
			device_json_fold(sum, value);
		else if (strcmp(key, "pages_accounted") == 0)
			mm_json_put_flag(all, key, json_is_true(sum) && json_is_true(value));
		else if (json_is_integer(sum) && key_is_summed(key))
			json_integer_set(sum, json_integer_value(sum) + json_integer_value(value));
	}
}

/* Adds all devices, or only @only if it is not NULL, to @to; @fill makes one device's object. */
static void devices_fill(struct mm_shell *shell, const struct mm_pool *only, json_t *to,
			 void (*fill)(const struct mm_pool *pool, json_t *to,
				      const struct mm_core_stats *stats))
{
	json_t *devices = json_array();
	struct mm_core_stats stats;

	for (uint32_t i = 0; i < shell->n_pools; i++) {
		json_t *device;

		if (only && only != &shell->pool[i])
			continue;
		device = json_object();
		mm_core_stats(shell->pool[i].core, &stats);
		fill(&shell->pool[i], device, &stats);
		device_json_fold(to, device);
		json_array_append_new(devices, device);
	}
	json_object_del(to, "state");
	mm_json_put(to, "devices", devices);
	mm_json_put_text(to, "hugepages", mm_hugepages_name(shell->config->hugepages));
	mm_json_put_u64(to, "hugepages_bytes", stores_huge_bytes(shell));
}

static json_t *knobs_json(const struct mm_config *config)
{
	struct mm_core_opts opts = { 0 };
	json_t *knobs = json_object();
	const struct mm_knob *k;

	mm_pool_tune(config, &opts);
	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		if (k->names)
			mm_json_put_text(knobs, k->name, mm_knob_choice(k, &opts));
		else
			mm_json_put_u64(knobs, k->name, mm_knob_value(k, &opts));
	}
	return knobs;
}

static json_t *pool_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_pool *only;
	json_t *result;

	if (!mm_named_device(shell, params, &only, error))
		return NULL;
	result = json_object();
	devices_fill(shell, only, result, pool_fill);
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put(result, "controller", knobs_json(shell->config));
	return result;
}

/* ---- tenants ---- */

static void cursors_fill(const struct mm_session *s, json_t *to)
{
	const struct mm_xcursor_region *c = s->cursor_region.base;

	mm_json_put_u64(to, "bytes_streamed",
			__atomic_load_n(&c->bytes_streamed, __ATOMIC_RELAXED));
	mm_json_put_u64(to, "layers_streamed",
			__atomic_load_n(&c->layers_streamed, __ATOMIC_RELAXED));
	mm_json_put_u64(to, "layer_copy_last_ns",
			__atomic_load_n(&c->copy_last_ns, __ATOMIC_RELAXED));
	mm_json_put_u64(to, "cold_bytes_streamed",
			__atomic_load_n(&c->cold_bytes, __ATOMIC_RELAXED));
}

static void plan_fill(const struct mm_core *core, uint32_t tenant, json_t *to)
{
	const struct mm_core_plan *plan = mm_core_plan(core, tenant);

	mm_json_put_u64(to, "alpha", plan ? plan->alpha : 0);
	mm_json_put_u64(to, "m", plan ? plan->m : 0);
	mm_json_put_u64(to, "beta", plan ? plan->beta : 0);
	mm_json_put_u64(to, "layers", plan ? plan->n_layers : 0);
	mm_json_put_u64(to, "plan_epoch", plan ? plan->epoch : 0);
	mm_json_put_text(to, "plan_phase",
			 plan ? plan_phase_names[mm_core_plan_phase(core, tenant)] : "none");
	mm_json_put_known(to, "alpha_by_hand", plan && plan->alpha_by_hand >= 0,
			  plan ? (uint64_t)plan->alpha_by_hand : 0);
	mm_json_put_known(to, "slots_by_hand", plan && plan->slots_by_hand,
			  plan ? plan->slots_by_hand : 0);
}

static void tenant_pages_fill(const struct mm_core_tenant *t, json_t *to)
{
	mm_json_put_u64(to, "pages",
			(uint64_t)t->pages_param + t->pages_slot + t->pages_kv + t->pages_mem +
				t->pages_revoking);
	mm_json_put_u64(to, "pages_param", t->pages_param);
	mm_json_put_u64(to, "pages_slot", t->pages_slot);
	mm_json_put_u64(to, "pages_kv", t->pages_kv);
	mm_json_put_u64(to, "pages_mem", t->pages_mem);
	mm_json_put_u64(to, "pages_revoking", t->pages_revoking);
	mm_json_put_u64(to, "kv_chunks", t->kv_chunks);
	mm_json_put_u64(to, "kv_chunks_wanted", t->kv_wanted);
	mm_json_put_u64(to, "kv_chunks_max", t->kv_chunks_max);
	mm_json_put_u64(to, "swap_bytes", t->swap_bytes);
	mm_json_put_flag(to, "idle", t->idle);
	mm_json_put_flag(to, "model_ready", t->model_ready);
	mm_json_put_flag(to, "model_held", t->model_held);
}

static void tenant_turns_fill(const struct mm_core_tenant *t, json_t *to)
{
	static const char *const modes[] = { "none", "quantum", "drain" };
	json_t *turns = json_object();

	static_assert(MM_ARRAY_SIZE(modes) == MM_TURN_MODES, "a name for each");
	mm_json_put_text(turns, "mode", modes[t->turn_mode]);
	mm_json_put_flag(turns, "waits", t->turn_wanted);
	mm_json_put_u64(turns, "begun", t->turns);
	mm_json_put_u64(turns, "overdue", t->turns_overdue);
	mm_json_put_u64(turns, "home_mean_ns", t->turn_home_ns);
	mm_json_put(to, "turns", turns);
}

static void stats_fill(const struct mm_session *s, json_t *to)
{
	const struct mm_tenant_region *theirs = s->tenant_region.base;
	const struct mm_tenant_stats *claims = &theirs->stats;

	mm_json_put_u64(to, "steps", __atomic_load_n(&claims->steps, __ATOMIC_RELAXED) & INT64_MAX);
	mm_json_put_u64(to, "step_last_ns",
			__atomic_load_n(&claims->step_ns, __ATOMIC_RELAXED) & INT64_MAX);
	mm_json_put_u64(to, "stall_total_ns",
			__atomic_load_n(&claims->stall_total_ns, __ATOMIC_RELAXED) & INT64_MAX);
	mm_json_put_u64(to, "running",
			__atomic_load_n(&claims->running, __ATOMIC_RELAXED) & INT64_MAX);
	mm_json_put_u64(to, "waiting",
			__atomic_load_n(&claims->waiting, __ATOMIC_RELAXED) & INT64_MAX);
}

/* Device memory of the whole model when it is resident, and what rounding to pages wastes of it. */
static void weights_fill(const struct mm_session *s, json_t *to)
{
	const uint64_t page_bytes = s->pool->worker.device.page_bytes;
	const struct mm_store *store = s->store;
	uint64_t pages = 0, tensor_bytes = store ? store->tensor_bytes : 0;

	for (uint32_t i = 0; store && i < store->n_groups; i++)
		pages += mm_div_up(store->groups[i].bytes, page_bytes);
	mm_json_put_u64(to, "weights_tensor_bytes", tensor_bytes);
	mm_json_put_u64(to, "weights_device_bytes", pages * page_bytes);
	mm_json_put_u64(to, "weights_waste_bytes",
			pages * page_bytes - MM_MIN(tensor_bytes, pages * page_bytes));
}

static void cold_fill(const struct mm_session *s, const struct mm_core_why *why, json_t *to)
{
	const struct mm_core_plan *plan = mm_core_plan(s->pool->core, s->tenant);
	json_t *cold = mm_explain_cold_json(&why->cold);
	struct mm_core_tenant t = { .cold_by_hand = -1 };

	mm_json_put(to, "cold", cold);
	if (!json_is_object(cold))
		return;
	mm_core_tenant(s->pool->core, s->tenant, &t);
	mm_json_put_known(cold, "by_hand", t.cold_by_hand >= 0, (uint64_t)t.cold_by_hand);
	mm_json_put_u64(cold, "window_first", plan ? plan->cold.first : 0);
	mm_json_put_u64(cold, "window_chunks", plan ? plan->cold.chunks : 0);
	mm_json_put_flag(cold, "window_pending", t.cold_window_pending);
}

static void why_fill(const struct mm_session *s, json_t *to)
{
	struct mm_core_why why = { 0 };

	mm_core_why(s->pool->core, s->tenant, &why);
	mm_json_put_u64(to, "kv_chunks_share", why.kv_share);
	cold_fill(s, &why, to);
}

static json_t *tenant_json(const struct mm_session *s)
{
	json_t *tenant = json_object();
	char account[MM_ACCOUNT_NAME_BYTES];
	struct mm_core_tenant t;

	mm_json_put_u64(tenant, "tenant", s->tenant);
	mm_json_put_text(tenant, "name", s->name);
	mm_json_put_u64(tenant, "device", s->pool->ordinal);
	mm_json_put_u64(tenant, "pid", (uint64_t)s->pid);
	mm_json_put_text(tenant, "account", mm_quota_name(s->shell, s->account, account));
	mm_json_put_u64(tenant, "account_uid", s->uid);
	mm_json_put_text(tenant, "connection", s->state == MM_SESSION_OPEN ? "open" : "closed");
	if (mm_core_tenant(s->pool->core, s->tenant, &t)) {
		tenant_pages_fill(&t, tenant);
		tenant_turns_fill(&t, tenant);
		mm_steer_fill(&t, tenant);
		why_fill(s, tenant);
	}
	plan_fill(s->pool->core, s->tenant, tenant);
	mm_json_put_u64(tenant, "load_read_bytes", s->kept->model.read_bytes & INT64_MAX);
	mm_json_put_u64(tenant, "load_filled_bytes", s->kept->model.filled_bytes & INT64_MAX);
	json_object_set_new(tenant, "group", mm_session_group_json(s));
	mm_json_put_u64(tenant, "swap_refused_bytes", s->swap_refused_bytes & INT64_MAX);
	mm_json_put_u64(tenant, "store", s->store ? s->store->id : 0);
	weights_fill(s, tenant);
	cursors_fill(s, tenant);
	stats_fill(s, tenant);
	return tenant;
}

static json_t *tenants_json(struct mm_shell *shell, const struct mm_pool *only)
{
	json_t *tenants = json_array();

	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN && (!only || s->pool == only))
			json_array_append_new(tenants, tenant_json(s));
	}
	return tenants;
}

/* ---- status ---- */

static json_t *store_json(const struct mm_shell *shell, const struct mm_store *store)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "store", store->id);
	methods_put_hex(json, "identity", store->identity, 8);
	/* A key is known to its scope alone, and to whoever may do anything. */
	mm_json_put(json, "keys",
		    shell->admin.observed ? json_array() : mm_keys_json(shell, store));
	mm_json_put_u64(json, "bytes", store->bytes);
	mm_json_put_u64(json, "tensor_bytes", store->tensor_bytes);
	mm_json_put_text(json, "tier", store->on_disk ? "disk" : "memory");
	mm_json_put_u64(json, "host_bytes", store->host_bytes);
	mm_json_put_u64(json, "hugepage_bytes", store->hugepage_bytes);
	methods_put_node(json, "numa_node", store->numa_node);
	mm_json_put_u64(json, "groups", store->n_groups);
	mm_json_put_u64(json, "refs", store->refs);
	mm_json_put_flag(json, "ready", store->ready);
	mm_json_put_flag(json, "buffered", store->flags & MM_LOAD_F_BUFFERED);
	mm_json_put_flag(json, "pread", store->flags & MM_LOAD_F_PREAD);
	return json;
}

static json_t *stores_json(const struct mm_shell *shell)
{
	json_t *stores = json_array();

	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		if (shell->stores.store[i].id)
			json_array_append_new(stores, store_json(shell, &shell->stores.store[i]));
	}
	return stores;
}

static json_t *xfer_json(const struct mm_worker *w)
{
	json_t *xfer = json_object();

	mm_json_put_flag(xfer, "up", w->kept->state == MM_WORKER_UP);
	mm_json_put_flag(xfer, "proven", w->kept->proven);
	mm_json_put_u64(xfer, "epoch", w->kept->epoch);
	mm_json_put_u64(xfer, "restarts", w->kept->restarts);
	mm_json_put_u64(xfer, "pid", (uint64_t)w->kept->pid);
	mm_json_put_u64(xfer, "jobs_running", w->pushed.running);
	mm_json_put_u64(xfer, "stage_bytes", w->device.stage_bytes);
	mm_json_put_text(xfer, "stage_reads",
			 !w->device.stage_bytes  ? "none"
			 : w->device.stage_pread ? "pread"
						 : "io_uring");
	return xfer;
}

static void counters_fill(const struct mm_core_stats *stats, json_t *to)
{
	mm_json_put_u64(to, "alpha_sum", stats->alpha_sum);
	mm_json_put_u64(to, "alpha_sum_max", stats->alpha_sum_max);
	mm_json_put_u64(to, "grants", stats->grants);
	mm_json_put_u64(to, "takes", stats->takes);
	mm_json_put_u64(to, "returns", stats->returns);
	mm_json_put_u64(to, "plan_changes", stats->plan_changes);
	mm_json_put_u64(to, "plan_changes_limited", stats->plan_changes_limited);
	mm_json_put_u64(to, "denials", stats->denials);
	mm_json_put_u64(to, "reclaims", stats->reclaims);
	mm_json_put_u64(to, "kicks", stats->kicks);
	mm_json_put_u64(to, "kills", stats->kills);
	mm_json_put_u64(to, "kills_withheld", stats->kills_withheld);
	mm_json_put_u64(to, "overdue", stats->overdue);
	mm_json_put_u64(to, "deadlines_restarted", stats->deadlines_restarted);
	mm_json_put_u64(to, "turns", stats->turns);
	mm_json_put_u64(to, "turns_overdue", stats->turns_overdue);
}

static void device_turns_fill(const struct mm_pool *pool, json_t *to,
			      const struct mm_core_stats *stats)
{
	char why[MM_SENTENCE_BYTES];
	struct mm_core_why_device device;

	mm_core_why_device(pool->core, &device);
	mm_json_put_text(to, "turn_mode", stats->turns_beside ? "beside" : "turns");
	mm_json_put_text(to, "turn_mode_why", mm_explain_mode(&device, why));
	mm_json_put(to, "turn_holder", json_null());
	MM_FOREACH_SESSION(pool->shell, s) {
		if (s->pool == pool && s->state >= MM_SESSION_OPEN &&
		    s->tenant == stats->turn_holder)
			mm_json_put_text(to, "turn_holder", s->name);
	}
}

static void device_fill(const struct mm_pool *pool, json_t *to, const struct mm_core_stats *stats)
{
	uint32_t kill_max;
	bool breaker;

	pool_fill(pool, to, stats);
	counters_fill(stats, to);
	device_turns_fill(pool, to, stats);
	mm_json_put_u64(to, "bytes_streamed", mm_pool_bytes_streamed(pool));
	mm_json_put_u64(to, "cold_bytes_streamed", mm_pool_cold_streamed(pool));
	mm_core_kills(pool->core, &breaker, &kill_max);
	mm_json_put_flag(to, "kill_breaker_open", breaker);
	mm_json_put_u64(to, "kill_max", kill_max);
	mm_json_put(to, "xfer", xfer_json(&pool->worker));
	mm_json_put(to, "health", health_json(pool, stats));
}

static json_t *rights_json(const struct mm_shell *shell)
{
	json_t *json = json_object();

	mm_json_put_text(json, "sandbox", mm_sandbox_name(shell->config->sandbox));
	mm_json_put_u64(json, "core_uid", shell->rights.uid);
	mm_json_put(json, "core_stays_root", json_boolean(shell->rights.stays_root));
	return json;
}

static json_t *status_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_pool *only;
	json_t *result;

	if (!mm_named_device(shell, params, &only, error))
		return NULL;
	result = json_object();
	devices_fill(shell, only, result, device_fill);
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put_text(result, "version", MM_VERSION);
	mm_json_put_u64(result, "uptime_ns", mm_now_ns() - shell->started_ns);
	mm_json_put_text(result, "policy", mm_policy_name((enum mm_policy)shell->config->policy));
	mm_json_put(result, "controller", knobs_json(shell->config));
	mm_json_put(result, "rights", rights_json(shell));
	mm_json_put(result, "tenants", tenants_json(shell, only));
	mm_json_put_u64(result, "host_store_bytes", mm_stores_host_bytes(shell));
	mm_json_put_u64(result, "host_store_max_bytes", shell->config->host_store_max_bytes);
	mm_json_put_u64(result, "swap_bytes", mm_swap_used(shell));
	mm_json_put_u64(result, "swap_max_bytes", shell->config->swap_max_bytes);
	mm_json_put_u64(result, "load_deaths", shell->stores.kept->deaths);
	mm_json_put(result, "stores", stores_json(shell));
	return result;
}

/* ---- plans ---- */

static json_t *slot_json(const struct mm_session *s, uint32_t index,
			 const struct mm_core_slot *slot)
{
	json_t *json = json_object(), *layers = json_array(), *pages = json_array();

	for (uint32_t i = 0; i < slot->n_layers; i++)
		json_array_append_new(layers, json_integer(slot->layer[i]));
	for (uint32_t i = 0; i < slot->n_pages; i++)
		json_array_append_new(
			pages, json_integer(mm_core_slot_page(s->pool->core, s->tenant, index, i)));
	mm_json_put(json, "layers", layers);
	mm_json_put(json, "pages", pages);
	return json;
}

static json_t *plan_json(const struct mm_session *s)
{
	const struct mm_core_plan *plan = mm_core_plan(s->pool->core, s->tenant);
	json_t *json = json_object(), *slots = json_array();
	struct mm_core_why why = { 0 };

	mm_core_why(s->pool->core, s->tenant, &why);
	mm_json_put_u64(json, "tenant", s->tenant);
	mm_json_put_text(json, "name", s->name);
	mm_json_put_u64(json, "device", s->pool->ordinal);
	plan_fill(s->pool->core, s->tenant, json);
	for (uint32_t i = 0; plan && plan->m && i < plan->beta; i++)
		json_array_append_new(slots, slot_json(s, i, &plan->slot[i]));
	mm_json_put(json, "slots", slots);
	cold_fill(s, &why, json);
	weights_fill(s, json);
	cursors_fill(s, json);
	return json;
}

static json_t *plan_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	bool all = !json_object_get(params, "name");
	struct mm_session *only = all ? NULL : mm_named_tenant(shell, params, error);
	struct mm_pool *pool = NULL;
	json_t *result, *plans;

	if ((!all && !only) || !mm_named_device(shell, params, &pool, error))
		return NULL;
	result = json_object();
	plans = json_array();
	MM_FOREACH_SESSION(shell, s) {
		if (s == only || (all && s->state == MM_SESSION_OPEN && (!pool || s->pool == pool)))
			json_array_append_new(plans, plan_json(s));
	}
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put(result, "plans", plans);
	return result;
}

/* Writes what the core says of all tenants on @pool; returns how many. @row: one per session. */
static uint32_t rows_fill(const struct mm_pool *pool, struct mm_explain_row *row)
{
	uint32_t n = 0;

	MM_FOREACH_SESSION(pool->shell, s) {
		if (s->pool != pool || s->state != MM_SESSION_OPEN ||
		    !mm_core_why(pool->core, s->tenant, &row[n].why))
			continue;
		row[n++].name = s->name;
	}
	return n;
}

static json_t *why_json(const struct mm_pool *pool, const struct mm_session *only,
			struct mm_explain_row *row)
{
	struct mm_explain e = { .row = row, .n = rows_fill(pool, row) };
	const struct mm_explain_row *one = NULL;
	json_t *json;

	for (uint32_t i = 0; only && i < e.n; i++)
		if (row[i].why.tenant == only->tenant)
			one = &row[i];
	mm_core_why_device(pool->core, &e.device);
	/* The numbers of layers that were considered, of all tenants, would be megabytes. */
	json = mm_explain_json(&e, one, one != NULL);
	mm_json_put_u64(json, "device", pool->ordinal);
	return json;
}

static json_t *plan_why(void *context, const json_t *params, struct mm_rpc_error *error)
{
	mm_cleanup(mm_free_ptr) struct mm_explain_row *row = NULL;
	struct mm_shell *shell = context;
	struct mm_session *only = NULL;
	struct mm_pool *pool = NULL;
	json_t *result, *devices;
	size_t n = 0;

	if (!mm_named_device(shell, params, &pool, error))
		return NULL;
	if (json_object_get(params, "name")) {
		only = mm_named_tenant(shell, params, error);
		if (!only)
			return NULL;
		pool = only->pool;
	}
	MM_FOREACH_SESSION(shell, s)
		n += s->state == MM_SESSION_OPEN;
	row = calloc(n + 1, sizeof(*row));
	if (!row)
		return mm_rpc_fail(error, MM_RPC_FAILED, "out of memory");
	result = json_object();
	devices = json_array();
	for (uint32_t i = 0; i < shell->n_pools; i++)
		if (!pool || pool == &shell->pool[i])
			json_array_append_new(devices, why_json(&shell->pool[i], only, row));
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put(result, "devices", devices);
	return result;
}

/* "layers" is "auto" or a number of layers. */
static bool layers_parse(const json_t *params, int32_t *ret_alpha)
{
	uint64_t number;

	if (strcmp(mm_json_text(params, "layers"), "auto") == 0) {
		*ret_alpha = -1;
		return true;
	}
	if (!mm_json_is_whole(json_object_get(params, "layers"), 0, MM_LAYERS_MAX, &number))
		return false;
	*ret_alpha = (int32_t)number;
	return true;
}

/* "slots" is "auto", the default, or a number of slots. */
static bool slots_parse(const json_t *params, uint32_t *ret_slots)
{
	const json_t *slots = json_object_get(params, "slots");
	uint64_t number;

	*ret_slots = 0;
	if (!slots || strcmp(mm_json_text(params, "slots"), "auto") == 0)
		return true;
	if (!mm_json_is_whole(slots, 1, MM_SLOTS_MAX, &number))
		return false;
	*ret_slots = (uint32_t)number;
	return true;
}

static json_t *plan_refuse(struct mm_rpc_error *error, const struct mm_session *s, int32_t alpha,
			   uint32_t slots, uint32_t max)
{
	if (slots == 2 && alpha == 1 && max >= 2)
		return mm_rpc_fail(error, MM_RPC_FAILED,
				   "%s: 1 layer cannot be away with 2 slots; 2 to %" PRIu32 " can",
				   s->name, max);
	return mm_rpc_fail(error, MM_RPC_FAILED,
			   "%s: %d layers cannot be away; at most %" PRIu32 " can", s->name, alpha,
			   max);
}

static json_t *plan_set(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_session *s, *refused;
	struct mm_core_tenant tenant;
	uint32_t max = 0, slots;
	int32_t alpha;
	int r;

	if (!layers_parse(params, &alpha))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "layers: want 0 to %d or \"auto\"",
				   MM_LAYERS_MAX);
	if (!slots_parse(params, &slots))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "slots: want 1, %d or \"auto\"",
				   MM_SLOTS_MAX);
	s = mm_named_tenant(shell, params, error);
	if (!s)
		return NULL;
	r = mm_session_plan_set(s, alpha, slots, &max, &refused);
	if (r == MM_E_RANGE)
		return plan_refuse(error, refused, alpha, slots, max);
	if (r != 0)
		return mm_rpc_fail(error, MM_RPC_FAILED, "%s: it has no model yet", refused->name);
	return json_pack("{s:i,s:I,s:s,s:o,s:o,s:b}", "schema", SCHEMA, "tenant",
			 (json_int_t)s->tenant, "name", s->name, "alpha_by_hand",
			 alpha < 0 ? json_null() : json_integer(alpha), "slots_by_hand",
			 slots ? json_integer(slots) : json_null(), "model_held",
			 mm_core_tenant(s->pool->core, s->tenant, &tenant) && tenant.model_held);
}

/* Whoever adds a method decides here whether observers get it as well (view.sock). */
const struct mm_rpc_method mm_admin_methods[] = {
	{ "status", MM_RPC_VIEWS, status_show },
	{ "pool.show", MM_RPC_VIEWS, pool_show },
	{ "plan.show", MM_RPC_VIEWS, plan_show },
	{ "plan.why", MM_RPC_VIEWS, plan_why },
	{ "plan.set", MM_RPC_CHANGES, plan_set },
	{ "plan.cold", MM_RPC_CHANGES, mm_steer_cold },
	{ "quota.show", MM_RPC_VIEWS, mm_quota_show },
	{ "quota.set", MM_RPC_CHANGES, mm_quota_set },
	{ "doctor", MM_RPC_VIEWS, mm_doctor_show },
	{ "upgrade", MM_RPC_CHANGES, mm_upgrade_begin },
	{ "upgrade.show", MM_RPC_VIEWS, mm_upgrade_show },
	{ "events", MM_RPC_VIEWS, mm_trail_show },
	{ "config.show", MM_RPC_VIEWS, mm_settings_show },
	{ "config.reload", MM_RPC_CHANGES, mm_settings_begin },
	{ "shutdown", MM_RPC_CHANGES, mm_leave_method },
	{ "revoke", MM_RPC_CHANGES, mm_steer_revoke },
	{ "drain", MM_RPC_CHANGES, mm_steer_drain },
	{ "activate", MM_RPC_CHANGES, mm_steer_activate },
	{ "pin", MM_RPC_CHANGES, mm_steer_pin },
	{ "unpin", MM_RPC_CHANGES, mm_steer_unpin },
	{ "metrics", MM_RPC_VIEWS, mm_metrics_show },
	{ .name = NULL },
};
