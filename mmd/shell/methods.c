/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/methods.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/clock.h"
#include "libclient/protocol/xplan.h"
#include "mmd/shell/shell.h"

#define SCHEMA 1

static const char *const page_state_names[MM_PAGE_STATES] = {
	[MM_PAGE_NONE] = "not_created",
	[MM_PAGE_FREE] = "free",
	[MM_PAGE_DIRTY] = "dirty",
	[MM_PAGE_SCRUBBING] = "scrubbing",
	[MM_PAGE_PARAM] = "param",
	[MM_PAGE_SLOT] = "slot",
	[MM_PAGE_KV] = "kv",
	[MM_PAGE_REVOKING] = "revoking",
	[MM_PAGE_QUARANTINE] = "quarantine",
};

static const char *const plan_phase_names[] = {
	[MM_PLAN_STEADY] = "steady",     [MM_PLAN_PRELOAD] = "preload",
	[MM_PLAN_PREPARED] = "prepared", [MM_PLAN_QUIESCING] = "quiescing",
	[MM_PLAN_SWITCHED] = "switched",
};

static void methods_put_u64(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void methods_put_text(json_t *object, const char *key, const char *text)
{
	json_object_set_new(object, key, json_string(text));
}

/* A negative node becomes null: any node, or none known. */
static void methods_put_node(json_t *object, const char *key, int node)
{
	json_object_set_new(object, key, node < 0 ? json_null() : json_integer(node));
}

static void methods_put_hex(json_t *object, const char *key, const uint8_t *bytes, size_t n)
{
	char text[2 * 32 + 1] = "";

	mm_assert(2 * n < sizeof(text));
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	methods_put_text(object, key, text);
}

/* ---- pool ---- */

static json_t *pages_json(const struct mm_core_stats *stats)
{
	json_t *pages = json_object();

	for (size_t i = 0; i < MM_PAGE_STATES; i++)
		methods_put_u64(pages, page_state_names[i], stats->pages[i]);
	return pages;
}

static bool pages_are_accounted(const struct mm_pool *pool, const struct mm_core_stats *stats)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < MM_PAGE_STATES; i++)
		sum += stats->pages[i];
	return sum == pool->worker.device.pages;
}

static void methods_put_flag(json_t *object, const char *key, uint32_t flags, uint32_t flag)
{
	json_object_set_new(object, key, json_boolean(flags & flag));
}

static void facts_fill(const struct mm_xfacts *facts, json_t *device)
{
	const uint32_t version = facts->driver_version, flags = facts->attributes;
	char text[24];

	snprintf(text, sizeof(text), "%u.%u", version / 1000, version % 1000 / 10);
	methods_put_text(device, "cuda", text);
	snprintf(text, sizeof(text), "%u.%u", facts->capability / 10, facts->capability % 10);
	methods_put_text(device, "compute_capability", text);
	methods_put_flag(device, "host_read_only", flags, MM_XFACT_HOST_READ_ONLY);
	methods_put_flag(device, "gpudirect", flags, MM_XFACT_GPUDIRECT);
	methods_put_flag(device, "wait_nor", flags, MM_XFACT_WAIT_NOR);
	methods_put_flag(device, "mps", flags, MM_XFACT_MPS);
	methods_put_flag(device, "ecc", flags, MM_XFACT_ECC);
	methods_put_flag(device, "integrated", flags, MM_XFACT_INTEGRATED);
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
		methods_put_u64(other, "pid", sample->holder[i].pid);
		methods_put_text(other, "name", sample->holder[i].name);
		methods_put_u64(other, "bytes", sample->holder[i].bytes);
		json_array_append_new(others, other);
	}
	return others;
}

static json_t *health_json(const struct mm_pool *pool, const struct mm_core_stats *stats)
{
	const struct mm_health *h = &pool->health;
	json_t *health = json_object();

	methods_put_flag(health, "seen", h->sample.flags, MM_XHEALTH_SEEN);
	methods_put_flag(health, "events", h->sample.flags, MM_XHEALTH_EVENTS);
	methods_put_flag(health, "repair_pending", h->sample.flags, MM_XHEALTH_REPAIR_PENDING);
	methods_put_flag(health, "repair_failed", h->sample.flags, MM_XHEALTH_REPAIR_FAILED);
	methods_put_u64(health, "xids", h->xids);
	methods_put_u64(health, "last_xid", h->last_xid);
	methods_put_u64(health, "memory_errors", h->memory_errors);
	methods_put_u64(health, "lost", h->lost);
	methods_put_u64(health, "single_bit_events", h->single_bit);
	methods_put_u64(health, "double_bit_events", h->double_bit);
	methods_put_u64(health, "pages_suspect", stats->suspects);
	methods_put_u64(health, "pages_quarantined", stats->suspects_quarantined);
	methods_put_u64(health, "memory_total_bytes", h->sample.total_bytes);
	methods_put_u64(health, "memory_free_bytes", h->sample.free_bytes);
	json_object_set_new(health, "others", others_json(pool));
	return health;
}

static json_t *device_json(const struct mm_pool *pool)
{
	const struct mm_device *d = &pool->worker.device;
	json_t *device = json_object();

	methods_put_u64(device, "ordinal", pool->ordinal);
	methods_put_text(device, "name", d->name);
	methods_put_text(device, "driver", d->driver_kind == MM_DRIVER_CUDA ? "cuda" : "software");
	methods_put_hex(device, "uuid", d->uuid, sizeof(d->uuid));
	if (*pool->shell->config->device_uuid[pool->index])
		methods_put_text(device, "named", pool->shell->config->device_uuid[pool->index]);
	methods_put_u64(device, "total_bytes", d->total_bytes);
	methods_put_node(device, "numa_node", d->numa_node);
	methods_put_flag(device, "mig", pool->health.sample.flags, MM_XHEALTH_MIG);
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
	json_object_set_new(to, "device", device_json(pool));
	methods_put_text(to, "state", pool->down ? "down" : "up");
	methods_put_u64(to, "page_bytes", pool->worker.device.page_bytes);
	methods_put_u64(to, "pool_pages", pool->worker.device.pages);
	json_object_set_new(to, "pages", pages_json(stats));
	json_object_set_new(to, "pages_accounted", json_boolean(pages_are_accounted(pool, stats)));
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
			json_object_set_new(all, key, json_deep_copy(value));
		else if (strcmp(key, "pages") == 0)
			device_json_fold(sum, value);
		else if (strcmp(key, "pages_accounted") == 0)
			json_object_set_new(all, key,
					    json_boolean(json_is_true(sum) && json_is_true(value)));
		else if (json_is_integer(sum) && key_is_summed(key))
			json_integer_set(sum, json_integer_value(sum) + json_integer_value(value));
	}
}

/* Finds the pool of "device", an ordinal. Without that key *ret_pool is NULL, which is no error. */
static bool device_find(struct mm_shell *shell, const json_t *params, struct mm_pool **ret_pool,
			struct mm_rpc_error *error)
{
	const json_t *device = json_object_get(params, "device");

	*ret_pool = NULL;
	if (!device)
		return true;
	for (uint32_t i = 0; json_is_integer(device) && i < shell->n_pools; i++) {
		if (shell->pool[i].ordinal == (uint64_t)json_integer_value(device))
			*ret_pool = &shell->pool[i];
	}
	if (!*ret_pool)
		mm_rpc_fail(error, MM_RPC_PARAMS, "device: want the ordinal of one that mmd has");
	return *ret_pool != NULL;
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
	json_object_set_new(to, "devices", devices);
	methods_put_text(to, "hugepages", mm_hugepages_name(shell->config->hugepages));
	methods_put_u64(to, "hugepages_bytes", stores_huge_bytes(shell));
}

static json_t *knobs_json(const struct mm_config *config)
{
	struct mm_core_opts opts = { 0 };
	json_t *knobs = json_object();
	const struct mm_knob *k;

	mm_pool_tune(config, &opts);
	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		if (k->names)
			methods_put_text(knobs, k->name, mm_knob_choice(k, &opts));
		else
			methods_put_u64(knobs, k->name, mm_knob_value(k, &opts));
	}
	return knobs;
}

static json_t *pool_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_pool *only;
	json_t *result;

	if (!device_find(shell, params, &only, error))
		return NULL;
	result = json_object();
	devices_fill(shell, only, result, pool_fill);
	methods_put_u64(result, "schema", SCHEMA);
	json_object_set_new(result, "controller", knobs_json(shell->config));
	return result;
}

/* ---- tenants ---- */

static void cursors_fill(const struct mm_session *s, json_t *to)
{
	const struct mm_xcursor_region *c = s->cursor_region.base;

	methods_put_u64(to, "bytes_streamed",
			__atomic_load_n(&c->bytes_streamed, __ATOMIC_RELAXED));
	methods_put_u64(to, "layers_streamed",
			__atomic_load_n(&c->layers_streamed, __ATOMIC_RELAXED));
	methods_put_u64(to, "layer_copy_last_ns",
			__atomic_load_n(&c->copy_last_ns, __ATOMIC_RELAXED));
}

static void plan_fill(const struct mm_core *core, uint32_t tenant, json_t *to)
{
	const struct mm_core_plan *plan = mm_core_plan(core, tenant);

	methods_put_u64(to, "alpha", plan ? plan->alpha : 0);
	methods_put_u64(to, "m", plan ? plan->m : 0);
	methods_put_u64(to, "beta", plan ? plan->beta : 0);
	methods_put_u64(to, "layers", plan ? plan->n_layers : 0);
	methods_put_u64(to, "plan_epoch", plan ? plan->epoch : 0);
	methods_put_text(to, "plan_phase",
			 plan ? plan_phase_names[mm_core_plan_phase(core, tenant)] : "none");
	if (plan && plan->alpha_by_hand >= 0)
		methods_put_u64(to, "alpha_by_hand", (uint64_t)plan->alpha_by_hand);
	else
		json_object_set_new(to, "alpha_by_hand", json_null());
	if (plan && plan->slots_by_hand)
		methods_put_u64(to, "slots_by_hand", plan->slots_by_hand);
	else
		json_object_set_new(to, "slots_by_hand", json_null());
}

static void tenant_pages_fill(const struct mm_core_tenant *t, json_t *to)
{
	methods_put_u64(to, "pages",
			(uint64_t)t->pages_param + t->pages_slot + t->pages_kv + t->pages_revoking);
	methods_put_u64(to, "pages_param", t->pages_param);
	methods_put_u64(to, "pages_slot", t->pages_slot);
	methods_put_u64(to, "pages_kv", t->pages_kv);
	methods_put_u64(to, "pages_revoking", t->pages_revoking);
	methods_put_u64(to, "kv_chunks", t->kv_chunks);
	methods_put_u64(to, "kv_chunks_wanted", t->kv_wanted);
	methods_put_u64(to, "kv_chunks_max", t->kv_chunks_max);
	methods_put_u64(to, "swap_bytes", t->swap_bytes);
	json_object_set_new(to, "idle", json_boolean(t->idle));
	json_object_set_new(to, "model_ready", json_boolean(t->model_ready));
}

static void tenant_turns_fill(const struct mm_core_tenant *t, json_t *to)
{
	static const char *const modes[] = { "none", "quantum", "drain" };
	json_t *turns = json_object();

	static_assert(MM_ARRAY_SIZE(modes) == MM_TURN_MODES, "a name for each");
	methods_put_text(turns, "mode", modes[t->turn_mode]);
	json_object_set_new(turns, "waits", json_boolean(t->turn_wanted));
	methods_put_u64(turns, "begun", t->turns);
	methods_put_u64(turns, "overdue", t->turns_overdue);
	json_object_set_new(to, "turns", turns);
}

static void stats_fill(const struct mm_session *s, json_t *to)
{
	const struct mm_tenant_region *theirs = s->tenant_region.base;
	const struct mm_tenant_stats *claims = &theirs->stats;

	methods_put_u64(to, "steps", __atomic_load_n(&claims->steps, __ATOMIC_RELAXED) & INT64_MAX);
	methods_put_u64(to, "step_last_ns",
			__atomic_load_n(&claims->step_ns, __ATOMIC_RELAXED) & INT64_MAX);
	methods_put_u64(to, "stall_total_ns",
			__atomic_load_n(&claims->stall_total_ns, __ATOMIC_RELAXED) & INT64_MAX);
}

/* Device memory of the whole model when it is resident, and what rounding to pages wastes of it. */
static void weights_fill(const struct mm_session *s, json_t *to)
{
	const uint64_t page_bytes = s->pool->worker.device.page_bytes;
	const struct mm_store *store = s->store;
	uint64_t pages = 0, tensor_bytes = store ? store->tensor_bytes : 0;

	for (uint32_t i = 0; store && i < store->n_groups; i++)
		pages += mm_div_up(store->groups[i].bytes, page_bytes);
	methods_put_u64(to, "weights_tensor_bytes", tensor_bytes);
	methods_put_u64(to, "weights_device_bytes", pages * page_bytes);
	methods_put_u64(to, "weights_waste_bytes",
			pages * page_bytes - MM_MIN(tensor_bytes, pages * page_bytes));
}

static json_t *tenant_json(const struct mm_session *s)
{
	json_t *tenant = json_object();
	char account[MM_ACCOUNT_NAME_BYTES];
	struct mm_core_tenant t;

	methods_put_u64(tenant, "tenant", s->tenant);
	methods_put_text(tenant, "name", s->name);
	methods_put_u64(tenant, "device", s->pool->ordinal);
	methods_put_u64(tenant, "pid", (uint64_t)s->pid);
	methods_put_text(tenant, "account", mm_quota_name(s->shell, s->account, account));
	methods_put_u64(tenant, "account_uid", s->uid);
	methods_put_text(tenant, "connection", s->state == MM_SESSION_OPEN ? "open" : "closed");
	if (mm_core_tenant(s->pool->core, s->tenant, &t)) {
		tenant_pages_fill(&t, tenant);
		tenant_turns_fill(&t, tenant);
	}
	plan_fill(s->pool->core, s->tenant, tenant);
	methods_put_u64(tenant, "store", s->store ? s->store->id : 0);
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

static json_t *store_json(const struct mm_store *store)
{
	json_t *json = json_object();

	methods_put_u64(json, "store", store->id);
	methods_put_hex(json, "identity", store->identity, 8);
	methods_put_u64(json, "bytes", store->bytes);
	methods_put_u64(json, "tensor_bytes", store->tensor_bytes);
	methods_put_text(json, "tier", store->on_disk ? "disk" : "memory");
	methods_put_u64(json, "host_bytes", store->host_bytes);
	methods_put_u64(json, "hugepage_bytes", store->hugepage_bytes);
	methods_put_node(json, "numa_node", store->numa_node);
	methods_put_u64(json, "groups", store->n_groups);
	methods_put_u64(json, "refs", store->refs);
	json_object_set_new(json, "ready", json_boolean(store->ready));
	json_object_set_new(json, "buffered", json_boolean(store->flags & MM_LOAD_F_BUFFERED));
	json_object_set_new(json, "pread", json_boolean(store->flags & MM_LOAD_F_PREAD));
	return json;
}

static json_t *stores_json(const struct mm_shell *shell)
{
	json_t *stores = json_array();

	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		if (shell->stores.store[i].id)
			json_array_append_new(stores, store_json(&shell->stores.store[i]));
	}
	return stores;
}

static json_t *xfer_json(const struct mm_worker *w)
{
	json_t *xfer = json_object();

	json_object_set_new(xfer, "up", json_boolean(w->state == MM_WORKER_UP));
	json_object_set_new(xfer, "proven", json_boolean(w->proven));
	methods_put_u64(xfer, "epoch", w->epoch);
	methods_put_u64(xfer, "restarts", w->restarts);
	methods_put_u64(xfer, "pid", (uint64_t)w->pid);
	methods_put_u64(xfer, "jobs_running", w->jobs_running);
	methods_put_u64(xfer, "stage_bytes", w->device.stage_bytes);
	methods_put_text(xfer, "stage_reads",
			 !w->device.stage_bytes  ? "none"
			 : w->device.stage_pread ? "pread"
						 : "io_uring");
	return xfer;
}

/* Bytes since mmd started, those of tenants that have left included. */
static uint64_t pool_bytes_streamed(const struct mm_pool *pool)
{
	uint64_t sum = pool->bytes_streamed_gone;

	MM_FOREACH_SESSION(pool->shell, s) {
		const struct mm_xcursor_region *c = s->cursor_region.base;

		if (c && s->pool == pool)
			sum += __atomic_load_n(&c->bytes_streamed, __ATOMIC_RELAXED);
	}
	return sum;
}

static void counters_fill(const struct mm_core_stats *stats, json_t *to)
{
	methods_put_u64(to, "alpha_sum", stats->alpha_sum);
	methods_put_u64(to, "alpha_sum_max", stats->alpha_sum_max);
	methods_put_u64(to, "grants", stats->grants);
	methods_put_u64(to, "takes", stats->takes);
	methods_put_u64(to, "returns", stats->returns);
	methods_put_u64(to, "plan_changes", stats->plan_changes);
	methods_put_u64(to, "plan_changes_limited", stats->plan_changes_limited);
	methods_put_u64(to, "denials", stats->denials);
	methods_put_u64(to, "reclaims", stats->reclaims);
	methods_put_u64(to, "kicks", stats->kicks);
	methods_put_u64(to, "kills", stats->kills);
	methods_put_u64(to, "kills_withheld", stats->kills_withheld);
	methods_put_u64(to, "overdue", stats->overdue);
	methods_put_u64(to, "deadlines_restarted", stats->deadlines_restarted);
	methods_put_u64(to, "turns", stats->turns);
	methods_put_u64(to, "turns_overdue", stats->turns_overdue);
}

static void turn_holder_fill(const struct mm_pool *pool, json_t *to,
			     const struct mm_core_stats *stats)
{
	json_object_set_new(to, "turn_holder", json_null());
	MM_FOREACH_SESSION(pool->shell, s) {
		if (s->pool == pool && s->state >= MM_SESSION_OPEN &&
		    s->tenant == stats->turn_holder)
			methods_put_text(to, "turn_holder", s->name);
	}
}

static void device_fill(const struct mm_pool *pool, json_t *to, const struct mm_core_stats *stats)
{
	uint32_t kill_max;
	bool breaker;

	pool_fill(pool, to, stats);
	counters_fill(stats, to);
	turn_holder_fill(pool, to, stats);
	methods_put_u64(to, "bytes_streamed", pool_bytes_streamed(pool));
	mm_core_kills(pool->core, &breaker, &kill_max);
	json_object_set_new(to, "kill_breaker_open", json_boolean(breaker));
	methods_put_u64(to, "kill_max", kill_max);
	json_object_set_new(to, "xfer", xfer_json(&pool->worker));
	json_object_set_new(to, "health", health_json(pool, stats));
}

static json_t *status_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_pool *only;
	json_t *result;

	if (!device_find(shell, params, &only, error))
		return NULL;
	result = json_object();
	devices_fill(shell, only, result, device_fill);
	methods_put_u64(result, "schema", SCHEMA);
	methods_put_text(result, "version", MM_VERSION);
	methods_put_u64(result, "uptime_ns", mm_now_ns() - shell->started_ns);
	methods_put_text(result, "policy", mm_policy_name((enum mm_policy)shell->config->policy));
	json_object_set_new(result, "controller", knobs_json(shell->config));
	json_object_set_new(result, "tenants", tenants_json(shell, only));
	methods_put_u64(result, "host_store_bytes", mm_stores_host_bytes(shell));
	methods_put_u64(result, "host_store_max_bytes", shell->config->host_store_max_bytes);
	methods_put_u64(result, "load_deaths", shell->stores.deaths);
	json_object_set_new(result, "stores", stores_json(shell));
	return result;
}

/* ---- plans ---- */

static struct mm_session *tenant_find(struct mm_shell *shell, const json_t *params,
				      struct mm_rpc_error *error)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	struct mm_session *s;
	struct mm_pool *pool;
	unsigned int many;

	if (!name) {
		mm_rpc_fail(error, MM_RPC_PARAMS, "name: want the name or id of a tenant");
		return NULL;
	}
	if (!device_find(shell, params, &pool, error))
		return NULL;
	s = mm_session_lookup(shell, pool, name, &many);
	if (!s)
		mm_rpc_fail(error, MM_RPC_FAILED, "%.64s: %s", name,
			    many ? "several tenants have this name; use the id or --device"
				 : "no such tenant");
	return s;
}

static json_t *slot_json(const struct mm_session *s, uint32_t index,
			 const struct mm_core_slot *slot)
{
	json_t *json = json_object(), *layers = json_array(), *pages = json_array();

	for (uint32_t i = 0; i < slot->n_layers; i++)
		json_array_append_new(layers, json_integer(slot->layer[i]));
	for (uint32_t i = 0; i < slot->n_pages; i++)
		json_array_append_new(
			pages, json_integer(mm_core_slot_page(s->pool->core, s->tenant, index, i)));
	json_object_set_new(json, "layers", layers);
	json_object_set_new(json, "pages", pages);
	return json;
}

static json_t *plan_json(const struct mm_session *s)
{
	const struct mm_core_plan *plan = mm_core_plan(s->pool->core, s->tenant);
	json_t *json = json_object(), *slots = json_array();

	methods_put_u64(json, "tenant", s->tenant);
	methods_put_text(json, "name", s->name);
	methods_put_u64(json, "device", s->pool->ordinal);
	plan_fill(s->pool->core, s->tenant, json);
	for (uint32_t i = 0; plan && plan->m && i < plan->beta; i++)
		json_array_append_new(slots, slot_json(s, i, &plan->slot[i]));
	json_object_set_new(json, "slots", slots);
	weights_fill(s, json);
	cursors_fill(s, json);
	return json;
}

static json_t *plan_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	bool all = !json_object_get(params, "name");
	struct mm_session *only = all ? NULL : tenant_find(shell, params, error);
	struct mm_pool *pool = NULL;
	json_t *result, *plans;

	if ((!all && !only) || !device_find(shell, params, &pool, error))
		return NULL;
	result = json_object();
	plans = json_array();
	MM_FOREACH_SESSION(shell, s) {
		if (s == only || (all && s->state == MM_SESSION_OPEN && (!pool || s->pool == pool)))
			json_array_append_new(plans, plan_json(s));
	}
	methods_put_u64(result, "schema", SCHEMA);
	json_object_set_new(result, "plans", plans);
	return result;
}

/* "layers" is "auto" or a number of layers. */
static bool layers_parse(const json_t *params, int32_t *ret_alpha)
{
	const json_t *layers = json_object_get(params, "layers");
	const char *word = json_string_value(layers);
	json_int_t number = json_integer_value(layers);

	if (word && strcmp(word, "auto") == 0) {
		*ret_alpha = -1;
		return true;
	}
	if (!json_is_integer(layers) || number < 0 || number > MM_LAYERS_MAX)
		return false;
	*ret_alpha = (int32_t)number;
	return true;
}

/* "slots" is "auto", the default, or a number of slots. */
static bool slots_parse(const json_t *params, uint32_t *ret_slots)
{
	const json_t *slots = json_object_get(params, "slots");
	const char *word = json_string_value(slots);
	json_int_t number = json_integer_value(slots);

	*ret_slots = 0;
	if (!slots || (word && strcmp(word, "auto") == 0))
		return true;
	if (!json_is_integer(slots) || number < 1 || number > MM_SLOTS_MAX)
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
	struct mm_session *s;
	uint32_t max = 0, slots;
	int32_t alpha;
	int r;

	if (!layers_parse(params, &alpha))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "layers: want 0 to %d or \"auto\"",
				   MM_LAYERS_MAX);
	if (!slots_parse(params, &slots))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "slots: want 1, %d or \"auto\"",
				   MM_SLOTS_MAX);
	s = tenant_find(shell, params, error);
	if (!s)
		return NULL;
	r = mm_core_plan_set(s->pool->core, mm_now_ns(), s->tenant, alpha, slots, &max);
	mm_pool_settle(s->pool);
	if (r == MM_E_RANGE)
		return plan_refuse(error, s, alpha, slots, max);
	if (r != 0)
		return mm_rpc_fail(error, MM_RPC_FAILED, "%s: it has no model yet", s->name);
	return json_pack("{s:i,s:I,s:s,s:o,s:o}", "schema", SCHEMA, "tenant", (json_int_t)s->tenant,
			 "name", s->name, "alpha_by_hand",
			 alpha < 0 ? json_null() : json_integer(alpha), "slots_by_hand",
			 slots ? json_integer(slots) : json_null());
}

const struct mm_rpc_method mm_admin_methods[] = {
	{ "status", status_show },
	{ "pool.show", pool_show },
	{ "plan.show", plan_show },
	{ "plan.set", plan_set },
	{ "quota.show", mm_quota_show },
	{ "quota.set", mm_quota_set },
	{ NULL, NULL },
};
