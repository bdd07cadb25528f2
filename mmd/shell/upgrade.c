/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/upgrade.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/json.h"
#include "mmd/shell/pool_kept.h"
#include "mmd/shell/preflight.h"
#include "mmd/shell/shell.h"

static const char *const upgrade_state_names[MM_SHELL_UPGRADE_STATES] = {
	[MM_SHELL_UPGRADE_NONE] = "none",       [MM_SHELL_UPGRADE_CHECKING] = "checking",
	[MM_SHELL_UPGRADE_CHECKED] = "checked", [MM_SHELL_UPGRADE_REFUSED] = "refused",
	[MM_SHELL_UPGRADE_LEAVING] = "leaving", [MM_SHELL_UPGRADE_KEEPER] = "keeper",
	[MM_SHELL_UPGRADE_DONE] = "done",       [MM_SHELL_UPGRADE_TAKEN_BACK] = "taken_back",
};

json_t *mm_upgrade_show(void *context, const json_t *params, struct mm_rpc_error *error)
{
	const struct mm_shell *shell = context;
	json_t *json = json_object();

	(void)params;
	(void)error;
	mm_json_put(json, "schema", json_integer(1));
	mm_json_put_text(json, "state", upgrade_state_names[shell->upgrade.state]);
	mm_json_put_text(json, "text", shell->upgrade.text);
	mm_json_put_text(json, "version", MM_VERSION);
	mm_json_put_text(json, "keeper", shell->upgrade.keeper);
	mm_json_put_text(json, "exe", shell->exe);
	mm_json_put(json, "builds", mm_builds_json(&shell->builds));
	mm_json_put_u64(json, "generation", shell->kept.front->head.generation);
	return json;
}

json_t *mm_upgrade_begin(void *context, const json_t *params, struct mm_rpc_error *error)
{
	struct mm_shell *shell = context;
	struct mm_shell_upgrade *u = &shell->upgrade;
	const char *exe = json_string_value(json_object_get(params, "exe"));
	struct mm_kmsg msg = { .op = MM_K_UPGRADE,
			       .flags = json_is_true(json_object_get(params, "check"))
						? MM_K_F_CHECK
						: 0 };
	int fd;

	if (!exe || *exe != '/' || strlen(exe) >= sizeof(msg.text))
		return mm_rpc_fail(error, MM_RPC_PARAMS, "exe: want the whole path of a file");
	if (u->state == MM_SHELL_UPGRADE_CHECKING || u->state == MM_SHELL_UPGRADE_LEAVING ||
	    u->state == MM_SHELL_UPGRADE_KEEPER)
		return mm_rpc_fail(error, MM_RPC_FAILED, "an upgrade is under way");
	if (!shell->ready)
		return mm_rpc_fail(error, MM_RPC_FAILED, "mmd is not ready yet");
	fd = mm_preflight_export(shell);
	if (fd < 0)
		return mm_rpc_fail(error, MM_RPC_FAILED, "no export can be made: %s",
				   strerror(-fd));
	snprintf(msg.text, sizeof(msg.text), "%s", exe);
	if (mm_kchan_send(&shell->keeper, &msg, &fd, 1) < 0)
		return mm_rpc_fail(error, MM_RPC_FAILED, "keeper cannot be reached");
	*u = (struct mm_shell_upgrade){ .state = MM_SHELL_UPGRADE_CHECKING };
	return mm_upgrade_show(context, NULL, error);
}

void mm_upgrade_on_answer(struct mm_shell *shell, const struct mm_kmsg *msg)
{
	struct mm_shell_upgrade *u = &shell->upgrade;

	if (u->state != MM_SHELL_UPGRADE_CHECKING)
		return; /* it was asked for by a core that has died */
	snprintf(u->text, sizeof(u->text), "%.*s", (int)sizeof(msg->text) - 1, msg->text);
	if (msg->result < 0)
		u->state = MM_SHELL_UPGRADE_REFUSED;
	else if (msg->flags & MM_K_F_CHECK)
		u->state = MM_SHELL_UPGRADE_CHECKED;
	else
		u->state = MM_SHELL_UPGRADE_LEAVING;
	shell->stopping |= u->state == MM_SHELL_UPGRADE_LEAVING;
}

void mm_upgrade_stands(struct mm_shell *shell, uint32_t flags)
{
	if (flags & MM_K_F_TAKEN_BACK)
		shell->upgrade.state = MM_SHELL_UPGRADE_TAKEN_BACK;
	if (!(flags & MM_K_F_UPGRADED))
		return;
	shell->upgrade.state = MM_SHELL_UPGRADE_KEEPER;
	mm_shell_send_keeper(shell, MM_K_STANDS, MM_ROLE_CORE, 0);
}

void mm_upgrade_on_build(struct mm_shell *shell, const struct mm_kmsg *msg)
{
	struct mm_shell_upgrade *u = &shell->upgrade;

	if (msg->result == 0)
		mm_builds_keeper(&shell->builds, msg->text);
	if (u->state != MM_SHELL_UPGRADE_KEEPER)
		return;
	u->state = MM_SHELL_UPGRADE_DONE;
	if (msg->result < 0)
		snprintf(u->keeper, sizeof(u->keeper), "%.*s", (int)sizeof(msg->text) - 1,
			 msg->text);
}

int mm_upgrade_leave(struct mm_shell *shell)
{
	for (uint32_t i = 0; i < shell->n_pools; i++)
		mm_pool_image_make(&shell->pool[i]);
	/* From here on another build may read it. */
	mm_kept_publish(&shell->kept.front->head.state, MM_BOOK_LEFT);
	mm_log(MM_LOG_INFO, "upgrade.leaving", "generation=%u", shell->kept.front->head.generation);
	mm_log_catch_up();
	return mm_held_sync(&shell->held) ? MM_CORE_REPLACED : 1;
}
