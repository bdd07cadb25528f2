/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/builds.h"

#include <stdio.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"

static void build_copy(char *to, const char *build)
{
	snprintf(to, MM_BUILD_BYTES, "%.*s", MM_BUILD_BYTES - 1, build);
}

void mm_builds_init(struct mm_builds *b, const struct mm_held *held)
{
	*b = (struct mm_builds){ 0 };
	build_copy(b->keeper, held->keeper_build);
	for (uint32_t i = 0; i < held->n_children; i++) {
		const struct mm_held_child *c = &held->child[i];

		if (!c->ended && c->pid)
			mm_builds_add(b, c->role, c->device, c->id, c->build);
	}
}

void mm_builds_keeper(struct mm_builds *b, const char *build)
{
	build_copy(b->keeper, build);
}

static bool role_is(const struct mm_builds_role *r, enum mm_role role, uint32_t device, uint64_t id)
{
	return r->role == role && r->device == device && r->id == id;
}

void mm_builds_add(struct mm_builds *b, enum mm_role role, uint32_t device, uint64_t id,
		   const char *build)
{
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(b->role); i++) {
		struct mm_builds_role *r = &b->role[i];

		if (r->role)
			continue;
		*r = (struct mm_builds_role){ .role = role, .device = device, .id = id };
		build_copy(r->build, build);
		return;
	}
}

void mm_builds_remove(struct mm_builds *b, enum mm_role role, uint32_t device, uint64_t id)
{
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(b->role); i++)
		if (role_is(&b->role[i], role, device, id))
			b->role[i].role = (enum mm_role)0;
}

static json_t *build_json(const char *role, const char *build)
{
	json_t *json = json_object();

	mm_json_put_text(json, "role", role);
	mm_json_put_text(json, "build", build);
	return json;
}

json_t *mm_builds_json(const struct mm_builds *b)
{
	json_t *list = json_array();

	json_array_append_new(list, build_json("keeper", b->keeper));
	json_array_append_new(list, build_json("core", mm_build_name()));
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(b->role); i++) {
		const struct mm_builds_role *r = &b->role[i];
		json_t *json;

		if (r->role != MM_ROLE_XFER && r->role != MM_ROLE_SPOOL && r->role != MM_ROLE_LOAD)
			continue;
		json = build_json(r->role == MM_ROLE_XFER    ? "xfer"
				  : r->role == MM_ROLE_SPOOL ? "spool"
							     : "load",
				  r->build);
		mm_json_put_u64(json, r->role == MM_ROLE_XFER ? "device" : "id",
				r->role == MM_ROLE_XFER ? r->device : r->id);
		json_array_append_new(list, json);
	}
	return list;
}
