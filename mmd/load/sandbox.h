/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_sandbox - what is left to a process that parses strangers' files
 *
 * Concept:   Closed after everything that needs rights is open: no new privileges, no core dump, no
 *            gdb, an unprivileged uid where we are root, limits, and a seccomp allow-list without
 *            opening, sockets, processes or exec (other calls fail with EPERM). There is no
 *            network because there is no socket() and the ring is restricted to reads.
 * Limits:    in sanitizer builds there is no seccomp filter and no memory limit: their run-times
 *            make system calls of their own and reserve terabytes. Uid and no-new-privileges apply
 *            there too.
 */
#pragma once

#include "libclient/model/why.h"

/* A refusal where any part of it cannot be had: without it nothing is parsed. */
int mm_sandbox_close(struct mm_why *why);
