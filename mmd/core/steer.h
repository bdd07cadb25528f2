/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steer - what the operator has a tenant do, until it is done
 *
 * Concept:    A revoke is a level of KV that the ladder takes the tenant down to, with its deadline
 *             and what follows it; it is granted nothing above that level meanwhile. A tenant that
 *             drains is granted nothing more, is told to leave (MM_EV_LEAVE), and loses its
 *             connection when its time is over. A pin and an activation are plans of no layers away
 *             that come before others; an activation ends when the layers are at home, or with the
 *             time that a model waits for pages at most.
 * Ownership:  a part of the tenant; that of a model ends with the model.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Begins to drain @t, or changes when its connection is closed, and tells it. */
void mm_c_steer_drain(struct mm_core *c, struct mm_c_tenant *t, uint64_t until_ns);
/* Part of settling: ends what is done, and acts on times that have passed. */
void mm_c_steer_settle(struct mm_core *c, struct mm_c_tenant *t);
/* Returns when the first of these times passes; UINT64_MAX: there is none. */
uint64_t mm_c_steer_deadline(const struct mm_core *c);
