/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - brings one model's files into a host store, in a sandbox of its own
 *
 * Concept:   One process per model load. It gets the files as fds from the tenant, which opened
 *            them with its own rights; accepts regular files on known file systems only; parses
 *            their headers; agrees with core on the store; fills it and exits. Core trusts none of
 *            its messages until the process is reaped and core has checked the directory.
 * Threading: one thread, and short-lived ones that fault the store's memory in.
 * Life:      ends after one load, at the end of either socket before the store is agreed on, or
 *            when the tenant is silent for 10 s while its files are awaited.
 */
#pragma once

/**
 * mm_load_main() - run the role
 * @core_fd:   socket with core (struct mm_lmsg); taken over
 * @tenant_fd: socket with the tenant (struct mm_load_file, struct mm_load_status); taken over
 *
 * Return: the exit status: 0 the store is filled or was there already; 1 refused; the reason went
 * out on both sockets.
 */
int mm_load_main(int core_fd, int tenant_fd);
