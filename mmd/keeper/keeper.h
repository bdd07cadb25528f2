/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - the parent of all roles
 *
 * Concept:   Holds the directory's lock, those of the devices and the listening sockets, starts log
 *            and core, and on core's word xfer, loads and spools; accepts connections and hands
 *            them to core. It decides nothing and reads no byte that a tenant wrote, so nothing
 *            that a child or a tenant does can bring it down.
 * Lifetime:  SIGTERM, SIGINT or SIGQUIT: core ends the tenants' connections, then everything ends,
 *            exit 0. SIGHUP, SIGUSR1 and SIGUSR2 are logged and mean nothing yet. Core dies:
 *            everything ends, exit 1 (systemd starts anew). xfer dies: it is started again when
 *            core asks, after a growing pause while it fails; never before the old one was reaped.
 * Threading: one thread.
 * Limits:    MM_KEEPER_HELPERS_MAX loads and spools at once; connections are accepted only after
 *            core said READY, and only while core takes them.
 */
#pragma once

#include "mmd/config/config.h"

#define MM_KEEPER_HELPERS_MAX 256 /* more than core asks for: MM_LOADS_MAX and MM_SPOOLS_MAX */

/**
 * mm_keeper_main() - run mmd
 * @config: outlives the call
 *
 * Return: the exit status: 0 after an orderly stop, 1 otherwise, the reason on stderr.
 */
int mm_keeper_main(const struct mm_config *config);
