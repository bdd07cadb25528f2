/* SPDX-License-Identifier: Apache-2.0 */
/* An explanation as JSON: the numbers, and the sentences that they become. */
#include "libclient/support/json.h"
#include "mmd/explain/explain.h"

#define PER_PERMILLE 1000 /* millionths */

static const char *const mode_names[MM_WHY_MODES] = {
	[MM_WHY_MODE_POLICY] = "policy",   [MM_WHY_MODE_NOBODY] = "nobody_joined",
	[MM_WHY_MODE_SET] = "set",         [MM_WHY_MODE_ALONE] = "alone",
	[MM_WHY_MODE_GOALS] = "goals",     [MM_WHY_MODE_FITS] = "fits",
	[MM_WHY_MODE_EXCEEDS] = "exceeds", [MM_WHY_MODE_MEMORY] = "memory_rotates",
};

static const char *const role_names[MM_WHY_ROLES] = {
	[MM_WHY_COMPUTES] = "computes",    [MM_WHY_HOLDS] = "holds_turn",
	[MM_WHY_WAITS] = "waits_for_turn", [MM_WHY_PAUSES] = "waits_for_memory",
	[MM_WHY_NO_WORK] = "idle",
};

static const char *const why_names[MM_WHYS] = {
	[MM_WHY_STAYS] = "stays",
	[MM_WHY_BY_HAND] = "by_hand",
	[MM_WHY_POLICY] = "policy",
	[MM_WHY_UNKNOWN] = "unknown",
	[MM_WHY_WORTH] = "worth",
	[MM_WHY_CLAUSE] = "clause",
	[MM_WHY_CAP] = "cap",
	[MM_WHY_IDLE] = "idle",
	[MM_WHY_OFF_TURN] = "off_turn",
	[MM_WHY_NEXT] = "next",
	[MM_WHY_HOLDER] = "holder",
	[MM_WHY_HYSTERESIS] = "hysteresis",
	[MM_WHY_DWELL] = "dwell",
	[MM_WHY_OWES] = "owes",
	[MM_WHY_MODEL_WAITS] = "model_waits",
	[MM_WHY_COLD] = "cold",
};

const char *mm_explain_reason(const struct mm_core_why *why)
{
	return why->decided ? why_names[why->why] : "none";
}

static const char *const first_names[] = {
	[MM_FIRST_HOLDER] = "holder",     [MM_FIRST_ENTITLED] = "entitled",
	[MM_FIRST_COMPUTES] = "computes", [MM_FIRST_NEXT] = "next",
	[MM_FIRST_IDLE] = "idle",
};

static double whole_permille(int64_t millionths)
{
	return (double)millionths / PER_PERMILLE;
}

static json_t *sentences_json(const struct mm_sentences *text)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < text->n; i++)
		json_array_append_new(list, mm_json_string(text->sentence[i]));
	return list;
}

/* ---- a tenant ---- */

static json_t *point_json(const struct mm_core_why_point *p)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "alpha", p->alpha);
	mm_json_put_known(json, "slow_permille", p->known, p->slow_permille);
	mm_json_put_known(json, "link_permille", p->known, p->link_permille);
	mm_json_put_flag(json, "allowed", p->known && p->allowed);
	mm_json_put_real(json, "gain_permille", whole_permille(p->gain));
	mm_json_put(json, "cost_permille",
		    p->known ? json_real(whole_permille(p->cost)) : json_null());
	return json;
}

json_t *mm_explain_cold_json(const struct mm_core_why_cold *cold)
{
	json_t *json;

	if (!cold->most)
		return json_null();
	json = json_object();
	mm_json_put_u64(json, "entries_max", cold->most);
	mm_json_put_u64(json, "floor", cold->floor);
	mm_json_put_u64(json, "limit", cold->limit);
	mm_json_put_text(json, "limit_why", mm_explain_cold_reason(cold));
	mm_json_put_u64(json, "limit_streamed", cold->streamed);
	mm_json_put_u64(json, "live", cold->live);
	mm_json_put_known(json, "load_permille", cold->priced, cold->load_permille);
	mm_json_put_known(json, "slow_permille", cold->priced, cold->slow_permille);
	mm_json_put_u64(json, "block_bytes", cold->block_bytes);
	mm_json_put_u64(json, "window_entries", cold->entries);
	mm_json_put_u64(json, "window_bytes", cold->window_bytes);
	return json;
}

static json_t *has_json(const struct mm_core_why *why)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "layers", why->layers);
	mm_json_put_u64(json, "alpha", why->alpha);
	mm_json_put_u64(json, "alpha_next", why->alpha_next);
	mm_json_put_u64(json, "layer_bytes", why->layer_bytes);
	mm_json_put_u64(json, "chunk_bytes", why->chunk_bytes);
	mm_json_put_u64(json, "kv_chunks", why->kv_held);
	mm_json_put_u64(json, "kv_chunks_used", why->kv_used);
	mm_json_put_u64(json, "kv_chunks_share", why->kv_share);
	mm_json_put_u64(json, "kv_chunks_revoking", why->revoking);
	mm_json_put_flag(json, "pinned", why->pinned);
	mm_json_put_flag(json, "activates", why->activates);
	mm_json_put_flag(json, "drains", why->drains);
	mm_json_put(json, "cold", mm_explain_cold_json(&why->cold));
	return json;
}

static json_t *bid_json(const struct mm_core_why *why)
{
	uint64_t want = (uint64_t)why->kv_wanted + why->queued, entitled = why->kv_share;
	json_t *json = json_object();

	entitled = MM_MAX(MM_MIN(want, entitled), (uint64_t)why->kv_held) - why->kv_held;
	want = MM_MAX(want, (uint64_t)why->kv_held) - why->kv_held;
	mm_json_put_flag(json, "lacks", mm_explain_lacks(why));
	mm_json_put_u64(json, "chunks", want);
	mm_json_put_u64(json, "chunks_entitled", entitled);
	mm_json_put_u64(json, "hungry_permille", why->hungry_permille);
	mm_json_put_u64(json, "late_permille", why->late_permille);
	return json;
}

static json_t *offer_json(const struct mm_core_why *why)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "chunks_empty", why->kv_held - MM_MIN(why->kv_used, why->kv_held));
	mm_json_put_u64(json, "layers_most", why->alpha_most);
	mm_json_put_known(json, "slow_most_permille",
			  why->valued && why->clause_permille != UINT32_MAX, why->clause_permille);
	mm_json_put_known(json, "return_ns", why->return_ns != 0, why->return_ns);
	return json;
}

static json_t *target_json(const struct mm_core_why *why)
{
	json_t *json = json_object();

	mm_json_put_u64(json, "alpha", why->alpha_target);
	mm_json_put_known(json, "kv_chunks_most", why->kv_most != UINT32_MAX, why->kv_most);
	mm_json_put_known(json, "kv_chunks_keep", why->kv_keep != UINT32_MAX, why->kv_keep);
	mm_json_put_text(json, "first", first_names[why->first]);
	mm_json_put_text(json, "why", why_names[why->why]);
	mm_json_put(json, "chosen", why->valued ? point_json(&why->chosen) : json_null());
	mm_json_put(json, "one_less", why->has_less ? point_json(&why->less) : json_null());
	mm_json_put(json, "one_more", why->has_more ? point_json(&why->more) : json_null());
	return json;
}

static json_t *points_json(const struct mm_core_why *why)
{
	json_t *points = json_array();

	for (uint32_t i = 0; i < why->points; i++)
		json_array_append_new(points, point_json(&why->point[i]));
	return points;
}

static json_t *row_json(const struct mm_explain_row *row, bool considered)
{
	const struct mm_core_why *why = &row->why;
	struct mm_sentences text;
	json_t *json = json_object();

	mm_explain_tenant(row, &text);
	mm_json_put_u64(json, "tenant", why->tenant);
	mm_json_put_text(json, "name", row->name);
	mm_json_put(json, "role", why->decided ? json_string(role_names[why->role]) : json_null());
	mm_json_put(json, "has", has_json(why));
	mm_json_put(json, "bid", bid_json(why));
	mm_json_put(json, "offer", offer_json(why));
	if (considered)
		mm_json_put(json, "considered", points_json(why));
	mm_json_put(json, "target", why->decided ? target_json(why) : json_null());
	mm_json_put(json, "sentences", sentences_json(&text));
	return json;
}

/* ---- the device ---- */

static void device_put(const struct mm_core_why_device *d, json_t *json)
{
	mm_json_put_flag(json, "decided", d->decided);
	mm_json_put_u64(json, "age_ns", d->age_ns);
	mm_json_put_text(json, "mode", d->beside ? "beside" : "turns");
	mm_json_put_text(json, "mode_why", mode_names[d->mode_why]);
	mm_json_put_u64(json, "demand_bytes", d->demand_bytes);
	mm_json_put_u64(json, "supply_bytes", d->supply_bytes);
	mm_json_put_u64(json, "page_bytes", d->page_bytes);
	mm_json_put_u64(json, "pool_bytes", d->pool_bytes);
	mm_json_put_u64(json, "free_bytes", d->free_bytes);
	mm_json_put_u64(json, "coming_bytes", d->coming_bytes);
	mm_json_put_u64(json, "big_bytes", d->big_bytes);
	mm_json_put_u64(json, "working", d->working);
	mm_json_put_u64(json, "computing", d->computing);
	mm_json_put_u64(json, "waiting", d->waiting);
	mm_json_put_u64(json, "turn_ns", d->turn_ns);
	mm_json_put_u64(json, "turn_home_ns", d->turn_home_ns);
	mm_json_put(json, "gib_gain_permille",
		    d->has_bid ? json_real(whole_permille(d->bid)) : json_null());
}

json_t *mm_explain_json(const struct mm_explain *e, const struct mm_explain_row *only,
			bool considered)
{
	json_t *json = json_object(), *tenants = json_array();
	struct mm_sentences text;

	mm_explain_device(e, &text);
	device_put(&e->device, json);
	mm_json_put(json, "sentences", sentences_json(&text));
	for (uint32_t i = 0; i < e->n; i++)
		if (!only || only == &e->row[i])
			json_array_append_new(tenants, row_json(&e->row[i], considered));
	mm_json_put(json, "tenants", tenants);
	return json;
}
