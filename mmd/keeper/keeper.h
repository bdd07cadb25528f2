/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper - the parent of all roles
 *
 * Concept:   Holds the directory's lock, the devices' locks and the listening sockets. Starts log
 *            and core, and at core's request xfer, loads and spools; accepts connections and passes
 *            them to core. What must survive core it holds as well (hold.h). It decides nothing and
 *            reads no byte that a tenant wrote, so nothing that a child or a tenant does can bring
 *            it down.
 * Lifetime:  SIGTERM, SIGINT or SIGQUIT: core ends the tenants' connections, then everything ends,
 *            exit 0. SIGHUP reads the files again (reload.h); SIGUSR1 and SIGUSR2 are logged and
 *            have no effect. Core dies:
 *            another one follows if it can go on (kcore.h), else everything ends, exit 1 (systemd
 *            starts mmd anew). xfer dies: it is started again when core requests it, after a pause
 *            that grows while it fails, and never before the old one was reaped.
 * Ownership: struct mm_keeper owns the channel to core, the locks, the sockets and the children.
 * Threading: one thread.
 * Limits:    MM_KEEPER_HELPERS_MAX loads and spools at once; connections are accepted only while a
 *            core serves, and its channel has room.
 */
#pragma once

#include "mmd/config/config.h"

/**
 * mm_keeper_main() - run mmd
 * @config: what was read of the command line
 * @argc:   of main
 * @argv:   of main; outlives the call
 *
 * Return: the exit status: 0 after an orderly stop, 1 otherwise, the reason on stderr.
 */
int mm_keeper_main(const struct mm_config *config, int argc, char **argv);

/**
 * mm_keeper_again() - go on as a keeper of another build (reexec.h)
 * @config: outlives the call
 * @argv:   of this process, for the other build
 *
 * Return: as mm_keeper_main().
 */
int mm_keeper_again(const struct mm_config *config, char **argv);
