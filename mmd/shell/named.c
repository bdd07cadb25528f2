/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/named.h"

#include <string.h>

#include "libclient/support/options.h"
#include "mmd/shell/shell.h"

bool mm_named_device(struct mm_shell *shell, const json_t *params, struct mm_pool **ret_pool,
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

/* Says that nobody has the name, and which name is near to it. */
static void name_refuse(struct mm_shell *shell, const char *name, struct mm_rpc_error *error)
{
	struct mm_opt_near near = { .word = name, .bytes = strlen(name) };

	MM_FOREACH_SESSION(shell, s)
		if (s->state == MM_SESSION_OPEN)
			mm_opt_near_offer(&near, s->name);
	if (near.best)
		mm_rpc_fail(error, MM_RPC_FAILED, "%.64s: no such tenant; did you mean %.64s?",
			    name, near.best);
	else
		mm_rpc_fail(error, MM_RPC_FAILED, "%.64s: no such tenant", name);
}

struct mm_session *mm_named_tenant(struct mm_shell *shell, const json_t *params,
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
	if (!mm_named_device(shell, params, &pool, error))
		return NULL;
	s = mm_session_lookup(shell, pool, name, &many);
	if (!s && many)
		mm_rpc_fail(error, MM_RPC_FAILED,
			    "%.64s: several tenants have this name; use the id or --device", name);
	else if (!s)
		name_refuse(shell, name, error);
	return s;
}
