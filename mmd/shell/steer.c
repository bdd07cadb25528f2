/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/steer.h"

#include <inttypes.h>
#include <string.h>

#include "libclient/support/clock.h"
#include "libclient/support/json.h"
#include "libclient/support/size.h"
#include "mmd/shell/named.h"
#include "mmd/shell/shell.h"

#define SCHEMA       1
#define WITHIN_MAX_S 86400

static const char *const steer_names[MM_STEERS] = {
	[MM_STEER_REVOKE] = "revoke",   [MM_STEER_DRAIN] = "drain",
	[MM_STEER_UNDRAIN] = "undrain", [MM_STEER_ACTIVATE] = "activate",
	[MM_STEER_PIN] = "pin",         [MM_STEER_UNPIN] = "unpin",
};

void mm_steer_fill(const struct mm_core_tenant *t, json_t *to)
{
	const uint64_t now_ns = mm_now_ns(), by_ns = t->drain_until_ns;

	mm_json_put_flag(to, "model_pinned", t->model_pinned);
	mm_json_put_flag(to, "model_activates", t->model_activates);
	mm_json_put_u64(to, "kv_chunks_revoking", t->revoking_chunks);
	mm_json_put_flag(to, "drains", t->drains);
	mm_json_put_known(to, "drain_left_ns", t->drains && by_ns != UINT64_MAX,
			  by_ns > now_ns ? by_ns - now_ns : 0);
}

/* ---- one session, or all ranks of its group ---- */

static bool steer_concerns(const struct mm_session *s, const struct mm_session *one)
{
	return one == s || (s->group && one->group == s->group && one->state == MM_SESSION_OPEN);
}

static int session_steer(const struct mm_session *s, enum mm_steer how, uint64_t until_ns,
			 uint64_t *pages)
{
	const struct mm_event event = { .kind = MM_EVENT_STEER,
					.tenant = s->tenant,
					.now_ns = mm_now_ns(),
					.steer = { how, until_ns } };
	struct mm_event_result result;

	mm_pool_event(s->pool, &event, NULL, &result);
	*pages += result.pages;
	return result.r;
}

/* Ends what was begun for ranks before the one that was refused. */
static void ranks_undo(const struct mm_session *s, const struct mm_session *refused)
{
	uint64_t ignored = 0;

	MM_FOREACH_SESSION(s->shell, one) {
		if (one == refused)
			return;
		if (steer_concerns(s, one))
			session_steer(one, MM_STEER_UNPIN, 0, &ignored);
	}
}

/* *ret_of: the session that was refused. */
static int ranks_steer(struct mm_session *s, enum mm_steer how, uint64_t until_ns,
		       uint64_t *ret_pages, struct mm_session **ret_of)
{
	struct mm_core_tenant now = { 0 };
	int r;

	*ret_pages = 0;
	mm_core_tenant(s->pool->core, s->tenant, &now);
	MM_FOREACH_SESSION(s->shell, one) {
		if (!steer_concerns(s, one))
			continue;
		r = session_steer(one, how, until_ns, ret_pages);
		*ret_of = one;
		if (r && how == MM_STEER_PIN && !now.model_pinned)
			ranks_undo(s, one);
		if (r)
			return r;
	}
	mm_log(MM_LOG_INFO, "tenant.steered",
	       "tenant=%u name=%s device=%" PRIu64 " order=%s pages=%" PRIu64, s->tenant, s->name,
	       s->pool->ordinal, steer_names[how], *ret_pages);
	return 0;
}

/* ---- answers ---- */

static json_t *steer_answer(const struct mm_session *s, uint64_t pages)
{
	struct mm_core_tenant t = { 0 };
	json_t *json = json_object();

	mm_core_tenant(s->pool->core, s->tenant, &t);
	mm_json_put_u64(json, "schema", SCHEMA);
	mm_json_put_u64(json, "tenant", s->tenant);
	mm_json_put_text(json, "name", s->name);
	mm_json_put_u64(json, "device", s->pool->ordinal);
	mm_json_put_u64(json, "bytes", pages * s->pool->worker.device.page_bytes);
	mm_steer_fill(&t, json);
	return json;
}

static json_t *home_refuse(struct mm_rpc_error *error, const struct mm_session *s, int r,
			   uint64_t pages)
{
	char need[MM_SIZE_TEXT_BYTES];

	mm_size_print(pages * s->pool->worker.device.page_bytes, need);
	if (r == MM_E_QUOTA)
		return mm_rpc_fail(error, MM_RPC_FAILED,
				   "%s: its account has no room for its layers, which need %s: "
				   "raise its max (mmctl quota set)",
				   s->name, need);
	if (r == MM_E_FULL)
		return mm_rpc_fail(
			error, MM_RPC_FAILED,
			"%s: the pool has no room for its layers, which need %s: what is "
			"free, comes or can be lent is less (see mmctl revoke)",
			s->name, need);
	return mm_rpc_fail(error, MM_RPC_FAILED, "%s: it has no model that is ready", s->name);
}

static json_t *steer_run(void *context, const json_t *params, enum mm_steer how, uint64_t until_ns,
			 struct mm_rpc_error *error)
{
	struct mm_session *s = mm_named_tenant(context, params, error), *refused = s;
	uint64_t pages;
	int r;

	if (!s)
		return NULL;
	r = ranks_steer(s, how, until_ns, &pages, &refused);
	if (r && (how == MM_STEER_ACTIVATE || how == MM_STEER_PIN))
		return home_refuse(error, refused, r, pages);
	if (r)
		return mm_rpc_fail(error, MM_RPC_FAILED, "%s: it is ending", refused->name);
	return steer_answer(s, pages);
}

/* ---- methods ---- */

json_t *mm_steer_revoke(void *context, const json_t *params, struct mm_rpc_error *error)
{
	const bool dry_run = json_is_true(json_object_get(params, "dry_run"));
	struct mm_session *s;
	uint64_t pages = 0;
	json_t *json;

	if (!dry_run)
		return steer_run(context, params, MM_STEER_REVOKE, 0, error);
	s = mm_named_tenant(context, params, error);
	if (!s)
		return NULL;
	MM_FOREACH_SESSION(s->shell, one)
		if (steer_concerns(s, one))
			pages += mm_core_revocable(one->pool->core, one->tenant, NULL);
	json = steer_answer(s, pages);
	mm_json_put_flag(json, "dry_run", true);
	return json;
}

json_t *mm_steer_drain(void *context, const json_t *params, struct mm_rpc_error *error)
{
	const json_t *within = json_object_get(params, "within_s");
	uint64_t within_s, until_ns = UINT64_MAX;
	json_t *json;

	if (json_is_true(json_object_get(params, "cancel")))
		return steer_run(context, params, MM_STEER_UNDRAIN, 0, error);
	if (within && !mm_json_is_whole(within, 0, WITHIN_MAX_S, &within_s))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "within_s: want 0 to %d", WITHIN_MAX_S);
	if (within)
		until_ns = mm_deadline_ns(within_s * MM_NS_PER_S);
	json = steer_run(context, params, MM_STEER_DRAIN, until_ns, error);
	if (json) {
		struct mm_session *s = mm_named_tenant(context, params, error);

		mm_json_put_flag(json, "told", s && s->features & MM_FEAT_LEAVE);
	}
	return json;
}

json_t *mm_steer_activate(void *context, const json_t *params, struct mm_rpc_error *error)
{
	return steer_run(context, params, MM_STEER_ACTIVATE, 0, error);
}

json_t *mm_steer_pin(void *context, const json_t *params, struct mm_rpc_error *error)
{
	return steer_run(context, params, MM_STEER_PIN, 0, error);
}

json_t *mm_steer_unpin(void *context, const json_t *params, struct mm_rpc_error *error)
{
	return steer_run(context, params, MM_STEER_UNPIN, 0, error);
}

/* ---- cold blocks ---- */

/* "cold" is "auto" or a number of entries. */
static bool cold_parse(const json_t *params, int32_t *ret_limit)
{
	uint64_t number;

	*ret_limit = -1;
	if (strcmp(mm_json_text(params, "cold"), "auto") == 0)
		return true;
	if (!mm_json_is_whole(json_object_get(params, "cold"), 0, MM_COLD_MAX, &number))
		return false;
	*ret_limit = (int32_t)number;
	return true;
}

json_t *mm_steer_cold(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_event event = { .kind = MM_EVENT_COLD_SET, .now_ns = mm_now_ns() };
	struct mm_core_tenant t = { 0 };
	struct mm_event_result result;
	struct mm_session *s;
	json_t *json;

	if (!cold_parse(params, &event.cold_limit))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "cold: want 0 to %d or \"auto\"",
				   MM_COLD_MAX);
	s = mm_named_tenant(context, params, error);
	if (!s)
		return NULL;
	event.tenant = s->tenant;
	mm_pool_event(s->pool, &event, NULL, &result);
	if (result.r == MM_E_RANGE)
		return mm_rpc_fail(error, MM_RPC_FAILED,
				   "%s: %d entries cannot be live; it has declared %" PRIu32,
				   s->name, event.cold_limit, result.max);
	if (result.r)
		return mm_rpc_fail(error, MM_RPC_FAILED, "%s: it has declared no cold blocks",
				   s->name);
	mm_core_tenant(s->pool->core, s->tenant, &t);
	mm_log(MM_LOG_INFO, "tenant.cold", "tenant=%u name=%s device=%" PRIu64 " limit=%d",
	       s->tenant, s->name, s->pool->ordinal, event.cold_limit);
	json = json_object();
	mm_json_put_u64(json, "schema", SCHEMA);
	mm_json_put_u64(json, "tenant", s->tenant);
	mm_json_put_text(json, "name", s->name);
	mm_json_put_known(json, "cold_by_hand", t.cold_by_hand >= 0, (uint64_t)t.cold_by_hand);
	mm_json_put_u64(json, "cold_limit", t.cold_limit);
	return json;
}
