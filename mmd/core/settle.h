/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settle - what every event ends with
 *
 * Concept:    An event changes state, then settling does everything that has become possible. It is
 *             idempotent: settling twice without an event between does nothing the second time.
 * Queue:      empty when an event comes, but for those that say otherwise: what the event before
 *             set going was performed. mm_core_next() settles again where a unit found no room.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* An event comes: time goes on. */
void mm_c_enter(struct mm_core *c, uint64_t now_ns);
void mm_c_settle(struct mm_core *c, uint64_t now_ns);
