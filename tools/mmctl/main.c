/* SPDX-License-Identifier: Apache-2.0 */
/* main - mmctl: which socket, and which subcommand */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/mmctl/ctl.h"

#define PATH_BYTES 256

static mmctl_run_fn *const command_runs[MMCTL_COMMANDS] = {
	[MMCTL_STATUS] = mmctl_status_run,
	[MMCTL_EVENTS] = mmctl_events_run,
	[MMCTL_POOL_SHOW] = mmctl_pool_show_run,
	[MMCTL_PLAN_SHOW] = mmctl_plan_show_run,
	[MMCTL_PLAN_WHY] = mmctl_plan_why_run,
	[MMCTL_PLAN_SET] = mmctl_plan_set_run,
	[MMCTL_DEVICES] = mmctl_devices_run,
	[MMCTL_FOOTPRINT] = mmctl_footprint_run,
	[MMCTL_QUOTA_SHOW] = mmctl_quota_show_run,
	[MMCTL_QUOTA_SET] = mmctl_quota_set_run,
	[MMCTL_WAIT] = mmctl_wait_run,
	[MMCTL_DOCTOR] = mmctl_doctor_run,
	[MMCTL_EXPORTER] = mmctl_exporter_run,
	[MMCTL_UPGRADE] = mmctl_upgrade_run,
	[MMCTL_SHUTDOWN] = mmctl_shutdown_run,
	[MMCTL_REVOKE] = mmctl_revoke_run,
	[MMCTL_DRAIN] = mmctl_drain_run,
	[MMCTL_ACTIVATE] = mmctl_activate_run,
	[MMCTL_PIN] = mmctl_pin_run,
	[MMCTL_UNPIN] = mmctl_unpin_run,
	[MMCTL_PLAN_ESTIMATE] = mmctl_plan_estimate_run,
	[MMCTL_MPS_START] = mmctl_mps_start_run,
	[MMCTL_MPS_STOP] = mmctl_mps_stop_run,
	[MMCTL_MPS_STATUS] = mmctl_mps_status_run,
	[MMCTL_MPS_LIMIT] = mmctl_mps_limit_run,
	[MMCTL_MIG_LIST] = mmctl_mig_list_run,
	[MMCTL_MIG_CREATE] = mmctl_mig_create_run,
	[MMCTL_MIG_DESTROY] = mmctl_mig_destroy_run,
	[MMCTL_TOP] = mmctl_top_run,
	[MMCTL_LIST] = mmctl_list_run,
	[MMCTL_CONFIG_SHOW] = mmctl_config_show_run,
	[MMCTL_CONFIG_RELOAD] = mmctl_config_reload_run,
};

static const char root_folder[] = "/run/mmd";

/*
 * The folder of mmd's sockets if no option names one. An ordinary user without an mmd of its own
 * looks at root's, if that lets anybody look. Return: whether there is a default.
 */
static bool folder_default(char *folder)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char path[PATH_BYTES];
	bool own = false;

	if (geteuid() != 0 && runtime) {
		snprintf(folder, PATH_BYTES, "%s/mmd", runtime);
		snprintf(path, sizeof(path), "%.200s/admin.sock", folder);
		own = access(path, F_OK) == 0;
	}
	if (geteuid() == 0 || (!own && access("/run/mmd/view.sock", F_OK) == 0))
		snprintf(folder, PATH_BYTES, "%s", root_folder);
	else if (!runtime)
		return false;
	return true;
}

/* Writes the paths of both sockets; "" for those that there are not. */
static int socket_paths(const struct mmctl_options *o, char *path, char *view)
{
	char folder[PATH_BYTES];
	int n = 0, n_view = 0;

	*path = *view = 0;
	if (o->socket) {
		n = snprintf(path, PATH_BYTES, "%s", o->socket);
	} else if (o->dir || folder_default(folder)) {
		n = snprintf(path, PATH_BYTES, "%s/admin.sock", o->dir ? o->dir : folder);
		n_view = snprintf(view, PATH_BYTES, "%s/view.sock", o->dir ? o->dir : folder);
	} /* else a command that needs it reports it */
	if (n < 0 || n >= PATH_BYTES || n_view < 0)
		return mmctl_error(MM_EXIT_USAGE, "--socket: longer than a socket's path may be");
	return MM_EXIT_DONE;
}

int main(int argc, char **argv)
{
	struct mmctl_options options;
	struct mm_opt_line line;
	char path[PATH_BYTES], view[PATH_BYTES];
	struct mmctl ctl;
	int r = mmctl_options_parse(argc, argv, &options, &line);

	if (r >= 0)
		return r;
	r = socket_paths(&options, path, view);
	if (r != MM_EXIT_DONE)
		return r;
	ctl = (struct mmctl){ .options = &options,
			      .socket = path,
			      .view = *view ? view : NULL,
			      .json = options.json,
			      .device = options.device,
			      .uuid = options.uuid };
	return mm_opt_flush(&mmctl_program, command_runs[line.command](&ctl, line.argc, line.argv));
}
