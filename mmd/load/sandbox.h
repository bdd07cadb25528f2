/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_sandbox - drops all rights that parsing untrusted files does not need
 *
 * Concept:   Closed once everything that needs rights is open: what mmd/common/rights.h does for
 *            every role, and limits of memory. The allow-list has no opening, sockets, processes or
 *            exec. The network is out of reach: there is no socket(), and the ring is restricted to
 *            reads.
 * Threading: one thread, before any other is started.
 * Limits:    in sanitizer builds there is no memory limit: their run-times reserve terabytes.
 */
#pragma once

#include "libclient/model/why.h"

/* Return: 0, or a refusal if any part of the sandbox failed; then nothing may be parsed. */
int mm_sandbox_close(struct mm_why *why);
