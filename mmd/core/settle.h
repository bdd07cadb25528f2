/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settle - does everything that an event has made possible
 *
 * Concept:    An event changes state, then settling does everything that has become possible. It is
 *             idempotent: a second settling without an event in between does nothing.
 * Queue:      it is empty when an event arrives, unless the event's function allows otherwise: the
 *             shell has performed all actions of the event before. mm_core_next() settles again if
 *             a unit of settling found no room in the queue.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Begins an event: asserts that the queue is empty and advances the core's time to @now_ns. */
void mm_c_event_begin(struct mm_core *c, uint64_t now_ns);
/* Settles at @now_ns. */
void mm_c_settle(struct mm_core *c, uint64_t now_ns);
