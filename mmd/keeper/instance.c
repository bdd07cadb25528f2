/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "mmd/common/log.h"
#include "mmd/keeper/spawn.h"

void mm_instance_send(struct mm_kchan *core, const struct mm_kmsg *msg, const int *fds,
		      size_t n_fds)
{
	int r = mm_kchan_send(core, msg, fds, n_fds);

	if (r < 0 && r != -ECONNRESET)
		mm_log(MM_LOG_ERROR, "core.unreachable", "op=%u error=%d", msg->op, r);
}

/* Return: 0; negative errno, and the caller closes those of @ret_fds that are not -1. */
static int instance_spawn(const struct mm_config *config, const struct mm_instance *instance,
			  pid_t *ret_pid, int *ret_fds)
{
	enum mm_role role = instance->role;
	struct mm_config own = *config;
	mm_cleanup(mm_close_fd) int child0 = -1;
	mm_cleanup(mm_close_fd) int child1 = -1;
	int pair[2], child[MM_SPAWN_FDS_MAX], r;

	r = mm_sock_pair(pair);
	if (r < 0)
		return r;
	ret_fds[0] = pair[0];
	child[0] = child0 = pair[1];
	if (role == MM_ROLE_LOAD) {
		r = mm_sock_pair(pair);
		if (r < 0)
			return r;
		ret_fds[1] = pair[0];
		child[1] = child1 = pair[1];
	}
	if (role == MM_ROLE_XFER)
		mm_config_one(config, instance->device, &own);
	return mm_spawn(&own, role, child, role == MM_ROLE_LOAD ? 2 : 1, ret_pid);
}

static struct mm_held_name instance_name(const struct mm_instance *instance)
{
	return (struct mm_held_name){ .kind = MM_HELD_PEER,
				      .index = mm_held_peer(instance->role, instance->device),
				      .id = instance->id };
}

/* A load ends with core, because nobody can take over what it does. */
static int instance_hold(struct mm_hold *hold, const struct mm_instance *instance, int fd)
{
	int copy;

	if (instance->role == MM_ROLE_LOAD)
		return 0;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return copy < 0 ? -errno : mm_hold_put(hold, instance_name(instance), copy);
}

void mm_instance_release(struct mm_hold *hold, const struct mm_instance *instance)
{
	mm_hold_drop(hold, instance_name(instance));
}

bool mm_instance_start(struct mm_kchan *core, struct mm_hold *hold, const struct mm_config *config,
		       const struct mm_instance *instance, pid_t *ret_pid)
{
	struct mm_kmsg msg = { .op = MM_K_STARTED,
			       .role = instance->role,
			       .device = instance->device,
			       .id = instance->id };
	int fds[MM_SPAWN_FDS_MAX] = { -1, -1 };
	int r = instance_spawn(config, instance, ret_pid, fds);

	/* Without the copy it runs all the same; only a successor of core has to kill it. */
	if (r == 0 && instance_hold(hold, instance, fds[0]) < 0)
		mm_log(MM_LOG_ERROR, "role.not_held", "what=%u", instance->role);
	if (r < 0) {
		mm_log(MM_LOG_ERROR, "role.start_failed", "what=%u error=%d", instance->role, r);
		mm_close_fd(&fds[0]);
		mm_close_fd(&fds[1]);
		return false;
	}
	msg.pid = *ret_pid;
	snprintf(msg.text, sizeof(msg.text), "%s", instance->build);
	mm_instance_send(core, &msg, fds, fds[1] >= 0 ? 2 : 1);
	return true;
}

void mm_instance_gone(struct mm_kchan *core, const struct mm_instance *instance, int status)
{
	struct mm_kmsg msg = { .op = MM_K_GONE,
			       .role = instance->role,
			       .device = instance->device,
			       .id = instance->id,
			       .result = status };

	mm_instance_send(core, &msg, NULL, 0);
}
