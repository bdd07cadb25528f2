/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "libclient/support/number.h"
#include "mmd/shell/peer.h"
#include "mmd/shell/shell.h"

#define SCHEMA 1

static const char *const outcome_names[MM_QUOTA_OUTCOMES] = {
	[MM_QUOTA_APPLIED] = "applied",
	[MM_QUOTA_DEFERRED] = "deferred",
	[MM_QUOTA_STALE] = "stale",
	[MM_QUOTA_CONFLICT] = "conflict",
};

/* ---- names and keys ---- */

static const struct mm_account_config *account_config_of(const struct mm_shell *shell,
							 uint64_t account)
{
	/* A core that follows one that had taken new settings may not have all accounts yet. */
	return account >= MM_QUOTA_NAMED && account - MM_QUOTA_NAMED < MM_ACCOUNTS_NAMED_MAX
		       ? &shell->config->accounts.account[account - MM_QUOTA_NAMED]
		       : NULL;
}

const char *mm_quota_name(const struct mm_shell *shell, uint64_t account, char *text)
{
	const struct mm_account_config *a = account_config_of(shell, account);

	if (a)
		snprintf(text, MM_ACCOUNT_NAME_BYTES, "%s", a->name);
	else
		snprintf(text, MM_ACCOUNT_NAME_BYTES, "uid:%" PRIu64, account);
	return text;
}

static bool account_key_of(const struct mm_shell *shell, const char *name, uint64_t *ret_key)
{
	int index = mm_accounts_find(&shell->config->accounts, name);
	uint64_t uid;

	if (index >= 0) {
		*ret_key = MM_QUOTA_NAMED + (uint64_t)index;
		return true;
	}
	if (strncmp(name, "uid:", 4) != 0 || mm_number_parse(name + 4, &uid) || uid >= UINT32_MAX)
		return false;
	*ret_key = uid;
	return true;
}

uint64_t mm_quota_domain(const struct mm_accounts *all, uint32_t index)
{
	const char *domain = all->account[index].domain;

	for (uint32_t i = 0; *domain && i < index; i++) {
		if (strcmp(all->account[i].domain, domain) == 0)
			return MM_QUOTA_NAMED + i;
	}
	return MM_QUOTA_NAMED + index;
}

/* ---- accounts of a new core ---- */

static void quota_turns_fill(const struct mm_account_config *a, struct mm_core_quota *quota)
{
	quota->goal_ttft_ns = a->goal_ttft_ms * MM_NS_PER_MS;
	quota->goal_tpot_ns = a->goal_tpot_us * MM_NS_PER_US;
	if (a->turn_quantum_max_ms != MM_ACCOUNT_ANY)
		quota->turn_quantum_max_ns = a->turn_quantum_max_ms * MM_NS_PER_MS;
	if (a->turn_priority_max != MM_ACCOUNT_ANY)
		quota->turn_priority_max = (uint32_t)a->turn_priority_max;
}

void mm_quota_of(const struct mm_pool *pool, const struct mm_account_config *a,
		 struct mm_core_quota *ret_quota)
{
	const uint64_t page = pool->worker.device.page_bytes;

	mm_core_quota_default(pool->core, ret_quota);
	ret_quota->min_pages = mm_div_up(a->min_bytes, page);
	ret_quota->max_pages = a->max_bytes / page;
	ret_quota->weight = (uint32_t)a->weight;
	ret_quota->priority = (uint32_t)a->priority;
	ret_quota->on_timeout = (enum mm_on_timeout)a->on_timeout;
	quota_turns_fill(a, ret_quota);
}

static uint64_t pool_size_bytes(const struct mm_pool *pool)
{
	return (uint64_t)pool->worker.device.pages * pool->worker.device.page_bytes;
}

static void limit_cut_log(const struct mm_pool *pool, const char *account, const char *key,
			  uint64_t requested, uint64_t set)
{
	if (requested != MM_ACCOUNT_ANY && requested > set)
		mm_log(MM_LOG_WARN, "account.limit_cut",
		       "account=%s device=%" PRIu64 " key=%s asked=%" PRIu64 " set=%" PRIu64,
		       account, pool->ordinal, key, requested, set);
}

/*
 * Logs limits above what there is: they limit nothing, and may have been meant for another device.
 */
static void limits_cut_log(const struct mm_pool *pool, const struct mm_account_config *a)
{
	const struct mm_config *c = pool->shell->config;

	limit_cut_log(pool, a->name, "max", a->max_bytes, pool_size_bytes(pool));
	limit_cut_log(pool, a->name, "connections_max", a->connections_max,
		      (uint64_t)MM_DEVICE_TENANTS_MAX * pool->shell->n_pools);
	if (c->host_store_max_bytes)
		limit_cut_log(pool, a->name, "host_max", a->host_max_bytes,
			      c->host_store_max_bytes + c->swap_max_bytes);
}

static int account_add(struct mm_pool *pool, uint64_t account, uint64_t domain,
		       const struct mm_core_quota *quota)
{
	const struct mm_event event = {
		.kind = MM_EVENT_ACCOUNT_ADD,
		.quota = { .account = account, .domain = domain, .quota = *quota }
	};
	struct mm_event_result result;

	mm_pool_event(pool, &event, NULL, &result);
	return result.r;
}

int mm_quota_setup(struct mm_pool *pool)
{
	const struct mm_accounts *all = &pool->shell->config->accounts;
	uint64_t page = pool->worker.device.page_bytes;

	limit_cut_log(pool, "(unnamed)", "account-max", pool->shell->config->account_max_bytes,
		      pool_size_bytes(pool));
	for (uint32_t i = 0; i < all->n; i++) {
		const struct mm_account_config *a = &all->account[i];
		struct mm_core_quota quota;
		const char *why;

		mm_quota_of(pool, a, &quota);
		why = mm_core_quota_check(pool->core, MM_QUOTA_NAMED + i, &quota);

		if (a->max_bytes && !quota.max_pages)
			why = "max is less than one page";
		if (!why &&
		    account_add(pool, MM_QUOTA_NAMED + i, mm_quota_domain(all, i), &quota) != 0)
			why = "there are too many accounts";
		if (!why) {
			limits_cut_log(pool, a);
			continue;
		}
		mm_shell_fail(pool->shell,
			      "accounts: '%s': device %" PRIu64 ", %u pages of %" PRIu64
			      " bytes: %s",
			      a->name, pool->ordinal, pool->worker.device.pages, page, why);
		return -EINVAL;
	}
	return 0;
}

/* ---- the account of a process ---- */

static bool accounts_need_cgroup(const struct mm_accounts *all)
{
	for (uint32_t i = 0; i < all->n; i++) {
		if (all->account[i].by == MM_BY_CGROUP)
			return true;
	}
	return false;
}

int mm_quota_resolve(struct mm_session *s, const char **ret_reason)
{
	const struct mm_accounts *all = &s->shell->config->accounts;
	uint32_t groups[MM_PEER_GROUPS_MAX];
	char cgroup[MM_PEER_PATH_BYTES];
	struct mm_account_peer peer = { .uid = s->uid, .gid = s->gid, .groups = groups };
	int r = mm_peer_groups(s->fd, groups, MM_PEER_GROUPS_MAX), index;

	/*
	 * When the process has more groups than fit, the kernel returns none; its primary group
	 * counts.
	 */
	peer.n_groups = r > 0 ? (uint32_t)r : 0;
	if (accounts_need_cgroup(all)) {
		r = mm_peer_cgroup(s->pid, s->pidfd, cgroup);
		*ret_reason = "the cgroup of your process cannot be read, "
			      "and mmd is told to charge by cgroup; "
			      "give mmd a /proc that shows it (no hidepid)";
		if (r < 0 && r != -ENOENT)
			return r;
		peer.cgroup = r == 0 ? cgroup : NULL;
	}
	index = mm_accounts_match(all, &peer);
	s->account = index >= 0 ? MM_QUOTA_NAMED + (uint64_t)index : s->uid;
	return 0;
}

/* ---- connections and host memory ---- */

static uint64_t account_connections(const struct mm_shell *shell, uint64_t account)
{
	uint64_t n = 0;

	MM_FOREACH_SESSION(shell, s)
		n += s->state >= MM_SESSION_OPEN && s->account == account;
	return n;
}

bool mm_quota_is_ours(const struct mm_session *s)
{
	return s->uid == s->shell->owner;
}

static bool account_is_limited(const struct mm_shell *shell, uint64_t account)
{
	const struct mm_account_config *a = account_config_of(shell, account);

	return a && a->connections_max != MM_ACCOUNT_ANY;
}

/* Places for tenants on one device. */
struct pool_places {
	uint64_t used, own;
};

static struct pool_places places_count(const struct mm_pool *pool, uint64_t account)
{
	struct pool_places p = { 0 };

	MM_FOREACH_SESSION(pool->shell, s) {
		if (s->state < MM_SESSION_OPEN || s->pool != pool)
			continue;
		p.used++;
		p.own += s->account == account;
	}
	return p;
}

static uint64_t places_max(const struct pool_places *p)
{
	return mm_accounts_share(MM_DEVICE_TENANTS_MAX, p->used, p->own);
}

bool mm_quota_may_connect(const struct mm_session *s, char *ret_reason)
{
	char name[MM_ACCOUNT_NAME_BYTES];
	uint64_t have = account_connections(s->shell, s->account);
	struct pool_places p = places_count(s->pool, s->account);

	mm_quota_name(s->shell, s->account, name);
	if (account_is_limited(s->shell, s->account)) {
		uint64_t max = account_config_of(s->shell, s->account)->connections_max;

		snprintf(ret_reason, MM_REASON_BYTES,
			 "account %s has as many connections as it may have: %" PRIu64
			 ", its connections_max is %" PRIu64 "; end one of its tenants",
			 name, have, max);
		return have < max;
	}
	snprintf(ret_reason, MM_REASON_BYTES,
		 "account %s has as many connections as it may have: %" PRIu64
		 " of the device's %d places, %" PRIu64 " of them free: "
		 "an account without a connections_max has at most half of what others leave; "
		 "end one of its tenants, or give it a connections_max",
		 name, p.own, MM_DEVICE_TENANTS_MAX, MM_DEVICE_TENANTS_MAX - p.used);
	return mm_quota_is_ours(s) || p.used == MM_DEVICE_TENANTS_MAX || p.own < places_max(&p);
}

bool mm_quota_may_load(const struct mm_session *s)
{
	uint64_t used = 0, own = 0;

	/* A load that was killed but does not end, because its file system hangs, still counts. */
	for (size_t i = 0; i < MM_LOADS_MAX; i++) {
		const struct mm_load *load = &s->shell->stores.load[i];

		used += load->id != 0;
		own += load->id && load->account == s->account;
	}
	return mm_quota_is_ours(s) || own < mm_accounts_share(MM_LOADS_MAX, used, own);
}

/*
 * Whether a session of the account, or the load that fills it, uses the copy. A load whose tenant
 * is gone counts for every account.
 */
static bool account_uses_store(struct mm_shell *shell, const struct mm_store *store,
			       uint64_t account)
{
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN && s->store == store && s->account == account)
			return true;
	}
	for (size_t i = 0; i < MM_LOADS_MAX; i++) {
		const struct mm_load *load = &shell->stores.load[i];
		const struct mm_session *s;

		if (load->state == MM_LOAD_FREE || load->store != store)
			continue;
		s = mm_session_find(shell, load->tenant);
		if (!s || s->account == account)
			return true;
	}
	return false;
}

/*
 * The account that is charged for a copy. Once that account has left, another of its users is
 * charged.
 */
static uint64_t store_payer(struct mm_shell *shell, struct mm_store *store)
{
	if (account_uses_store(shell, store, store->payer))
		return store->payer;
	MM_FOREACH_SESSION(shell, s) {
		if (s->state >= MM_SESSION_OPEN && s->store == store) {
			store->payer = s->account;
			break;
		}
	}
	return store->payer;
}

static uint64_t account_host_bytes(struct mm_shell *shell, uint64_t account)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < MM_STORES_MAX; i++) {
		struct mm_store *store = &shell->stores.store[i];

		if (store->id && store_payer(shell, store) == account)
			sum += store->host_bytes;
	}
	MM_FOREACH_SESSION(shell, s)
		if (s->state >= MM_SESSION_OPEN && s->account == account)
			sum += s->swap_bytes;
	return sum;
}

uint64_t mm_quota_host_room(struct mm_shell *shell, uint64_t account)
{
	const struct mm_account_config *a = account_config_of(shell, account);
	uint64_t used;

	if (!a || a->host_max_bytes == MM_ACCOUNT_ANY)
		return MM_ACCOUNT_ANY;
	used = account_host_bytes(shell, account);
	return used < a->host_max_bytes ? a->host_max_bytes - used : 0;
}

/* ---- show ---- */

static void quota_put_limit(json_t *object, const char *key, uint64_t value)
{
	mm_json_put_known(object, key, value != MM_ACCOUNT_ANY, value);
}

static void domain_fill(const struct mm_shell *shell, uint64_t domain, json_t *to)
{
	const struct mm_account_config *a = account_config_of(shell, domain);
	char text[MM_ACCOUNT_NAME_BYTES];

	mm_quota_name(shell, domain, text);
	mm_json_put_text(to, "domain", a && a->domain[0] ? a->domain : text);
}

static json_t *account_json(struct mm_pool *pool, const struct mm_core_account *a)
{
	struct mm_shell *shell = pool->shell;
	const struct mm_account_config *limits = account_config_of(shell, a->account);
	uint64_t page = pool->worker.device.page_bytes;
	struct pool_places p = places_count(pool, a->account);
	char text[MM_ACCOUNT_NAME_BYTES];
	json_t *json = json_object();

	mm_json_put_text(json, "account", mm_quota_name(shell, a->account, text));
	mm_json_put_u64(json, "device", pool->ordinal);
	domain_fill(shell, a->domain, json);
	mm_json_put_text(json, "state", a->pending ? "deferred" : "applied");
	mm_json_put_u64(json, "revision", a->revision);
	mm_json_put_u64(json, "min_bytes", a->quota.min_pages * page);
	mm_json_put_u64(json, "max_bytes", a->quota.max_pages * page);
	mm_json_put_u64(json, "weight", a->quota.weight);
	mm_json_put_u64(json, "priority", a->quota.priority);
	mm_json_put_u64(json, "turn_quantum_max_ms", a->quota.turn_quantum_max_ns / MM_NS_PER_MS);
	mm_json_put_u64(json, "turn_priority_max", a->quota.turn_priority_max);
	mm_json_put_u64(json, "goal_ttft_ms", a->quota.goal_ttft_ns / MM_NS_PER_MS);
	mm_json_put_u64(json, "goal_tpot_us", a->quota.goal_tpot_ns / MM_NS_PER_US);
	mm_json_put_text(json, "on_timeout", mm_on_timeout_name(a->quota.on_timeout));
	mm_json_put_u64(json, "used_bytes", ((uint64_t)a->charged + a->quarantined) * page);
	mm_json_put_u64(json, "quarantined_bytes", a->quarantined * page);
	mm_json_put_u64(json, "overdue_bytes", a->overdue_pages * page);
	mm_json_put_u64(json, "tenants", a->tenants);
	mm_json_put_u64(json, "connections", account_connections(shell, a->account));
	quota_put_limit(json, "connections_max", limits ? limits->connections_max : MM_ACCOUNT_ANY);
	mm_json_put_u64(json, "places", p.own);
	quota_put_limit(json, "places_max",
			account_is_limited(shell, a->account) || a->account == shell->owner
				? MM_ACCOUNT_ANY
				: places_max(&p));
	mm_json_put_u64(json, "host_bytes", account_host_bytes(shell, a->account));
	quota_put_limit(json, "host_max_bytes", limits ? limits->host_max_bytes : MM_ACCOUNT_ANY);
	return json;
}

static bool param_pool(struct mm_shell *shell, const json_t *params, struct mm_pool **ret,
		       struct mm_rpc_error *error);

json_t *mm_quota_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_pool *only = NULL;
	struct mm_core_account a;
	json_t *result, *list;

	if (json_object_get(params, "device") && !param_pool(shell, params, &only, error))
		return NULL;
	result = json_object();
	list = json_array();
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		struct mm_pool *pool = &shell->pool[i];

		if (only && only != pool)
			continue;
		for (uint32_t k = 0; k < mm_core_accounts_end(pool->core); k++) {
			if (mm_core_account(pool->core, k, &a) &&
			    (a.stays || a.tenants || a.charged || a.quarantined))
				json_array_append_new(list, account_json(pool, &a));
		}
	}
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put(result, "accounts", list);
	return result;
}

/* ---- set ---- */

struct quota_request {
	struct mm_pool *pool;
	uint64_t account;
	uint64_t revision;
	struct mm_core_quota quota;
};

static bool param_number(const json_t *params, const char *key, uint64_t max, uint64_t *to,
			 struct mm_rpc_error *error)
{
	const json_t *value = json_object_get(params, key);

	if (!value || mm_json_is_whole(value, 0, max, to))
		return true;
	mm_rpc_fail(error, MM_RPC_PARAMS, "%s: want a number, 0 to %" PRIu64, key, max);
	return false;
}

static bool params_are_known(const json_t *params, struct mm_rpc_error *error)
{
	static const char *const known[] = {
		"account",           "device",       "min_bytes",
		"max_bytes",         "weight",       "priority",
		"on_timeout",        "revision",     "turn_quantum_max_ms",
		"turn_priority_max", "goal_ttft_ms", "goal_tpot_us"
	};
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)params, key, value) {
		bool found = false;

		for (size_t i = 0; i < MM_ARRAY_SIZE(known); i++)
			found |= strcmp(known[i], key) == 0;
		if (!found) {
			mm_rpc_fail(error, MM_RPC_PARAMS, "%.64s: no such parameter", key);
			return false;
		}
	}
	return true;
}

static bool param_pool(struct mm_shell *shell, const json_t *params, struct mm_pool **ret,
		       struct mm_rpc_error *error)
{
	uint64_t device = shell->pool[0].ordinal;

	if (shell->n_pools > 1 && !json_object_get(params, "device")) {
		mm_rpc_fail(error, MM_RPC_PARAMS, "device: mmd has %u; say which", shell->n_pools);
		return false;
	}
	if (!param_number(params, "device", UINT32_MAX, &device, error))
		return false;
	for (uint32_t i = 0; i < shell->n_pools; i++) {
		if (shell->pool[i].ordinal == device) {
			*ret = &shell->pool[i];
			return true;
		}
	}
	mm_rpc_fail(error, MM_RPC_PARAMS, "device: mmd has no device %" PRIu64, device);
	return false;
}

static bool param_turns(const json_t *params, struct mm_core_quota *q, struct mm_rpc_error *error)
{
	uint64_t quantum_ms = q->turn_quantum_max_ns / MM_NS_PER_MS;
	uint64_t priority = q->turn_priority_max;

	if (!param_number(params, "turn_quantum_max_ms", MM_TURN_QUANTUM_LIMIT_NS / MM_NS_PER_MS,
			  &quantum_ms, error) ||
	    !param_number(params, "turn_priority_max", MM_TURN_PRIORITY_MAX, &priority, error))
		return false;
	if (!quantum_ms) {
		mm_rpc_fail(error, MM_RPC_PARAMS, "turn_quantum_max_ms: want a number, 1 to %d",
			    (int)(MM_TURN_QUANTUM_LIMIT_NS / MM_NS_PER_MS));
		return false;
	}
	q->turn_quantum_max_ns = quantum_ms * MM_NS_PER_MS;
	q->turn_priority_max = (uint32_t)priority;
	return true;
}

static bool param_goals(const json_t *params, struct mm_core_quota *q, struct mm_rpc_error *error)
{
	uint64_t ttft_ms = q->goal_ttft_ns / MM_NS_PER_MS, tpot_us = q->goal_tpot_ns / MM_NS_PER_US;

	if (!param_number(params, "goal_ttft_ms", MM_GOAL_NS_MAX / MM_NS_PER_MS, &ttft_ms, error) ||
	    !param_number(params, "goal_tpot_us", MM_GOAL_NS_MAX / MM_NS_PER_US, &tpot_us, error))
		return false;
	q->goal_ttft_ns = ttft_ms * MM_NS_PER_MS;
	q->goal_tpot_ns = tpot_us * MM_NS_PER_US;
	return true;
}

/* Keys that are missing in @params leave their values as they are. */
static bool param_quota(const json_t *params, uint64_t page, struct mm_core_quota *q,
			struct mm_rpc_error *error)
{
	uint64_t min = q->min_pages * page, max = q->max_pages * page;
	uint64_t weight = q->weight, priority = q->priority, on_timeout = q->on_timeout;
	const json_t *word = json_object_get(params, "on_timeout");

	if (!param_number(params, "min_bytes", UINT64_C(1) << 50, &min, error) ||
	    !param_number(params, "max_bytes", UINT64_C(1) << 50, &max, error) ||
	    !param_number(params, "weight", MM_WEIGHT_MAX, &weight, error) ||
	    !param_number(params, "priority", MM_PRIORITY_MAX, &priority, error))
		return false;
	if (!weight || (max && max < page) ||
	    (word && (!json_is_string(word) ||
		      !mm_on_timeout_parse(json_string_value(word), &on_timeout)))) {
		mm_rpc_fail(error, MM_RPC_PARAMS,
			    !weight             ? "weight: want a number, 1 to %d"
			    : max && max < page ? "max_bytes: less than one page"
						: "on_timeout: want \"kill\" or \"quarantine\"",
			    MM_WEIGHT_MAX);
		return false;
	}
	q->min_pages = mm_div_up(min, page);
	q->max_pages = max / page;
	q->weight = (uint32_t)weight;
	q->priority = (uint32_t)priority;
	q->on_timeout = (enum mm_on_timeout)on_timeout;
	return param_turns(params, q, error) && param_goals(params, q, error);
}

static bool quota_request_parse(struct mm_shell *shell, const json_t *params,
				struct quota_request *request, struct mm_rpc_error *error)
{
	const char *name = json_string_value(json_object_get(params, "account"));
	struct mm_core_account now = { 0 };

	if (!params_are_known(params, error) || !param_pool(shell, params, &request->pool, error) ||
	    !param_number(params, "revision", INT64_MAX, &request->revision, error))
		return false;
	if (!name || !account_key_of(shell, name, &request->account)) {
		mm_rpc_fail(error, name ? MM_RPC_FAILED : MM_RPC_PARAMS,
			    name ? "%.64s: no such account; "
				   "mmctl quota show lists them, uid:N is a user's"
				 : "account: want a name%.0s",
			    name ? name : "");
		return false;
	}
	if (mm_core_account_find(request->pool->core, request->account, &now))
		request->quota = now.quota;
	else
		mm_core_quota_default(request->pool->core, &request->quota);
	return param_quota(params, request->pool->worker.device.page_bytes, &request->quota, error);
}

static void adjustment_add(json_t *list, const json_t *params, const char *key, uint64_t set,
			   uint64_t pool_bytes)
{
	uint64_t requested = (uint64_t)json_integer_value(json_object_get(params, key));

	if (requested && requested != set)
		json_array_append_new(
			list, json_pack("{s:s,s:I,s:I,s:s}", "key", key, "requested",
					(json_int_t)requested, "set", (json_int_t)set, "reason",
					requested > pool_bytes ? "the device's pool has no more"
							       : "it is counted in whole pages"));
}

/* Lists the values that are in force, or will be, where they differ from those requested. */
static json_t *adjustments_list(const struct mm_pool *pool, const json_t *params,
				const struct mm_core_quota *q)
{
	uint64_t page = pool->worker.device.page_bytes;
	json_t *list = json_array();

	adjustment_add(list, params, "min_bytes", q->min_pages * page, pool_size_bytes(pool));
	adjustment_add(list, params, "max_bytes", q->max_pages * page, pool_size_bytes(pool));
	return list;
}

static enum mm_quota_outcome quota_request_do(const struct quota_request *request)
{
	const struct mm_event event = { .kind = MM_EVENT_QUOTA_SET,
					.now_ns = mm_now_ns(),
					.quota = { .account = request->account,
						   .revision = request->revision,
						   .quota = request->quota } };
	struct mm_event_result result;

	mm_pool_event(request->pool, &event, NULL, &result);
	return (enum mm_quota_outcome)result.r;
}

json_t *mm_quota_set(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	enum mm_quota_outcome outcome;
	struct quota_request request = { .revision = 0 };
	struct mm_core_account now = { 0 };
	const char *why;
	json_t *result;

	if (!quota_request_parse(shell, params, &request, error))
		return NULL;
	why = mm_core_quota_check(request.pool->core, request.account, &request.quota);
	outcome = quota_request_do(&request);
	result = mm_core_account_find(request.pool->core, request.account, &now)
			 ? account_json(request.pool, &now)
			 : json_object();
	mm_json_put_u64(result, "schema", SCHEMA);
	mm_json_put_text(result, "outcome", outcome_names[outcome]);
	if (outcome == MM_QUOTA_STALE)
		why = "the revision is not the present one";
	else if (outcome == MM_QUOTA_CONFLICT && !why)
		why = "there are as many accounts as mmd can have";
	if (outcome == MM_QUOTA_STALE || outcome == MM_QUOTA_CONFLICT)
		mm_json_put_text(result, "reason", why);
	else {
		mm_json_put(result, "adjusted", adjustments_list(request.pool, params, &now.quota));
		mm_log(MM_LOG_INFO, "quota.set",
		       "account=%s device=%" PRIu64 " min_pages=%" PRIu64 " max_pages=%" PRIu64
		       " weight=%u priority=%u turn_quantum_max_ms=%" PRIu64
		       " turn_priority_max=%u goal_ttft_ms=%" PRIu64 " goal_tpot_us=%" PRIu64
		       " on_timeout=%s outcome=%s revision=%" PRIu64,
		       json_string_value(json_object_get(params, "account")), request.pool->ordinal,
		       now.quota.min_pages, now.quota.max_pages, now.quota.weight,
		       now.quota.priority, now.quota.turn_quantum_max_ns / MM_NS_PER_MS,
		       now.quota.turn_priority_max, now.quota.goal_ttft_ns / MM_NS_PER_MS,
		       now.quota.goal_tpot_ns / MM_NS_PER_US,
		       mm_on_timeout_name(now.quota.on_timeout), outcome_names[outcome],
		       now.revision);
	}
	return result;
}
