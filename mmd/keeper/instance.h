/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance - one process of a role, as core knows it: its start and its end
 *
 * Concept:   keeper starts an instance with the sockets that its role needs, and passes core's ends
 *            to core with the report. core names instances by role and id, an xfer by its device
 *            and epoch.
 * Ownership: core's ends of the sockets go to core; the child has its own. The caller reaps the
 *            process.
 * Threading: keeper's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "mmd/common/kchan.h"
#include "mmd/config/config.h"
#include "mmd/keeper/hold.h"

struct mm_instance {
	enum mm_role role;
	uint32_t device;   /* of an xfer: its index in the configuration */
	uint64_t id;       /* an xfer's epoch; else the id of the load or of the spool's store */
	const char *build; /* that it runs; only for its start */
};

/*
 * Sends to core; @fds are taken over. When the channel is broken the message is dropped: core is
 * dead, and SIGCHLD reports that.
 */
void mm_instance_send(struct mm_kchan *core, const struct mm_kmsg *msg, const int *fds,
		      size_t n_fds);

/**
 * mm_instance_start() - start a role and report it to core
 * @core:     the channel to core
 * @hold:     gets a copy of core's end of an xfer or spool, so that core's end is not theirs
 * @config:   keeper's; the instance gets it as flags
 * @instance: a load, a spool or an xfer
 * @ret_pid:  written only on success
 *
 * Return: false: it could not be started, which was logged; the caller calls mm_instance_gone().
 */
bool mm_instance_start(struct mm_kchan *core, struct mm_hold *hold, const struct mm_config *config,
		       const struct mm_instance *instance, pid_t *ret_pid);

/* Drops the copy of core's end, once the instance was reaped. */
void mm_instance_release(struct mm_hold *hold, const struct mm_instance *instance);

/* Reports the end of an instance to core; @status is the wait status. */
void mm_instance_gone(struct mm_kchan *core, const struct mm_instance *instance, int status);
