/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_sandbox - drops all rights that parsing untrusted files does not need
 *
 * Concept:   Closed once everything that needs rights is open: no new privileges, no core dump, no
 *            debugger, an unprivileged uid if the process is root, limits, and a seccomp allow-list
 *            without opening, sockets, processes or exec (other calls fail with EPERM). The network
 *            is out of reach: there is no socket(), and the ring is restricted to reads.
 * Threading: one thread, before any other is started.
 * Limits:    in sanitizer builds there is no seccomp filter and no memory limit: their run-times
 *            make system calls of their own and reserve terabytes. Uid and no-new-privileges apply
 *            there too.
 */
#pragma once

#include "libclient/model/why.h"

/* Return: 0, or a refusal if any part of the sandbox failed; then nothing may be parsed. */
int mm_sandbox_close(struct mm_why *why);
