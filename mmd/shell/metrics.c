/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/metrics.h"

#include <stdio.h>
#include <time.h>

#include "libclient/protocol/xplan.h"
#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "mmd/explain/explain.h"
#include "mmd/shell/shell.h"
#include "mmd/shell/swap.h"

#define SCHEMA 1

/* A claim may be any number; JSON has none above this. */
static uint64_t claim_read(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED) & INT64_MAX;
}

/* ---- tallies ---- */

static void times_put(json_t *to, const char *key, const struct mm_core_times *times)
{
	json_t *json = json_object(), *counts = json_array();

	for (uint32_t i = 0; i <= MM_TALLY_BOUNDS; i++)
		json_array_append_new(counts, json_integer((json_int_t)times->count[i]));
	mm_json_put(json, "counts", counts);
	mm_json_put_u64(json, "sum_ns", times->sum_ns);
	mm_json_put(to, key, json);
}

static void tally_fill(const struct mm_core_tally *tally, json_t *to)
{
	mm_json_put_u64(to, "joins", tally->joins);
	mm_json_put_u64(to, "grants", tally->grants);
	mm_json_put_u64(to, "denials", tally->denials);
	mm_json_put_u64(to, "reclaims", tally->reclaims);
	mm_json_put_u64(to, "released", tally->released);
	mm_json_put_u64(to, "takes", tally->takes);
	mm_json_put_u64(to, "returns", tally->returns);
	mm_json_put_u64(to, "plan_changes", tally->plan_changes);
	mm_json_put_u64(to, "swapped_out_bytes", tally->swapped_out_bytes);
	mm_json_put_u64(to, "swapped_in_bytes", tally->swapped_in_bytes);
	mm_json_put_u64(to, "kicks", tally->kicks);
	mm_json_put_u64(to, "kills", tally->kills);
	mm_json_put_u64(to, "steps", tally->steps);
	mm_json_put_u64(to, "stall_ns", tally->stall_ns);
	times_put(to, "grant_times", &tally->grant);
	times_put(to, "step_times", &tally->step);
	times_put(to, "stall_times", &tally->stall);
}

static json_t *bounds_json(void)
{
	json_t *bounds = json_array();

	for (uint32_t i = 0; i < MM_TALLY_BOUNDS; i++)
		json_array_append_new(bounds, json_integer((json_int_t)mm_core_tally_bound_ns(i)));
	return bounds;
}

/* ---- tenants ---- */

static void tenant_kv_fill(const struct mm_core_tenant *t, uint64_t page_bytes, json_t *to)
{
	const uint64_t chunk_bytes = t->kv_chunk_pages * page_bytes;

	mm_json_put_u64(to, "weights_bytes",
			((uint64_t)t->pages_param + t->pages_slot) * page_bytes);
	mm_json_put_u64(to, "kv_bytes", t->kv_chunks * chunk_bytes);
	mm_json_put_u64(to, "kv_wanted_bytes", t->kv_wanted * chunk_bytes);
	mm_json_put_u64(to, "kv_used_bytes", t->kv_used * chunk_bytes);
	mm_json_put_u64(to, "kv_max_bytes", t->kv_chunks_max * chunk_bytes);
	mm_json_put_u64(to, "mem_bytes", t->pages_mem * page_bytes);
	mm_json_put_u64(to, "revoking_bytes", t->pages_revoking * page_bytes);
	mm_json_put_u64(to, "swap_space_bytes", t->swap_bytes);
	mm_json_put_u64(to, "idle", t->idle);
	mm_json_put_u64(to, "model_ready", t->model_ready);
	mm_json_put_u64(to, "model_held", t->model_held);
	mm_json_put_u64(to, "stall_permille", t->stall_permille);
	mm_json_put_u64(to, "compute_ns", t->step_ns);
	mm_json_put_u64(to, "turn_waits", t->turn_wanted);
	mm_json_put_u64(to, "turns", t->turns);
	mm_json_put_u64(to, "turns_overdue", t->turns_overdue);
}

static void tenant_plan_fill(const struct mm_session *s, json_t *to)
{
	const struct mm_core_plan *plan = mm_core_plan(s->pool->core, s->tenant);

	mm_json_put_u64(to, "layers", plan ? plan->n_layers : 0);
	mm_json_put_u64(to, "layers_away", plan ? plan->alpha : 0);
	mm_json_put_u64(to, "layers_cycling", plan ? plan->m : 0);
}

static void tenant_cold_fill(const struct mm_session *s, const struct mm_core_tenant *t, json_t *to)
{
	const struct mm_core_plan *plan = mm_core_plan(s->pool->core, s->tenant);
	const uint64_t chunks = plan ? plan->cold.chunks : 0;

	mm_json_put_u64(to, "cold_limit", t->cold_limit);
	mm_json_put_u64(to, "cold_window_bytes",
			chunks * t->kv_chunk_pages * s->pool->worker.device.page_bytes);
}

static void tenant_queue_fill(const struct mm_session *s, json_t *to)
{
	const struct mm_tenant_region *theirs = s->tenant_region.base;
	const struct mm_xcursor_region *cursors = s->cursor_region.base;

	mm_json_put_u64(to, "requests_waiting", claim_read(&theirs->stats.waiting));
	mm_json_put_u64(to, "requests_running", claim_read(&theirs->stats.running));
	mm_json_put_u64(to, "bytes_streamed", claim_read(&cursors->bytes_streamed));
	mm_json_put_u64(to, "layers_streamed", claim_read(&cursors->layers_streamed));
	mm_json_put_u64(to, "cold_bytes_streamed", claim_read(&cursors->cold_bytes));
}

static json_t *tenant_metrics(const struct mm_session *s)
{
	json_t *json = json_object();
	char account[MM_ACCOUNT_NAME_BYTES];
	struct mm_core_tenant t = { 0 };
	struct mm_core_tally tally = { 0 };

	mm_json_put_u64(json, "device", s->pool->ordinal);
	mm_json_put_text(json, "account", mm_quota_name(s->shell, s->account, account));
	mm_json_put_text(json, "tenant", s->name);
	mm_json_put_u64(json, "place", MM_TENANT_INDEX(s->tenant));
	mm_json_put_u64(json, "connected", s->state == MM_SESSION_OPEN);
	if (mm_core_tenant(s->pool->core, s->tenant, &t))
		tenant_kv_fill(&t, s->pool->worker.device.page_bytes, json);
	tenant_cold_fill(s, &t, json);
	tenant_plan_fill(s, json);
	tenant_queue_fill(s, json);
	if (mm_core_tally_tenant(s->pool->core, s->tenant, &tally))
		tally_fill(&tally, json);
	return json;
}

static json_t *tenants_metrics(struct mm_shell *shell)
{
	json_t *tenants = json_array();

	MM_FOREACH_SESSION(shell, s)
		if (s->state >= MM_SESSION_OPEN)
			json_array_append_new(tenants, tenant_metrics(s));
	return tenants;
}

/* ---- accounts ---- */

static json_t *account_metrics(const struct mm_pool *pool, const struct mm_core_account *a)
{
	const uint64_t page = pool->worker.device.page_bytes;
	json_t *json = json_object();
	char name[MM_ACCOUNT_NAME_BYTES];
	struct mm_core_tally tally;

	mm_json_put_u64(json, "device", pool->ordinal);
	mm_json_put_text(json, "account", mm_quota_name(pool->shell, a->account, name));
	mm_json_put_u64(json, "tenants", a->tenants);
	mm_json_put_u64(json, "used_bytes", ((uint64_t)a->charged + a->quarantined) * page);
	mm_json_put_u64(json, "min_bytes", a->quota.min_pages * page);
	mm_json_put_u64(json, "max_bytes", a->quota.max_pages * page);
	mm_json_put_u64(json, "quarantined_bytes", a->quarantined * page);
	mm_json_put_u64(json, "overdue_bytes", a->overdue_pages * page);
	if (mm_core_tally_account(pool->core, a->account, &tally))
		tally_fill(&tally, json);
	return json;
}

static void accounts_append(const struct mm_pool *pool, json_t *accounts)
{
	struct mm_core_account a;

	for (uint32_t i = 0; i < mm_core_accounts_end(pool->core); i++)
		if (mm_core_account(pool->core, i, &a))
			json_array_append_new(accounts, account_metrics(pool, &a));
}

/* ---- devices ---- */

static json_t *page_bytes_json(const struct mm_pool *pool, const struct mm_core_stats *stats)
{
	json_t *json = json_object();

	for (uint32_t i = 0; i < MM_PAGE_STATES; i++)
		mm_json_put_u64(json, mm_page_state_name((enum mm_page_state)i),
				stats->pages[i] * pool->worker.device.page_bytes);
	return json;
}

static void device_counters_fill(const struct mm_pool *pool, const struct mm_core_stats *stats,
				 json_t *to)
{
	bool breaker;
	uint32_t kill_max;

	mm_core_kills(pool->core, &breaker, &kill_max);
	mm_json_put_u64(to, "kill_breaker_open", breaker);
	mm_json_put_u64(to, "kills_withheld", stats->kills_withheld);
	mm_json_put_u64(to, "overdue", stats->overdue);
	mm_json_put_u64(to, "turns", stats->turns);
	mm_json_put_u64(to, "turns_overdue", stats->turns_overdue);
	mm_json_put_u64(to, "layers_away", stats->alpha_sum);
	mm_json_put_u64(to, "plan_changes_limited", stats->plan_changes_limited);
	mm_json_put_u64(to, "memory_errors", stats->memory_errors);
	mm_json_put_u64(to, "suspect_pages", stats->suspects);
	mm_json_put_u64(to, "bytes_streamed", mm_pool_bytes_streamed(pool));
	mm_json_put_u64(to, "cold_bytes_streamed", mm_pool_cold_streamed(pool));
	mm_json_put_u64(to, "xfer_up", pool->worker.kept->state == MM_WORKER_UP);
	mm_json_put_u64(to, "xfer_restarts", pool->worker.kept->restarts);
	mm_json_put_u64(to, "jobs_running", pool->worker.pushed.running);
}

static json_t *device_metrics(const struct mm_pool *pool)
{
	json_t *json = json_object();
	struct mm_core_tally tally;
	struct mm_core_stats stats;
	char uuid[2 * sizeof(pool->worker.device.uuid) + 1];

	mm_core_stats(pool->core, &stats);
	mm_core_tally(pool->core, &tally);
	for (size_t i = 0; i < sizeof(pool->worker.device.uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", pool->worker.device.uuid[i]);
	mm_json_put_u64(json, "device", pool->ordinal);
	mm_json_put_text(json, "uuid", uuid);
	mm_json_put_text(json, "name", pool->worker.device.name);
	mm_json_put_text(json, "driver", mm_driver_name(pool->worker.device.driver_kind));
	mm_json_put_u64(json, "info", 1);
	mm_json_put_u64(json, "up", !pool->down);
	mm_json_put_u64(json, "page_bytes", pool->worker.device.page_bytes);
	mm_json_put_u64(json, "memory_bytes", pool->worker.device.total_bytes);
	mm_json_put(json, "pool_bytes", page_bytes_json(pool, &stats));
	device_counters_fill(pool, &stats, json);
	tally_fill(&tally, json);
	return json;
}

/* ---- mmd ---- */

/* Reckoned once, so that corrections of the wall clock do not look like another start. */
static uint64_t started_unix_s(struct mm_shell *shell)
{
	struct timespec wall;
	uint64_t wall_ns;

	if (!shell->started_unix_s) {
		clock_gettime(CLOCK_REALTIME, &wall);
		wall_ns = (uint64_t)wall.tv_sec * MM_NS_PER_S + (uint64_t)wall.tv_nsec;
		shell->started_unix_s = (wall_ns - (mm_now_ns() - shell->started_ns)) / MM_NS_PER_S;
	}
	return shell->started_unix_s;
}

static uint64_t core_cpu_ns(void)
{
	struct timespec used = { 0 };

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * MM_NS_PER_S + (uint64_t)used.tv_nsec;
}

static json_t *node_metrics(struct mm_shell *shell)
{
	json_t *json = json_object();

	mm_json_put_text(json, "version", MM_VERSION);
	mm_json_put_text(json, "policy", mm_policy_name((enum mm_policy)shell->config->policy));
	mm_json_put_u64(json, "info", 1);
	mm_json_put_u64(json, "started_s", started_unix_s(shell));
	mm_json_put_u64(json, "core_restarts", shell->kept.front->head.generation - 1);
	mm_json_put_u64(json, "core_cpu_ns", core_cpu_ns());
	mm_json_put_u64(json, "host_store_bytes", mm_stores_host_bytes(shell));
	mm_json_put_u64(json, "host_store_max_bytes", shell->config->host_store_max_bytes);
	mm_json_put_u64(json, "swap_bytes", mm_swap_used(shell));
	mm_json_put_u64(json, "swap_max_bytes", shell->config->swap_max_bytes);
	mm_json_put_u64(json, "load_deaths", shell->stores.kept->deaths);
	return json;
}

json_t *mm_metrics_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	json_t *result = json_object(), *devices = json_array(), *accounts = json_array();
	struct mm_shell *shell = context;

	(void)params;
	(void)error;
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		json_array_append_new(devices, device_metrics(&shell->pool[i]));
		accounts_append(&shell->pool[i], accounts);
	}
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put(result, "bounds_ns", bounds_json());
	mm_json_put(result, "node", node_metrics(shell));
	mm_json_put(result, "devices", devices);
	mm_json_put(result, "accounts", accounts);
	mm_json_put(result, "tenants", tenants_metrics(shell));
	return result;
}
